"""Blurred images. Images are (H, W, 3) in [0, 1]."""

import numpy as np
from scipy import ndimage

GRID = 8  # pixels to either side of the disk's middle


def defocus_blur(image: np.ndarray, rng: np.random.Generator, radius: float, softness: float) -> np.ndarray:
    """Out of focus: the mean over a disk whose rim is softened by a Gaussian of 3 pixels (5 for a large disk)."""
    reach = int(max(GRID, radius))
    x, y = np.meshgrid(*[np.arange(-reach, reach + 1)] * 2)
    disk = (x**2 + y**2 <= radius**2).astype(float)
    taps = np.arange(-1, 2) if radius <= GRID else np.arange(-2, 3)
    rim = np.exp(-(taps**2) / (2 * softness**2))
    kernel = disk / disk.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, rim / rim.sum(), axis=axis, mode="mirror")
    return ndimage.correlate(image, kernel[:, :, None], mode="mirror")


def glass_blur(image: np.ndarray, rng: np.random.Generator, sigma: float, reach: int, rounds: int) -> np.ndarray:
    """Frosted glass: between two Gaussian blurs, every pixel takes the colour of one at most `reach` away.

    From the last pixel to the first, in each of the rounds: so a colour may wander on. (The published code swaps two
    views of one array, which copies.)
    """
    height, width = image.shape[:2]
    blurred = ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest")
    source = list(range(height * width))
    for _ in range(rounds):
        rows, columns = np.arange(height - reach, reach, -1), np.arange(width - reach, reach, -1)
        here = (rows[:, None] * width + columns).ravel()
        steps = rng.integers(-reach, reach, (2, len(here)))
        for spot, taken in zip(here.tolist(), (here + steps[0] * width + steps[1]).tolist(), strict=True):
            source[spot] = source[taken]
    shuffled = blurred.reshape(-1, 3)[source].reshape(image.shape)
    return ndimage.gaussian_filter(shuffled, (sigma, sigma, 0), mode="nearest")


def motion_blur(image: np.ndarray, rng: np.random.Generator, radius: int, sigma: float) -> np.ndarray:
    """A camera that moves, in a direction between −45° and 45°."""
    return smeared(image, radius, sigma, rng.uniform(-45, 45))


def smeared(image: np.ndarray, radius: int, sigma: float, degrees: float) -> np.ndarray:
    """The mean of copies moved by 0, 1 … 2·radius pixels in a direction, weighted by half a Gaussian."""
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    rows, columns = (np.arange(side) for side in image.shape[:2])
    angle, result = np.deg2rad(degrees), np.zeros(image.shape)
    for step, weight in enumerate(weights / weights.sum()):
        down, right = (int(np.ceil(step * part - 0.5)) for part in (np.sin(angle), np.cos(angle)))
        moved_rows = np.clip(rows + down, 0, len(rows) - 1)
        moved_columns = np.clip(columns + right, 0, len(columns) - 1)
        result += weight * image[moved_rows[:, None], moved_columns]
    return result


def zoom_blur(image: np.ndarray, rng: np.random.Generator, last: float, step: float) -> np.ndarray:
    """A camera that moves forward: the mean of the image and its enlargements by 1, 1 + step … last."""
    factors = np.arange(1, last, step)
    return (image + sum(enlarged(image, factor) for factor in factors)) / (len(factors) + 1)


def enlarged(image: np.ndarray, factor: float) -> np.ndarray:
    """The middle of an image (H, H, C), as large as the whole: by linear interpolation."""
    side = image.shape[0]
    part = int(np.ceil(side / factor))
    first = (side - part) // 2
    large = ndimage.zoom(image[first : first + part, first : first + part], (factor, factor, 1), order=1)
    trim = (large.shape[0] - side) // 2
    return large[trim : trim + side, trim : trim + side]
