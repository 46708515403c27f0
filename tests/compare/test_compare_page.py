"""The page of a comparison in a real browser: it loads without a complaint, fits, sorts, filters, and runs no label."""

import base64
import io
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import chromium
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

from scs_eval import contributions, create_model, load_data
from scs_eval.analyses.core.result import load_result, side_by_side
from scs_eval.cli.main import cli
from scs_eval.models.loading.load import weights_index
from scs_eval.report.html import sheets
from scs_eval.report.html.gallery import agreement, entries_of, gallery
from scs_eval.report.html.page import comparison_page

LABEL = "<script>document.write('owned')</script>"  # without an equals sign, which ends a label
CLASS = "4 <img src=x onerror=alert(1)>"
browser_needed = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="needs chromium, which is not here: apt-get install chromium"
)


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
    words += ["--data", str(base / "images"), "--out", str(base / "out")]
    words += ["--analyses", "accuracy,saliency,contributions,pgd", "--eps", "2/255,8/255"]
    words += ["--images", "pgd=2", "--images", "saliency=24", "--images", "contributions=24"]
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
    assert page.count("<script") == 2, "the page's own, and its data"

    class Links(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attributes):
            self.found += [value for name, value in attributes if name in ("src", "href", "action", "data", "srcset")]

    reader = Links()
    reader.feed(page)
    assert len(reader.found) > 10
    assert all(link.startswith(("data:image/", "#")) for link in reader.found)
    assert not re.search(r"url\((?!\"\$)|@import", page), "but for the rule that shows a sheet"
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert "<" not in data[1], "or a name could end the element"
    run = json.loads(data[1])["run"]
    assert LABEL in run["models"]
    assert len(run["metrics"]) == len(load_result(folder).table())


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
    assert browser.run("document.scripts.length") == 2
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
    entries = entries_of(parts)
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
    alike = [entry.agreement for entry in entries]
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
    shown = gallery({**both, "contributions": one})
    there = {kind: [sheet is not None for sheet in sheets] for kind, sheets in shown.sheets.items()}
    assert there == {"contributions": [False, True, True], "saliency": [True] * 3, "changes": [False] * 3}
    assert shown.entries[0].agreement == pytest.approx(
        agreement([each.maps[:1] for each in both["saliency"].results])[0]
    )


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_bcos"])
def test_what_makes_a_logit_adds_up(name):
    """To the three digits that are shown of each part; B-cos networks add a constant to all logits."""
    result = contributions(name, load_data("sample", n=2))
    entries = entries_of({"contributions": side_by_side([result], label="one")})
    for entry in entries:
        logit, parts = entry.predictions[0].adds_up.replace("−", "-").removeprefix("logit ").split(" = ")
        assert sum(float(part.split()[0]) for part in parts.split(" + ")) == pytest.approx(float(logit), abs=0.02)


def wait_for(browser: chromium.Browser, condition: str) -> None:
    """Until a condition of the page holds: pictures are decoded beside the script."""
    end = time.monotonic() + 20
    while not browser.run(condition):
        assert time.monotonic() < end, f"never: {condition}"
        time.sleep(0.05)


def opened(browser: chromium.Browser) -> int | None:
    """Which image is seen large."""
    return browser.run(
        "document.getElementById('large').open ? Number(document.getElementById('large').dataset.index) : null"
    )


