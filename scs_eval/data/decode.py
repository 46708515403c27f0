"""One image file of any kind to RGB."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from scs_eval.errors import InputError

# Named, so that a file with the wrong suffix cannot reach a decoder that runs other programs (EPS).
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


class UnreadableImageError(InputError):
    """A file that is no image we can read; skip_bad leaves it out."""


def read_image(path: Path, *, size: int | None = None, resize: int | None = None) -> NDArray[np.float32]:
    """The image as (3, H, W) RGB in [0, 1]: `read_pixels` as floats."""
    pixels = read_pixels(path, size=size, resize=resize)
    return pixels.astype(np.float32) / np.float32(255) if pixels.dtype == np.uint8 else pixels.astype(np.float32)


def read_pixels(
    path: Path, *, size: int | None = None, resize: int | None = None
) -> NDArray[np.uint8] | NDArray[np.float32]:
    """The image as (3, H, W) RGB, turned upright by its EXIF orientation: bytes, or floats in [0, 1] if it has more.

    Transparent parts show white. 16-bit greyscale keeps its depth (Pillow reads 16-bit colour as 8-bit); of an
    animation the first frame counts. With `size`, the shorter side is scaled to it, or to `resize` if that is given
    (bilinear, antialiased), and the centre cut out: (3, size, size).
    """
    try:
        with _open(path) as image:
            upright = _flatten(ImageOps.exif_transpose(image))
            if size is not None:
                upright = _centre(upright, size, resize)
    except Exception as error:  # decoders raise anything from SyntaxError to struct.error on a damaged file
        raise UnreadableImageError(_complaint(path, error)) from error
    return _planes(upright)


def _open(path: Path) -> Image.Image:
    """Open for decoding; refuse what would not fit in memory."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(path, formats=FORMATS)
    except UnidentifiedImageError as error:
        raise ValueError(f"none of {', '.join(FORMATS)}") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ValueError(f"more than {Image.MAX_IMAGE_PIXELS} pixels, perhaps a decompression bomb") from error


def _centre(image: Image.Image, size: int, resize: int | None) -> Image.Image:
    """The square in the middle; with `resize`, to the pixel as torchvision's Resize and CenterCrop give it."""
    if resize is None:
        return ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    short = min(image.size)
    width, height = (resize * side // short for side in image.size)
    if width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise ValueError(f"{image.width}×{image.height} pixels are {width}×{height} with the shorter side at {resize}")
    left, top = round((width - size) / 2), round((height - size) / 2)
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + size, top + size))


def _flatten(image: Image.Image) -> Image.Image:
    """Any mode to RGB, or, for 16-bit greyscale, to F in [0, 1]."""
    if image.mode.startswith("I"):
        return _flatten_16_bit(image)
    if image.mode == "F":
        raise ValueError("a floating-point image, whose range is unknown")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("RGB")


def _flatten_16_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("a 32-bit image, whose range is unknown")
    grey = values.astype(np.float32) / 65535
    grey[values == image.info.get("transparency", -1)] = 1  # PNG may declare one value transparent
    return Image.fromarray(grey)


def _planes(image: Image.Image) -> NDArray[np.uint8] | NDArray[np.float32]:
    if image.mode == "F":
        return np.stack([np.asarray(image, dtype=np.float32)] * 3).clip(0, 1)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def stored_size(path: Path) -> tuple[int, int]:
    """Height and width as the file's header says, before it is turned upright; without decoding it."""
    try:
        with _open(path) as image:
            return image.height, image.width
    except Exception as error:
        raise UnreadableImageError(_complaint(path, error)) from error


def _complaint(path: Path, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"expected a readable image, got {path} ({reason}); repair or remove it, or skip such files with --skip-bad"


def scale_pixels(size: int, resize: int | None = None) -> Callable[[Any], Image.Image]:
    """From a PIL image or an array of bytes (H, W[, 3]) to RGB of size × size pixels, as `read_pixels` scales files."""

    def prepare(image: Any) -> Image.Image:
        picture = image if isinstance(image, Image.Image) else Image.fromarray(np.asarray(image))
        return _centre(_flatten(picture), size, resize)

    return prepare
