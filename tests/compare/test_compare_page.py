"""The page of a comparison in a real browser: it loads without a complaint, fits, sorts, filters, and runs no label."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import chromium
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

from scs_eval import create_model, load_data
from scs_eval.analyses.core.result import load_result
from scs_eval.cli.main import cli
from scs_eval.models.loading.load import weights_index
from scs_eval.report.html.gallery import agreement, gallery

LABEL = "<script>document.write('owned')</script>"  # without an equals sign, which ends a label
CLASS = "4 <img src=x onerror=alert(1)>"
browser_needed = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="needs chromium, which is not here: apt-get install chromium"
)

pytestmark = pytest.mark.xdist_group("page")  # one process makes what its tests look at, once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a small comparison: one model and one class have names that a careless page would run."""
    base = tmp_path_factory.mktemp("compare")
    data = load_data("sample", n=60)
    for index, (image, label) in enumerate(zip(data.images, data.labels, strict=True)):
        name = CLASS if label == 4 else f"{label} {data.classes[label]}"
        (base / "images" / name).mkdir(parents=True, exist_ok=True)
        pixels = (255 * image.permute(1, 2, 0).numpy()).round().astype(np.uint8)
        Image.fromarray(pixels).save(base / "images" / name / f"{index}.png")
    words = ["compare", f"{LABEL}=rohrer100k_scs", "plain=rohrer100k_conv"]
    untrained = {"name": "rohrer25k_conv", "num_classes": "10"}
    save_file(create_model("rohrer25k_conv").state_dict(), base / "new.safetensors", metadata=untrained)
    words += [f"a name that is far too long for its column in a table={base / 'new.safetensors'}"]
    words += [
        "--data",
        str(base / "images"),
        "--analyses",
        "accuracy,saliency,contributions,pgd",
        "--eps",
        "2/255,8/255",
    ]
    words += [
        "--images",
        "pgd=2",
        "--images",
        "saliency=24",
        "--images",
        "contributions=24",
        "--out",
        str(base / "out"),
    ]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return base / "out"


@pytest.fixture(scope="module")
def browser(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_needs_nothing_else_and_escapes_every_name(folder):
    page = (folder / "report.html").read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("<script>") == 1, "the page's own"

    class Links(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attributes):
            self.found += [value for name, value in attributes if name in ("src", "href", "action", "data", "srcset")]

    reader = Links()
    reader.feed(page)
    assert len(reader.found) > 100
    assert all(link.startswith(("data:image/", "#")) for link in reader.found)
    assert not re.search(r"url\(|@import", page)


def test_the_page_tells_how_it_was_made(folder):
    page = (folder / "report.html").read_text()
    for word in (
        "python",
        "torch",
        "numpy",
        "sha256",
        "seed",
        "device",
        "Indices of the images",
        "113,741",
        f"{weights_index()['rohrer100k_scs']['epochs']} epochs",
    ):
        assert word in page


def test_agreement_is_between_models_and_works_across_sizes():
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(3, 8, 8))
    large = maps.repeat(2, 1).repeat(2, 2)
    assert agreement([maps, large]) == pytest.approx(1)
    assert agreement([maps, -maps]) == pytest.approx(-1)
    assert agreement([maps, maps, -maps]) == pytest.approx(-1 / 3)
    assert np.isnan(agreement([maps])).all()


@browser_needed
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_loads_without_a_complaint_and_fits(browser, folder, width, dark):
    browser.open(folder / "report.html", width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.scripts.length") == 1
    assert browser.run("document.querySelector('h1 .model > span').innerText") == LABEL
    ground = [int(part) for part in re.findall(r"\d+", browser.run("getComputedStyle(document.body).backgroundColor"))]
    assert (max(ground) < 60) == dark
    broken = "[...document.images].filter(each => !each.complete || !each.naturalWidth).length"
    assert browser.run(broken) == 0


def shown(browser: chromium.Browser) -> list[int]:
    """The places of the images that a reader sees, in this order."""
    return browser.run(
        "[...document.querySelectorAll('#entries article')].filter(each => each.offsetParent)"
        ".map(each => Number(each.dataset.place))"
    )


@browser_needed
def test_the_gallery_sorts_and_filters(browser, folder):
    browser.open(folder / "report.html", width=1280)
    parts = {name: load_result(folder / name) for name in ("saliency", "contributions", "pgd")}
    entries = gallery(parts)
    everything = list(range(24))
    assert shown(browser) == everything
    wrong = [[not prediction.right for prediction in entry.predictions] for entry in entries]
    assert 0 < sum(map(all, wrong)) < sum(map(any, wrong)), "or the filters show nothing"
    filters = {
        ("class", CLASS): lambda i: entries[i].truth == CLASS,
        ("same", "no"): lambda i: len({prediction.predicted for prediction in entries[i].predictions}) > 1,
        ("same", "yes"): lambda i: len({prediction.predicted for prediction in entries[i].predictions}) == 1,
        ("wrong", "none"): lambda i: not any(wrong[i]),
        ("wrong", "any"): lambda i: any(wrong[i]),
        ("wrong", "all"): lambda i: all(wrong[i]),
        ("wrong", "1"): lambda i: wrong[i][1],
        ("wrong", "only 2"): lambda i: wrong[i] == [False, False, True],
    }
    for (box, value), wanted in filters.items():
        browser.choose(box, value)
        assert shown(browser) == [i for i in everything if wanted(i)], (box, value)
        assert browser.run("document.getElementById('shown').textContent") == f"{len(shown(browser))} of 24 images"
        browser.choose(box, "")
    alike = [round(entry.agreement, 4) for entry in entries]
    orders = {
        "class": lambda i: entries[i].truth,
        "apart": lambda i: alike[i],
        "alike": lambda i: -alike[i],
        "wrong": lambda i: -sum(wrong[i]),
        "place": lambda i: i,
    }
    for value, key in orders.items():
        browser.choose("sort", value)
        assert shown(browser) == sorted(everything, key=key), value
    browser.choose("class", CLASS)
    browser.choose("wrong", "all")
    browser.choose("same", "no")
    assert browser.run("document.getElementById('nothing').hidden") == bool(shown(browser))
    assert browser.complaints() == []


@browser_needed
def test_a_reader_chooses_which_maps_to_see(browser, folder):
    browser.open(folder / "report.html", width=1280)
    seen = "[...document.querySelectorAll('.shot .map')].filter(each => each.offsetParent)"
    visible = f"[...new Set({seen}.map(each => each.dataset.kind))]"
    assert browser.run(visible) == ["contributions"]
    browser.choose("kind", "saliency")
    assert browser.run(visible) == ["saliency"]
    assert browser.complaints() == []


@browser_needed
def test_the_browser_would_notice(browser, tmp_path):
    """What the other tests rely on: errors, blocked content and requests are seen."""
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('no')</script><img src=http://localhost:9/x>")
    browser.open(page, width=390)
    told = " ".join(browser.complaints())
    assert "no" in told
    assert "localhost:9" in told


def test_a_model_without_contributions_still_has_a_place(folder):
    both = {name: load_result(folder / name) for name in ("saliency", "contributions")}
    one = replace(both["contributions"], results=both["contributions"].results[1:])
    entries = gallery({**both, "contributions": one})
    assert [len(prediction.maps) for prediction in entries[0].predictions] == [1, 2, 2]
    assert entries[0].agreement == pytest.approx(agreement([each.maps[:1] for each in both["saliency"].results])[0])
