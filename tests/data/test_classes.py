"""Which classes the folders are: against torchvision's names and reader, and in ImageNet's own layout."""

from pathlib import Path

import photographs
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.models import ResNet18_Weights

from scs_eval import InputError, load_data
from scs_eval.data.class_names import imagenet
from scs_eval.data.folder import list_images
from scs_eval.data.sources import count_classes


def folders(root: Path, *names: str) -> Path:
    for shade, name in enumerate(names):
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4), shade).save(root / name / "0.png")
    return root


def test_imagenets_classes_are_torchvisions_in_the_order_of_synsets():
    assert list(imagenet().values()) == ResNet18_Weights.DEFAULT.meta["categories"]
    assert list(imagenet()) == sorted(imagenet())  # by which ImageNet's classes are numbered
    assert imagenet()["n02123045"] == "tabby"


def test_a_folder_is_listed_as_torchvisions_reader_does(tmp_path):
    root = photographs.real(tmp_path / "val")
    theirs = ImageFolder(root)
    classes, paths, labels = list_images(root)
    assert list(classes) == theirs.classes
    assert [(str(path), label) for path, label in zip(paths, labels, strict=True)] == theirs.samples


@pytest.mark.parametrize("names", [("n01440764", "n02123045", "n15075141"), ("tabby", "Tench", "toilet_tissue")])
def test_some_of_imagenets_classes(tmp_path, names):
    root = folders(tmp_path / "val", *names)
    data = load_data(root, num_classes=1000)
    assert len(data.classes) == 1000
    assert sorted(data.labels.tolist()) == [0, 281, 999]
    assert {data.classes[label] for label in data.labels} == {"tench", "tabby", "toilet tissue"}
    few = load_data(root, num_classes=3)  # a network of these three alone
    assert few.labels.tolist() == [0, 1, 2]
    assert set(few.classes) == {"tench", "tabby", "toilet tissue"}


def test_other_folders_need_a_list_of_the_networks_classes(tmp_path):
    root = folders(tmp_path / "pets", "cat", "my dog")
    assert load_data(root).classes == load_data(root, num_classes=2).classes == ("cat", "my dog")
    with pytest.raises(InputError, match=r"tells 3 classes apart, and .*pets has 2 \(cat, my dog\); name its class"):
        load_data(root, num_classes=3)
    (root / "classes.txt").write_text("my dog\tpoodle\nbird\ncat\tpersian\n")
    for number in (3, None):
        data = load_data(root, num_classes=number)
        assert data.classes == ("poodle", "bird", "persian")
        assert data.labels.tolist() == [2, 0]
    (root / "classes.txt").write_text("my dog\nbird\n")
    with pytest.raises(InputError, match=r"class folder 'cat' of .*pets is not in classes.txt \(my dog, bird\)"):
        load_data(root)


def test_imagenets_layout_of_training_and_validation(tmp_path):
    folders(tmp_path / "imagenet" / "train", "n01440764", "n02123045", "n15075141")
    root = folders(tmp_path / "imagenet" / "val", "n01440764", "n02123045").parent
    assert load_data(root).classes == ("tench", "tabby")
    assert load_data(root, split="train").classes == ("tench", "tabby", "toilet tissue")
    assert count_classes(root) == 2
    (root / "classes.txt").write_text("n01440764 fish\nn02123045 cat\n")
    assert load_data(root).classes == ("fish", "cat")
    with pytest.raises(InputError, match="which has no such split"):
        load_data(root / "val", split="train")
    folders(tmp_path / "half" / "train", "cat")
    with pytest.raises(InputError, match=r"expected a folder val or test in .*half, got train"):
        load_data(tmp_path / "half")
    assert load_data(folders(tmp_path / "steps", "test", "train")).classes == ("test", "train")  # mere names


def test_counting_the_classes_of_a_name_reads_nothing(monkeypatch):
    monkeypatch.setattr("scs_eval.data.sources.read_cifar10", lambda *_, **__: pytest.fail("read"))
    counts = {name: count_classes(name) for name in ("cifar10", "cifar100", "mnist", "cifar10-c:fog:2")}
    assert counts == {"cifar10": 10, "cifar100": 100, "mnist": 10, "cifar10-c:fog:2": 10}
