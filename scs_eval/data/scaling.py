"""Images of another size."""

import torch
from torch import Tensor


def scaled(images: Tensor, size: int) -> Tensor:
    """Images (N, C, H, W) in [0, 1] as size × size pixels, bilinear with antialiasing."""
    pixels = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return pixels.clamp_(0, 1)  # the weights add up to 1 only up to rounding
