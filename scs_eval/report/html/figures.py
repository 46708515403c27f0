"""Figures of a page: charts as SVG with the points that a reader can ask for, pictures made small enough to send."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from scs_eval.analyses.plotting import style
from scs_eval.report.html.parts import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

WIDEST = 1000  # pixels of a photograph in a page; the folder has it as it was drawn
METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
WHERE = re.compile(r' (?:d|x|y|width|height)="[^"]*"')  # attributes that are lengths
SPACE = re.compile(r"[ \n]+")  # but no-break spaces, which are seen
DECIMALS = re.compile(r"-?\d+\.\d{3,}")
UNESCAPED = " !$*+,-./:;=?@_~"  # in a data URI, besides letters and digits
DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"


def is_chart(drawing: "Drawing") -> bool:
    """Whether a figure is lines and text, without pictures."""
    from matplotlib.image import AxesImage, BboxImage, FigureImage

    return not any(drawing.findobj(kind) for kind in (AxesImage, BboxImage, FigureImage))


def write_svg(drawing: "Drawing", path: Path) -> None:
    """A chart as SVG whose description is what it shows, as JSON (`points_of`); the same chart gives the same file."""
    import matplotlib

    drawing.draw_without_rendering()  # settles the layout, and so where points are
    told = json.dumps(points_of(drawing), ensure_ascii=False, separators=(",", ":"))
    # Letters as letters: as outlines they are half of a file.
    with matplotlib.rc_context({"svg.hashsalt": "scs-eval", "svg.fonttype": "none"}):
        drawing.savefig(path, metadata={"Date": None, "Description": told}, format="svg")
    path.write_text(_shortened(path.read_text(encoding="utf-8")), encoding="utf-8")


def _shortened(svg: str) -> str:
    """On one line, lengths to a hundredth of a point; the description as it is."""
    described = METADATA.search(svg)
    text = METADATA.sub("<metadata/> ", svg)
    text = WHERE.sub(lambda length: DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", length[0]), text)
    return SPACE.sub(" ", text).replace("<metadata/>", described[0] if described else "")


def figure_part(path: Path, *, name: str, words: str = "") -> Figure:
    """The part for a figure that `write_result` wrote as a PNG file, and as SVG beside it if it is a chart.

    A chart without points, such as a drawn table, has nothing to tell by hovering, and is smaller as a picture.
    """
    drawn = path.with_suffix(".svg")
    text = drawn.read_text(encoding="utf-8") if drawn.exists() else ""
    told = ElementTree.fromstring(text).find(f".//{DESCRIPTION}") if text else None
    points = json.loads(told.text) if told is not None and told.text else []
    drawing = quote(METADATA.sub("", text), safe=UNESCAPED)  # the page has the points; shorter than base64
    uri = f"data:image/svg+xml,{drawing}" if points else _picture_uri(path)
    return Figure(name=name, uri=uri, chart=bool(text), words=words, points=points)


def points_of(drawing: "Drawing") -> list[dict[str, Any]]:
    """The series of a drawn chart: every labelled line and error bar.

    name, panel (title), x and y (what the axes say); points: [left, top, x, y, low, high], where left and top are
    shares of the figure's width and height, and the ends are None where no band or bar is drawn.
    """
    width, height = drawing.get_size_inches() * drawing.dpi
    series = []
    for ax in drawing.get_axes():
        for name, line, ends in _lines(ax):
            values = np.asarray(line.get_xydata(), dtype=float)
            places = ax.transData.transform(values)
            points = [
                [round(float(left / width), 4), round(1 - float(top / height), 4), *_four(x, y, *pair)]
                for (left, top), (x, y), pair in zip(places, values, ends, strict=True)
                if np.isfinite([left, top]).all()
            ]
            if points:
                names = {"x": _axis_name(ax.get_xlabel()), "y": _axis_name(ax.get_ylabel())}
                panel = ax.get_title(loc="left") or ax.get_title()
                series.append({"name": name, "panel": panel, **names, "points": points})
    return series


def _lines(ax: "Axes") -> "Iterator[tuple[str, Line2D, list[tuple[float, float]]]]":
    """Labelled lines in data coordinates with the ends of their bands, and labelled error bars with theirs."""
    from matplotlib.container import ErrorbarContainer

    for line in _named_lines(ax):
        yield _name(line), line, _band(ax, line)
    for bar in ax.containers:
        if isinstance(bar, ErrorbarContainer) and bar.lines[0] is not None and (name := _name(bar)):
            yield name, bar.lines[0], [_bar(bar, i) for i in range(len(np.atleast_1d(bar.lines[0].get_xdata())))]


def _named_lines(ax: "Axes") -> "list[Line2D]":
    return [line for line in ax.lines if _name(line) and line.get_transform() == ax.transData]


def _name(artist: Any) -> str:
    """What a line is called, though a legend may leave it out; empty of one that has no name."""
    label = str(artist.get_label() or "").removeprefix(style.UNLISTED)
    return "" if label.startswith("_") else label


def _band(ax: "Axes", line: "Line2D") -> list[tuple[float, float]]:
    """The ends of the band around a line: of as many bands as lines of a colour, each line has the one in its place."""
    from matplotlib.colors import to_rgb

    tint = to_rgb(line.get_color())
    lines = [other for other in _named_lines(ax) if np.allclose(to_rgb(other.get_color()), tint)]
    shapes = [shape for shape in ax.collections if len(shape.get_paths()) == 1]
    bands = [
        shape.get_paths()[0].vertices
        for shape in shapes
        if any(np.allclose(fill[:3], tint) for fill in np.reshape(shape.get_facecolor(), (-1, 4)))
    ]
    x, y = np.asarray(line.get_xydata(), dtype=float).T
    ends = [_edges(bands[lines.index(line)], at) for at in x] if len(bands) == len(lines) else []
    inside = [low - 1e-9 <= value <= high + 1e-9 for (low, high), value in zip(ends, y, strict=False)]
    return ends if ends and all(inside) else [(np.nan, np.nan)] * len(x)


def _edges(vertices: Any, x: float) -> tuple[float, float]:
    """The lowest and highest corner of a band at x."""
    here = np.asarray(vertices)[np.isclose(np.asarray(vertices)[:, 0], x), 1]
    return (float(here.min()), float(here.max())) if len(here) else (np.nan, np.nan)


def _bar(bar: Any, position: int) -> tuple[float, float]:
    """The ends of an error bar, along x or y."""
    if not bar.lines[2]:
        return np.nan, np.nan
    ends = np.asarray(bar.lines[2][0].get_segments()[position])
    return (float(ends[0, 0]), float(ends[1, 0])) if bar.has_xerr else (float(ends[0, 1]), float(ends[1, 1]))


def _four(*values: float) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


def _axis_name(text: str) -> str:
    return " ".join(text.split())


def _picture_uri(path: Path) -> str:
    """A picture in the smaller of two forms: whole, each channel to 5 bits, or as a photograph, narrow and with loss.

    Enlarged pixels, as of maps of small images, are smaller whole.
    """
    with Image.open(path) as image:
        whole = image.convert("RGB")
    drawn = whole.point([min(255, (level + 4) // 8 * 8) for level in range(256)] * 3)
    encoded = min(_webp(drawn, lossless=True, quality=60), _webp(_narrow(whole), quality=65), key=len)
    return f"data:image/webp;base64,{base64.b64encode(encoded).decode()}"


def _narrow(image: Image.Image) -> Image.Image:
    """At most WIDEST pixels wide."""
    size = (WIDEST, round(image.height * WIDEST / image.width))
    return image.resize(size, Image.Resampling.LANCZOS) if image.width > WIDEST else image


def _webp(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", method=4, **options)
    return buffer.getvalue()
