"""The notebooks as they are committed: no output, about ten cells, the public API only. nbmake runs them."""

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import scs_eval

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def code(path: Path) -> ast.Module:
    """All its Python."""
    return ast.parse("\n".join("".join(cell["source"]) for cell in cells(path, "code")))


def test_there_are_four():
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_output(path):
    for cell in cells(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        assert "execution" not in cell["metadata"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_asks_one_question_in_about_ten_cells(path):
    assert "".join(cells(path, "markdown")[0]["source"]).startswith("# ")
    assert len(cells(path, "code")) <= 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_the_public_api(path):
    for node in ast.walk(code(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.module.startswith("scs_eval"), f"{node.module}: say scs_eval.NAME"
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("scs_eval.") for alias in node.names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_") or node.attr.startswith("__")
            if isinstance(node.value, ast.Name) and node.value.id == "scs_eval":
                assert node.attr in scs_eval.__all__


def install_cell(path: Path) -> str:
    """The first cell of code."""
    return "".join(cells(path, "code")[0]["source"])


ARCHIVE = "scs_eval-0.1.0.tar.gz"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("folder", "beside", "source"),
    [("checkout/notebooks", "", ".."), ("content", "", "scs-eval"), ("content", ARCHIVE, ARCHIVE)],
)
def test_the_first_cell_installs_what_is_missing_and_nothing_else(path, folder, beside, source, tmp_path, monkeypatch):
    """As in Colab, where a notebook comes alone or with an archive; and in a checkout that was not installed."""
    asked: list[list[str]] = []
    pip = SimpleNamespace(returncode=0, stderr="no matching distribution")
    for name in ("checkout/scs_eval", folder):
        (tmp_path / name).mkdir(parents=True)
    if beside:
        (tmp_path / folder / beside).touch()
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.setattr("subprocess.run", lambda words, **_: asked.append(words) or pip)
    exec(install_cell(path), {})
    assert asked == [], "it is installed"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(install_cell(path), {})
    assert asked == [[sys.executable, "-m", "pip", "install", "--quiet", source, "ipywidgets"]]
    pip.returncode = 1
    with pytest.raises(RuntimeError, match="no matching distribution"):  # in the cell, not in the kernel's terminal
        exec(install_cell(path), {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_needed_but_what_comes_with_the_package(path):
    text = ast.unparse(code(path))
    assert re.findall(r"load_data\(['\"](\w+)", text), "or the test looks for the wrong thing"
    assert set(re.findall(r"load_data\(['\"](\w+)", text)) == {"sample"}
    assert not re.search(r"https?://|download|/content|drive", text)
