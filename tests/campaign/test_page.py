"""report.html with hostile words in every place where a user, a file or a folder can put some: they stay words."""

from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import command
from PIL import Image
from safetensors.torch import save_file

import scs_eval
from scs_eval.report.html.page import comparison_page
from scs_eval.report.provenance import provenance

WORDS = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "</style><b>",
    "</script>", "{{ 7*7 }}", "{% raw %}", "<!--", "]]>", "&lt;b&gt;", "&#60;b&#62;", "javascript:alert(1)",
    "</title><svg onload=alert(1)>", "${alert(1)}", "`", "<a href=//x>", "<iframe srcdoc='<b>'>", "\\u003cb", "|safe",
]  # fmt: skip
PLAIN = "plain"


class Structure(HTMLParser):
    """Every element with the names of its attributes, the addresses, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[Any] = Counter()
        self.addresses: set[str] = set()
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag, tuple(name for name, _ in attrs)] += 1
        self.addresses |= {str(value)[:11] for name, value in attrs if name in ("href", "src", "action", "srcdoc")}

    def handle_comment(self, data: str) -> None:
        self.elements["comment"] += 1

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@cache
def data() -> scs_eval.ImageData:
    return scs_eval.load_data("sample", n=10)


@cache
def model() -> Any:
    return scs_eval.load_model("rohrer25k_conv")


@cache
def comparison(label: str, class_name: str, title: str) -> Any:
    return scs_eval.compare(
        dict.fromkeys([label, "other"], model()), data().images, data().labels, analyses=["accuracy", "saliency"],
        classes=[class_name, *data().classes[1:]], label=title, sizes={"saliency": 4},
    )  # fmt: skip


@cache
def structure(word: str = PLAIN, *, where: str) -> Structure:
    """The page of a comparison of two models, with the word in one place."""
    said = dict.fromkeys(PLACES, PLAIN) | {where: word}
    return Structure(
        comparison_page(
            comparison(said["label"], said["class name"], said["title"]),
            folder=Path("/nowhere"),
            cards={said["label"]: {said["fact's name"]: said["fact"]}, "other": {}},
            run=provenance({said["setting's name"]: said["setting"]}, command=["scs-eval", said["command"]]),
            images={},
            gates=[(said["gate"], True)],
        )
    )


PLACES = ["label", "class name", "title", "fact", "fact's name", "setting", "setting's name", "command", "gate"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("word", WORDS)
def test_words_stay_words(word: str, where: str) -> None:
    plain, hostile = structure(where=where), structure(word, where=where)
    assert hostile.elements == plain.elements
    assert hostile.addresses == plain.addresses
    if where not in ("title", "command"):  # which the page does not show, and which the shell's rules quote
        assert any(word in text for text in hostile.words), "shown as it is"


IN_FILES = [word for word in WORDS if "/" not in word]


def downloaded(here: Path, word: str) -> Structure:
    """The page of a checkpoint and a folder of images that say the word wherever they can."""
    save_file(model().state_dict(), here / f"{word}.safetensors", {"name": "rohrer25k_conv", "author": word, word: "x"})
    for number in range(10):
        (here / "images" / f"{word}{number}").mkdir(parents=True)
        Image.new("RGB", (32, 32), "red").save(here / "images" / f"{word}{number}" / f"{word}.png")
    words = "compare", f"m={here / word}.safetensors", "--data", str(here / "images"), "--analyses", "accuracy"
    done = command(*words, "--out", str(here / "o"))
    assert done.code == 0, done.stderr
    return Structure((here / "o" / "report.html").read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Structure:
    return downloaded(tmp_path_factory.mktemp(PLAIN), PLAIN)


@pytest.mark.parametrize("word", IN_FILES)
def test_words_in_file_names_and_metadata(tmp_path: Path, plain: Structure, word: str) -> None:
    hostile = downloaded(tmp_path, word)
    assert hostile.elements == plain.elements
    assert hostile.addresses == plain.addresses
    assert any(f"author {word}" in text for text in hostile.words)
