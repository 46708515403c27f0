"""Optimisers (Muon too), the learning rate over the steps, gradient clipping and the moving average of the weights."""

import math
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

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
    """The parameters by learning rate: kernels where the optimiser treats them apart, p, q and B, and all others first.

    A recipe that makes no difference between them gets one group.
    """
    kernels, exponents, others = [], [], []
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        if recipe.optimizer == "muon" and parameter.ndim == 4 and leaf == "weight":
            kernels.append(parameter)
        elif recipe.exponent_lr != 1 and leaf in ("p", "log_q", "learned_b"):
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


COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan's quintic: singular values between 0.01 and 1 end near 1
ITERATIONS = 3  # as in airbench for CIFAR-10; more cost time and gain nothing there
BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
LIMIT, MEMORY = 4.0, 0.95  # a gradient's largest length, in running means of its length, and how long these remember


class MuonAdam(Optimizer):
    """Muon for convolution kernels (Jordan et al. 2024), Adam for every other parameter.

    torch.optim.Muon takes matrices only and multiplies them in bfloat16; kernels are 4-D, and on a CPU float32 is
    faster. Kernels move along the orthogonalised direction of Nesterov momentum, so a step has the same size in every
    layer.

    A group with `orthogonal` holds kernels (O, C, kh, kw); all others are for Adam. One object for both, so that
    schedules and checkpoints see one optimiser. Weight decay is decoupled.

    A gradient much longer than usual is shortened. SharpenedSDP raises sums to powers, so that one image in thousands
    may give a gradient ten thousand times as long; it alone would make up the momentum for the next 180 steps.
    """

    def __init__(self, groups: list[dict[str, Any]], *, momentum: float, weight_decay: float = 0.0) -> None:
        super().__init__(groups, {"momentum": momentum, "weight_decay": weight_decay, "orthogonal": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            update = self._muon if group["orthogonal"] else self._adam
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._shorten(parameter)
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(update(parameter, group), alpha=group["lr"])

    def _shorten(self, parameter: Tensor) -> None:
        """Hold the gradient to LIMIT times the running mean of its length."""
        assert parameter.grad is not None
        length, state = parameter.grad.norm(), self.state[parameter]
        usual = state.setdefault("usual_length", length.clone())
        kept = torch.minimum(length, LIMIT * usual)
        parameter.grad.mul_(kept / length.clamp(min=torch.finfo(length.dtype).tiny))
        usual.lerp_(kept, 1 - MEMORY)

    def _muon(self, kernel: Tensor, group: dict[str, Any]) -> Tensor:
        state, gradient = self.state[kernel], kernel.grad
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        state["momentum"].mul_(group["momentum"]).add_(gradient)
        return orthogonal_update(gradient.add(state["momentum"], alpha=group["momentum"]))

    def _adam(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if "step" not in state:
            state.update(step=0, mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
        state["step"] += 1
        state["mean"].lerp_(gradient, 1 - BETAS[0])
        state["square"].lerp_(gradient.square(), 1 - BETAS[1])
        mean = state["mean"] / (1 - BETAS[0] ** state["step"])
        square = state["square"] / (1 - BETAS[1] ** state["step"])
        return mean / square.sqrt_().add_(ADAM_EPS)


def orthogonal_update(direction: Tensor) -> Tensor:
    """The direction (O, C, kh, kw) as a matrix with a row per kernel, orthogonalised; longer if it is tall.

    The kernels of a depthwise layer (C = 1) share no inputs: each is a matrix of its own, and only gets length one.
    """
    rows = direction.flatten(1)
    if direction.shape[1] == 1:
        return (rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-7)).view_as(direction)
    scale = max(1.0, len(rows) / rows.shape[1]) ** 0.5
    return orthogonalise(rows).mul_(scale).view_as(direction)


def orthogonalise(matrix: Tensor, *, iterations: int = ITERATIONS) -> Tensor:
    """Roughly U Vᵀ of the singular value decomposition U S Vᵀ, by Newton-Schulz iterations."""
    a, b, c = COEFFICIENTS
    wide = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    x = wide / matrix.norm().clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.T.contiguous()
