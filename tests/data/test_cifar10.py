import hashlib
import pickle
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest
import torchvision.datasets.cifar
from torchvision.datasets import CIFAR10

from scs_eval.data import cifar10
from scs_eval.data.cifar10 import BINARY, PYTHON, read_cifar10
from scs_eval.errors import InputError

RECORDS = 5


@pytest.fixture(autouse=True)
def small_world(tmp_path, monkeypatch):
    """No data anywhere, no network, and files of five records."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCS_EVAL_DATA", raising=False)
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    monkeypatch.setattr(urllib.request, "urlopen", _no_network)


def _no_network(*args, **kwargs):
    raise urllib.error.URLError("no network in tests")


def _records(seed):
    labels = [(seed + i) % 10 for i in range(RECORDS)]
    return labels, np.random.default_rng(seed).integers(0, 256, (RECORDS, 3, 32, 32), dtype=np.uint8)


def write_binary(folder, seeds=range(6)):
    """Six hand-made files: per record one label byte, then the red, green and blue planes row by row."""
    folder.mkdir(parents=True)
    for name, seed in zip(["test_batch", *(f"data_batch_{i}" for i in range(1, 6))], seeds, strict=True):
        labels, images = _records(seed)
        parts = [bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(parts))


def write_python(folder, monkeypatch):
    """Six hand-made pickles and the metadata, whose MD5 sums torchvision is told to expect."""
    folder.mkdir(parents=True)

    def write(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(seed):
        labels, images = _records(seed)
        return {"data": images.reshape(RECORDS, -1), "labels": labels}

    meta = write("batches.meta", {"label_names": list(cifar10.CLASSES)})
    monkeypatch.setattr(CIFAR10, "test_list", [write("test_batch", batch(0))])
    monkeypatch.setattr(CIFAR10, "train_list", [write(f"data_batch_{i}", batch(i)) for i in range(1, 6)])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})


def assert_is_set(result, seeds):
    images, labels = result
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert np.array_equal(images, np.concatenate([_records(seed)[1] for seed in seeds]))
    assert labels.tolist() == [label for seed in seeds for label in _records(seed)[0]]


def test_official_numbers():
    assert cifar10.RECORD_BYTES == 3073
    assert cifar10.CLASSES[0] == "airplane"
    assert cifar10.CLASSES[9] == "truck"


def test_one_record_byte_by_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", 1)
    (tmp_path / BINARY).mkdir()
    red, green, blue = (bytes([value] * 1024) for value in (10, 20, 30))
    (tmp_path / BINARY / "test_batch.bin").write_bytes(b"\x07" + b"\xff" + red[1:] + green[:-1] + b"\x63" + blue)
    images, labels = read_cifar10(tmp_path, train=False)
    assert labels.tolist() == [7]
    assert images[0, 0, 0].tolist() == [255] + [10] * 31  # the first byte after the label is red, top left
    assert images[0, 1, 31].tolist() == [20] * 31 + [99]  # the last green one is bottom right
    assert (images[0, 2] == 30).all()


def test_binary_layout(tmp_path):
    write_binary(tmp_path / BINARY)
    assert_is_set(read_cifar10(tmp_path, train=False), [0])
    assert_is_set(read_cifar10(tmp_path, train=True), range(1, 6))
    assert_is_set(read_cifar10(tmp_path / BINARY, train=False), [0])  # the folder itself will do, too


def test_python_layout(tmp_path, monkeypatch):
    write_python(tmp_path / PYTHON, monkeypatch)
    assert_is_set(read_cifar10(tmp_path, train=False), [0])
    assert_is_set(read_cifar10(tmp_path, train=True), range(1, 6))
    assert_is_set(read_cifar10(tmp_path / PYTHON, train=True), range(1, 6))


def test_python_layout_with_other_contents_is_not_unpickled(tmp_path, monkeypatch):
    write_python(tmp_path / PYTHON, monkeypatch)
    with (tmp_path / PYTHON / "test_batch").open("ab") as file:
        file.write(b"x")
    monkeypatch.setattr(pickle, "load", lambda *a, **k: pytest.fail("unpickled an unchecked file"))
    with pytest.raises(InputError, match=r"MD5 sums differ.*remove the folder"):
        read_cifar10(tmp_path, train=False)


def test_places_in_order(tmp_path, monkeypatch):
    argument, variable, cache = tmp_path / "argument", tmp_path / "variable", tmp_path / "cache" / "scs-eval"
    monkeypatch.setenv("SCS_EVAL_DATA", str(variable))
    write_binary(cache / BINARY, seeds=range(20, 26))
    assert_is_set(read_cifar10(train=False), [20])
    write_binary(variable / BINARY, seeds=range(10, 16))
    assert_is_set(read_cifar10(train=False), [10])
    argument.mkdir()
    assert_is_set(read_cifar10(argument, train=False), [10])  # nothing there: on to the next place
    write_binary(argument / BINARY)
    assert_is_set(read_cifar10(argument, train=False), [0])


def test_a_set_with_a_missing_file_is_passed_over(tmp_path, monkeypatch):
    write_binary(tmp_path / "partial" / BINARY, seeds=range(6))
    write_binary(tmp_path / "whole" / BINARY, seeds=range(10, 16))
    (tmp_path / "partial" / BINARY / "data_batch_3.bin").unlink()
    monkeypatch.setenv("SCS_EVAL_DATA", str(tmp_path / "whole"))
    assert_is_set(read_cifar10(tmp_path / "partial", train=True), range(11, 16))
    assert_is_set(read_cifar10(tmp_path / "partial", train=False), [0])


def test_a_relative_cache_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    write_binary(tmp_path / ".cache" / "scs-eval" / BINARY)
    assert_is_set(read_cifar10(train=False), [0])


@pytest.mark.parametrize("change", [-1, 1, -3073])
def test_wrong_file_size(tmp_path, change):
    write_binary(tmp_path / BINARY)
    path = tmp_path / BINARY / "test_batch.bin"
    path.write_bytes((path.read_bytes() + b"\0")[: RECORDS * 3073 + change])
    with pytest.raises(InputError, match=rf"expected 15365 bytes in .*test_batch.bin, got {15365 + change};"):
        read_cifar10(tmp_path, train=False)


def test_label_out_of_range(tmp_path):
    write_binary(tmp_path / BINARY)
    path = tmp_path / BINARY / "data_batch_2.bin"
    content = bytearray(path.read_bytes())
    content[3 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"labels 0 to 9 in .*data_batch_2.bin, got 10 in record 3;"):
        read_cifar10(tmp_path, train=True)


def test_missing_data_dir(tmp_path):
    with pytest.raises(InputError, match=r"expected a folder as --data-dir, got .*nowhere"):
        read_cifar10(tmp_path / "nowhere", train=False)


def test_download(tmp_path, monkeypatch, capfd):
    def download(url, root, filename, md5):
        assert socket.getdefaulttimeout() == cifar10.DOWNLOAD_TIMEOUT
        print("Downloading")  # as older versions of torchvision do
        write_python(tmp_path / "server", monkeypatch)
        (tmp_path / "server").rename(f"{root}/{PYTHON}")

    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", download)
    assert_is_set(read_cifar10(train=True), range(1, 6))
    assert capfd.readouterr().out == ""  # stdout is for results
    assert [path.name for path in (tmp_path / "cache" / "scs-eval").iterdir()] == [PYTHON]
    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", None)  # must not be needed again
    assert_is_set(read_cifar10(train=False), [0])


def test_no_network(tmp_path):
    with pytest.raises(InputError) as caught:
        read_cifar10(train=False)
    message = str(caught.value)
    assert "\n" not in message
    assert "no network in tests" in message
    assert "cifar-10-binary.tar.gz" in message
    assert str(tmp_path / "cache" / "scs-eval" / BINARY / "test_batch.bin") in message
    assert list((tmp_path / "cache" / "scs-eval").iterdir()) == []
    assert socket.getdefaulttimeout() is None


def test_a_broken_download_leaves_nothing(tmp_path, monkeypatch):
    def download(url, root, filename, md5):
        write_python(tmp_path / "server", monkeypatch)
        (tmp_path / "server").rename(f"{root}/{PYTHON}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", download)
    with pytest.raises(InputError, match="No space left on device"):
        read_cifar10(train=False)
    assert list((tmp_path / "cache" / "scs-eval").iterdir()) == []


def test_another_process_downloads_first(tmp_path, monkeypatch):
    def download(url, root, filename, md5):
        write_python(tmp_path / "cache" / "scs-eval" / PYTHON, monkeypatch)
        raise OSError("whatever")

    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", download)
    assert_is_set(read_cifar10(train=False), [0])
