"""The score of the pointing game against closed forms, a loop over pixels, and numbers of the B-cos authors' code."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scs_eval.analyses.localisation.score import (
    ceiling,
    default_smooth,
    published_scores,
    scores,
    smoothed,
    top_counts,
    top_scores,
)
from scs_eval.errors import InputError


def perfect(side: int, size: int) -> Tensor:
    """Each cell's map: 1 in the cell, 0 elsewhere."""
    maps = torch.zeros(1, side * side, side * size, side * size)
    for cell in range(side * side):
        row, column = divmod(cell, side)
        maps[0, cell, row * size : (row + 1) * size, column * size : (column + 1) * size] = 1
    return maps


def random_maps(side: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(2, side**2, side * size, side * size, generator=torch.Generator().manual_seed(seed))


def slow_score(one: Tensor, cell: int, side: int, smooth: int) -> float:
    """Pixel by pixel, in Python's own numbers."""
    pixels, extent, reach = one.tolist(), len(one), smooth // 2
    size, inside, total = extent // side, 0.0, 0.0
    for y in range(extent):
        for x in range(extent):
            window = [
                pixels[v][u]
                for v in range(max(0, y - reach), min(extent, y + reach + 1))
                for u in range(max(0, x - reach), min(extent, x + reach + 1))
            ]
            value = max(0.0, sum(window) / smooth**2)
            total += value
            inside += value * ((y // size, x // size) == divmod(cell, side))
    return inside / total if total else 0.0


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("smooth", [1, 3, 5])
def test_scores_by_a_loop_over_pixels(side: int, smooth: int) -> None:
    maps = random_maps(side, 6)
    found = scores(maps, side=side, smooth=smooth)
    wanted = [[slow_score(one, cell, side, smooth) for cell, one in enumerate(grid)] for grid in maps]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.double), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("side", "size", "smooth"), [(2, 32, 3), (3, 32, 3), (3, 224, 15), (2, 8, 1)])
def test_perfect_maps_score_the_ceiling(side: int, size: int, smooth: int) -> None:
    """In one dimension an edge inside the grid loses l = Σ d/k pixels to the neighbour, one outside to all."""
    leak = sum(range(smooth // 2 + 1)) / smooth
    outer, inner = (size - 2 * leak) / (size - leak), (size - 2 * leak) / size
    line = torch.tensor([outer, inner, outer] if side == 3 else [outer, outer], dtype=torch.double)
    found = scores(perfect(side, size), side=side, smooth=smooth)[0]
    torch.testing.assert_close(found, torch.outer(line, line).flatten(), rtol=1e-9, atol=0)
    torch.testing.assert_close(found, ceiling(size=size, side=side, smooth=smooth), rtol=1e-9, atol=0)


def test_the_ceilings_of_the_published_game() -> None:
    assert ceiling(size=32, side=3, smooth=3).mean().item() == pytest.approx(0.972, abs=5e-4)
    assert ceiling(size=224, side=3, smooth=15).mean().item() == pytest.approx(0.978, abs=5e-4)


@pytest.mark.parametrize("side", [2, 3])
def test_even_maps_score_chance(side: int) -> None:
    even = torch.full((1, side**2, 4 * side, 4 * side), 0.3)
    torch.testing.assert_close(
        scores(even, side=side, smooth=1), torch.full((1, side**2), side**-2, dtype=torch.double), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("value", [0.0, -1.0, -1e-30])
@pytest.mark.parametrize("smooth", [1, 3])
def test_maps_without_positive_mass_score_nothing(value: float, smooth: int) -> None:
    assert not scores(torch.full((1, 4, 8, 8), value), side=2, smooth=smooth).any()
    assert not top_scores(torch.full((1, 4, 8, 8), value), side=2, smooth=smooth, counts=[1, 64]).any()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1e-30, 1e-35, 3e-20, 1e20]))
def test_scale_does_not_matter(seed: int, factor: float) -> None:
    maps = random_maps(2, 5, seed)
    wanted = scores(maps, side=2, smooth=3)
    torch.testing.assert_close(scores(maps * factor, side=2, smooth=3), wanted, rtol=1e-4, atol=1e-6)  # fp32 maps


def test_scores_of_the_authors_code() -> None:
    """Recorded from B-cos-v2 (interpretability/analyses/localisation.py); k-th image at row k % n, column k // n."""
    theirs = torch.tensor([0.22607655823230743, 0.011194816790521145, 0.019397873431444168, 0.2580377757549286])
    maps = torch.sin(torch.arange(4 * 36, dtype=torch.float64) * 0.9).view(4, 6, 6).float()
    order = [0, 2, 1, 3]
    found = published_scores(maps[None, order], side=2, smooth=3)[0]
    torch.testing.assert_close(found, theirs[order].double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(found, scores(maps[None, order], side=2, smooth=3)[0], rtol=1e-5, atol=0)
    assert not published_scores(1e-25 * maps[None, order], side=2, smooth=3).any()  # underflows there, and only there


def test_strongest_pixels_by_hand() -> None:
    one = torch.tensor([[9.0, 1.0, 0.0, 7.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, -5.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    maps = one.expand(1, 4, 4, 4)
    found = top_scores(maps, side=2, smooth=1, counts=[1, 2, 3, 4, 5, 16])
    assert found[0, 0].tolist() == pytest.approx([1, 9 / 16, 9 / 19, 11 / 21, 12 / 22, 12 / 22])
    assert found[0, 1].tolist() == pytest.approx([0, 7 / 16, 7 / 19, 7 / 21, 7 / 22, 7 / 22])
    torch.testing.assert_close(found[..., -1], scores(maps, side=2, smooth=1))


def test_pixels_that_tie_count_in_part() -> None:
    even = torch.ones(1, 4, 4, 4)
    assert top_scores(even, side=2, smooth=1, counts=[1, 3, 10]).flatten().tolist() == pytest.approx([0.25] * 12)
    one = torch.zeros(1, 4, 4, 4)
    one[..., 0, 0] = 2  # then three that tie for two places: each counts for 2/3
    one[..., 0, 3] = one[..., 3, 0] = one[..., 3, 3] = 1
    assert top_scores(one, side=2, smooth=1, counts=[3])[0, :, 0].tolist() == pytest.approx([1 / 2, *[1 / 6] * 3])


def test_where_the_curve_is_measured() -> None:
    assert top_counts(4096, requested=102) == [10, 18, 32, 56, 100, 102, 178, 316, 562, 1000, 1778, 3162, 4096]


@pytest.mark.parametrize(("size", "kernel"), [(32, 3), (224, 15), (64, 5), (8, 1)])
def test_default_kernel(size: int, kernel: int) -> None:
    assert default_smooth(size) == kernel


@pytest.mark.parametrize("smooth", [0, 2, -3])
def test_kernels_without_a_middle(smooth: int) -> None:
    with pytest.raises(InputError, match="odd kernel"):
        smoothed(torch.zeros(1, 4, 4), smooth)
