"""The B-cos transformation: a linear map whose answer is scaled down where weight and input do not align.

    B-cos(x; w) = ŵ·x · |cos(x, w)|^(B-1),   ŵ = w/‖w‖          (B-cos v2, Eq. 4; MaxOut: Eq. 18)

The numerical constants are those of the published package, so that released weights give the released answers.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.layers.alignment import Plan, aligned, aligned_convolution, largest
from scs_eval.models.layers.convolution import prepare, unit_kernels
from scs_eval.models.layers.scs import PaddingMode, Size


class BcosConv2d(nn.Conv2d):
    """B-cos convolution: y = γ · u · (|u| / ‖patch‖)^(B-1) with u = ŵ·patch, the largest of `max_out` kernels per unit.

    `scale` is the paper's γ (C.1.1). The weight is (O · max_out, C/groups, kh, kw), the kernels of a unit side by side.
    State dicts with `linear.weight`, the published layout, load as well.
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
        b: float = 2.0,
        max_out: int = 1,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check(b, max_out)
        kernels = out_channels * max_out
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            in_channels, kernels, kernel_size, stride, padding, dilation, groups, False, padding_mode, **place
        )
        self.b, self.max_out, self.scale = b, max_out, scale
        self.register_load_state_dict_pre_hook(accept_published_key)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w)."""
        x, at = prepare(x, self)
        return aligned_convolution(x, unit_kernels(self.weight), Plan(at, self.b, self.max_out, self.scale))

    def extra_repr(self) -> str:
        """The convolution and B."""
        return super().extra_repr().replace(", bias=False", "") + _options(self)


class BcosLinear(nn.Linear):
    """B-cos linear layer: y = γ · u · (|u| / ‖x‖)^(B-1) with u = ŵ·x, the largest of `max_out` rows per unit.

    As published, ‖x‖ is stabilised by 1e-12 outside the root, so tiny inputs differ from a 1×1 BcosConv2d.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        b: float = 2.0,
        max_out: int = 1,
        scale: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check(b, max_out)
        super().__init__(in_features, out_features * max_out, bias=False, device=device, dtype=dtype)
        self.b, self.max_out, self.scale = b, max_out, scale
        self.register_load_state_dict_pre_hook(accept_published_key)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) to (…, O)."""
        out = largest(F.linear(x, unit_kernels(self.weight)), self.max_out, dim=-1)
        if self.b != 1:
            norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-12
            out = aligned(out, norm, self.b)
        return out if self.scale == 1 else out * self.scale

    def extra_repr(self) -> str:
        """The linear layer and B."""
        return super().extra_repr().replace(", bias=False", "") + _options(self)


def accept_published_key(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Rename the published package's `linear.weight` to `weight` before loading."""
    if f"{prefix}linear.weight" in state:
        state[f"{prefix}weight"] = state.pop(f"{prefix}linear.weight")


def _check(b: float, max_out: int) -> None:
    if not b >= 1:
        raise ValueError(f"expected B of at least 1 (1 is a linear layer), got {b}")
    if max_out < 1:
        raise ValueError(f"expected max_out of at least 1 (1 is no MaxOut), got {max_out}")


def _options(layer: Any) -> str:
    shown: Mapping[str, float] = {"B": layer.b, "max_out": layer.max_out, "scale": layer.scale}
    return "".join(f", {name}={value:g}" for name, value in shown.items() if name == "B" or value != 1)
