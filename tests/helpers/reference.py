"""Slow, obvious versions of the layers in terms of patches, for float64. Nothing here calls the code under test."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def patches(x: Tensor, kernel, stride=1, padding=0, dilation=1, groups=1, padding_mode="zeros") -> tuple[Tensor, tuple]:
    """(N, C, H, W) to (N, groups, places, values of the patch), and the (h, w) of the places."""
    (kh, kw), (sh, sw), (dh, dw) = pair(kernel), pair(stride), pair(dilation)
    if padding == "same":  # torch puts the odd pixel at the end
        total = (dh * (kh - 1), dw * (kw - 1))
        sides = (total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2)
    else:
        ph, pw = (0, 0) if padding == "valid" else pair(padding)
        sides = (pw, pw, ph, ph)
    x = F.pad(x, sides, mode="constant" if padding_mode == "zeros" else padding_mode)
    n, _c, height, width = x.shape
    h, w = (height - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1
    rows = []
    for i in range(h):
        for j in range(w):
            top, left = i * sh, j * sw
            patch = x[:, :, top : top + dh * (kh - 1) + 1 : dh, left : left + dw * (kw - 1) + 1 : dw]
            rows.append(patch.reshape(n, groups, -1))
    return torch.stack(rows, dim=2), (h, w)


def responses(x: Tensor, weight: Tensor, **geometry) -> tuple[Tensor, Tensor]:
    """Dot products of kernels and patches (N, O, h, w), and the squared norm of the patch each one saw."""
    groups = geometry.get("groups", 1)
    seen, (h, w) = patches(x, tuple(weight.shape[2:]), **geometry)
    outputs = weight.shape[0] // groups
    kernels = weight.reshape(groups, outputs, -1)
    dots = torch.einsum("ngpk,gok->ngop", seen, kernels)
    energy = seen.square().sum(3)[:, :, None].expand_as(dots)
    return dots.reshape(len(x), -1, h, w), energy.reshape(len(x), -1, h, w)


def sharpen(c: Tensor, p: Tensor, eps: float = 1e-6) -> Tensor:
    return c.sign() * (c.abs() + eps) ** p


def scs(x: Tensor, weight: Tensor, p: Tensor, q: Tensor, eps: float = 1e-6, **geometry) -> Tensor:
    unit = weight / weight.square().sum((1, 2, 3), keepdim=True).sqrt()
    dots, energy = responses(x, unit, **geometry)
    return sharpen(dots / ((energy + eps).sqrt() + q), p, eps)


def sharpened_sdp(x: Tensor, weight: Tensor, p: Tensor, **geometry) -> Tensor:
    return sharpen(responses(x, weight, **geometry)[0], p)


def bcos(x: Tensor, weight: Tensor, b: float, max_out: int = 1, **geometry) -> Tensor:
    unit = weight / weight.square().sum((1, 2, 3), keepdim=True).sqrt()
    dots, energy = responses(x, unit, **geometry)
    n, _, h, w = dots.shape
    dots = dots.reshape(n, -1, max_out, h, w).amax(2)
    norm = (energy.reshape(n, -1, max_out, h, w)[:, :, 0] + 1e-6).sqrt()
    cosine = (dots / norm).abs()
    return dots * (cosine ** (b - 1) if b in (1, 2) else (cosine + 1e-6) ** (b - 1))


def max_abs_pool(x: Tensor, kernel: int, stride: int, ceil_mode: bool = False) -> Tensor:
    """Window by window; of equal magnitudes the first in row order."""
    n, c, height, width = x.shape

    def places(size: int) -> range:
        return range(0, size if ceil_mode else size - kernel + 1, stride)

    out = x.new_empty(n, c, len(places(height)), len(places(width)))
    for i, top in enumerate(places(height)):
        for j, left in enumerate(places(width)):
            window = x[:, :, top : top + kernel, left : left + kernel].flatten(2)
            best = torch.tensor([[max(range(len(v)), key=lambda k: abs(v[k])) for v in row] for row in window.tolist()])
            out[:, :, i, j] = window.gather(2, best[..., None])[..., 0]
    return out