@browser_needed
def test_the_keyboard_opens_an_image_moves_on_and_closes(browser, folder):
    browser.open(folder / "report.html", width=1280)
    indices = browser.run("[...document.querySelectorAll('#entries article')].map(each => Number(each.dataset.index))")
    browser.run("document.querySelector('#entries .open').focus()")
    outline = browser.run("getComputedStyle(document.activeElement, null).outlineStyle")
    browser.press("Enter")
    wait_for(browser, "document.getElementById('large').open")
    assert opened(browser) == indices[0]
    browser.press("ArrowRight")
    wait_for(browser, f"document.getElementById('large').dataset.index == '{indices[1]}'")
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    wait_for(browser, f"document.getElementById('large').dataset.index == '{indices[-1]}'")
    browser.press("Escape")
    wait_for(browser, "!document.getElementById('large').open")
    # The page moves the focus in the dialog's event `close`, which comes after it is closed.
    wait_for(browser, f"document.activeElement.closest('article')?.dataset.index == '{indices[-1]}'")
    assert outline != "none" or browser.run("document.activeElement.matches(':focus-visible')")
    assert browser.complaints() == []


@browser_needed
def test_large_an_image_has_all_that_is_known_of_it(browser, folder):
    parts = {name: load_result(folder / name) for name in ("accuracy", "saliency", "contributions", "pgd")}
    entry, accuracy, robust = entries_of(parts)[0], parts["accuracy"].results[0], parts["pgd"].results[0]
    browser.open(folder / "report.html", width=390)
    browser.go(f"#gallery&image={entry.index}")
    wait_for(browser, "document.getElementById('large').open")
    words = browser.run("document.getElementById('large').innerText")
    for prediction in entry.predictions:
        assert prediction.adds_up in words
        assert "from pixels" in prediction.adds_up
        assert prediction.breaks in words
    assert f"{100 * accuracy.probabilities[0, 0]:.1f} %" in words
    assert f"{255 * robust.min_eps[0]:.3g}/255" in entry.predictions[0].breaks or robust.min_eps[0] == 0
    bars = "[...document.querySelectorAll('.large-model .bar')].slice(0, 2).map(each => each.getClientRects()[0].width)"
    first, second = browser.run(bars)
    shares = [chance for _, chance in entry.predictions[0].likeliest[:2]]
    assert first / second == pytest.approx(shares[0] / shares[1], rel=0.02)
    described = browser.run("[...document.querySelectorAll('#large canvas')].every(each => each.ariaLabel)")
    assert described
    assert browser.run("document.getElementById('large').scrollWidth <= document.getElementById('large').clientWidth")


@browser_needed
def test_on_one_scale_the_weakest_map_is_the_palest(browser, folder):
    """Colours at full strength are the model's whose scale is the largest; the others' are paler than on their own."""
    results = load_result(folder / "contributions").results
    index = int(results[0].indices[0])
    browser.open(folder / "report.html", width=1280)
    browser.go(f"#&image={index}")
    wait_for(browser, "document.getElementById('large').open")
    strength = (
        "[...document.querySelectorAll('#large .large-maps')].map(maps => { const c = maps.querySelector('canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let sum = 0; for (let i = 0; i < d.length; i += 4) sum += 765 - d[i] - d[i + 1] - d[i + 2]; return sum; })"
    )
    own = browser.run(strength)
    browser.choose("scale", "shared")
    scales = [float(np.percentile(np.abs(result.maps[0]), 99)) for result in results]
    weakest = int(np.argmin(scales))
    wait_for(browser, f"{strength}[{weakest}] < {own[weakest]}")
    shared = browser.run(strength)
    assert shared[int(np.argmax(scales))] == own[int(np.argmax(scales))]
    assert "scale=shared" in browser.run("location.hash")


@browser_needed
def test_a_link_shows_the_same_view(browser, folder):
    browser.open(folder / "report.html", width=1280)
    browser.choose("kind", "saliency")
    browser.choose("sort", "apart")
    browser.choose("wrong", "any")
    browser.run("document.querySelector('table.summary .metric button').click()")
    order = "[...document.querySelectorAll('table.summary thead th')].map(each => each.innerText)"
    view, columns, link = shown(browser), browser.run(order), browser.run("location.hash")
    browser.open(folder / "report.html", width=1280)
    assert shown(browser) == list(range(24))
    browser.go(link)
    assert shown(browser) == view
    assert browser.run(order) == columns
    assert browser.run("document.getElementById('kind').value") == "saliency"
    browser.run("document.querySelector('nav a').click()")  # a link to a section keeps the view
    assert shown(browser) == view
    assert browser.run("location.hash").startswith("#summary&")
    browser.go("#gallery&sort=nonsense&kind=%3Cb%3E&class=nobody&image=77777777")
    assert shown(browser) == list(range(24))
    assert browser.complaints() == []


