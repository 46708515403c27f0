"""Images of another size."""

import os

import torch
from torch import Tensor

from scs_eval.errors import InputError


def scaled(images: Tensor, size: int) -> Tensor:
    """Images (N, C, H, W) in [0, 1] as size × size pixels, bilinear with antialiasing."""
    pixels = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return pixels.clamp_(0, 1)  # the weights add up to 1 only up to rounding


def refuse_beyond_memory(count: int, size: int) -> None:
    """Raise, before it is tried, for images (count, 3, size, size) that this machine cannot hold."""
    needed = count * 3 * size**2 * 4
    if needed > (memory := _memory()):
        raise InputError(
            f"expected images that fit in memory ({memory / 1e9:,.0f} GB), got {count:,} of {size:,}×{size:,} pixels "
            f"({needed / 1e9:,.0f} GB); choose a smaller size or fewer images"
        )


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 36
