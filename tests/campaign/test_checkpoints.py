"""Checkpoint files of every bad kind: refused in a line, nothing run, no memory spent."""

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hostile import refused, works_or_refused
from safetensors.torch import save_file
from torch import Tensor

from scs_eval import create_model, load_model

NAME = "rohrer25k_conv"


def state() -> dict[str, Tensor]:
    return {key: value.contiguous() for key, value in create_model(NAME).state_dict().items()}


class Touch:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def _header(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + body


def _entry(**changes: object) -> bytes:
    return json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}).encode()


RAW: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"\x00",
    "text": b"hello",
    "html": b"<html><body>404</body></html>",
    "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "header longer than the file": struct.pack("<Q", 10**6) + b"{}",
    "header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "header is no json": _header(b"{{{{"),
    "header is a list": _header(b"[]"),
    "header is a number": _header(b"3"),
    "header is null": _header(b"null"),
    "header of nested lists": _header(b"[" * 5000),
    "no tensors": _header(b"{}"),
    "metadata alone": _header(b'{"__metadata__": {"name": "rohrer25k_conv"}}'),
    "metadata is a list": _header(b'{"__metadata__": []}'),
    "offsets beyond the file": _header(_entry(data_offsets=[0, 10**12]), b"\0" * 8),
    "offsets backwards": _header(_entry(data_offsets=[8, 0]), b"\0" * 8),
    "negative offsets": _header(_entry(data_offsets=[-8, 0]), b"\0" * 8),
    "shape larger than data": _header(_entry(shape=[10**9]), b"\0" * 8),
    "negative shape": _header(_entry(shape=[-2]), b"\0" * 8),
    "shape of 2^62": _header(_entry(shape=[2**62]), b"\0" * 8),
    "unknown dtype": _header(_entry(dtype="F1024"), b"\0" * 8),
    "dtype is a number": _header(_entry(dtype=3), b"\0" * 8),
    "zip without anything": b"PK\x05\x06" + b"\0" * 18,
    "zip magic alone": b"PK\x03\x04",
    "pickle of a number": pickle.dumps(3),
    "pickle of None": pickle.dumps(None),
    "pickle of a list": pickle.dumps([1, 2]),
    "pickle magic alone": b"\x80\x02",
    "png": b"\x89PNG\r\n\x1a\n" + b"\0" * 32,
    "gzip": b"\x1f\x8b" + b"\0" * 32,
    "hdf5": b"\x89HDF\r\n\x1a\n" + b"\0" * 64,
}
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


@pytest.mark.parametrize("suffix", SUFFIXES[:2])
@pytest.mark.parametrize("content", RAW.values(), ids=RAW.keys())
def test_bytes_that_are_no_checkpoint(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(content)
    refused(lambda: load_model(str(path)))
    refused(lambda: load_model(str(path), arch=NAME))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("suffix", SUFFIXES[:2])
def test_truncated(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"model{suffix}"
    save_file(state(), path) if suffix == ".safetensors" else torch.save(state(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    refused(lambda: load_model(str(path), arch=NAME))


def _itself() -> object:
    loop: dict[str, object] = dict(state())
    loop["state_dict"] = loop
    return loop


SAVED: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "number": lambda: 3.0,
    "list": lambda: [torch.zeros(2)],
    "empty dict": dict,
    "strings": lambda: {"a": "b"},
    "contains itself": _itself,
    "deep": lambda: _nested(100),
    "no tensor": lambda: {"state_dict": {"epoch": 3}},
    "one tensor": lambda: torch.zeros(3),
    "number names": lambda: dict(enumerate(state().values())),
    "tensor without numbers": lambda: {key: torch.empty(0) for key in state()},
    "meta tensors": lambda: {key: value.to("meta") for key, value in state().items()},
    "int8": lambda: {key: value.to(torch.int8) for key, value in state().items()},
    "bool": lambda: {key: value.bool() for key, value in state().items()},
    "complex": lambda: {key: value.to(torch.complex64) for key, value in state().items()},
    "nan": lambda: {key: value * float("nan") for key, value in state().items()},
    "inf": lambda: {key: value * float("inf") for key, value in state().items()},
    "one missing": lambda: dict(list(state().items())[1:]),
    "one more": lambda: {**state(), "extra.weight": torch.zeros(3)},
    "transposed": lambda: {key: value.transpose(0, -1) for key, value in state().items()},
    "scalars": lambda: {key: torch.tensor(1.0) for key in state()},
    "expanded": lambda: {key: torch.zeros(1).expand(value.shape) for key, value in state().items()},
    "huge stride-0 head": lambda: {**state(), "head.weight": torch.zeros(1).expand(10**8, 10)},
    "sparse": lambda: {key: value.to_sparse() for key, value in state().items()},
    "endless name": lambda: {"net." * 50_000 + "weight": torch.zeros(3)},
    "escape sequences": lambda: {"\x1b[31mred\x07": torch.zeros(3)},
    "newlines": lambda: {"a\nb\r\nc": torch.zeros(3)},
    "right to left": lambda: {"\u202eweight": torch.zeros(3)},
    "optimizer state": lambda: {"optimizer": {"state": {}, "param_groups": []}},
}


def _nested(depth: int) -> object:
    value: object = state()
    for _ in range(depth):
        value = {"model": value}
    return value


@pytest.mark.parametrize("make", SAVED.values(), ids=SAVED.keys())
def test_saved_objects_that_are_no_state_dict(tmp_path: Path, make: Callable[[], object]) -> None:
    path = tmp_path / "model.pt"
    torch.save(make(), path)
    works_or_refused(lambda: load_model(str(path)))
    works_or_refused(lambda: load_model(str(path), arch=NAME))


MUST_BE_REFUSED = (
    "None",
    "int8",
    "bool",
    "complex",
    "nan",
    "inf",
    "one missing",
    "one more",
    "scalars",
    "meta tensors",
)


@pytest.mark.parametrize("kind", MUST_BE_REFUSED)
def test_never_accepted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.pt"
    torch.save(SAVED[kind](), path)
    refused(lambda: load_model(str(path), arch=NAME))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("where", ["top", "inside"])
def test_nothing_is_run(tmp_path: Path, legacy: bool, where: str) -> None:
    trap = tmp_path / "trapped"
    path = tmp_path / "model.pt"
    content = Touch(trap) if where == "top" else {**state(), "extra": Touch(trap)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    refused(lambda: load_model(str(path), arch=NAME))
    assert not trap.exists()


METADATA = [
    {"name": "nothing"}, {"name": ""}, {"name": "../../etc/passwd"}, {"name": "os:system"}, {"name": "x" * 100_000},
    {"name": NAME, "num_classes": "30000000"}, {"name": NAME, "num_classes": "-1"}, {"name": NAME, "num_classes": "0"},
    {"name": NAME, "num_classes": "ten"}, {"name": NAME, "num_classes": "1e3"}, {"name": NAME, "num_classes": "²"},
    {"name": "resnet152_bcos"}, {"name": "rohrer583k_conv"}, {"name": "\x1b[2J"}, {"name": "rohrer25k_conv\n"},
    {"converted": "{"}, {"converted": "[]"}, {"converted": '{"source": "os:system"}'},
    {"name": NAME, "seed": "x"}, {"name": NAME, "test_accuracy": "nan"},
]  # fmt: skip


@pytest.mark.parametrize("metadata", METADATA, ids=lambda metadata: ascii(metadata)[:60])
def test_metadata_that_lies(tmp_path: Path, metadata: dict[str, str]) -> None:
    path = tmp_path / "model.safetensors"
    save_file(state(), path, metadata=metadata)
    works_or_refused(lambda: load_model(str(path)))


def test_a_zip_that_inflates_a_thousand_times(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(3)}, path)
    with zipfile.ZipFile(path) as archive:
        names = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in names.items():
            archive.writestr(name, content if "data/" not in name else b"\0" * (400 << 20))
    refused(lambda: load_model(str(path)))


PATHS = ["nothing.pt", ".", "..", "/dev/null", "", " ", "a" * 5000, "a\x00b", "~nobody/x.pt", "http://example.org/a.pt",
         "torchvision:nothing", "torchvision:", "timm:nothing", "os:system", "file.py:factory", ":", "=", "a=", "=b",
         "rohrer25k_conv@-1", "rohrer25k_conv@x", "rohrer25k_conv@99999999999999999999", "rohrer25k_conv@*@*",
         "rohrer25k_nothing", "rohrer25k_conv_linear_linear", "rohrer25k_scs_p=nan", "*nothing*", "\x1b[31m",
         "\udcff"]  # fmt: skip


@pytest.mark.parametrize("name", PATHS, ids=lambda name: ascii(name)[:40])
def test_names_of_models_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    refused(lambda: load_model(name))