@browser_needed
def test_models_and_rows_sort(browser, folder):
    result = load_result(folder)
    browser.open(folder / "report.html", width=1280)
    browser.run("document.querySelector('table.summary .metric button').click()")  # accuracy: more is better
    heads = browser.run(
        "[...document.querySelectorAll('table.summary thead th .model > span')].map(each => each.innerText)"
    )
    assert heads == sorted(result.models, key=lambda model: -result.value("accuracy", model))
    browser.run("document.querySelector('#summary details:nth-of-type(2)').open = true")
    press = "document.querySelectorAll('table[data-name=tests] th button')[0].click()"
    cells = "[...document.querySelectorAll('table[data-name=tests] tbody tr')].map(each => each.cells[0].innerText)"
    browser.run(press)
    up = browser.run(cells)
    browser.run(press)
    assert browser.run(cells) == up[::-1] != up
    assert browser.run("document.querySelector('table[data-name=tests] th').ariaSort") == "descending"


@browser_needed
def test_tables_figures_and_the_run_are_saved_from_inside(browser, folder, tmp_path):
    browser.open(folder / "report.html", width=1280)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind, name in (("csv", "summary"), ("csv", "tests"), ("json", "run"), ("svg", "pgd"), ("png", "pgd")):
        browser.run(f"document.querySelector('[data-save={kind}][data-name={name}]').click()")
    end = time.monotonic() + 20
    wanted = {"summary.csv", "tests.csv", "run.json", "pgd.svg", "pgd.png"}
    while {path.name for path in tmp_path.iterdir()} != wanted:
        assert time.monotonic() < end, sorted(path.name for path in tmp_path.iterdir())
        time.sleep(0.05)
    time.sleep(0.2)
    result = load_result(folder)
    saved = pd.read_csv(tmp_path / "summary.csv")
    np.testing.assert_allclose(saved["value"], result.table()["value"], rtol=1e-5)  # six digits are written
    assert list(pd.read_csv(tmp_path / "tests.csv")["metric"]) == list(result.tests()["metric"])
    assert json.loads((tmp_path / "run.json").read_text())["run"]["versions"]["torch"]
    drawn = (folder / "pgd" / "figure.svg").read_text(encoding="utf-8")
    saved = (tmp_path / "pgd.svg").read_text(encoding="utf-8")
    without = re.sub("<metadata>.*</metadata>", "", drawn, flags=re.DOTALL)
    assert saved.split() == without.split(), "the page has the points elsewhere"
    with Image.open(tmp_path / "pgd.png") as picture:
        assert picture.width > 1000
    assert browser.complaints() == []


@browser_needed
def test_a_chart_tells_its_values(browser, folder):
    """What stands at the first point of the curve is what the result says of ε = 0."""
    result = load_result(folder / "pgd").results[0]
    browser.open(folder / "report.html", width=1280)
    browser.run("document.querySelector('figure[data-name=pgd] .drawing').focus()")
    said = browser.run("document.querySelector('figure[data-name=pgd] .said').innerText")
    assert said.startswith(LABEL)
    low, high = 100 * result.accuracy.low[0], 100 * result.accuracy.high[0]
    assert f"{100 * result.accuracy.estimate[0]:.4g} [{low:.4g}, {high:.4g}]" in said
    browser.press("ArrowRight")
    then = browser.run("document.querySelector('figure[data-name=pgd] .said').innerText")
    assert f"{100 * result.accuracy.estimate[1]:.4g} [" in then


