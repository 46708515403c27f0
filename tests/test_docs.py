"""Every command that the docs show is run: here with fewer images, by the test that RUN_BY names, or by the build."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from scs_eval.cli.main import cli

ROOT = Path(__file__).parent.parent
NAMED = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "notebooks/README.md")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in NAMED)]
OTHERS = r"pip|python|pytest|mkdocs|ruff|mypy|git|jupyter|torchrun|pre-commit|\.ci/run"
A_COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:scs-eval|{OTHERS})\b")
PLACEHOLDERS = {
    "COMMAND": "models", "MODEL": "rohrer25k_conv", "NAME": "rohrer25k_conv", "PLAN": "scs-paper", "FILE": "weights.pt",
    "mine.pt": "mine.safetensors",
    "FOLDER": "synsets", "DIR": "out",
}  # fmt: skip
# What makes a command quick; of an option given twice the last counts.
SMALLER = {
    "accuracy": "-n 5 --data sample", "calibration": "-n 40", "certify": "-n 1 --samples 20", "contributions": "-n 2",
    "corruptions": "-n 2", "detect": "-n 40", "faithfulness": "-n 1", "localisation": "-n 1 --data sample",
    "pgd": "-n 1 --no-scorecard", "saliency": "-n 1", "study": "--piece 1/300 --out out",
    "compare": "-n 40 --analyses accuracy,saliency,contributions",
    "train": "--data images --epochs 3 --batch-size 4 --image-size 32 --eval-size 32 --eval-resize 32 --overwrite",
}  # fmt: skip
# Minutes, a cluster, a page that waits for Ctrl-C, or no command of ours: where it is run, and by which words there.
RUN_BY = {
    r"pip install \.": (".ci/run", "pip install --quiet --no-deps"),
    r"pip install -e '\.\[dev\]' && pytest|pytest$|pytest -m slow$": (".ci/run", 'eval "$command"'),
    r"pip install -e '\.\[notebooks\]' && jupyter lab": ("pyproject.toml", "--nbmake"),
    r"pip install ('scs-eval|'\.\[cluster)|pip install$": ("pyproject.toml", "cluster = "),
    r"pip install -r docs/requirements.txt && PYTHONPATH=\. mkdocs build --strict": (".ci/run", "--strict --site-dir"),
    r"python -m build|python -m venv": (".ci/run", "python -m build"),
    r"ruff|mypy": (".ci/run", "ruff format --check ."),
    r"pytest --cov": (".github/workflows/ci.yml", "pytest --cov"),
    r"pytest -m slow (-n 0 )?tests/|SCS_EVAL_PARITY_TABLE": ("pyproject.toml", "pytest -m slow"),
    r"pre-commit install": (".pre-commit-config.yaml", "pre-commit install"),
    r"git status": ("docs/release.md", "git status"),  # a look, no command of ours
    r"git -c core.symlinks=true clone": ("tests/packaging/test_build.py", "symlink"),
    r"\.ci/run": (".github/workflows/ci.yml", ".ci/run"),
    r"torchrun": ("tests/core/test_parallel.py", "torchrun"),
    r"scs-eval explore": ("tests/notebooks/test_explore_page.py", '"explore"'),
    r"scs-eval bench": ("tests/benchmarks/test_bench.py", '"bench"'),
    r"scs-eval zoo train .*--cluster": ("tests/cli/test_slurm.py", "sbatch"),
    r"scs-eval zoo train": ("tests/training/test_training_runs.py", '"zoo", "train"'),
    r"scs-eval zoo collect": ("tests/training/test_collect.py", "collect"),
    r"scs-eval localisation before=": ("tests/training/test_ramp.py", "start-epoch1.safetensors"),
    r"scs-eval search": ("tests/search/test_search.py", '"search"'),
    r"scs-eval train --resume": ("tests/training/test_training_runs.py", '"--resume"'),
    r"scs-eval train NAME --log": ("tests/training/test_trackers.py", "tensorboard"),
    r"scs-eval .*--plugin examples/": ("tests/plugins/test_examples.py", "examples"),
    r"python -m scs_eval.benchmarks.recipe_ablation": ("tests/training/test_recipe_ablation.py", "recipe_ablation"),
    r"python -m scs_eval.benchmarks.publish": ("tests/benchmarks/test_bench.py", "publish"),
    r"python -m scs_eval.analyses.contributions.response_window": (
        "tests/contributions/test_paper_figures.py",
        "response_window.main",
    ),
    r"python -m scs_eval.benchmarks.streaming": ("tests/core/test_streaming.py", "streaming"),
    r"python -m scs_eval.models.zoo.parameter_counts": ("tests/models/test_zoo.py", "parameter_counts"),
    r"python tests/helpers/defences.py": ("tests/scorecard/test_gallery.py", "defences"),
    r"python -m scs_eval.analyses.core.schema": ("tests/core/test_schema.py", "schema"),
}


@dataclass(frozen=True)
class Shown:
    """A command in a page. block: on a line of its own, not in a sentence, where a bare name is only a mention."""

    page: str
    line: str
    block: bool

    @property
    def words(self) -> list[str]:
        line = re.sub(r"\$\(for .*?; done\)", "mine.pt", self.line)  # the shell makes names of checkpoints of it
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
        return [word for word in words if word != "…"]

    @property
    def runs_here(self) -> bool:
        named = next((name for name in RUN_BY if re.match(name, self.line)), None)
        return named is None and (self.block or len(self.words) > 2 or self.words[1] == "data")


def shown_commands(page: Path) -> list[Shown]:
    """All commands of a page: lines of blocks without their comments, and what sentences quote."""
    text, found = page.read_text(encoding="utf-8"), []
    fence = r"```(\w*)\n(.*?)```"
    for kind, block in re.findall(fence, text, re.DOTALL):
        if kind in ("bash", ""):
            lines = [line.partition(" #")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
            found += [(part, True) for line in lines for part in parts_of(line)]
    rest = re.sub(fence, "", text, flags=re.DOTALL)
    found += [(" ".join(words.split()), False) for words in re.findall(r"`([^`]+)`", rest)]
    name = str(page.relative_to(ROOT))
    return [Shown(name, line, block) for line, block in found if A_COMMAND.match(line)]


def parts_of(line: str) -> list[str]:
    """`pip install . && scs-eval …` are two; the README's others belong together."""
    return line.split(" && ") if "scs-eval" in line else [line]


