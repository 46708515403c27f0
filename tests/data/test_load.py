from pathlib import Path

import numpy as np
import pytest
import torch

from scs_eval import ImageData, load_data
from scs_eval.data import cifar10
from scs_eval.data.sample import read_sample
from scs_eval.errors import InputError


def test_sample_is_the_default():
    data = load_data()
    images, labels, indices = read_sample()
    assert isinstance(data, ImageData)
    assert data.images.dtype == torch.float32
    assert torch.equal(data.images, torch.from_numpy(images.astype(np.float32) / np.float32(255)))
    assert data.labels.tolist() == labels.tolist()
    assert data.indices.tolist() == indices.tolist()
    assert data.classes == cifar10.CLASSES
    assert data.source == "sample"
    assert len(data) == 1000
    assert repr(data) == "ImageData(1000 images of 3×32×32, 10 classes, source='sample')"


def test_n_and_seed():
    everything, some = load_data(), load_data(n=30, seed=4)
    assert some.labels.bincount().tolist() == [3] * 10
    rows = torch.searchsorted(everything.indices, some.indices)
    assert torch.equal(everything.images[rows], some.images)
    assert torch.equal(everything.labels[rows], some.labels)
    assert torch.equal(load_data(n=30, seed=4).indices, some.indices)
    assert not torch.equal(load_data(n=30, seed=5).indices, some.indices)


def test_the_choice_does_not_touch_the_global_generators():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    load_data(n=3, seed=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_size():
    small, large = load_data(n=5, size=16), load_data(n=5, size=np.int64(64))
    assert small.images.shape == (5, 3, 16, 16)
    assert large.images.shape == (5, 3, 64, 64)
    images = load_data(n=5).images
    # Halving is symmetric about each pair of pixels: the triangle filter weighs 1, 3, 3, 1.
    weights = torch.tensor([1.0, 3, 3, 1]) / 8
    inner = torch.einsum("ncij,i,j->nc", images[:, :, 5:9, 11:15], weights, weights)
    assert torch.allclose(small.images[:, :, 3, 6], inner, atol=1e-6)  # float32
    assert torch.equal(load_data(n=5, size=32).images, images)


@pytest.fixture
def tiny_cifar10(tmp_path, monkeypatch):
    """Five records a file; the label of record i in file k is (k + i) % 10, every pixel 10 · k + i."""
    monkeypatch.delenv("SCS_EVAL_DATA", raising=False)
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", 5)
    for k, name in enumerate((*cifar10.TEST_FILES, *cifar10.TRAIN_FILES)):
        records = np.array([[(k + i) % 10] + [10 * k + i] * 3072 for i in range(5)], dtype=np.uint8)
        records.tofile(tmp_path / f"{name}.bin")
    return tmp_path


def test_cifar10(tiny_cifar10):
    test = load_data("cifar10", data_dir=tiny_cifar10)
    assert (test.source, len(test), test.classes) == ("cifar10:test", 5, cifar10.CLASSES)
    assert test.labels.tolist() == test.indices.tolist() == [0, 1, 2, 3, 4]
    train = load_data("cifar10", split="train", data_dir=tiny_cifar10)
    assert (train.source, len(train)) == ("cifar10:train", 25)
    assert (train.images[7] == 22 / 255).all()
    assert train.labels[7] == 4


def test_cifar10_indices_are_positions_in_the_set(tiny_cifar10):
    data = load_data("cifar10", split="train", n=9, seed=2, data_dir=tiny_cifar10)
    everything = load_data("cifar10", split="train", data_dir=tiny_cifar10)
    assert torch.equal(data.images, everything.images[data.indices])
    assert torch.equal(data.labels, everything.labels[data.indices])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1001}, "n of at most 1000, .* got 1001; ask for fewer"),
        ({"n": 0}, "n as a whole number of at least 1, got 0"),
        ({"n": -5}, "n as a whole number of at least 1, got -5"),
        ({"n": 2.5}, "n as a whole number of at least 1, got 2.5"),
        ({"size": 0}, "size as a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed as a whole number of at least 0, got -1"),
        ({"split": "val"}, "split 'test' or 'train', got 'val'"),
        ({"split": "train"}, "source 'cifar10' with split 'train', got 'sample', which has no such split"),
        ({"source": "sampel"}, "got 'sampel'; did you mean sample?"),
        ({"source": "CIFAR-10"}, "got 'CIFAR-10'; did you mean cifar10?"),
        (
            {"source": "zebra"},
            "sample, cifar10, .*, a folder of images or an image, got 'zebra'; there is no such folder or file",
        ),
        ({"source": ""}, "got ''; there is no such folder or file"),
        ({"source": "no/such"}, "a folder of images or an image, got no/such; there is no such folder or file"),
        (
            {"source": "cifar10", "data_dir": "no/such"},
            "a folder as --data-dir, got 'no/such'; there is no such folder",
        ),
    ],
)
def test_wrong_requests(options, message):
    with pytest.raises(InputError, match=f"^expected .*{message}$".replace("?$", r"\?$")) as caught:
        load_data(**options)
    assert "\n" not in str(caught.value)


def test_a_folder_named_like_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sample").mkdir()
    assert len(load_data("sample")) == 1000
    for source in ("./sample", Path("sample")):
        with pytest.raises(InputError, match="one folder per class in sample"):
            load_data(source)


def test_a_misspelt_keyword_is_not_swallowed():
    with pytest.raises(TypeError, match="sede"):
        load_data("sample", sede=1)


def make(**changes):
    fields = {
        "images": torch.rand(2, 3, 4, 4), "labels": torch.tensor([0, 1]), "classes": ("a", "b"),
        "indices": torch.tensor([5, 6]), "source": "test",
    }  # fmt: skip
    return ImageData(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": torch.rand(2, 1, 4, 4)}, r"shape \(N, 3, H, W\), got .*\(2, 1, 4, 4\)"),
        ({"images": torch.rand(2, 3, 4, 4).double()}, "float32 images .*, got torch.float64"),
        ({"images": torch.rand(2, 3, 4, 4) - 2}, r"images in \[0, 1\], got \[-.*before normalising"),
        ({"images": torch.full((2, 3, 4, 4), 1.5)}, r"images in \[0, 1\], got \[1.5, 1.5\]"),
        ({"images": torch.full((2, 3, 4, 4), torch.nan)}, r"images in \[0, 1\], got \[nan, nan\]"),
        ({"labels": torch.tensor([0, 2])}, "labels from 0 to 1, got 0 to 2"),
        ({"labels": torch.tensor([-1, 0])}, "labels from 0 to 1, got -1 to 0"),
        ({"labels": torch.tensor([0])}, r"one int64 per image \(2\) as labels, got torch.int64 \(1,\)"),
        ({"indices": torch.tensor([0.0, 1.0])}, "as indices, got torch.float32"),
    ],
)
def test_image_data_checks_itself(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)


def test_subset():
    data = load_data(n=10)
    for positions in (torch.tensor([3, 0]), slice(2, 4), data.labels > 6):
        part = data.subset(positions)
        assert torch.equal(part.images, data.images[positions])
        assert torch.equal(part.labels, data.labels[positions])
        assert torch.equal(part.indices, data.indices[positions])
        assert (part.classes, part.source) == (data.classes, data.source)
    assert len(data.subset(data.labels > 100)) == 0
    with pytest.raises(AttributeError):
        data.source = "other"
