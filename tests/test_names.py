"""Names say what they hold: words that any value could bear are none (CONTRIBUTING.md)."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NO_NAMES = {"found", "each", "said", "one", "place"}
LINKED = ("scs_eval/models", "scs_eval/analyses", "scs_eval/benchmarks")  # symlinks: read once, at the top level
FILES = [
    path
    for top in ("models", "analyses", "benchmarks", "scs_eval")
    for path in sorted((ROOT / top).rglob("*.py"))
    if not path.relative_to(ROOT).as_posix().startswith(LINKED)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_value_is_called_what_any_could_be(path: Path) -> None:
    names = {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    assert not names & NO_NAMES


# The same role in several rooms: its module says whose.
ROLES = {"run", "build", "main", "targets", "growths"}
# The same meaning in two places: a formula beside its compiled pass, a figure's usual parts, halves of images.
SHARED = {"add_norm_gradient", "draw_curves", "draw_maps", "halves"}


@pytest.mark.parametrize("kind", [ast.ClassDef, ast.FunctionDef])
def test_two_meanings_share_no_name(kind: type[ast.ClassDef | ast.FunctionDef]) -> None:
    public = [
        {
            node.name
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, kind) and not node.name.startswith("_")
        }
        for path in FILES
        if "commands" not in path.parts  # a command is called what its analysis is called
    ]
    defined = Counter(name for names in public for name in names)
    assert {name for name, count in defined.items() if count > 1} <= ROLES | SHARED