COMMANDS = [command for page in PAGES for command in shown_commands(page)]
OURS = [command for command in COMMANDS if re.match(r"scs-eval \w", command.line)]


@pytest.mark.parametrize(
    "shown", [each for each in OURS if not re.search("--plugin|--help", each.line)], ids=lambda shown: shown.line
)
def test_the_command_line_takes_what_the_docs_show(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "scs").mkdir(parents=True)  # what a command before it would have made
    for name in ("photographs", "synsets"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    command: click.Command = cli
    context = click.Context(cli, info_name="scs-eval")
    rest = shown.words[1:]
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(context, name)
        assert found is not None, f"{shown.page}: no command {name!r}"
        command = found
    if not shown.runs_here and len(shown.words) == 2:
        return  # a mention of its name
    command.make_context(command.name, rest, parent=context)  # raises what a user would see


def test_what_is_not_run_here_is_run_where_the_table_says() -> None:
    for name, (file, words) in RUN_BY.items():
        assert any(re.match(name, command.line) for command in COMMANDS), f"{name} is shown nowhere"
        assert words in (ROOT / file).read_text(encoding="utf-8"), f"{name}: {file} has no {words!r}"
    for command in COMMANDS:
        ours = command.line.startswith("scs-eval")
        assert ours or any(re.match(name, command.line) for name in RUN_BY), f"who runs {command}?"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that commands speak of: a checkpoint, a network of one's own, photographs, images to train on."""
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    from scs_eval import create_model, load_data, load_model

    folder = tmp_path_factory.mktemp("docs")
    says = {"name": "rohrer25k_conv", "num_classes": "10"}
    save_file(load_model("rohrer25k_conv").state_dict(), folder / "mine.safetensors", metadata=says)
    torch.save(create_model("densenet121_bcos").state_dict(), folder / "weights.pt")
    (folder / "my_network.py").write_text(
        "import scs_eval\n\ndef build():\n    return scs_eval.load_model('rohrer25k_conv')\n"
    )
    data, seen = load_data("sample", n=40), set()
    for place, (pixels, label) in enumerate(zip(data.images[:], data.labels.tolist(), strict=True)):
        part = folder / "images" / ("val" if label in seen else "train") / data.classes[label]
        seen ^= {label}
        part.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * pixels.permute(1, 2, 0)).round().byte().numpy()).save(part / f"{place}.png")
    (folder / "photographs").symlink_to(folder / "images" / "val")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "findings.md", folder / "docs")
    (folder / "synsets").mkdir()
    (folder / "synsets" / "n02123045").symlink_to(folder / "images" / "val" / "cat")  # ImageNet's tabby
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({command.page for command in OURS if command.runs_here}))
def test_the_commands_of_a_page_run(page: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    lines = dict.fromkeys(tuple(command.words) for command in OURS if command.page == page and command.runs_here)
    for words in lines:
        done = CliRunner().invoke(cli, [*words[1:], *shlex.split(SMALLER.get(words[1], ""))])
        assert done.exit_code == 0, f"{shlex.join(words)}: {done.output} {done.exception!r}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/index.md", "docs/guides/compare.md"])
def test_what_a_beginner_types_runs_as_it_is_written(page: str, tmp_path: Path) -> None:
    for command in OURS:
        if command.page == page and command.block:
            words = [sys.executable, "-m", "scs_eval", *command.words[1:]]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, f"{command.line}: {done.stderr}"


def python_blocks() -> list[tuple[str, str]]:
    blocks = re.compile(r"```python\n(.*?)```", re.DOTALL)
    found = [(page.stem, block) for page in PAGES for block in blocks.findall(page.read_text(encoding="utf-8"))]
    return [(page, block) for page, block in found if not (page == "training" and "import wandb" in block)]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), python_blocks())
def test_python_in_the_docs_runs(page: str, block: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{page}: {done.stderr}"


def test_there_are_commands_to_check() -> None:
    assert len([command for command in COMMANDS if command.block]) > 40
    assert len([command for command in OURS if command.runs_here]) > 40
    assert {"docs/findings.md", "docs/training.md", "README.md", "CONTRIBUTING.md"} <= {each.page for each in OURS}
    assert len(python_blocks()) >= 3
    assert "training.md" in (ROOT / "tests" / "training" / "test_trackers.py").read_text(), "runs the block on trackers"
