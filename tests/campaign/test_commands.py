"""Every command that analyses models, with photographs, models, names and folders that cost one of them its result."""

from pathlib import Path

import pytest
from hostile import assert_refused, command
from PIL import Image

from scs_eval.analyses.catalogue import ENTRIES

FACTORIES = """
import torch
from torch import nn

def net(classes=4):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
    layers[0].weight.data = torch.tensor([[2., -1, -1], [-1, 2, -1], [-1, -1, 2], [-1, -1, -1]])[:, :, None, None]
    layers[0].bias.data = torch.tensor([0., 0, 0, 1])
    layers[-1].weight.data = 4 * torch.eye(4)[:classes]
    return nn.Sequential(*layers)

def single():
    return net(1)
"""  # right about red, green, blue and black
COLOURS = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)
# What makes each of them quick, whatever it finds.
QUICK: dict[str, list[str]] = {
    "accuracy": [],
    "calibration": [],
    "saliency": ["--min-accuracy", "0"],
    "contributions": [],
    "localisation": ["--grid", "2", "-n", "2", "--method", "grad"],
    "pgd": ["--eps", "0.01", "--no-scorecard", "--steps", "2"],
    "corruptions": ["--corruption", "brightness"],
    "detect": ["--eps", "0.01", "--fit", "half"],
    "certify": ["--samples", "20", "--guesses", "5", "--no-attack"],
    "faithfulness": ["--method", "grad", "--steps", "2", "-n", "4"],
    "compare": ["--analyses", "accuracy,saliency"],
}
NO_MODELS = {"study", "search", "dynamics", "bench"}  # a plan, a training, records of runs, what is measured
NAMES = "$\\frac{$", "<b>", "blue_{", "dark"


def test_every_command_is_here() -> None:
    assert QUICK.keys() | NO_MODELS == {name for name, entry in ENTRIES.items() if entry.command}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of four classes, no two of one size, and networks of unknown input size."""
    here = tmp_path_factory.mktemp("photographs")
    (here / "own.py").write_text(FACTORIES)
    for name, colour in zip(NAMES, COLOURS, strict=True):
        (here / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (40 + number, 50 - 2 * number), colour).save(here / "photos" / name / f"{number}.png")
    return here


def words(name: str, folder: Path, factory: str = "net") -> list[str]:
    return [name, f"$\\frac{{$={folder}/own.py:{factory}", "--data", str(folder / "photos"), *QUICK[name]]


@pytest.mark.parametrize("name", QUICK)
def test_photographs_for_a_network_of_unknown_size(tmp_path: Path, folder: Path, name: str) -> None:
    """What the error names is an option of the command, and it is enough; names are drawn as they are."""
    out = tmp_path / "out"
    refused = command(*words(name, folder), "--out", str(out))
    assert_refused(refused)
    assert "--size" in refused.stderr
    assert not out.exists()
    done = command(*words(name, folder), "--out", str(out), "--size", "24", "--resize", "28")
    assert done.code == 0, done.stderr
    assert list(out.rglob("*.png")), "drawn"
    assert list(out.rglob("table.csv")) or (out / "report.html").is_file()


@pytest.mark.parametrize("name", QUICK)
def test_the_shorter_side_asks_for_the_size_by_its_option(tmp_path: Path, folder: Path, name: str) -> None:
    refused = command(*words(name, folder), "--out", str(tmp_path / "out"), "--resize", "28")
    assert_refused(refused)
    assert "--size" in refused.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", QUICK)
def test_a_network_with_one_logit(tmp_path: Path, folder: Path, name: str) -> None:
    assert_refused(command(*words(name, folder, "single"), "--size", "24", "--out", str(tmp_path / "out")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", QUICK)
def test_the_same_twice_is_the_same_bytes_and_a_note_stops_the_third(tmp_path: Path, folder: Path, name: str) -> None:
    tables = []
    for out in (tmp_path / "a", tmp_path / "b"):
        done = command(*words(name, folder), "--size", "24", "--out", str(out))
        assert done.code == 0, done.stderr
        paths = [path for pattern in ("*.csv", "*.md") for path in out.rglob(pattern)]
        tables.append({path.relative_to(out): path.read_bytes() for path in paths})
    assert tables[0]
    assert tables[0] == tables[1]
    inside = max((path.parent for path in out.rglob("*.csv")), key=lambda path: len(path.parts))
    (inside / "note.txt").write_text("mine")
    refused = command(*words(name, folder), "--size", "24", "--out", str(out))
    assert_refused(refused)
    assert "note.txt" in refused.stderr
    assert (inside / "note.txt").read_text() == "mine"
