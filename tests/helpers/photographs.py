"""Folders of photographs for tests: scikit-image's own, which ship with that package, and generated ones like them."""

import shutil
from pathlib import Path

import numpy as np
import skimage
from PIL import Image

# What ImageNet would call them: synset folders, as in its validation set.
REAL = {
    "n02123045": ("chelsea.png",),
    "n03773504": ("rocket.jpg",),
    "n03791053": ("motorcycle_left.png", "motorcycle_right.png"),
    "n07920052": ("coffee.png",),
}
NAMES = ("tabby", "missile", "motor scooter", "espresso")


def real(folder: Path) -> Path:
    """Five photographs of four of ImageNet's classes, between 451×300 and 741×497 pixels."""
    for synset, files in REAL.items():
        (folder / synset).mkdir(parents=True)
        for file in files:
            shutil.copy(Path(skimage.__file__).parent / "data" / file, folder / synset)
    return folder


def generated(folder: Path, *, classes: int = 4, each: int = 2) -> Path:
    """Clouds of a class's own colour with the spectrum of photographs, amplitude 1/frequency; 300×260 pixels, JPEG."""
    stream = np.random.default_rng(0)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(300), np.fft.fftfreq(260)))
    for label in range(classes):
        (folder / f"scene {label}").mkdir(parents=True)
        for number in range(each):
            noise = (
                np.fft.fft2(stream.normal(size=(260, 300, 3)), axes=(0, 1)) / np.maximum(frequency, 1 / 300)[..., None]
            )
            clouds = np.fft.ifft2(noise, axes=(0, 1)).real
            colour = 0.35 + 0.3 * ((label + 1) >> np.arange(3) & 1)  # red, green, yellow, blue …
            pixels = np.clip(colour + 0.15 * clouds / clouds.std((0, 1)), 0, 1)
            image = Image.fromarray((255 * pixels).astype(np.uint8))
            image.save(folder / f"scene {label}" / f"{number}.jpg", quality=90)
    return folder
