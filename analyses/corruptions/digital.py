"""What computers do to images. Images are (H, W, 3) in [0, 1]."""

import io

import numpy as np
from scipy import ndimage


def contrast(image: np.ndarray, rng: np.random.Generator, factor: float) -> np.ndarray:
    """The distance of every channel from its mean, times a factor below 1."""
    mean = image.mean((0, 1), keepdims=True)
    return (image - mean) * factor + mean


def elastic_transform(
    image: np.ndarray, rng: np.random.Generator, strength: float, smoothness: float, tilt: float
) -> np.ndarray:
    """Stretched rubber: a random affine map, then every pixel is moved a little, neighbours alike.

    All three are shares of the image's side: how far pixels move before smoothing, over how far moves are alike, and
    how far the corners of a triangle go that the affine map moves.
    """
    side = min(image.shape[:2])
    grid = np.indices(image.shape[:2]).astype(float)
    tilted = _sampled(image, _affine(grid, rng, side, tilt * side), mode="mirror")
    noise = rng.uniform(-1, 1, (2, *image.shape[:2]))
    moves = [ndimage.gaussian_filter(part, smoothness * side, mode="reflect", truncate=3) for part in noise]
    return _sampled(tilted, grid + strength * side * np.stack(moves), mode="reflect")


def _affine(grid: np.ndarray, rng: np.random.Generator, side: int, reach: float) -> np.ndarray:
    """Where each pixel (2, H, W) comes from, if three points around the middle are moved at random."""
    middle, arm = np.array(grid.shape[1:]) // 2, side // 3
    points = middle + arm * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = points + rng.uniform(-reach, reach, points.shape)
    back = np.linalg.solve(np.column_stack([moved, np.ones(3)]), points)  # rows: [row, column, 1] · back = source
    return np.einsum("ikl,ij->jkl", np.concatenate([grid, np.ones((1, *grid.shape[1:]))]), back)


def _sampled(image: np.ndarray, at: np.ndarray, *, mode: str) -> np.ndarray:
    """The image at positions (2, H, W) between pixels."""
    channels = [ndimage.map_coordinates(channel, at, order=1, mode=mode) for channel in np.moveaxis(image, 2, 0)]
    return np.stack(channels, axis=2)


def pixelate(image: np.ndarray, rng: np.random.Generator, factor: float) -> np.ndarray:
    """Scaled down by a factor and up again, each pixel the mean of what it covers."""
    from PIL import Image

    picture, (height, width) = Image.fromarray(_as_bytes(image)), image.shape[:2]
    small = picture.resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX)) / 255


def jpeg_compression(image: np.ndarray, rng: np.random.Generator, quality: int) -> np.ndarray:
    """Saved as JPEG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(_as_bytes(image)).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file)) / 255


def _as_bytes(image: np.ndarray) -> np.ndarray:
    return np.rint(255 * image).astype(np.uint8)
