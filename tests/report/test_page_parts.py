"""The parts of pages: claims, tables and figures that nothing can break out of, and points read off a chart."""

import base64
import io
import json
import re
from importlib.resources import files
from pathlib import Path

import chromium
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Drawing
from PIL import Image

from scs_eval.analyses.plotting import style
from scs_eval.report.html.figures import figure_part, is_chart, points_of, write_svg
from scs_eval.report.html.page import ink_on
from scs_eval.report.html.parts import ClaimRow, Claims, Note, Section, Table, make_page

RUN = {
    "command": "scs-eval study x",
    "settings": {"seed": 0},
    "time": "now",
    "versions": {"torch": "2"},
    "platform": "p",
}
HOSTILE = "</script><script>document.title = 'owned'</script>"


def some_chart() -> Drawing:
    drawing = Drawing((4, 3))
    ax = drawing.add_subplot()
    x, y = np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 1.5])
    ax.fill_between(x, y - 0.5, y + 0.25, color="tab:blue", alpha=0.2)
    ax.plot(x, y, color="tab:blue", label=HOSTILE)
    ax.plot(x, y[::-1], color="tab:red")
    ax.errorbar([1.0], [2.5], yerr=[[0.5], [1.0]], fmt="o", label="bar")
    ax.set(xlabel="ε", ylabel="accuracy")
    return drawing


def test_points_are_what_was_drawn():
    drawing = some_chart()
    drawing.draw_without_rendering()
    line, bar = points_of(drawing)
    assert (line["name"], line["x"], line["y"], bar["name"]) == (HOSTILE, "ε", "accuracy", "bar")
    assert [point[2:] for point in line["points"]] == [[0, 3, 2.5, 3.25], [1, 2, 1.5, 2.25], [2, 1.5, 1, 1.75]]
    assert bar["points"][0][2:] == [1, 2.5, 2, 3.5]
    left, top = line["points"][0][:2]
    ax = drawing.axes[0]
    there = drawing.transFigure.inverted().transform(ax.transData.transform((0.0, 3.0)))
    assert (left, 1 - top) == pytest.approx(tuple(there), abs=1e-4)  # four digits are kept


def test_pictures_are_no_charts_and_charts_keep_their_points(tmp_path: Path):
    drawing = some_chart()
    assert is_chart(drawing)
    drawing.savefig(tmp_path / "a.png")
    write_svg(drawing, tmp_path / "a.svg")
    part = figure_part(tmp_path / "a.png", name="a")
    assert part.chart
    assert part.points[0]["name"] == HOSTILE
    write_svg(some_chart(), tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes()
    drawing.axes[0].imshow(np.zeros((2, 2)))
    assert not is_chart(drawing)
    (tmp_path / "a.svg").unlink()
    assert figure_part(tmp_path / "a.png", name="a").uri.startswith("data:image/webp")


def a_page(folder: Path) -> str:
    some_chart().savefig(folder / "a.png")
    write_svg(some_chart(), folder / "a.svg")
    claims = [
        ClaimRow(text=HOSTILE, verdict="supported", effect="+1", scope="5 trainings, 500 images", test="sign flips"),
        ClaimRow(text="b", verdict="contradicted", scope="this network", caveat="one training"),
    ]
    frame = pd.DataFrame({"a": ["10", "9", "−3"], "b": [HOSTILE, "x", "y"]})
    sections = [
        Section(name="claims", title="Claims", parts=[Note(text=HOSTILE), Claims(name="claims", claims=claims)]),
        Section(name="t", title="T", parts=[Table(name="t", frame=frame), figure_part(folder / "a.png", name="a")]),
    ]
    return make_page(title=HOSTILE, over="scs-eval study", sections=sections, run=RUN, download={"x": float("nan")})


def test_a_page_of_sections_holds_what_it_is_given(tmp_path: Path):
    page = a_page(tmp_path)
    assert HOSTILE not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["tables"]["t"].startswith("a,b\n10,")
    assert "one training" in data["tables"]["claims"]
    assert data["run"]["x"] is None
    assert data["points"]["a"][0]["name"] == HOSTILE


def test_two_parts_of_one_name_are_refused():
    table = Table(name="t", frame=pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="distinct names"):
        make_page(title="x", over="", sections=[Section(name="s", title="S", parts=[table, table])], run=RUN)


@pytest.mark.skipif(chromium.PROGRAM is None, reason="needs chromium, which is not here: apt-get install chromium")
def test_in_a_browser_nothing_breaks_out_and_numbers_sort_as_numbers(tmp_path: Path):
    (tmp_path / "page.html").write_text(a_page(tmp_path))
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "page.html", width=390)
        assert browser.complaints() == []
        assert browser.run("document.title") == HOSTILE
        assert browser.run("document.documentElement.scrollWidth") <= 390
        browser.run("document.querySelector('table[data-name=t] th button').click()")
        cells = "[...document.querySelectorAll('table[data-name=t] tbody tr')].map(each => each.cells[0].innerText)"
        assert browser.run(cells) == ["−3", "9", "10"]
        assert browser.run("location.hash") == "#&sort-t=0-up"


# What stands on what in page.css; a browser's colours are these variables.
ON = {
    "ink": ("ground", "paper", "tint", "good"), "soft": ("ground", "paper", "tint", "good"),
    "accent": ("ground", "paper"), "good-ink": ("good", "paper"), "warn-ink": ("warn",), "bad-ink": ("bad",),
    "pass-ink": ("pass",), "wrong": ("paper",),
}  # fmt: skip


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_text_has_the_contrast_that_wcag_asks_for():
    """4.5 for text of normal size (WCAG 2.1, 1.4.3), in light, in dark and in print."""
    css = (files("scs_eval.report.html") / "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(blocks) == 3
    usual = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[0]))
    for block in blocks:
        colours = {**usual, **dict(re.findall(r"--([\w-]+): (#\w+)", block))}
        for text, grounds in ON.items():
            for ground in grounds:
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01), "as WebAIM's calculator says"


def test_a_models_number_is_read_on_its_colour():
    for colour in (*style.CYCLE, style.YELLOW, style.GREY):
        assert contrast(ink_on(colour), colour) >= 4.5, colour


def test_maps_and_photographs_are_each_kept_in_their_smaller_form(tmp_path: Path):
    """Enlarged pixels come back as they are, nearly; a photograph is not kept without loss, and is narrow."""
    rng = np.random.default_rng(0)
    few = rng.integers(0, 8, (40, 300))[..., None] * np.array([30, 20, 10])
    maps = np.kron(few, np.ones((4, 4, 1))).astype(np.uint8)
    photograph = rng.integers(0, 256, (1200, 1200, 3), dtype=np.uint8)
    shown = []
    for name, pixels in (("maps", maps), ("photograph", photograph)):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
        uri = figure_part(tmp_path / f"{name}.png", name=name).uri
        shown.append(np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")))
    assert shown[0].shape == maps.shape
    assert np.abs(shown[0].astype(int) - maps).max() <= 4, "5 bits"
    assert shown[1].shape == (1000, 1000, 3)
