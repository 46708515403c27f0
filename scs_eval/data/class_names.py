"""Which classes the folders of a data set are: ImageNet's or CIFAR's by name, or those of a list beside the images.

A network's logits have an order; that of class folders is alphabetical. Where a folder holds only some of the network's
classes, or calls them by WordNet's synsets (n02123045 is the tabby cat), a list says which is which.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scs_eval.data.cifar10 import CLASSES as CIFAR10
from scs_eval.data.cifar100 import CLASSES as CIFAR100
from scs_eval.errors import InputError, check_name

LIST = "classes.txt"
SYNSET = re.compile(r"n\d{8} ")
Names = tuple[str, ...]
Listed = dict[str, str]  # what a folder is called -> what its class is called, in the order of the logits


@cache
def imagenet() -> Listed:
    """ImageNet's synsets and torchvision's names for them, in the order of the logits of every ImageNet network."""
    return _parsed(files("scs_eval.data").joinpath("imagenet.txt").read_text(encoding="utf-8"))


def arrange(folder: Path, names: Names, *, num_classes: int | None) -> tuple[Names, NDArray[np.int64]]:
    """The classes' names, and where among them stands each of the class folders `found`.

    The names are those of all `num_classes` logits if a list has as many: the folder's own `classes.txt`, else
    ImageNet's or CIFAR's if it has all that were found. Without such a number they are those of `classes.txt` or of
    `found`.
    """
    for name in names:
        check_name(name, what="class name")
    own = _own_list(folder)
    listed = own or _known_of(names, num_classes)
    if listed and (num_classes == len(listed) or (own and num_classes is None)):
        keys = list(listed)
        return tuple(listed.values()), np.array([keys.index(_key(name, listed, folder)) for name in names])
    if num_classes not in (None, len(names)):
        raise InputError(
            f"the network tells {num_classes} classes apart, and {folder} has {len(names)} ({_few(names)}); name its "
            f"class folders as ImageNet does (n02123045 or tabby) or CIFAR (cat), or list the network's classes in "
            f"{folder / LIST}, a line for each: folder, tab, name"
        )
    return tuple(listed[_key(name, listed, folder)] for name in names) if listed else names, np.arange(len(names))


def known_classes(count: int | None) -> Names:
    """What a network with so many classes most likely calls them: CIFAR's or ImageNet's names, else their numbers."""
    listed = _lists().get(count or 0)
    return tuple(listed.values()) if listed else tuple(map(str, range(count or 0)))


def _lists() -> dict[int, Listed]:
    """The lists that everybody knows, by their length."""
    return {len(CIFAR10): dict(zip(CIFAR10, CIFAR10, strict=True)), 100: dict(zip(CIFAR100, CIFAR100, strict=True)),
            len(imagenet()): imagenet()}  # fmt: skip


def _known_of(names: Names, count: int | None) -> Listed | None:
    """The known list of that length if it has all that were found, else ImageNet's if that has."""
    candidates = [_lists().get(count or 0), imagenet()]
    return next((listed for listed in candidates if listed and _has_all(listed, names)), None)


def _has_all(listed: Listed, names: Names) -> bool:
    known = {*listed, *map(_plain, listed.values())}
    return all(name in known or _plain(name) in known for name in names)


def _own_list(folder: Path) -> Listed | None:
    """The list in the folder, or beside it where that is `val` or `train`."""
    for path in (folder / LIST, folder.parent / LIST):
        if path.is_file() and (path.parent == folder or folder.name in ("train", "val", "test")):
            return _parsed(path.read_text(encoding="utf-8"))
    return None


def _parsed(text: str) -> Listed:
    """Lines of a folder's name, a tab and the class's name; of a synset and a name; or of one name for both."""
    names = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, _, name = line.partition(" " if SYNSET.match(line) else "\t")
        names[key.strip()] = name.strip() or key
    return names


def _key(name: str, listed: Listed, folder: Path) -> str:
    """The entry that a class folder stands for: its own, or the one whose class it is named after."""
    if name in listed:
        return name
    for key, called in listed.items():
        if _plain(called) == _plain(name):
            return key
    raise InputError(f"the class folder {name!r} of {folder} is not in {LIST} ({_few(tuple(listed))})")


def _plain(name: str) -> str:
    return name.lower().replace("_", " ")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
