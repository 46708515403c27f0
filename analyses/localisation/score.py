"""Grid pointing score: which share of a map's positive mass lies in the right cell?

Source: Böhle et al. 2021 (CoDA-Nets); B-cos v2, section 4, C.2.1, and Figure 7 for the n strongest pixels. A map is
of a mosaic of n × n cells, counted row by row; the k-th map of a mosaic explains the class of its k-th cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scs_eval.analyses.localisation.options import check_smooth
from scs_eval.errors import InputError

KERNEL_SHARE = 15 / 224  # of an image's side: 15 pixels of 224 (B-cos v2, section 4)


@dataclass(frozen=True)
class Scorer:
    """From maps (G, n², H, W) to scores (G, n²) and those of the strongest pixels alone (G, n², T).

    top: how many pixels are to count in the second score; counts (T,): where its curve is measured, none without `top`.
    published: the arithmetic of the B-cos authors' code.
    """

    side: int
    smooth: int
    top: int | None
    counts: tuple[int, ...]
    published: bool

    @classmethod
    def of(cls, *, side: int, size: int, smooth: int, top: float | None, published: bool) -> "Scorer":
        """For mosaics of images of `size` pixels; `top` below 1 is a share of the mosaic's pixels."""
        pixels = (side * size) ** 2
        if top is None:
            return cls(side, smooth, None, (), published)
        if not 0 < top <= pixels or (top >= 1 and top != int(top)):
            raise InputError(
                f"expected --top as a share below 1 or a whole number of at most {pixels} pixels, got {top:g}"
            )
        count = int(top) if top >= 1 else max(1, round(top * pixels))
        return cls(side, smooth, count, tuple(top_counts(pixels, requested=count)), published)

    def __call__(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and those of the strongest pixels."""
        rule = published_scores if self.published else scores
        if not self.counts:
            return rule(maps, side=self.side, smooth=self.smooth), torch.zeros(*maps.shape[:2], 0)
        tops = top_scores(maps, side=self.side, smooth=self.smooth, counts=self.counts)
        return rule(maps, side=self.side, smooth=self.smooth), tops


def default_smooth(size: int) -> int:
    """The kernel's side for images of `size` pixels: the odd number nearest to 15/224 of it; 3 for CIFAR-10."""
    return 2 * int(KERNEL_SHARE * size / 2) + 1


def smoothed(maps: Tensor, smooth: int) -> Tensor:
    """Maps (…, H, W) averaged over smooth × smooth pixels, with zeros beyond the border."""
    check_smooth(smooth)
    if smooth == 1:
        return maps
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    return F.avg_pool2d(flat, smooth, stride=1, padding=smooth // 2).reshape(maps.shape)


def scores(maps: Tensor, *, side: int, smooth: int) -> Tensor:
    """Positive mass in the right cell over all positive mass (G, n²), in double precision.

    maps: (G, n², H, W), summed over channels, of any scale: each is divided by its largest |value| first, so that
    nothing underflows. A map without positive mass scores 0.
    """
    return _share(_positive(maps, smooth), side)


def top_scores(maps: Tensor, *, side: int, smooth: int, counts: Sequence[int]) -> Tensor:
    """The same with only the n strongest pixels of each smoothed map, for every n in `counts`: (G, n², T).

    Where several pixels tie for the last places, each counts in part, as if the choice among them were averaged.
    """
    positive = _positive(maps, smooth)
    flat = positive.flatten(-2)
    ranked = flat.sort(dim=-1, descending=True).values
    return torch.stack([_share(positive * _kept(flat, ranked, n).view_as(positive), side) for n in counts], -1)


def _kept(flat: Tensor, ranked: Tensor, count: int) -> Tensor:
    """The weight of every pixel (…, H·W) when only `count` are to count."""
    last = ranked[..., min(count, ranked.shape[-1]) - 1, None]
    above, tied = flat > last, flat == last
    room = count - above.sum(-1, keepdim=True)
    return above + tied * (room / tied.sum(-1, keepdim=True)).clamp(max=1)


def top_counts(pixels: int, *, requested: int) -> list[int]:
    """Where the curve over n is measured: about four steps for each factor of ten, n itself, and all pixels."""
    steps = {round(10 ** (step / 4)) for step in range(4, 100) if 10 ** (step / 4) < pixels}
    return sorted(steps | {requested, pixels})


def ceiling(*, size: int, side: int, smooth: int) -> Tensor:
    """What smoothing leaves of a perfect map, for each cell (n²,): one that is even in its cell and 0 elsewhere.

    Smoothing moves mass across the cell's edge. A map that keeps away from the edges loses less than this.
    """
    perfect = torch.eye(side * side, dtype=torch.double).view(1, side * side, side, side)
    perfect = perfect.repeat_interleave(size, 2).repeat_interleave(size, 3)
    return scores(perfect, side=side, smooth=smooth)[0]


def published_scores(maps: Tensor, *, side: int, smooth: int) -> Tensor:
    """The score (G, n²) as the B-cos authors' code computes it: in the maps' own precision, without scaling.

    A map whose mass squared underflows scores 0 there.
    """
    positive = smoothed(maps, smooth).clamp(min=0)
    means = F.avg_pool2d(positive, positive.shape[-1] // side).flatten(-2)
    own, total = means.diagonal(dim1=-2, dim2=-1), means.sum(-1)
    return torch.where(total * own > 0, own / total, torch.zeros_like(own)).double()


def _positive(maps: Tensor, smooth: int) -> Tensor:
    strongest = maps.abs().amax((-2, -1), keepdim=True).double()
    unit = maps.double() / torch.where(strongest > 0, strongest, 1.0)
    return smoothed(unit, smooth).clamp(min=0)


def _share(positive: Tensor, side: int) -> Tensor:
    """(G, n², H, W) ≥ 0 to (G, n²): the mass of the k-th map in the k-th cell over its whole mass."""
    cells = positive.unflatten(-2, (side, -1)).unflatten(-1, (side, -1)).sum((-3, -1)).flatten(-2)
    own, total = cells.diagonal(dim1=-2, dim2=-1), cells.sum(-1)
    return torch.where(total > 0, own / torch.where(total > 0, total, 1.0), 0.0)
