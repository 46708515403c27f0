"""The site's pages: every command in them is one that the command line takes, and the short ones are run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from scs_eval.cli.main import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# Hours, a cluster, or a page that waits for Ctrl-C: parsed here, and run small by tests of their own.
LONG = ("scs-eval train", "scs-eval zoo train", "scs-eval explore", "scs-eval bench")


def shown_commands(page: Path) -> list[str]:
    """Lines of ```bash blocks that are commands of ours."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [
        line.rpartition("&& ")[2] for line in lines if "scs-eval" in line and "pip install" not in line.split("&&")[-1]
    ]


COMMANDS = [(page.stem, line) for page in PAGES for line in shown_commands(page)]
GUIDES = [
    line for page in PAGES if page.parent.name == "guides" or page.stem == "index" for line in shown_commands(page)
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_the_command_line_takes_what_the_docs_show(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "scs").mkdir(parents=True)  # what a command before it would have made
    monkeypatch.chdir(tmp_path)
    words = [word for word in shlex.split(line) if word != "…"]
    assert words[0] == "scs-eval"
    command: click.Command = cli
    context = click.Context(cli, info_name="scs-eval")
    rest = words[1:]
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(context, name)
        assert found is not None, f"{page}: no command {name!r}"
        command = found
    command.make_context(command.name, rest, parent=context)  # raises what a user would see


def python_blocks() -> list[tuple[str, str]]:
    return [
        (page.stem, block)
        for page in PAGES
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in GUIDES if not line.startswith(LONG)])
def test_commands_of_the_guides_run(line: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scs_eval", *shlex.split(line)[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), python_blocks())
def test_python_in_the_docs_runs(page: str, block: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{page}: {done.stderr}"


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 15
    assert len(python_blocks()) >= 3
