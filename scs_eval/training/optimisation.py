"""The optimiser, the learning rate over the steps, gradient clipping and the moving average of the weights."""

import math
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from scs_eval.training.muon import MuonAdam
from scs_eval.training.recipe import Recipe

WARMUP_FROM = 0.01  # share of lr at which a warm-up begins, as in B-cos v2


def make_optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    """The recipe's optimiser over all parameters, fused into one kernel where torch can."""
    groups = _groups(recipe, model)
    fused = all(p.device.type in ("cpu", "cuda") for p in model.parameters())
    numbers: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "muon":
        return MuonAdam(groups, momentum=recipe.momentum)
    if recipe.optimizer == "sgd":
        return optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.momentum > 0, fused=fused, **numbers)
    kind = optim.Adam if recipe.optimizer == "adam" else optim.AdamW
    return kind(groups, fused=fused, **numbers)


def _groups(recipe: Recipe, model: nn.Module) -> list[dict[str, Any]]:
    """The parameters by learning rate: kernels where the optimiser treats them apart, p and q, and all others first.

    A recipe that makes no difference between them gets one group.
    """
    kernels, exponents, others = [], [], []
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        if recipe.optimizer == "muon" and parameter.ndim == 4 and leaf == "weight":
            kernels.append(parameter)
        elif recipe.exponent_lr != 1 and leaf in ("p", "log_q"):
            exponents.append(parameter)
        else:
            others.append(parameter)
    decay = 0.0 if recipe.optimizer == "muon" else recipe.weight_decay
    groups = [
        {"params": others, "lr": recipe.lr, "weight_decay": decay},
        {"params": exponents, "lr": recipe.lr * recipe.exponent_lr, "weight_decay": 0.0},
        {"params": kernels, "lr": recipe.kernel_lr, "weight_decay": recipe.weight_decay, "orthogonal": True},
    ]
    return [group for group in groups if group["params"]]


def make_schedule(recipe: Recipe, optimizer: Optimizer, *, steps_per_epoch: int) -> LRScheduler:
    """torch's OneCycleLR (which moves Adam's beta1 too), warm-up and cosine, or 1; stepped after every batch."""
    total = recipe.epochs * steps_per_epoch
    if recipe.schedule == "onecycle":
        largest = [group["lr"] for group in optimizer.param_groups]
        return OneCycleLR(optimizer, max_lr=largest, total_steps=total, cycle_momentum=recipe.optimizer != "muon")
    if recipe.schedule == "constant":
        return LambdaLR(optimizer, lambda step: 1.0)
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    floor = recipe.final_lr / recipe.lr
    return LambdaLR(optimizer, lambda step: warmup_cosine(step, warmup=warmup, total=total, floor=floor))


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float) -> float:
    """Share of the learning rate: linear from WARMUP_FROM to 1 in `warmup` steps, then half a cosine to `floor`."""
    if step < warmup:
        return WARMUP_FROM + (1 - WARMUP_FROM) * step / warmup
    return floor + (1 - floor) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


EPS = 1e-3  # the norm that an all-zero weight is treated as having


def unit_norm(values: Tensor) -> Tensor:
    """The L2 norm per output unit (all dimensions but the first), kept broadcastable; of a vector as a whole."""
    if values.ndim <= 1:
        return torch.linalg.vector_norm(values)
    return torch.linalg.vector_norm(values, dim=tuple(range(1, values.ndim)), keepdim=True)


@torch.no_grad()
def clip_adaptively(model: nn.Module, *, share: float) -> None:
    """Shorten every unit's gradient g to at most share · max(‖w‖, EPS), in place."""
    for weight in model.parameters():
        if weight.grad is not None:
            longest = share * unit_norm(weight).clamp(min=EPS)
            weight.grad.mul_((longest / unit_norm(weight.grad).clamp(min=1e-6)).clamp(max=1))


class WeightAverage:
    """An average that begins anew as long as the learning rate warms up, so that no early weights stay in it."""

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.recipe = recipe
        self.averaged = AveragedModel(
            model, multi_avg_fn=get_ema_multi_avg_fn(decay_per_update(recipe)), use_buffers=True
        )

    def update(self, model: nn.Module, *, epoch: int, step: int) -> None:
        """Take in the weights after a step, if it is one of those that count."""
        if step % self.recipe.ema_every:
            return
        self.averaged.update_parameters(model)
        if epoch - 1 < self.recipe.warmup_epochs:
            self.averaged.n_averaged.zero_()  # the next update then takes the weights as they are

    @property
    def begun(self) -> bool:
        """Whether there is an average yet."""
        return self.averaged.n_averaged.item() > 0

    @property
    def module(self) -> nn.Module:
        """The model with averaged weights."""
        return self.averaged.module


def decay_per_update(recipe: Recipe) -> float:
    """How much of the old average an update keeps.

    A published decay belongs to one image and one epoch, as in torchvision's recipes, which B-cos v2 follows:
    0.99998 at batch 1024, an update every 32 steps and 600 epochs is 0.9989 for each update. Taken as it stands it
    would leave most of the first weights in the average after 600 epochs.
    """
    share = (1 - recipe.ema_decay) * recipe.batch_size * recipe.ema_every / recipe.epochs
    return 1 - min(1.0, share)
