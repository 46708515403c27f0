"""Labels that do not collide, colours that mean the same everywhere."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from scs_eval.analyses.plotting import style


@given(st.lists(st.floats(0, 10), max_size=12))
def test_spread_keeps_order_distance_and_bounds(positions: list[float]) -> None:
    placed = style.spread(positions, 0.5, 0, 10)
    order = np.argsort(positions, kind="stable")
    assert (np.diff(placed[order]) >= 0.5 - 1e-9).all()
    assert ((placed >= -1e-9) & (placed <= 10 + 1e-9)).all()


def test_spread_moves_as_little_as_needed() -> None:
    assert style.spread([1, 5, 9], 1, 0, 10).tolist() == [1, 5, 9]
    assert style.spread([5, 5], 1, 0, 10).tolist() == [4.5, 5.5]
    assert style.spread([9.9, 10], 1, 0, 10).tolist() == [9, 10]
    assert style.spread([5] * 4, 5, 0, 9).tolist() == [0, 3, 6, 9], "no room: evenly"


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("rohrer100k_scs_relu", "scs"),
        ("resnet18_224_conv_nobn", "conv"),
        ("bcos_cnn9_b=1.25", "bcos"),
        ("rohrer25k_cos", "cos"),
        ("mine.pt", None),
        ("conventional", None),
    ],
)
def test_a_layer_looks_the_same_everywhere(name: str, layer: str | None) -> None:
    assert style.layer_of(name) == layer
    assert style.look_of(name) == (style.LAYERS[layer] if layer else style.OTHER)


@pytest.mark.parametrize(("value", "words"), [(-0.001, "0.00"), (-1.5, "−1.50"), (2, "2.00")])
def test_a_number_has_a_minus_sign_only_if_it_is_below_0_as_written(value: float, words: str) -> None:
    assert style.format_number(value) == words


def test_layers_differ_without_colour_too() -> None:
    assert len({marker for _, marker in style.LAYERS.values()}) == len(style.LAYERS)


def test_matplotlibs_settings_are_put_back() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)

    with pytest.raises(KeyError), style.drawing():
        raise KeyError
    assert dict(matplotlib.rcParams) == before


def extent(text: Annotation) -> Bbox:
    """The text's own: an annotation's includes the line that leads to it, and finding that puts the text in place."""
    text.get_window_extent()
    return Text.get_window_extent(text)


def test_labels_of_curves_that_end_together_do_not_overlap() -> None:
    with style.drawing() as ax:
        ax.plot([0, 1], [0, 1])
        style.label_ends(ax, [(1, 0.5, f"curve {i}", "black") for i in range(8)])
        figure = style.figure_of(ax)
    figure.canvas.draw()
    boxes = sorted((extent(text) for text in ax.texts), key=lambda box: box.y0)
    assert len(boxes) == 8
    assert all(upper.y0 >= lower.y1 for lower, upper in pairwise(boxes))
