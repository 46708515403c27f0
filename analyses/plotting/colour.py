"""W(x) as a picture: colours from the six channels of an encoded image, or a signed map in two colours.

A network that encodes pixels as [r, g, b, 1-r, 1-g, 1-b] has weights whose angle in each pair is a colour (B-cos v2,
section 4 and D.2). Three channels have no such pairs; there the signed contributions are the picture.
"""

from typing import TYPE_CHECKING

import numpy as np
from torch import from_numpy
from torch.nn.functional import avg_pool2d

from scs_eval.errors import InputError, check_one_of

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

STYLES = ("paper", "bcos-v2")
SCALE = 99.0  # the percentile of |contribution| that is shown at full strength
TINY = 1e-12


def rgba(weights: np.ndarray, inputs: np.ndarray, *, style: str = "paper") -> np.ndarray:
    """The B-cos picture (N, H, W, 4) of W (N, 6, H, W) at the encoded images (N, 6, H, W).

    paper: as B-cos v2 says in section 4. bcos-v2: as the published package draws it, which smooths the opacity over
    15 × 15 pixels and saturates it at the 99.5th percentile.
    """
    check_one_of(STYLES, style=style)
    if weights.ndim != 4 or weights.shape[1] != 6 or weights.shape != inputs.shape:
        raise InputError(f"expected W and images as (n, 6, H, W), got {weights.shape} and {inputs.shape}")
    contributions = (weights * inputs).sum(1)
    colours, opacity = (_paper if style == "paper" else _package)(weights, contributions)
    return np.concatenate([np.moveaxis(colours, 1, -1), opacity[..., None]], -1)


def _paper(weights: np.ndarray, contributions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair scaled to sum 1; opacity min(‖w‖ / p99.9, 1), where the contribution is positive.

    A negative weight counts as 0, without which a share could leave [0, 1]; a pair without any positive weight has no
    colour and is shown as 1/2.
    """
    positive = weights.clip(min=0)
    pairs = positive[:, :3] + positive[:, 3:]
    colours = np.divide(positive[:, :3], pairs, out=np.full_like(pairs, 0.5), where=pairs > 0)
    norms = np.linalg.norm(weights, axis=1)
    return colours, np.where(contributions > 0, _saturated(norms, 99.9), 0)


def _package(weights: np.ndarray, contributions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The package `bcos` 0.1.3: the opacity is cut to almost 0 before it is smoothed, so it spills over edges."""
    positive = (weights / (np.abs(weights).max(1, keepdims=True) + TINY)).clip(min=0)
    colours = positive[:, :3] / (positive[:, :3] + positive[:, 3:] + TINY)
    norms = np.where(contributions < 0, TINY, np.linalg.norm(weights, axis=1))
    smooth = avg_pool2d(from_numpy(norms)[:, None], 15, stride=1, padding=7)[:, 0].numpy()  # zeros beyond the border
    return colours, _saturated(smooth, 99.5)


def _saturated(values: np.ndarray, percentile: float) -> np.ndarray:
    """Values (N, H, W) ≥ 0 divided by their percentile per image, at most 1."""
    full = np.percentile(values, percentile, axis=(1, 2), keepdims=True)
    return np.divide(values, full, out=np.zeros_like(values), where=full > 0).clip(max=1)


def scale_of(maps: np.ndarray) -> np.ndarray:
    """What is shown at full strength (N, 1, 1): the 99th percentile of |map|, or the maximum of a nearly empty map."""
    strengths = np.abs(maps)
    usual = np.percentile(strengths, SCALE, axis=(1, 2), keepdims=True)
    return np.where(usual > 0, usual, strengths.max((1, 2), keepdims=True))


def signed(maps: np.ndarray, *, scale: np.ndarray | None = None) -> np.ndarray:
    """Maps (N, H, W) as RGB (N, H, W, 3): orange for, blue against, white for nothing; symmetric about 0."""
    return diverging()(0.5 + 0.5 * _relative(maps, scale))[..., :3]


def overlay(images: np.ndarray, maps: np.ndarray, *, scale: np.ndarray | None = None) -> np.ndarray:
    """The signed map over the image (N, 3, H, W) in pale grey, as RGB (N, H, W, 3); stronger where more is at stake."""
    grey = (images * np.array([0.299, 0.587, 0.114])[:, None, None]).sum(1)[..., None]
    opacity = np.abs(_relative(maps, scale))[..., None] ** 0.7  # a faint contribution still shows
    return (1 - opacity) * (0.35 + 0.65 * grey) + opacity * diverging()(np.where(maps > 0, 0.9, 0.1))[..., :3]


def on_white(picture: np.ndarray) -> np.ndarray:
    """RGBA (N, H, W, 4) as it looks on paper, RGB (N, H, W, 3)."""
    return picture[..., :3] * picture[..., 3:] + 1 - picture[..., 3:]


def off_white(picture: np.ndarray) -> np.ndarray:
    """The inverse of `on_white`: RGB (N, H, W, 3) as RGBA (N, H, W, 4), as transparent as it can be, white wholly."""
    opacity = 1 - picture.min(-1, keepdims=True)
    colours = np.divide(picture - 1 + opacity, opacity, out=np.ones_like(picture), where=opacity > 0)
    return np.concatenate([colours.clip(0, 1), opacity], -1)


def diverging() -> "Colormap":
    """Blue, white, orange: hue and lightness both tell, so colour-blind readers can (Okabe and Ito's two colours)."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("contribution", ["#003a5d", "#0072B2", "#ffffff", "#D55E00", "#6e2f00"])


def _relative(maps: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """Maps divided by the scale, within [-1, 1]."""
    full = scale_of(maps) if scale is None else scale
    return np.divide(maps, full, out=np.zeros_like(maps), where=full > 0).clip(-1, 1)
