"""Random crop and flip of a whole batch at once, without a loop over images."""

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_flip(images: Tensor, *, padding: int, offsets: Tensor, flips: Tensor) -> Tensor:
    """Shift every image within its zero padding and mirror some of them.

    images (N, C, H, W); offsets (N, 2), the top and left corner of the crop in the padded image, each in
    0 … 2·padding; flips (N,), bool. The result has the shape and type of `images`: what torchvision's
    RandomCrop(H, padding) and RandomHorizontalFlip would give for the same draws.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (padding, padding, padding, padding))
    # A view of every possible crop, (N, C, 2·padding + 1, 2·padding + 1, H, W); indexing copies only those wanted.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows = torch.arange(len(images), device=images.device)
    crops = windows[rows, :, offsets[:, 0], offsets[:, 1]]
    return torch.where(flips[:, None, None, None], crops.flip(-1), crops)


def to_unit(images: Tensor) -> Tensor:
    """Bytes (N, C, H, W) -> floats in [0, 1], laid out channels last."""
    return images.to(torch.float32, memory_format=torch.channels_last).div_(255)
