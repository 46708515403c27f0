"""Images of every kind: official files against torchvision's readers, arrays, datasets of torch and Hugging Face."""

import gzip
import struct

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision.datasets import MNIST, FakeData, ImageFolder

from scs_eval import load_data
from scs_eval.data import cifar100
from scs_eval.errors import InputError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture(autouse=True)
def _nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCS_EVAL_DATA", raising=False)


def test_cifar100s_binary_files(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    pictures = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    fine = np.array([99, 0, 41, 7], dtype=np.uint8)
    records = np.concatenate([np.full((4, 1), 3, np.uint8), fine[:, None], pictures.reshape(4, -1)], 1)
    records.tofile(folder / "test.bin")
    data = load_data("cifar100", data_dir=tmp_path)
    assert torch.equal(data.images, torch.from_numpy(pictures).float() / 255)
    assert [data.classes[label] for label in data.labels] == ["worm", "apple", "lawn_mower", "beetle"]
    assert (data.source, len(cifar100.CLASSES)) == ("cifar100:test", 100)
    with pytest.raises(InputError, match=r"expected CIFAR-100 .* found none; unpack"):
        load_data("cifar100", split="train", data_dir=tmp_path)
    (folder / "test.bin").write_bytes(b"short")
    with pytest.raises(InputError, match="whole records of 3074 bytes"):
        load_data("cifar100", data_dir=tmp_path)


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
@pytest.mark.parametrize("packed", [False, True])
def test_mnists_files_as_torchvision_reads_them(tmp_path, name, folder, packed):
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    grey, labels = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8), np.array([3, 0, 9, 9, 1], dtype=np.uint8)
    for part in ("train", "t10k"):
        for stem, values in ((f"{part}-images-idx3-ubyte", grey), (f"{part}-labels-idx1-ubyte", labels)):
            (raw / stem).write_bytes(idx(values))
    theirs = MNIST(tmp_path, train=False) if name == "mnist" else None
    if packed:
        for path in list(raw.iterdir()):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    data = load_data(name, data_dir=tmp_path)
    assert torch.equal(data.images, torch.from_numpy(grey).float()[:, None].expand(-1, 3, -1, -1) / 255)
    assert data.labels.tolist() == labels.tolist()
    assert data.classes[9] == {"mnist": "9", "fashion-mnist": "ankle boot"}[name]
    assert torch.equal(load_data(name, data_dir=raw).images, data.images)  # the folder of the files itself
    if theirs is not None:
        assert torch.equal(theirs.data.float() / 255, data.images[:, 0])
    other = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}[name]
    with pytest.raises(InputError, match="found none"):  # its files have the same names, and are not in its folder
        load_data(other, data_dir=raw)


