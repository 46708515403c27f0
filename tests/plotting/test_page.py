"""Figures for papers: without captions, of a size that was asked for, in the user's fonts, as PNG, PDF, SVG and PGF."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

import scs_eval
from scs_eval.analyses.core.result import COMPARISONS, Result, side_by_side
from scs_eval.analyses.core.storage import KINDS
from scs_eval.analyses.faithfulness import FaithfulnessOptions
from scs_eval.errors import InputError

FEW = FaithfulnessOptions(steps=4, samples=4)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    data = scs_eval.load_data("sample", n=6)
    several = {}
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 5, stride=3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(400, 10)
        ).eval()
        name = {"label": f"network_{seed}"}
        for result in (
            scs_eval.accuracy(model, data, **name),
            scs_eval.saliency(model, data, options=scs_eval.SaliencyOptions(samples=0), **name),
            scs_eval.contributions(model, data, **name),
            scs_eval.faithfulness(model, data, methods=["grad", "ixg", "wx", "intgrad"], options=FEW, **name),
            scs_eval.calibration(model, data, bins=2, **name),
            scs_eval.pgd(
                model,
                data,
                eps=[0.01, 0.1],
                attacks=[scs_eval.Attack(steps=2)],
                options=scs_eval.PgdOptions(scorecard=None),
                **name,
            ),
        ):
            several.setdefault(result.name, []).append(result)
    return {name: side_by_side(pair) for name, pair in several.items()} | {
        f"{name} alone": pair[0] for name, pair in several.items()
    }


def texts(figure: Figure) -> list[str]:
    written = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text) and item.get_visible()]
    return [" ".join(text.split()) for text in written if text.strip()]


def sentences(figure: Figure) -> list[str]:
    """What a caption would say: long, or with a full stop."""
    return [text for text in texts(figure) if len(text) > 90]


NAMES = ("accuracy", "saliency", "contributions", "faithfulness", "calibration", "pgd")


@pytest.mark.parametrize("name", [*NAMES, *(f"{name} alone" for name in NAMES)])
def test_caption_and_size(results: dict[str, Result], name: str) -> None:
    with scs_eval.page(caption=False, size=(5.0, 3.5)):
        drawn = results[name].figures()
    for key, figure in drawn.items():
        assert not sentences(figure), key
        width, height = figure.get_size_inches()
        assert width <= 5.001, key
        assert height <= 3.501, key
        assert width == pytest.approx(5) or height == pytest.approx(3.5), key
    own = results[name].figure(size=(5.0, 3.5), caption=False)
    assert own.get_size_inches().tolist() == drawn["figure"].get_size_inches().tolist()
    assert len(texts(results[name].figure())) >= len(texts(own))


def test_captions_are_there_by_default(results: dict[str, Result]) -> None:
    assert all(sentences(results[name].figure()) for name in ("saliency", "faithfulness", "contributions"))


def test_a_page_ends_also_after_an_error(results: dict[str, Result]) -> None:
    before = results["accuracy"].figure().get_size_inches().tolist()
    with pytest.raises(ZeroDivisionError), scs_eval.page(size=(2, 2)):
        raise ZeroDivisionError
    assert results["accuracy"].figure().get_size_inches().tolist() == before


@pytest.mark.parametrize("size", [(0, 3), (3,), "wide", (3, float("nan")), (500, 3)])
def test_sizes_that_are_none(results: dict[str, Result], size: object) -> None:
    with pytest.raises(InputError, match="size"):
        results["accuracy"].figure(size=size)  # type: ignore[arg-type]


@pytest.fixture
def settings() -> Iterator[None]:
    with matplotlib.rc_context():
        yield


def sizes(figure: Figure) -> set[float]:
    return {round(item.get_fontsize(), 2) for item in figure.findobj(Text) if item.get_text().strip()}


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("name", ["saliency", "contributions", "faithfulness", "pgd"])
def test_fonts_are_the_users(results: dict[str, Result], name: str) -> None:
    ours = sizes(results[name].figure())
    matplotlib.rcParams["font.size"] = 12
    matplotlib.rcParams["font.family"] = "DejaVu Serif"
    figure = results[name].figure()
    assert sizes(figure) == {round(1.5 * size, 2) for size in ours}  # 8 points are ours
    assert {item.get_fontfamily()[0] for item in figure.findobj(Text) if item.get_text().strip()} == {"DejaVu Serif"}


@pytest.mark.parametrize("name", ["saliency", "pgd"])
def test_svg_and_pdf(results: dict[str, Result], name: str, tmp_path: Path) -> None:
    figure = results[name].figure(caption=False)
    for kind in ("svg", "pdf"):
        figure.savefig(tmp_path / f"figure.{kind}")
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


class Latex:
    """In LaTeX's place, which measures text for matplotlib: every letter is five points wide."""

    def get_width_height_descent(self, text: str, _font: object) -> tuple[float, float, float]:
        return 5.0 * len(re.sub(r"\\\w+", "", text)), 8.0, 2.0

    def _stdin_writeln(self, _line: str) -> None:
        """Told where pictures begin."""

    def _expect_prompt(self) -> None:
        """Nothing to wait for."""


@pytest.mark.parametrize("name", ["saliency", "pgd", "faithfulness alone"])
def test_pgf(results: dict[str, Result], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it goes without LaTeX: the file is written whole, and pictures lie beside it."""
    from matplotlib.backends import backend_pgf

    if shutil.which("xelatex") is None:
        monkeypatch.setattr(backend_pgf.LatexManager, "_get_cached_or_new", classmethod(lambda _: Latex()))
    results[name].figure(caption=False).savefig(tmp_path / "figure.pgf")
    text = (tmp_path / "figure.pgf").read_text(encoding="utf-8")
    assert text.count(r"\begin{pgfpicture}") == text.count(r"\end{pgfpicture}") == 1
    assert {"saliency": "0", "pgd": "accuracy in", "faithfulness alone": "random"}[name] in text
    assert bool(list(tmp_path.glob("figure-img*.png"))) == (name == "saliency")


def test_every_kind_of_result_draws_through_the_page() -> None:
    """A class that defines `figure` itself would not know captions and sizes."""
    for kind in {*KINDS.values(), *COMPARISONS.values()}:
        assert kind.figure is Result.figure, kind


def test_a_plugin_may_call_it_figure() -> None:
    class Old(Result):
        name = "old"

        def table(self):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def figure(self, ax=None):  # type: ignore[no-untyped-def,override]
            from scs_eval.analyses.plotting import style

            with style.drawing(ax) as axes:
                axes.plot(np.arange(3))
                return style.figure_of(axes)

    try:
        result = Old(label="a")
        assert result.figure(size=(2, 1)).get_size_inches().tolist() == [2, 1]
        assert Old.figure is Result.figure
    finally:
        del KINDS["old"]
