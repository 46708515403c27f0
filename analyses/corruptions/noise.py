"""Noise of cameras and channels. Images are (H, W, 3) in [0, 1]; what leaves [0, 1] is cut off by `corrupt`."""

import numpy as np


def gaussian_noise(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Added N(0, sigma²): too little light."""
    return image + rng.normal(scale=sigma, size=image.shape)


def shot_noise(image: np.ndarray, rng: np.random.Generator, photons: float) -> np.ndarray:
    """Poisson noise of so many photons at full brightness."""
    return rng.poisson(image * photons) / photons


def impulse_noise(image: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Salt and pepper: a share of all values is 0 or 1, as often either."""
    hit, salt = rng.random(image.shape) < share, rng.random(image.shape) < 0.5
    return np.where(hit, salt, image)