def test_cifar10_c(tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    fog = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    labels = np.array([3, 5] * 5)
    np.save(folder / "fog.npy", fog)
    np.save(folder / "labels.npy", labels)
    whole = load_data(folder / "fog.npy")
    assert torch.equal(whole.images, torch.from_numpy(fog).permute(0, 3, 1, 2).float() / 255)
    third = load_data("cifar10-c:fog:3", data_dir=tmp_path)
    assert third.indices.tolist() == [4, 5]
    assert torch.equal(third.images, whole.images[4:6])
    assert [third.classes[label] for label in third.labels] == ["cat", "dog"]
    with pytest.raises(InputError, match=r"no corruption 'fogg' .*did you mean fog"):
        load_data("cifar10-c:fogg", data_dir=tmp_path)
    for wrong in ("cifar10-c:fog:6", "cifar10-c:"):
        with pytest.raises(InputError, match="CORRUPTION:SEVERITY"):
            load_data(wrong, data_dir=tmp_path)


def test_arrays_and_tensors_of_any_layout(tmp_path):
    floats = torch.from_numpy(PIXELS).float() / 255
    for source in (PIXELS, PIXELS.transpose(0, 2, 3, 1), torch.from_numpy(PIXELS), floats, floats.double().numpy()):
        data = load_data(source, labels=LABELS, classes=["a", "b", "c"])
        assert torch.equal(data.images, floats)
        assert (data.labels.tolist(), data.classes) == (LABELS.tolist(), ("a", "b", "c"))
    grey = load_data(PIXELS[:, 0])
    assert torch.equal(grey.images, floats[:, :1].expand(-1, 3, -1, -1))
    assert not grey.labelled
    np.savez(tmp_path / "few.npz", images=PIXELS, labels=LABELS)
    stored = load_data(tmp_path / "few.npz")
    assert torch.equal(stored.images, floats)
    assert stored.classes == ("0", "1", "2")
    np.savez(tmp_path / "other.npz", pictures=PIXELS)
    with pytest.raises(InputError, match=r"an array `images` in .*other.npz, got pictures"):
        load_data(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("source", "labels", "message"),
    [
        (PIXELS.astype(np.int64), None, "as bytes .uint8. or as floats"),
        (2.0 * PIXELS / 255, None, r"in \[0, 1\], got \[.*\]; give them before normalising"),
        (PIXELS[0, 0], None, r"expected images \(N, 3, H, W\)"),
        (PIXELS, LABELS[:2], "expected 6 labels"),
        (PIXELS, LABELS + 0.5, "labels as whole numbers"),
    ],
)
def test_wrong_arrays(source, labels, message):
    with pytest.raises(InputError, match=message):
        load_data(source, labels=labels)


def test_a_large_array_is_scaled_when_it_is_used(monkeypatch):
    small = load_data(PIXELS, labels=LABELS, size=12)
    monkeypatch.setattr("scs_eval.data.load.IN_MEMORY", 100)
    large = load_data(PIXELS, labels=LABELS, size=12)
    assert not isinstance(large.images, torch.Tensor)
    assert torch.equal(large.images[:], small.images)
    assert torch.equal(large.subset(LABELS == 1).images[:], small.images[[1, 4]])


class Table:
    """As Hugging Face's datasets: columns by name, examples by number, names of the classes in the features."""

    class Feature:
        names = ("cat", "dog")

    column_names, features = ("img", "label"), {"label": Feature(), "img": None}

    def __len__(self):
        return 4

    def __getitem__(self, key):
        if isinstance(key, str):
            assert key == "label", "pixels were asked for to know the labels"
            return [0, 1, 1, 0]
        return {"img": Image.fromarray(PIXELS[key].transpose(1, 2, 0)), "label": self["label"][key]}


def test_a_hugging_face_dataset():
    data = load_data(Table(), n=2, seed=3)
    assert data.classes == ("cat", "dog")
    assert sorted(data.labels.tolist()) == [0, 1]
    assert torch.equal(data.images[:], torch.from_numpy(PIXELS)[data.indices].float() / 255)
    assert load_data(Table(), size=5).images[:1].shape == (1, 3, 5, 5)


class Untold(Dataset):
    """Pairs, and nothing else."""

    def __len__(self):
        return len(PIXELS)

    def __getitem__(self, index):
        return torch.from_numpy(PIXELS[index]).float() / 255, int(LABELS[index])


def test_torchs_datasets(tmp_path):
    floats = torch.from_numpy(PIXELS).float() / 255
    for dataset in (Untold(), TensorDataset(floats, torch.from_numpy(LABELS))):
        data = load_data(dataset)
        assert torch.equal(data.images[:], floats)
        assert data.labels.tolist() == LABELS.tolist()
    part = load_data(Subset(Untold(), [4, 0]))
    assert torch.equal(part.images[:], floats[[4, 0]])
    assert part.labels.tolist() == [1, 0]
    pictures = FakeData(size=3, image_size=(3, 9, 9), num_classes=4)
    assert load_data(pictures).images[:].shape == (3, 3, 9, 9)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(PIXELS[0].transpose(1, 2, 0)).save(tmp_path / name / "0.png")
    folder = load_data(ImageFolder(tmp_path))
    assert (folder.classes, folder.labels.tolist()) == (("cat", "dog"), [0, 1])
    assert torch.equal(folder.images[:], load_data(tmp_path).images[:])


def test_pixels_out_of_range_are_found_when_they_are_read():
    bright = [(torch.full((3, 4, 4), 2.0), 0)]

    class Bright(Untold):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return bright[index]

    with pytest.raises(InputError, match=r"images in \[0, 1\], got \[2, 2\]"):
        load_data(Bright()).images[:]


def test_folders_of_some_of_a_networks_classes_by_name(tmp_path):
    for name in ("dog", "Cat"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "0.png")
    data = load_data(tmp_path, num_classes=10)
    assert sorted(data.labels.tolist()) == [3, 5]
    assert len(data.classes) == 10
    assert load_data(tmp_path, num_classes=2).labels.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"tells 100 classes apart, and .* has 2"):
        load_data(tmp_path, num_classes=100)
