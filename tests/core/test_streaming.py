"""Images that are read when used: every analysis gives the bits that it gives for a tensor, and holds few of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

import scs_eval
from scs_eval import images as streaming
from scs_eval import load_data
from scs_eval.analyses import catalogue
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.certify import CertifyOptions
from scs_eval.analyses.core import batching
from scs_eval.analyses.core.batching import images_at_once
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.detect import DetectOptions
from scs_eval.errors import InputError

COUNT, SIDE, CLASSES = 40, 16, ("a", "b", "c", "d", "e")
EPS = [0.02, 0.1]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """Untrained, and with an answer of its own for every image of noise."""
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * SIDE * SIDE, len(CLASSES))
    network = nn.Sequential(*layers).eval()
    with torch.no_grad():
        layers[-1].bias -= network(torch.rand(200, 3, SIDE, SIDE)).mean(0)  # so that no class always wins
    return network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: nn.Module) -> Path:
    """Images of noise, sorted into the classes that the model takes them for, but for one in seven."""
    root = tmp_path_factory.mktemp("folder")
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    with torch.no_grad():
        said = model(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255).argmax(1).tolist()
    assert len(set(said)) == len(CLASSES)
    for number, (image, label) in enumerate(zip(pixels, said, strict=True)):
        path = root / CLASSES[(label + (number % 7 == 0)) % len(CLASSES)] / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    return root


@pytest.fixture
def data(folder: Path) -> scs_eval.ImageData:
    return load_data(folder)


def compared(model: Any, data: Any, labels: Any = None, **names: Any) -> Result:
    sizes = {"accuracy": COUNT, "saliency": 7, "contributions": 5}
    return scs_eval.compare({"m": model}, data, labels, analyses=list(sizes), sizes=sizes, **names)


ANALYSES = {
    "accuracy": lambda model, *data, **names: scs_eval.accuracy(model, *data, batch_size=7, **names),
    "saliency": lambda model, *data, **names: scs_eval.saliency(
        model, *data, options=scs_eval.SaliencyOptions(samples=2), **names
    ),
    "contributions": lambda model, *data, **names: scs_eval.contributions(model, *data, batch_size=6, **names),
    "neurons": lambda model, *data, **names: scs_eval.neurons(
        model, *data, layer="0", channels=[1], directions=1, top=3, batch_size=6, **names
    ),
    "faithfulness": lambda model, *data, **names: scs_eval.faithfulness(
        model, *data, methods="grad", options=scs_eval.FaithfulnessOptions(steps=3, samples=3), **names
    ),
    "pgd": lambda model, *data, **names: scs_eval.pgd(
        model, *data, eps=EPS, attacks=[Attack(steps=2)], options=scs_eval.PgdOptions(shown=4, scorecard=None), **names
    ),
    "scorecard": lambda model, *data, **names: scs_eval.scorecard(model, *data, eps=0.02, attacks=[Attack(steps=2)]),
    "calibration": lambda model, *data, **names: scs_eval.calibration(model, *data, bins=3, batch_size=7, **names),
    "corruptions": lambda model, *data, **names: scs_eval.corruptions(
        model, *data, names=["fog", "contrast"], batch_size=6, **names
    ),
    "detect": lambda model, *data, **names: scs_eval.detect(
        model, *data, options=DetectOptions(eps=(0.05,), stages=("0",), batch_size=7), **names
    ),
    "certify": lambda model, *data, **names: scs_eval.certify(
        model, *data, options=CertifyOptions(samples=20, guesses=5, draws=1), **names
    ),
    "compare": compared,
}


def same(one: Any, other: Any) -> None:
    """All arrays and tables, but for seconds and what the images are called."""
    assert one.arrays().keys() == other.arrays().keys()
    for name, values in one.arrays().items():
        np.testing.assert_array_equal(values, other.arrays()[name], err_msg=name)
    alone, beside = (result.table().drop(columns=["fitted_on"], errors="ignore") for result in (one, other))
    assert alone.equals(beside)


def test_every_analysis_of_images_is_here():
    grids = {"localisation", "attacked"}  # in the next test; a part of compare, whose images are those of the grids
    assert {*catalogue.compared(), "neurons", "scorecard", "compare"} - grids == {*ANALYSES}


@pytest.mark.parametrize("name", sorted({*ANALYSES} - {"compare"}))
def test_no_analysis_asks_for_all_images_at_once(model, data, name, monkeypatch):
    """Of 80 images that count as large, so that all batches but the chunks of attacks are small."""
    monkeypatch.setattr(batching, "FULL_BATCH", SIDE**2 // 25)  # as if they had 480 pixels
    monkeypatch.setattr(batching, "KEPT_BYTES", 1)
    many = data.subset(torch.arange(COUNT).repeat(2))
    many = scs_eval.ImageData(many.images, many.labels, many.classes, torch.arange(2 * COUNT), "again")
    asked, get, read = [], streaming.StreamedImages.__getitem__, streaming.StreamedImages.batches

    def listening_get(images, positions):
        asked.append(streaming._numbers(positions, len(images)).size)
        return get(images, positions)

    def listening_read(images, parts):
        asked.extend(streaming._numbers(part, len(images)).size for part in parts)
        return read(images, parts)

    monkeypatch.setattr(streaming.StreamedImages, "__getitem__", listening_get)
    monkeypatch.setattr(streaming.StreamedImages, "batches", listening_read)
    kept = {"kept": 3} if name == "contributions" else {}
    ANALYSES[name](model, many, **kept)
    assert asked
    assert max(asked) <= 32, "no more than a chunk of an attack"


@pytest.mark.parametrize("name", ANALYSES)
def test_files_give_the_bits_of_a_tensor(model, data, name):
    pixels, analyse = data.images[:], ANALYSES[name]
    names = {"classes": data.classes, "indices": data.indices}
    if name in ("accuracy", "saliency", "faithfulness", "pgd"):
        del names["indices"]  # which they take from data alone
    labels = () if name == "faithfulness" else (data.labels,)  # its third argument is what to explain, as below
    if name in ("contributions", "neurons"):
        labels, names = (), {**names, "labels": data.labels}
    same(analyse(model, data), analyse(model, pixels, *labels, **names))


def test_localisation_gives_the_bits_of_a_tensor_and_chooses_its_own_grids(model, data):
    options = scs_eval.LocalisationOptions(batch_size=2)
    choice = scs_eval.MosaicOptions(side=2, count=2)
    results = []
    for each in (data, scs_eval.ImageData(data.images[:], data.labels, data.classes, data.indices, "array")):
        mosaics = scs_eval.select_mosaics({"m": model}, each, choice)["m"]
        results.append(scs_eval.localisation(model, each, mosaics, options, method="ixg"))
    same(*results)
    assert scs_eval.localisation("rohrer25k_conv", load_data("sample", n=60), method="grad").asked == 500


def test_tables_say_which_images_they_are_about(model, data):
    few = load_data(data.source, n=7, seed=3)
    known = scs_eval.accuracy(model, few).table().attrs
    assert (known["data"], known["data_seed"]) == (data.source, 3)
    again = scs_eval.calibration(model, few, bins=3).tables()
    assert all(frame.attrs == known for frame in again.values())
    others = scs_eval.accuracy(model, load_data(data.source, n=7, seed=4)).table().attrs
    assert others["data_indices"] != known["data_indices"]
    assert "data_seed" not in scs_eval.accuracy(model, few.images[:], few.labels).table().attrs  # nobody knows


class Pairs(Dataset):
    """Images and labels as torch's datasets give them."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data.labels)

    def __getitem__(self, index):
        return self.data.images[index], int(self.data.labels[index])


