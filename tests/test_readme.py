"""The README's map names every folder of the code, and what it points at is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "README.md").read_text().partition("## The map of the code")[2].partition("\n## ")[0]
LINKS = re.findall(r"\]\(([^)#:]+)\)", MAP)


TOPS = ("models", "analyses", "benchmarks", "scs_eval", "notebooks", "docs", "examples", "tests", ".ci", ".github")
# A folder whose parts explain themselves: a test room is called as its room, a saved result as what it is of.
WHOLE = ("tests", "analyses/study/saved", ".github")


def test_every_folder_is_on_the_map():
    files = {path for top in TOPS for path in (ROOT / top).rglob("*.*") if path.suffix not in (".pyc", ".so")}
    folders = {file.parent.relative_to(ROOT).as_posix() for file in files if file.is_file()}
    linked = {link.rstrip("/") for link in LINKS} | {str(Path(link).parent) for link in LINKS}
    links = ("scs_eval/models", "scs_eval/analyses", "scs_eval/benchmarks")  # to the folders of that name
    own = {name for name in folders if not name.startswith((*links, *(f"{top}/" for top in WHOLE)))}
    missing = {name for name in own - linked if not set(name.split("/")) & {".ipynb_checkpoints", "__pycache__"}}
    assert missing - {"scs_eval", "models", "analyses"} == set()


def test_links_of_readme_and_contributing_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / link).exists(), f"{name}: {link}"
        for file in re.findall(r"`((?:models|analyses|scs_eval|tests)/[a-z_/]+\.py)`", text):
            assert (ROOT / file).exists(), f"{name}: {file}"


SOUGHT = {
    "ε-search": ("analyses/attacks/eps_search.py", "def "),
    "W(x)": ("models/explain/dynamic_linear.py", "def explanation_mode"),
    "grid pointing score": ("analyses/localisation/score.py", "def "),
    "McNemar": ("analyses/core/statistics.py", "def mcnemar"),
}


@pytest.mark.parametrize("words", SOUGHT)
def test_a_stranger_finds_it_in_one_step(words):
    file, inside = SOUGHT[words]
    line = next(line for line in MAP.splitlines() if f"**{words}**" in line)
    assert f"]({file})" in line
    assert inside in (ROOT / file).read_text()
