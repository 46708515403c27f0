"""The notebooks as they are committed: no output, about ten cells, the public API only. nbmake runs them."""

import ast
import json
from pathlib import Path

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
