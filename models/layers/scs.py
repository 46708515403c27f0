"""Sharpened cosine similarity and its ablations, with the signature of nn.Conv2d.

Source: Rohrer's sharpened-cosine-similarity; Wu et al. 2023, section 1 (SCS), 4.2 (cosine), 5 (SharpenedSDP).
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scs_eval.models.layers.convolution import prepare, unit_kernels
from scs_eval.models.layers.kernels.dispatch import sharpened_convolution
from scs_eval.models.layers.kernels.scs import ScsSettings
from scs_eval.models.layers.pooling import MaxAbsPool2d, Pool

Size = int | tuple[int, int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
Q = 1e-3  # at the start, as in the newest of Rohrer's layers; older ones began with 0.37


class SharpenedSDP2d(nn.Conv2d):
    """Sharpened strided dot product: y = sign(u) (|u| + eps)^p with u = w·x; p is learned per kernel unless given.

    `relu` and `pool` (MaxPool2d or MaxAbsPool2d) belong to the layer because they commute with sharpening and are four
    times cheaper before it: the output is relu(pool(y)). p is held at 0.1 or above.
    """

    p: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | Literal["same", "valid"] = 0,
        dilation: Size = 1,
        groups: int = 1,
        padding_mode: PaddingMode = "zeros",
        *,
        p: float | None = None,
        relu: bool = False,
        pool: Pool | None = None,
        eps: float = 1e-6,
        p_min: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if pool is not None and not isinstance(pool, nn.MaxPool2d | MaxAbsPool2d):
            raise TypeError(f"pool must be MaxPool2d or MaxAbsPool2d, which commute with sharpening; got {pool!r}")
        if p is not None and not (math.isfinite(p) and p > 0):
            raise ValueError(f"expected a positive exponent p, got {p}")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode, **factory
        )
        self.fixed_p, self.eps, self.p_min = p, eps, p_min
        self.relu, self.pool = relu, pool
        exponents = torch.full((1, out_channels, 1, 1), 2.0 if p is None else p, **factory)
        if p is None:
            self.p = nn.Parameter(exponents)
            nn.init.uniform_(self.p, 1.0, 3.0)
        else:
            self.register_buffer("p", exponents, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w), pooled if the layer has a pool."""
        return self._respond(x, self.weight, None)

    def _respond(self, x: Tensor, weight: Tensor, q: Tensor | None) -> Tensor:
        x, at = prepare(x, self)
        p = self.p if self.fixed_p is not None else held(self.p, self.p_min, None)
        return sharpened_convolution(x, weight, p, q, ScsSettings(at, self.relu, self.pool, self.eps))

    @torch.no_grad()
    def constrain_(self) -> None:
        """Put learned exponents back where the forward pass holds them; called after an optimiser's step."""
        if self.fixed_p is None:
            self.p.clamp_(min=self.p_min)

    def extra_repr(self) -> str:
        """The convolution, the exponent if it is fixed, and the ReLU."""
        fixed = "" if self.fixed_p is None else f", p={self.fixed_p:g}"
        return super().extra_repr().replace(", bias=False", "") + fixed + (", relu=True" if self.relu else "")


class SCS2d(SharpenedSDP2d):
    """Sharpened cosine similarity: y = sign(c) (|c| + eps)^p with c = (w/‖w‖)·x / (sqrt(Σ_patch x² + eps) + q).

    Parameters as in Rohrer's layer, whose state dict loads: `weight`, `p` (1, O, 1, 1), `log_q` (1, 1, 1, 1) with
    q = exp(log_q). Weights are held in [-w_max, w_max] and start there uniformly.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | Literal["same", "valid"] = 0,
        dilation: Size = 1,
        groups: int = 1,
        padding_mode: PaddingMode = "zeros",
        *,
        p: float | None = None,
        q: float = Q,
        w_max: float = 1.0,
        relu: bool = False,
        pool: Pool | None = None,
        eps: float = 1e-6,
        p_min: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.w_max = w_max
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode,
            p=p, relu=relu, pool=pool, eps=eps, p_min=p_min, device=device, dtype=dtype,
        )  # fmt: skip
        self.log_q = nn.Parameter(torch.full((1, 1, 1, 1), math.log(q), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Kernels uniform in [-w_max, w_max]."""
        nn.init.uniform_(self.weight, -self.w_max, self.w_max)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w), pooled if the layer has a pool."""
        weight = unit_kernels(held(self.weight, -self.w_max, self.w_max))
        return self._respond(x, weight, self.log_q.exp())

    @torch.no_grad()
    def constrain_(self) -> None:
        """Put weights and exponents back where the forward pass holds them; called after an optimiser's step."""
        super().constrain_()
        self.weight.clamp_(-self.w_max, self.w_max)


class CosineSim2d(SCS2d):
    """Unsharpened cosine similarity: SCS with p fixed to 1; arguments as SCS2d without `p`."""

    def __init__(self, *conv: Any, **options: Any) -> None:
        super().__init__(*conv, p=1.0, **options)


def held(parameter: Tensor, low: float | None, high: float | None) -> Tensor:
    """The parameter clamped, its gradient not: the value stops at the limit, learning does not.

    Rohrer's layer overwrites its parameters in the forward pass to the same effect; here the forward pass writes
    nothing, and `constrain_` does the overwriting between optimiser steps.
    """
    return parameter + (parameter.clamp(low, high) - parameter).detach()


def constrain_(model: nn.Module) -> None:
    """Let every layer of `model` that limits its parameters put them back within the limits."""
    for module in model.modules():
        if callable(constrain := getattr(module, "constrain_", None)):
            constrain()
