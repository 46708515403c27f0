"""Maps that know nothing of what was learned: what a method must beat, and what one that fails looks like."""

import numpy as np
import torch
from torch import Tensor

IMAGE_CONTROLS = ("random", "edges")  # they do not look at the network
UNTRAINED = "untrained"
CONTROLS = (*IMAGE_CONTROLS, UNTRAINED)


def control_map(name: str, images: Tensor, *, seed: int, start: int = 0) -> Tensor:
    """The control of that name, of those of the image alone, as attributions (N, 3, H, W), every channel the same.

    start: images before these.
    """
    pixels = random_map(images, seed=seed, start=start) if name == "random" else edge_map(images)
    return pixels.to(images)[:, None].expand(-1, images.shape[1], -1, -1)


def random_map(images: Tensor, *, seed: int, start: int = 0) -> Tensor:
    """(N, H, W) standard normal noise, by an image's position alone: pixels in an order that means nothing."""
    draws = (np.random.default_rng((seed, start + number)) for number in range(len(images)))
    return torch.from_numpy(np.stack([draw.standard_normal(tuple(images.shape[2:])) for draw in draws]))


def edge_map(images: Tensor) -> Tensor:
    """(N, H, W) ≥ 0, the Sobel gradient of the grey image: it looks like an explanation and is none."""
    from skimage.color import rgb2gray
    from skimage.filters import sobel

    pictures = images.detach().cpu().double().permute(0, 2, 3, 1).numpy()
    return torch.from_numpy(np.stack([sobel(rgb2gray(picture)) for picture in pictures]))
