"""Muon for convolution kernels (Jordan et al. 2024), Adam for every other parameter.

torch.optim.Muon takes matrices only and multiplies them in bfloat16; kernels are 4-D, and on a CPU float32 is faster.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan's quintic: singular values between 0.01 and 1 end near 1
ITERATIONS = 3  # as in airbench for CIFAR-10; more cost time and gain nothing there
BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
LIMIT, MEMORY = 4.0, 0.95  # a gradient's largest length, in running means of its length, and how long these remember


class MuonAdam(Optimizer):
    """Kernels move along the orthogonalised direction of Nesterov momentum, so a step has the same size in every layer.

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
