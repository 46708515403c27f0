"""Who may import whom (CONTRIBUTING.md): read from the source, so that a wrong arrow fails before it matters."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "models": {"models", "errors", "plugins"},
    "analyses": {
        "analyses",
        "models",
        "images",
        "datasets",
        "ranges",
        "checkpoint",
        "files",
        "progress",
        "errors",
        "plugins",
        "own_functions",
    },
    "data": {"data", "images", "datasets", "errors", "plugins"},
    "reference": {"reference", "errors"},
    "report": {"report", "analyses", "models", "reference", "files", "errors"},
    "training": {
        "training",
        "models",
        "data",
        "images",
        "devices",
        "cluster",
        "checkpoint",
        "files",
        "progress",
        "errors",
    },
    "search": {"search", "training", "analyses", "models", "errors"},
    "benchmarks": {"benchmarks", "images", "analyses", "training", "models", "data", "ranges", "memory", "errors"},
}
# analyses/ is a house: a folder may import those of lower floors. What is not named here is a room, on the third.
FLOORS = {
    "catalogue": -1,
    "catalogue.py": -1,
    "core": 0,
    "plotting": 1,
    "attribution": 2,
    "attacks": 2,
    "compare": 4,
    "study": 5,
}
ROOM = 3
STAIRS = {("pgd", "scorecard")}  # the only room that asks another


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, at the top or inside a function, but not for type checking alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(package: str) -> list[Path]:
    folder = ROOT / package if package in ("models", "analyses", "benchmarks") else ROOT / "scs_eval" / package
    return sorted(folder.rglob("*.py"))


CASES = [(package, path) for package in ALLOWED for path in files(package)]


@pytest.mark.parametrize(("package", "path"), CASES, ids=[str(path.relative_to(ROOT)) for _, path in CASES])
def test_arrows(package, path):
    for name in imports(path):
        parts = name.split(".")
        assert parts[0] not in ("models", "analyses", "benchmarks"), f"{path} imports {name}: say scs_eval.{name}"
        if parts[0] == "scs_eval" and len(parts) > 1 and parts[1] != "__version__":
            assert parts[1] in ALLOWED[package], f"{path} may not import {name}"


@pytest.mark.parametrize("path", files("analyses"), ids=lambda path: str(path.relative_to(ROOT)))
def test_folders_of_analyses_import_lower_floors_only(path):
    here = path.relative_to(ROOT / "analyses").parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[:2] == ["scs_eval", "analyses"] and parts[2] != here and (here, parts[2]) not in STAIRS:
            assert FLOORS.get(parts[2], ROOM) < FLOORS.get(here, ROOM), f"{path} imports {name}"


def test_the_test_sees_arrows():
    assert "scs_eval.models.zoo.registry.create_model" in imports(ROOT / "models" / "loading" / "load.py")
    assert len(CASES) > 30


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    folders = ["models", "analyses", "benchmarks"]
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {f"scs_eval.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}": path for path in paths}
    for path in (ROOT / "scs_eval").rglob("*.py"):
        if path.relative_to(ROOT / "scs_eval").parts[0] not in folders:
            found[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported_at_the_top(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules that one imports when it is imported itself: not inside functions, not for type checking alone."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else str(node.module) for name in names}
    return found & known.keys()


def test_no_module_imports_itself_by_way_of_others():
    known = modules()
    # A package is imported before its modules, which is no cycle of ours: only what a module itself names counts.
    graph = {name: imported_at_the_top(path, known) - {name} for name, path in known.items()}
    assert len(graph) > 200
    order, open_ = set(), []

    def visit(name: str) -> None:
        assert name not in open_, " → ".join([*open_[open_.index(name) :], name])
        if name in order:
            return
        open_.append(name)
        for other in sorted(graph[name]):
            visit(other)
        open_.pop()
        order.add(name)

    for name in sorted(graph):
        visit(name)


def test_commands_do_not_import_commands():
    for path in sorted((ROOT / "scs_eval" / "cli" / "commands").glob("*.py")):
        others = [name for name in imports(path) if name.startswith("scs_eval.cli.commands.")]
        assert all(name.split(".")[3].startswith("_") for name in others), f"{path.name} imports {others}"
