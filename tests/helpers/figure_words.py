"""What is written in a figure, and whether it fits."""

from collections.abc import Iterator

from matplotlib.figure import Figure
from matplotlib.text import Text


def cut_words(figure: Figure) -> list[str]:
    """The texts that reach beyond the edge of their figure, by more than a pixel of rounding."""
    figure.draw_without_rendering()
    whole = figure.bbox.padded(1)
    hidden = {id(text) for text in _ticks_out_of_view(figure)}
    written = [text for text in figure.findobj(Text) if _is_seen(text) and id(text) not in hidden]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in written]
    return [words for words, box in boxes if not all(whole.contains(*corner) for corner in box.corners())]


def _is_seen(text: Text) -> bool:
    return bool(text.get_text().strip()) and text.get_visible()


def _ticks_out_of_view(figure: Figure) -> Iterator[Text]:
    """matplotlib has more ticks than it draws."""
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high or not axis.get_visible():
                yield from (tick.label1, tick.label2)
