"""Images and folders of every bad kind."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile import refused, works_or_refused
from PIL import Image

from scs_eval import load_data


def png(width: int, height: int, *, bits: int = 8, colour: int = 2, body: bytes = b"") -> bytes:
    """A PNG that claims a size, with whatever body."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


FILES: dict[str, bytes] = {
    "empty": b"",
    "text": b"not an image",
    "png magic": b"\x89PNG\r\n\x1a\n",
    "png of 0 by 0": png(0, 0),
    "png of 60000 by 1": png(60_000, 1, body=(b"\0" + b"\x80" * 180_000)),
    "png of 1 by 60000": png(1, 60_000, body=b"\0\x80\x80\x80" * 60_000),
    "png of 2^31": png(2**31 - 1, 2**31 - 1),
    "png of 50000 by 50000": png(50_000, 50_000),
    "png without pixels": png(32, 32),
    "png of 16 bits": png(4, 4, bits=16, body=(b"\0" + b"\x80" * 24) * 4),
    "jpeg magic": b"\xff\xd8\xff\xe0",
    "gif magic": b"GIF89a",
    "tiff magic": b"II*\0",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "html": b"<html>",
    "zip": b"PK\x03\x04",
}


@pytest.mark.parametrize("size", [None, 32, 256], ids=lambda size: f"size={size}")
@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_a_bad_file_among_good_ones(tmp_path: Path, content: bytes, size: int | None) -> None:
    folder = _folder(tmp_path)
    (folder / "cat" / "bad.png").write_bytes(content)
    works_or_refused(lambda: load_data(str(folder), size=size))


def _folder(path: Path) -> Path:
    for name in ("cat", "dog"):
        (path / "data" / name).mkdir(parents=True)
        pixels = np.full((40, 40, 3), 90 if name == "cat" else 160, dtype=np.uint8)
        Image.fromarray(pixels).save(path / "data" / name / "good.png")
    return path / "data"


def _loop(folder: Path) -> None:
    (folder / "cat" / "loop").symlink_to(folder / "cat" / "loop")


def _up(folder: Path) -> None:
    (folder / "cat" / "up").symlink_to(folder)


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "cat" / "pipe.png")


def _device(folder: Path) -> None:
    (folder / "cat" / "zero.png").symlink_to("/dev/zero")


def _names(folder: Path) -> None:
    (folder / "$\\frac{$").mkdir()
    Image.new("RGB", (40, 40)).save(folder / "$\\frac{$" / "<script>.png")


def _undecodable(folder: Path) -> None:
    bad = os.fsencode(folder) + b"/\xff\xfe"
    Path(os.fsdecode(bad)).mkdir()
    Image.new("RGB", (40, 40)).save(os.fsdecode(bad + b"/a.png"))


def _escapes(folder: Path) -> None:
    (folder / "\x1b[31mred").mkdir()
    Image.new("RGB", (40, 40)).save(folder / "\x1b[31mred" / "a.png")


def _long(folder: Path) -> None:
    (folder / ("x" * 250)).mkdir()
    Image.new("RGB", (40, 40)).save(folder / ("x" * 250) / "a.png")


def _empty_class(folder: Path) -> None:
    (folder / "bird").mkdir()


def _other_size(folder: Path) -> None:
    Image.new("RGB", (64, 20)).save(folder / "cat" / "other.png")


TRAPS: dict[str, Callable[[Path], None]] = {
    "link to itself": _loop, "link to the folder above": _up, "pipe": _fifo, "device": _device, "names": _names,
    "undecodable name": _undecodable, "escape sequences": _escapes, "long name": _long, "empty class": _empty_class,
    "another size": _other_size,
}  # fmt: skip


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())
def test_folders_with_traps(tmp_path: Path, trap: Callable[[Path], None], skip_bad: bool) -> None:
    folder = _folder(tmp_path)
    trap(folder)
    works_or_refused(lambda: load_data(str(folder), size=32, skip_bad=skip_bad))


@pytest.mark.parametrize("name", ["nothing", "", "sample/", "cifar10/../x", "\x00", "a" * 5000, "/dev/null", "*"])
def test_names_of_data_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    refused(lambda: load_data(name))


@pytest.mark.parametrize("options", [
    {"n": 0}, {"n": -1}, {"n": 10**12}, {"n": 1.5}, {"size": 0}, {"size": -3}, {"size": 100_000}, {"size": 10**12},
    {"seed": -1}, {"seed": 2**80}, {"n": "3"},
], ids=str)  # fmt: skip
def test_numbers_that_choose_nothing(options: dict[str, object]) -> None:
    works_or_refused(lambda: load_data("sample", **options))
