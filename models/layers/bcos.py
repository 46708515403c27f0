"""The B-cos transformation: a linear map whose output is scaled down where weight and input do not align.

    B-cos(x; w) = ŵ·x · |cos(x, w)|^(B-1),   ŵ = w/‖w‖          (B-cos v2, Eq. 4; MaxOut: Eq. 18)

The numerical constants are those of the published package, so that released weights give the released outputs.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.explain.checkpointing import marked
from scs_eval.models.explain.dynamic_linear import explaining
from scs_eval.models.layers.convolution import lengths, patch_energy, per_channel, prepare, unit_kernels
from scs_eval.models.layers.kernels.bcos import EPS, BcosSettings, aligned, largest
from scs_eval.models.layers.kernels.dispatch import aligned_convolution
from scs_eval.models.layers.learned_b import learned_exponent, learns, take_learned_b, with_exponent
from scs_eval.models.layers.scs import PaddingMode, Size


class BcosConv2d(nn.Conv2d):
    """B-cos convolution: y = γ · u · (|u| / ‖patch‖)^(B-1) with u = ŵ·patch, the largest of `max_out` kernels per unit.

    `scale` is the paper's γ (C.1.1). The weight is (O · max_out, C/groups, kh, kw), the kernels of a unit side by side.
    State dicts with `linear.weight`, the published layout, load as well. With unit_norm=False the kernel keeps its
    length, y = γ · ‖w‖ · u · (|u| / ‖patch‖)^(B-1), and with `bias` it keeps its bias: at B = 1 a convolution, from
    which B-cosification starts (Arya et al. 2024). With learn_b, training moves B, of which `b` is the start.
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
        unit_norm: bool = True,
        bias: bool = False,
        learn_b: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check(b, max_out, unit_norm=unit_norm, bias=bias)
        kernels = out_channels * max_out
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            in_channels, kernels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, **factory
        )
        self.b, self.max_out, self.scale, self.unit_norm = b, max_out, scale, unit_norm
        self.learned_b = learned_exponent(self, b, **factory) if learn_b else None
        self.register_load_state_dict_pre_hook(accept_published_key)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w)."""
        x, at = prepare(x, self)
        y = aligned_convolution(x, unit_kernels(self.weight), BcosSettings(at, self.b, self.max_out, self.scale))
        if self.learned_b is not None and learns(self):
            with torch.no_grad():
                norm = (patch_energy(x, at, as_published=True) + EPS).sqrt()
            y = with_exponent(y, self.scale * per_channel(norm, y.shape[-3]), self.b, self.learned_b)
        y = y if self.unit_norm else y * lengths(self.weight)[:, None, None]
        return y if self.bias is None else y + self.bias[:, None, None]

    def constrain_(self) -> None:
        """Compute with the B that was learned; called after an optimiser's step."""
        take_learned_b(self)

    def extra_repr(self) -> str:
        """The convolution and B."""
        return super().extra_repr().replace(", bias=False", "") + _options(self)


class BcosLinear(nn.Linear):
    """B-cos linear layer: y = γ · u · (|u| / ‖x‖)^(B-1) with u = ŵ·x, the largest of `max_out` rows per unit.

    As published, ‖x‖ is stabilised by 1e-12 outside the root, so tiny inputs differ from a 1×1 BcosConv2d. unit_norm
    and bias as there.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        b: float = 2.0,
        max_out: int = 1,
        scale: float = 1.0,
        unit_norm: bool = True,
        bias: bool = False,
        learn_b: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check(b, max_out, unit_norm=unit_norm, bias=bias)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(in_features, out_features * max_out, bias=bias, **factory)
        self.b, self.max_out, self.scale, self.unit_norm = b, max_out, scale, unit_norm
        self.learned_b = learned_exponent(self, b, **factory) if learn_b else None
        self.register_load_state_dict_pre_hook(accept_published_key)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) to (…, O)."""
        out = largest(F.linear(x, unit_kernels(self.weight)), self.max_out, dim=-1)
        if self.b != 1:
            norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-12
            out = marked(aligned(out, norm, self.b), explaining())
        if self.learned_b is not None and learns(self):
            norm = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) + 1e-12
            out = with_exponent(out, norm, self.b, self.learned_b)
        out = out if self.scale == 1 else out * self.scale
        out = out if self.unit_norm else out * lengths(self.weight)
        return out if self.bias is None else out + self.bias

    def constrain_(self) -> None:
        """Compute with the B that was learned; called after an optimiser's step."""
        take_learned_b(self)

    def extra_repr(self) -> str:
        """The linear layer and B."""
        return super().extra_repr().replace(", bias=False", "") + _options(self)


def accept_published_key(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Rename the published package's `linear.weight` to `weight` before loading."""
    if f"{prefix}linear.weight" in state:
        state[f"{prefix}weight"] = state.pop(f"{prefix}linear.weight")


def _check(b: float, max_out: int, *, unit_norm: bool, bias: bool) -> None:
    if not b >= 1:
        raise ValueError(f"expected B of at least 1 (1 is a linear layer), got {b}")
    if max_out < 1:
        raise ValueError(f"expected max_out of at least 1 (1 is no MaxOut), got {max_out}")
    if bias and unit_norm:
        raise ValueError("a B-cos layer has no bias; only one that keeps its kernels' length (unit_norm=False) may")
    if max_out > 1 and not unit_norm:
        raise ValueError("expected kernels of unit norm with MaxOut, which compares them")


def _options(layer: Any) -> str:
    shown: Mapping[str, float] = {"B": layer.b, "max_out": layer.max_out, "scale": layer.scale}
    return "".join(f", {name}={value:g}" for name, value in shown.items() if name == "B" or value != 1)
