"""CIFAR-10-C, where the corrupted versions of a few clean images are looked up by their place in the test set."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scs_eval.errors import InputError

TEST = 10_000  # images of a severity; the severities stand one behind the other


class Cifar10C:
    """Corrupted test images from the published files, read where they lie; nothing is unpickled or loaded whole."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise InputError(f"expected the folder of CIFAR-10-C, got {str(folder)!r}, which is no folder")
        self.labels = self._read("labels", (5 * TEST,))[:TEST].astype(np.int64)

    def names(self) -> list[str]:
        """The corruptions whose files are there."""
        return sorted(path.stem for path in self.folder.glob("*.npy") if path.stem != "labels")

    def check(self, indices: Tensor, labels: Tensor) -> None:
        """Raise unless images of these places in the test set have these labels: else they are other images."""
        places = indices.cpu().numpy()
        if places.min() < 0 or places.max() >= TEST or (self.labels[places] != labels.cpu().numpy()).any():
            raise InputError(f"the images are not those of {self.folder}: use --data cifar10 or sample")

    def __call__(self, name: str, severity: int, ids: np.ndarray, images: Tensor) -> Tensor:
        """The images (b, 3, 32, 32) at these places (b,) of the test set, corrupted; `images` are the clean ones."""
        pixels = self._read(name, (5 * TEST, 32, 32, 3))[(severity - 1) * TEST + ids]
        if images.shape[2:] != (32, 32):
            raise InputError(f"expected images of 32 × 32 pixels with CIFAR-10-C, got {tuple(images.shape[2:])}")
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)

    def _read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        path = self.folder / f"{name}.npy"
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise InputError(f"expected {path.name} in {self.folder}, there is none") from None
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is no file of CIFAR-10-C: {str(error).splitlines()[0]}") from error
        if array.shape != shape or array.dtype != np.uint8:
            raise InputError(f"expected {path} as uint8 {shape}, got {array.dtype} {array.shape}")
        return array
