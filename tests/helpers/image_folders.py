"""A folder of class folders with noise in it."""

from pathlib import Path

import numpy as np
from PIL import Image


def training_folder(root: Path, *, train: int, val: int, size: tuple[int, int]) -> Path:
    """`train` and `val` with so many images of cats and dogs each, of height × width pixels."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for label in ("cat", "dog"):
            (root / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / label / f"{number}.png")
    return root
