"""The optimiser and the learning rate over the steps."""

import math

from torch import nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from scs_eval.training.recipe import Recipe

WARMUP_FROM = 0.01  # share of lr at which a warm-up begins, as in B-cos v2


def make_optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    """The recipe's optimiser over all parameters, fused into one kernel where torch can."""
    parameters = list(model.parameters())
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    if recipe.optimizer == "sgd":
        return optim.SGD(
            parameters, lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay, fused=fused
        )
    kind = optim.Adam if recipe.optimizer == "adam" else optim.AdamW
    return kind(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused)


def make_schedule(recipe: Recipe, optimizer: Optimizer, *, steps_per_epoch: int) -> LRScheduler:
    """torch's OneCycleLR (which moves Adam's beta1 too), or warm-up and cosine; both are stepped after every batch."""
    total = recipe.epochs * steps_per_epoch
    if recipe.schedule == "onecycle":
        return OneCycleLR(optimizer, max_lr=recipe.lr, total_steps=total)
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    floor = recipe.final_lr / recipe.lr
    return LambdaLR(optimizer, lambda step: warmup_cosine(step, warmup=warmup, total=total, floor=floor))


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float) -> float:
    """Share of the learning rate: linear from WARMUP_FROM to 1 in `warmup` steps, then half a cosine to `floor`."""
    if step < warmup:
        return WARMUP_FROM + (1 - WARMUP_FROM) * step / warmup
    return floor + (1 - floor) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2
