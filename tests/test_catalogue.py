"""The catalogue is enough: an analysis that is registered is a command, a part of `compare` and its page, an export."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import scs_eval
from scs_eval import InputError
from scs_eval.analyses.attacks.kinds import ATTACKS
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.analyses.attribution.metric_records import METRICS
from scs_eval.analyses.catalogue import ENTRIES, Analysis, compared, imported
from scs_eval.cli.main import cli, commands

TOY = '''
"""A room in one file: how bright are the images?"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import scs_eval
from scs_eval.analyses.catalogue import Headline
from scs_eval.analyses.core.result import Comparison, Result


@dataclass(frozen=True, eq=False, kw_only=True)
class BrightnessResult(Result):
    name = "brightness"
    axes = {"means": ("image",)}
    means: np.ndarray

    def table(self):
        return pd.DataFrame([{"model": self.label, "brightness": self.means.mean(), "n": len(self.means)}])

    def figure(self, ax=None):
        return Figure()


@dataclass(frozen=True, eq=False, kw_only=True)
class BrightnessComparison(Comparison[BrightnessResult]):
    name = "brightness"

    def figure(self, ax=None):
        return Figure()


def brightness(images, *, label="model"):
    return BrightnessResult(label=label, means=images.mean((1, 2, 3)).numpy())


def run(task):
    return brightness(task.images, label=task.label)


scs_eval.register_analysis(
    scs_eval.Analysis(
        "brightness", "Brightness of a toy", "How bright are the images?", command="Measure how bright the images are.",
        home="toy_room", function="brightness", run="toy_room:run", size=20,
        metrics=(Headline("brightness", "mean of all pixels", lambda result: result.means),),
    )
)
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The toy, imported from a file of its own, and gone afterwards."""
    (tmp_path / "toy_room.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("toy_room")
    ENTRIES.pop("brightness")
    sys.modules.pop("toy_room")
    vars(scs_eval).pop("brightness", None)


def test_a_registered_analysis_is_a_command(toy):
    data = scs_eval.load_data("sample", n=12)
    assert commands()["brightness"] == "Measure how bright the images are."
    assert "brightness" in CliRunner().invoke(cli, ["--help"]).output
    done = CliRunner().invoke(cli, ["brightness", "--model", "rohrer100k_scs", "-n", "12", "--out", "out"])
    assert done.exit_code == 0, done.output
    saved = scs_eval.load_result("out")
    assert sorted(saved.means) == pytest.approx(sorted(data.images.mean((1, 2, 3)).tolist()))
    several = CliRunner().invoke(cli, ["brightness", "--model", "rohrer100k_s*_maxpool", "--out", "several"])
    assert several.exit_code == 0, several.output
    assert scs_eval.load_result("several").results[0].means.shape == (20,), "as many as its entry says"


def test_a_registered_analysis_is_compared_and_on_the_page(toy):
    words = ["compare", "rohrer100k_scs", "rohrer100k_conv", "-n", "15", "--analyses", "accuracy,brightness"]
    done = CliRunner().invoke(cli, [*words, "--out", "out", "--fail-if", "brightness < 0.01"])
    assert done.exit_code == 0, done.output
    result = scs_eval.load_result("out")
    assert result.value("brightness", "rohrer100k_conv") == pytest.approx(
        result.parts["brightness"].results[0].means.mean()
    )
    page = Path("out/report.html").read_text()
    assert page.count("Brightness of a toy") >= 2, "in the summary and among the details"
    assert "mean of all pixels" in page
    assert Path("out/brightness/table.csv").exists()


def test_a_registered_analysis_is_exported(toy):
    assert "brightness" in dir(scs_eval)
    assert scs_eval.brightness is toy.brightness


def test_names_are_taken_once():
    with pytest.raises(InputError, match="already"):
        scs_eval.register_analysis(Analysis(name="pgd", title="", question=""))
    with pytest.raises(InputError, match="my_analysis"):
        scs_eval.register_analysis(Analysis(name="no name", title="", question=""))


def test_entries_name_what_there_is():
    for entry in ENTRIES.values():
        module = importlib.import_module(entry.module)
        assert not entry.function or callable(getattr(module, entry.function))
        assert not entry.run or callable(imported(entry.run))
        assert entry.title
        assert entry.question.endswith("?")
    names = [headline.name for entry in compared().values() for headline in entry.metrics if not headline.at_eps]
    assert len(names) == len(set(names))


def test_types_of_the_exports_are_declared():
    """Editors read the block under TYPE_CHECKING, which nothing can derive."""
    source = Path(scs_eval.__file__).read_text()
    assert [name for name in scs_eval.__all__ if name != "__version__" and f" as {name}\n" not in source] == []


def test_the_catalogue_imports_nothing_heavy():
    code = "import sys, scs_eval.analyses.catalogue; assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_record_says_what_it_is_whose_it_is_and_where_it_misleads():
    """What the site's catalogue is made from; a headline of maps' metrics has it from their records."""
    told = {("method", name): (m.measures, m.source, m.fails, m.cost) for name, m in METHODS.items()}
    told |= {("attack", name): (a.does, a.source, a.fails) for name, a in ATTACKS.items()}
    told |= {("metric", name): (m.formula, m.source, m.fails, m.direction) for name, m in METRICS.items()}
    for entry in ENTRIES.values():
        for headline in entry.metrics:
            record = headline if headline.formula else METRICS[headline.name]
            told[entry.name, headline.name] = (record.formula, record.source, record.fails)
    assert len(told) > 45
    assert [where for where, words in told.items() if not all(words)] == []