def test_numbers_name_their_scope(folder):
    page = (folder / "report.html").read_text()
    assert "24 images" in page
    assert "no test: too few examples (n = 2)" in page, "of pgd's two images"
    assert "Each column is one trained network" in page
    values = [text for text in re.findall(r'data-value="[^"]*">(.*?)</td>', page, re.DOTALL) if re.search(r"\d", text)]
    assert values
    assert not any(re.search(r"-\d", text) for text in values), "a minus sign, not a hyphen"


def test_a_model_whose_reference_is_elsewhere_says_so(folder):
    whole = load_result(folder)
    asked = replace(whole, references={"plain": LABEL, LABEL: "another network"})
    every = replace(whole, references={"plain": LABEL})
    run = json.loads((folder / "run.json").read_text())
    asked, every = (comparison_page(result, folder=folder, cards={}, run=run, images={}) for result in (asked, every))
    assert "Not tested" not in every
    assert re.search(r"Not tested:.*another network, its reference, is not among the models", asked)


def test_attacked_images_and_maps_come_back_from_their_sheets(folder):
    """A tile of a lossless sheet is the image, and a map's levels times its scale the map."""
    parts = {name: load_result(folder / name) for name in ("contributions", "saliency", "pgd")}
    shown = gallery(parts)
    result = parts["contributions"].results[0]
    tile = tile_of(shown.images, 5)
    np.testing.assert_array_equal(tile, (255 * result.images[5]).round().astype(np.uint8).transpose(1, 2, 0))
    sheet = shown.sheets["contributions"][0]
    palette = {tuple(colour): level for level, colour in enumerate(shown.palettes.signed.tolist())}
    levels = np.array([[palette[tuple(pixel)] for pixel in row] for row in tile_of(sheet, 5).tolist()])
    top = shown.palettes.levels
    map_ = (levels - top) / top * sheet.scales[5]
    # Half a level of rounding; what is beyond the 99th percentile is cut there.
    clipped = result.maps[5].clip(-sheet.scales[5], sheet.scales[5])
    np.testing.assert_allclose(map_, clipped, atol=0.501 * sheet.scales[5] / top)
    changes = parts["pgd"].results[0].changes
    assert changes.shape == (2, 3, 32, 32)
    fooled = [i for i, eps in enumerate(parts["pgd"].results[0].min_eps) if np.isfinite(eps)]
    assert all(np.abs(changes[i]).max() <= parts["pgd"].results[0].min_eps[i] * 1.001 for i in fooled)  # half precision


def tile_of(sheet, place: int) -> np.ndarray:
    pixels = np.array(Image.open(io.BytesIO(base64.b64decode(sheet.uri.partition(",")[2]))))
    side = pixels.shape[1] // sheet.columns
    row, column = divmod(place, sheet.columns)
    return pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]


def test_six_models_and_five_hundred_images_fit(folder):
    """Noise is what compresses worst; a tile of it times 500 images, and six models' maps, leaves 3 MB for the rest."""
    maps = 500 * 6 * 3
    side, palettes = sheets.tile_side(32, maps), sheets.palettes_for(maps)
    assert side == 32, "as large as the images are"
    noise = np.random.default_rng(0).normal(size=(49, 32, 32))
    photographs = load_data("sample", n=49).images[:].numpy()
    signs = np.sign(np.random.default_rng(1).normal(size=(49, 3, 32, 32))) / 255
    costs = [
        len(sheet.uri) / 49
        for sheet in (
            sheets.signed_sheet(noise, side=side, palettes=palettes),
            sheets.size_sheet(np.abs(noise), side=side, palettes=palettes),
            sheets.change_sheet(signs, side=side, palettes=palettes),
        )
    ]
    pictures = len(sheets.picture_sheet(photographs, side=side, exact=palettes.exact).uri) / 49
    assert 500 * (6 * sum(costs) + pictures) < 7e6, (costs, pictures)
