"""CIFAR-100 (Krizhevsky 2009), from the official binary or Python files; its hundred fine classes."""

from pathlib import Path

import numpy as np

from scs_eval.data.cifar10 import Images, Labels, read_pickles
from scs_eval.data.places import places
from scs_eval.errors import InputError

CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip
BINARY, PYTHON = "cifar-100-binary", "cifar-100-python"
URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
RECORD_BYTES = 2 + 3 * 32 * 32  # the coarse and the fine label, then the red, green and blue planes row by row


def read_cifar100(data_dir: str | Path | None = None, *, train: bool) -> tuple[Images, Labels]:
    """The 50,000 training or 10,000 test images, (N, 3, 32, 32), and their fine labels, (N,)."""
    split, searched = "train" if train else "test", places(data_dir)
    for location in searched:
        for folder in (location.path / BINARY, location.path / PYTHON, location.path):
            if (folder / f"{split}.bin").is_file():
                return _read_binary(folder / f"{split}.bin")
            if folder.name == PYTHON and all((folder / name).is_file() for name in ("train", "test", "meta")):
                return read_pickles("CIFAR100", folder, train=train, otherwise="get them again")
    looked = ", ".join(str(location.path) for location in searched)
    raise InputError(
        f"expected CIFAR-100 ({BINARY} or {PYTHON}) in {looked}, found none; unpack {URL} into one of them, "
        "or give the folder you unpacked it in as --data-dir"
    )


def _read_binary(path: Path) -> tuple[Images, Labels]:
    length = path.stat().st_size
    if length == 0 or length % RECORD_BYTES:
        raise InputError(f"expected whole records of {RECORD_BYTES} bytes in {path}, got {length} bytes; get it again")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD_BYTES)
    if (highest := int(records[:, 1].max())) >= len(CLASSES):
        raise InputError(f"expected fine labels 0 to 99 in {path}, got {highest}; the file is damaged, get it again")
    return np.ascontiguousarray(records[:, 2:]).reshape(-1, 3, 32, 32), records[:, 1].astype(np.int64)
