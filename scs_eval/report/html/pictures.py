"""Pictures inside a page: arrays and files as data URIs."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

LARGEST = 128  # pixels of a picture in the gallery; larger ones are made smaller


def picture_uri(picture: np.ndarray) -> str:
    """A picture (H, W, 3) in [0, 1]: as it is if small (PNG), else at most LARGEST pixels wide and high (JPEG)."""
    image = Image.fromarray((255 * np.clip(picture, 0, 1)).round().astype(np.uint8))
    if max(image.size) <= LARGEST // 2:
        return _uri(image, "PNG", optimize=True)
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    return _uri(image, "JPEG", quality=85)


def file_uri(path: Path) -> str:
    """A PNG file as it is."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _uri(image: Image.Image, kind: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
