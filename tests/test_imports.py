"""Who may import whom (CONTRIBUTING.md): read from the source, so that a wrong arrow fails before it matters."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "models": {"models", "errors"},
    "analyses": {"analyses", "models", "errors"},
    "data": {"data", "errors"},
    "report": {"report", "analyses", "errors"},
    "training": {"training", "models", "data", "errors"},
    "benchmarks": {"benchmarks", "analyses", "training", "models", "data", "ranges", "errors"},
}
# One module per question. They build on the files beside them, never on one another; `compare` asks them all.
QUESTIONS = {"accuracy", "saliency", "contributions", "neurons", "faithfulness", "localisation", "pgd", "dynamics"}


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


@pytest.mark.parametrize("path", files("analyses"), ids=lambda path: path.name)
def test_analyses_stand_alone(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[:2] == ["scs_eval", "analyses"] and path.stem not in ("__init__", "compare"):
            assert parts[2] not in QUESTIONS, f"{path} imports the analysis {parts[2]}"


def test_the_test_sees_arrows():
    assert "scs_eval.models.registry.create_model" in imports(ROOT / "models" / "checkpoints.py")
    assert len(CASES) > 30
