"""Images of another size."""

import os

import torch
from torch import Tensor

from scs_eval.errors import InputError

BATCH = 8  # images that should fit at once


def resized(images: Tensor, size: int) -> Tensor:
    """Images (N, C, H, W) in [0, 1] as size × size pixels, bilinear with antialiasing."""
    pixels = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return pixels.clamp_(0, 1)  # the weights add up to 1 only up to rounding


def refuse_beyond_memory(count: int, size: int) -> None:
    """Raise, before it is tried, where this machine cannot hold even a few of `count` images of that size."""
    together = min(count, BATCH)
    needed = together * 3 * size**2 * 4
    if needed > (memory := _memory()):
        raise InputError(
            f"expected images that fit in memory ({memory / 1e9:,.0f} GB), got {together} of {size:,}×{size:,} pixels "
            f"({needed / 1e9:,.0f} GB) for one batch; choose a smaller size"
        )


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 36