def test_localisation_takes_arrays_and_datasets_too():
    sample = load_data("sample", n=60)
    options = scs_eval.MosaicOptions(side=2, count=2)
    mosaics = scs_eval.select_mosaics({"m": "rohrer25k_conv"}, Pairs(sample), options)["m"]
    whole = scs_eval.localisation("rohrer25k_conv", Pairs(sample), mosaics, method="grad")
    arrays = sample.images.numpy(), sample.labels.numpy()
    chosen = scs_eval.localisation("rohrer25k_conv", *arrays, method="grad")
    assert chosen.asked == 500
    counted = scs_eval.ImageData(sample.images, sample.labels, sample.classes, torch.arange(60), "counted")
    again = scs_eval.localisation("rohrer25k_conv", counted, mosaics, method="grad")
    np.testing.assert_array_equal(again.scores, whole.scores)


def test_a_dataset_and_a_name_are_taken_as_they_are():
    sample = load_data("sample", n=6)
    by_name = scs_eval.accuracy("rohrer25k_conv", Pairs(sample))
    loaded = scs_eval.accuracy(scs_eval.load_model("rohrer25k_conv"), sample.images.numpy(), sample.labels.numpy())
    same(by_name, loaded)
    assert by_name.settings["data"] == "Pairs"
    with pytest.raises(InputError, match="rohrer25k_con"):
        scs_eval.accuracy("rohrer25k_con", sample)


