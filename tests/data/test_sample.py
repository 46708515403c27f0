import os
from importlib.resources import files

import numpy as np
import pytest

from scs_eval.data import cifar10
from scs_eval.data.build_sample import build_sample
from scs_eval.data.sample import read_sample, sample_classes, sample_origin

# Channel means of the 10,000 test images, computed from the binary files.
TEST_MEAN = (0.4942, 0.4851, 0.4504)


def test_a_hundred_of_each_class():
    images, labels, indices = read_sample()
    assert images.shape == (1000, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == indices.dtype == np.int64
    assert np.bincount(labels).tolist() == [100] * 10
    assert (np.diff(indices) > 0).all()
    assert indices.min() >= 0
    assert indices.max() < 10_000
    assert len(np.unique(images.reshape(1000, -1), axis=0)) == 1000
    assert sample_classes() == cifar10.CLASSES


def test_looks_like_cifar10():
    images = read_sample()[0] / 255
    # An image's channel mean has standard deviation 0.125 to 0.153, the mean of 1,000 of them 0.005; three of those.
    assert np.allclose(images.mean((0, 2, 3)), TEST_MEAN, atol=0.015)
    # Neighbours are alike: they differ by 0.061 and 0.054 in the whole test set, by 0.21 and 0.094 with axes mixed up.
    assert np.abs(np.diff(images, axis=2)).mean() < 0.08
    assert np.abs(np.diff(images, axis=3)).mean() < 0.08


def test_small_and_with_its_origin():
    folder = files("scs_eval.data")
    assert len(folder.joinpath("sample.npz").read_bytes()) <= 3_000_000
    assert "Krizhevsky" in sample_origin()
    assert folder.joinpath("sample.txt").read_text() == sample_origin()


def test_no_pickle_inside():
    with files("scs_eval.data").joinpath("sample.npz").open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        assert {name: arrays[name].dtype.kind for name in arrays} == {
            "png": "u", "labels": "u", "indices": "i", "classes": "U", "origin": "U",
        }  # fmt: skip


def test_build_is_lossless_and_repeatable(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", 1500)
    records = np.random.default_rng(0).integers(0, 256, (1500, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(1500) % 10
    records.tofile(tmp_path / "test_batch.bin")
    build_sample(tmp_path, tmp_path / "one.npz")
    build_sample(tmp_path, tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    monkeypatch.setattr("scs_eval.data.sample.files", lambda package: tmp_path)
    monkeypatch.setattr("scs_eval.data.sample.FILE", "one.npz")
    images, labels, indices = read_sample()
    assert np.array_equal(images, records[indices, 1:].reshape(-1, 3, 32, 32))
    assert np.array_equal(labels, records[indices, 0])
    assert np.bincount(labels).tolist() == [100] * 10


@pytest.mark.skipif("SCS_EVAL_DATA" not in os.environ, reason="compares with CIFAR-10 in $SCS_EVAL_DATA")
def test_identical_to_the_test_set(tmp_path):
    images, labels, indices = read_sample()
    real_images, real_labels = cifar10.read_cifar10(train=False)
    assert np.array_equal(images, real_images[indices])
    assert np.array_equal(labels, real_labels[indices])
    assert np.allclose(real_images.mean((0, 2, 3)) / 255, TEST_MEAN, atol=1e-4)
    build_sample(None, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again:
        assert np.array_equal(again["indices"], indices)
