"""The 15 common corruptions of Hendrycks and Dietterich (2019) in 5 severities, made on the fly from a seed.

The parameters are those of the published sets: CIFAR-10-C's for images up to 64 pixels, ImageNet-C's for larger ones. A
frost photograph is replaced by a drawn texture, and ImageMagick's motion blur by its formula, so that frost, snow and
motion blur are of the same kind and strength as the published ones, and not the same pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.corruptions import blur, digital, noise, weather
from scs_eval.errors import InputError

SMALL = 64  # pixels of a side, up to which the parameters are CIFAR-10-C's
SEVERITIES = (1, 2, 3, 4, 5)
SHOWN = 3  # severity of the picture that is kept of each
_E = 244 / 224  # ImageNet-C's elastic transforms are in units of 244 pixels


@dataclass(frozen=True)
class Corruption:
    """A function of (image (H, W, 3), random numbers, parameters), and its parameters for each severity."""

    group: str
    function: Callable[..., np.ndarray]
    small: tuple[tuple[Any, ...], ...]
    large: tuple[tuple[Any, ...], ...]


def _each(*values: float) -> tuple[tuple[float, ...], ...]:
    return tuple((value,) for value in values)


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(
        "noise", noise.gaussian_noise, _each(0.04, 0.06, 0.08, 0.09, 0.10), _each(0.08, 0.12, 0.18, 0.26, 0.38)
    ),
    "shot_noise": Corruption("noise", noise.shot_noise, _each(500, 250, 100, 75, 50), _each(60, 25, 12, 5, 3)),
    "impulse_noise": Corruption(
        "noise", noise.impulse_noise, _each(0.01, 0.02, 0.03, 0.05, 0.07), _each(0.03, 0.06, 0.09, 0.17, 0.27)
    ),
    "defocus_blur": Corruption(
        "blur", blur.defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)), ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "glass_blur": Corruption(
        "blur", blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    "motion_blur": Corruption(
        "blur", blur.motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)), ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": Corruption(
        "blur", blur.zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "snow": Corruption(
        "weather", weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "frost": Corruption(
        "weather", weather.frost,
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    "fog": Corruption(
        "weather", weather.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": Corruption(
        "weather", weather.brightness, _each(0.05, 0.1, 0.15, 0.2, 0.3), _each(0.1, 0.2, 0.3, 0.4, 0.5)
    ),
    "contrast": Corruption(
        "digital", digital.contrast, _each(0.75, 0.5, 0.4, 0.3, 0.15), _each(0.4, 0.3, 0.2, 0.1, 0.05)
    ),
    "elastic_transform": Corruption(
        "digital", digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        (
            (2 * _E, 0.7 * _E, 0.1 * _E), (2 * _E, 0.08 * _E, 0.2 * _E), (0.05 * _E, 0.01 * _E, 0.02 * _E),
            (0.07 * _E, 0.01 * _E, 0.02 * _E), (0.12 * _E, 0.01 * _E, 0.02 * _E),
        ),
    ),
    "pixelate": Corruption(
        "digital", digital.pixelate, _each(0.95, 0.9, 0.85, 0.75, 0.65), _each(0.6, 0.5, 0.4, 0.3, 0.25)
    ),
    "jpeg_compression": Corruption(
        "digital", digital.jpeg_compression, _each(80, 65, 58, 50, 40), _each(25, 18, 15, 10, 7)
    ),
}  # fmt: skip


def corrupt(images: Tensor, name: str, severity: int, *, seed: int = 0, ids: np.ndarray | None = None) -> Tensor:
    """Images (n, 3, H, H) in [0, 1], corrupted and cut to 8 bits as the published sets are.

    ids: (n,) what an image's random numbers follow from, besides the seed, the corruption and the severity; 0, 1 … by
    default. So an image is corrupted alike in whatever batch it stands.
    """
    corruption = check_corruption(name, severity)
    if images.shape[2] != images.shape[3]:
        raise InputError(f"expected square images, got {images.shape[2]} × {images.shape[3]} pixels; give a size")
    table = corruption.small if images.shape[2] <= SMALL else corruption.large
    number, parameters = list(CORRUPTIONS).index(name), table[severity - 1]
    pixels = images.permute(0, 2, 3, 1).cpu().numpy().astype(np.float64)
    made = []
    for image, own in zip(pixels, np.arange(len(images)) if ids is None else ids, strict=True):
        rng = np.random.default_rng((seed, int(own), number, severity))
        made.append(_eight_bits(corruption.function(image, rng, *parameters)))
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float().div_(255).contiguous()


def check_corruption(name: str, severity: int) -> Corruption:
    """The corruption, if there is one of that name and severity."""
    if name not in CORRUPTIONS:
        raise InputError(f"expected a corruption of {', '.join(CORRUPTIONS)}, got {name!r}")
    if severity not in SEVERITIES:
        raise InputError(f"expected a severity from 1 to 5, got {severity!r}")
    return CORRUPTIONS[name]


def _eight_bits(image: np.ndarray) -> np.ndarray:
    """Cut, not rounded; a hair's breadth is added so that k/255 in floats stays k."""
    return np.floor(255 * np.clip(image, 0, 1) + 1e-6).astype(np.uint8)