def test_without_labels_what_is_predicted_is_explained(model, folder, tmp_path):
    for path in sorted(folder.rglob("*.png"))[:4]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    flat = load_data(tmp_path, num_classes=5)
    result = scs_eval.saliency(model, flat, options=scs_eval.SaliencyOptions(samples=0))
    assert result.tables()["images"]["labels"].tolist() == [""] * 4
    assert "✓" not in "".join(
        text.get_text() for text in result.figure().findobj(match=lambda a: hasattr(a, "get_text"))
    )
    assert scs_eval.contributions(model, flat).table()["class"].tolist() == [""] * 4
    for analyse in (ANALYSES["accuracy"], ANALYSES["pgd"], ANALYSES["scorecard"], scs_eval.localisation):
        with pytest.raises(InputError, match="needs the images' classes, and they have none"):
            analyse(model, flat)
    whole = scs_eval.compare({"m": model}, flat, analyses=["accuracy", "saliency"])
    assert list(whole.parts) == ["saliency"]
    assert "they have none" in whole.left_out["accuracy, all models"]


class Counting:
    """Counts the images that are there at a time: those read and not yet forgotten."""

    def __init__(self, reader):
        self.reader, self.asked = reader, []

    def __getitem__(self, index):
        self.asked.append(index)
        return self.reader[index]

    def name(self, index):
        return self.reader.name(index)

    def identity(self, index):
        return self.reader.identity(index)


def test_a_batch_is_read_when_it_is_used(model, data, monkeypatch):
    counted = Counting(data.images.reader)
    images = streaming.StreamedImages(counted, data.images.numbers, data.images.size)
    seen = []
    hook = model.register_forward_hook(lambda *_: seen.append(len(counted.asked)))
    try:
        scs_eval.accuracy(model, images, data.labels, classes=data.classes, batch_size=5)
    finally:
        hook.remove()
    assert seen == list(range(5, COUNT + 1, 5))
    assert sorted(counted.asked) == list(range(COUNT))


def test_pgd_keeps_the_adversarial_images_that_it_shows_and_no_others(model, data, tmp_path):
    whole = ANALYSES["pgd"](model, data)
    assert len(whole.pictures) == 4 == len(whole.adversarial)
    path = tmp_path / "sweep.npz"

    few = scs_eval.PgdOptions(shown=4, batch_size=8, scorecard=None)
    options = {"eps": EPS, "attacks": [Attack(steps=2)]}
    many = data.subset(torch.arange(COUNT).repeat(2))  # three blocks of 32
    many = scs_eval.ImageData(many.images, many.labels, many.classes, torch.arange(2 * COUNT), "again")
    uninterrupted = scs_eval.pgd(model, many, **options, options=few)
    calls = []

    def stop_later(count):
        calls.append(count)
        if sum(calls) > 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scs_eval.pgd(model, many, **options, options=replace(few, checkpoint=path, progress=stop_later))
    with np.load(path) as stored:
        assert len(stored["images"]) <= 4
        assert 0 < stored["done"].sum() < len(many)
    same(scs_eval.pgd(model, many, **options, options=replace(few, checkpoint=path)), uninterrupted)


def test_contributions_keep_the_maps_of_the_first_images_and_the_numbers_of_all(model, data):
    few, all_ = (scs_eval.contributions(model, data, kept=kept, batch_size=6) for kept in (3, COUNT))
    assert few.rows.shape[0] == few.images.shape[0] == len(few.maps) == 3
    assert few.table().equals(all_.table())
    np.testing.assert_array_equal(few.maps, all_.maps[:3])
    old = {key: value for key, value in vars(all_).items() if key not in ("sums", "sizes")}
    same(type(all_)(**old), all_)  # as a file of version 0.1 is read


def test_batches_follow_from_the_size_of_images_alone():
    sizes = {side: images_at_once(torch.empty(1, 3, side, side), 250) for side in (8, 32, 96, 224, 5000)}
    assert sizes == {8: 250, 32: 250, 96: 250, 224: 45, 5000: 1}
