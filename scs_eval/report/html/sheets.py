"""Pictures of the gallery, many in one file: a sheet of equal tiles; of maps lossless, so that a script can read them.

A tile of a map has as few shades as tell it well: a browser reads them back as levels, and shows models on one scale.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from scs_eval.analyses.plotting import colour
from scs_eval.analyses.plotting.map_columns import COLOURS, PERCENTILE

LARGEST = 128  # pixels of a tile
PIXELS = 9_300_000  # of all maps together, as six models have of 500 images of 32×32; tiles shrink so that they fit
MANY_MAPS = 3000  # above which maps have fewer shades, and photographs are not lossless
PHOTOGRAPH = 85  # quality of these


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Tiles in rows of `columns`. scales: what each map shows at full strength; none of pictures that are no maps."""

    uri: str
    columns: int
    rows: int
    scales: Sequence[float] = ()


@dataclass(frozen=True)
class Palettes:
    """The colours of a level: of contributions −levels … levels, of saliency 0 … levels, and of an attack's change.

    levels: shades on either side of 0. steps: how finely the change of an attack is told. exact: whether photographs,
    too, are lossless.
    """

    levels: int
    steps: int
    exact: bool

    @property
    def signed(self) -> np.ndarray:
        """(2 levels + 1, 3) blue, white, orange."""
        return _bytes(colour.diverging()(np.linspace(0, 1, 2 * self.levels + 1))[:, :3])

    @property
    def size(self) -> np.ndarray:
        """(levels + 1, 3) dark to bright."""
        from matplotlib import colormaps

        return _bytes(colormaps[COLOURS](np.linspace(0, 1, self.levels + 1))[:, :3])


def palettes_for(maps: int) -> Palettes:
    """Fewer shades where there are very many maps."""
    many = maps > MANY_MAPS
    return Palettes(levels=7, steps=1, exact=False) if many else Palettes(levels=31, steps=7, exact=True)


def tile_side(side: int, maps: int) -> int:
    """Pixels of a tile: as the image has, unless it is large or there are too many maps for that."""
    return min(side, LARGEST, max(16, int((PIXELS / max(maps, 1)) ** 0.5)))


def signed_sheet(maps: np.ndarray, *, side: int, palettes: Palettes) -> Sheet:
    """Maps (n, H, W) for and against."""
    small = shrunk(maps[:, None], side)[:, 0]
    scale = colour.scale_of(small)
    relative = np.divide(small, scale, out=np.zeros_like(small), where=scale > 0).clip(-1, 1)
    levels = np.round(relative * palettes.levels).astype(int) + palettes.levels
    return _sheet(palettes.signed[levels], scales=_told(scale))


def size_sheet(maps: np.ndarray, *, side: int, palettes: Palettes) -> Sheet:
    """Maps (n, H, W) ≥ 0."""
    small = shrunk(maps[:, None], side)[:, 0]
    usual = np.percentile(small, PERCENTILE, axis=(1, 2), keepdims=True)
    scale = np.where(usual > 0, usual, small.max((1, 2), keepdims=True))
    relative = np.divide(small, scale, out=np.zeros_like(small), where=scale > 0).clip(0, 1)
    return _sheet(palettes.size[np.round(relative * palettes.levels).astype(int)], scales=_told(scale))


def picture_sheet(pictures: np.ndarray, *, side: int, exact: bool = True) -> Sheet:
    """Pictures (n, 3, H, W) in [0, 1], which are no maps that are read back."""
    return _sheet(_bytes(shrunk(pictures, side).transpose(0, 2, 3, 1)), exact=exact)


def change_sheet(changes: np.ndarray, *, side: int, palettes: Palettes) -> Sheet:
    """What attacks added to images (n, 3, H, W): grey for nothing, and the largest change at full strength."""
    small = shrunk(changes.astype(np.float32), side)
    scale = np.abs(small).max((1, 2, 3), keepdims=True)
    relative = np.divide(small, scale, out=np.zeros_like(small), where=scale > 0)
    levels = np.round(relative * palettes.steps) * (127 // palettes.steps) + 128
    return _sheet(levels.astype(np.uint8).transpose(0, 2, 3, 1), scales=_told(scale))


def shrunk(pictures: np.ndarray, side: int) -> np.ndarray:
    """(n, C, H, W) averaged down so that the longer side has `side` pixels, then filled up to a square with zeros."""
    from torch import from_numpy
    from torch.nn.functional import adaptive_avg_pool2d

    height, width = pictures.shape[2:]
    if (height, width) == (side, side):
        return pictures
    longer = max(height, width)
    size = (max(1, round(height * side / longer)), max(1, round(width * side / longer)))
    small = adaptive_avg_pool2d(from_numpy(np.ascontiguousarray(pictures)), size).numpy()
    filled = np.zeros((*small.shape[:2], side, side), small.dtype)
    top, left = (side - size[0]) // 2, (side - size[1]) // 2
    filled[:, :, top : top + size[0], left : left + size[1]] = small
    return filled


def _sheet(tiles: np.ndarray, *, exact: bool = True, **scales: Any) -> Sheet:
    """Tiles (n, S, S, 3) of bytes in as many columns as rows."""
    n, side = tiles.shape[:2]
    columns = int(np.ceil(np.sqrt(n)))
    rows = -(-n // columns)
    sheet = np.zeros((rows * columns, side, side, 3), np.uint8)
    sheet[:n] = tiles
    picture = sheet.reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)
    buffer = io.BytesIO()
    # Of a lossless file the quality is how hard to try.
    Image.fromarray(picture).save(buffer, "WEBP", lossless=exact, quality=80 if exact else PHOTOGRAPH, method=4)
    uri = f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Sheet(uri=uri, columns=columns, rows=rows, **scales)


def _told(scale: np.ndarray) -> list[float]:
    """Four digits: there are thousands of them, and three are shown."""
    return [float(f"{value:.4g}") for value in scale.ravel().tolist()]


def _bytes(colours: np.ndarray) -> np.ndarray:
    return (255 * np.clip(colours, 0, 1)).round().astype(np.uint8)
