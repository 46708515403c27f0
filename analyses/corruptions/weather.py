"""Weather and light. Images are (H, W, 3) in [0, 1]."""

import numpy as np

from scs_eval.analyses.corruptions.blur import enlarged, smeared

LUMA = (0.299, 0.587, 0.114)
ICE = (0.82, 0.92, 1.0)  # the colour of frost
RIDGES = 6.0  # how thin its needles are
ROUGH = 1.25  # how much of its structure is fine


def snow(
    image: np.ndarray, rng: np.random.Generator, mean: float, spread: float, size: float, least: float, radius: int,
    sigma: float, keep: float,
) -> np.ndarray:  # fmt: skip
    """Flakes: enlarged noise above `least`, smeared downwards, and the same turned by half; the image gets paler."""
    noise = rng.normal(mean, spread, image.shape[:2])[:, :, None]
    flakes = enlarged(noise, size)
    flakes = np.clip(np.where(flakes < least, 0, flakes), 0, 1)
    flakes = smeared(flakes, radius, sigma, rng.uniform(-135, -45))
    grey = (image @ LUMA)[:, :, None]
    pale = keep * image + (1 - keep) * np.maximum(image, 1.5 * grey + 0.5)
    return pale + flakes + np.rot90(flakes, 2)


def frost(image: np.ndarray, rng: np.random.Generator, keep: float, ice: float) -> np.ndarray:
    """Ice on the window: keep · image + ice · texture. The published sets have photographs of frost; this is drawn."""
    return keep * image + ice * frost_texture(rng, max(image.shape[:2]))[: image.shape[0], : image.shape[1]]


def frost_texture(rng: np.random.Generator, side: int) -> np.ndarray:
    """(side, side, 3) needles of ice where a rough surface crosses its middle height, in patches of a smooth one."""
    rough, patches = plasma(rng, side, ROUGH), plasma(rng, side, 2.0)
    needles = (1 - np.abs(2 * rough - 1)) ** RIDGES
    return np.clip(0.26 + 0.35 * patches + needles, 0, 1)[:, :, None] * ICE


def fog(image: np.ndarray, rng: np.random.Generator, thickness: float, decay: float) -> np.ndarray:
    """Added clouds; scaled back so that the brightest value stays."""
    brightest = image.max()
    clouds = plasma(rng, max(image.shape[:2]), decay)[: image.shape[0], : image.shape[1], None]
    return (image + thickness * clouds) * brightest / (brightest + thickness)


def plasma(rng: np.random.Generator, side: int, decay: float) -> np.ndarray:
    """(side, side) a random surface from 0 to 1 by the diamond-square algorithm, on a torus.

    Each round sets the points between those that are set to the mean of four neighbours plus a random number, which is
    decay² times smaller than in the round before.
    """
    size = 1 << max(1, (side - 1).bit_length())
    surface, step, amplitude = np.zeros((size, size)), size, 1.0
    while step >= 2:
        half = step // 2
        corners = surface[::step, ::step]
        centres = _mean_of_four(corners, np.roll(corners, -1, 0), np.roll(corners, -1, 1), np.roll(corners, -1, (0, 1)))
        surface[half::step, half::step] = centres + rng.uniform(-amplitude, amplitude, centres.shape)
        middles = surface[half::step, half::step]
        across = _mean_of_four(corners, np.roll(corners, -1, 1), middles, np.roll(middles, 1, 0))
        down = _mean_of_four(corners, np.roll(corners, -1, 0), middles, np.roll(middles, 1, 1))
        surface[::step, half::step] = across + rng.uniform(-amplitude, amplitude, across.shape)
        surface[half::step, ::step] = down + rng.uniform(-amplitude, amplitude, down.shape)
        step, amplitude = half, amplitude / decay**2
    surface = surface[:side, :side] - surface.min()
    return surface / max(surface.max(), np.finfo(float).tiny)


def _mean_of_four(*neighbours: np.ndarray) -> np.ndarray:
    return np.asarray(sum(neighbours)) / 4


def brightness(image: np.ndarray, rng: np.random.Generator, more: float) -> np.ndarray:
    """The largest channel (V of HSV) is raised by `more`, up to 1; hue and saturation stay.

    In RGB: every channel times (V + more) / V.
    """
    value = image.max(2, keepdims=True)
    raised = np.minimum(value + more, 1)
    return np.where(value > 0, image * (raised / np.maximum(value, np.finfo(float).tiny)), raised)
