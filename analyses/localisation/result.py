"""What the pointing game gives: a score for every cell of every grid, and what follows from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import percent_words
from scs_eval.analyses.core.reference_tests import compare_pair, corrected
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import SHARE, mean_interval
from scs_eval.analyses.localisation import panels
from scs_eval.analyses.localisation.mosaics import mosaic_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalisationResult(Result):
    """The scores of one model by one method on G grids of n × n cells, cells row by row.

    indices, targets: (G, n²) images and their classes. scores: (G, n²). ceiling: (n²,) what smoothing leaves
        of a map that is even in its cell; one that keeps away from the edges can score more.
    top: how many pixels count in the second score, if any; top_counts (T,), top_scores (G, n², T): the curve over that.
    images: (k, 3, H, W), maps: (k, n², H, W) the first k grids, and their maps as they are scored, with signs.
    asked: grids wanted; pool: images at hand; usable: those that every model in the game has right
        (None for grids that were replayed).
    correct: (right, of) single images; None if not known. b: the exponent of a B-cos network. seconds: per grid.
    square: the side of occlusion's square; None for other methods. wrong: how many of the grids' images the model has
        wrong, as it may when grids are replayed; None if not known.
    """

    name = "localisation"
    axes: ClassVar = axes_of(
        "grid, cell: indices targets scores", "cell: ceiling", "top_count: top_counts",
        "grid, cell, top_count: top_scores", "shown, channel, row, column: images", "shown, cell, row, column: maps",
    )  # fmt: skip
    model: str
    method: str
    setting: str
    protocol: str
    seen: str
    side: int
    smooth: int
    classes: tuple[str, ...]
    indices: np.ndarray
    targets: np.ndarray
    scores: np.ndarray
    ceiling: np.ndarray
    top: int | None
    top_counts: np.ndarray
    top_scores: np.ndarray
    images: np.ndarray
    maps: np.ndarray
    asked: int
    pool: int
    usable: int | None
    correct: tuple[int, int] | None
    b: float | None
    seconds: float
    square: int | None = None
    wrong: int | None = None

    @property
    def grid_scores(self) -> np.ndarray:
        """(G,) the mean over a grid's cells. Cells of one grid are not independent: grids are what is resampled."""
        return self.scores.mean(1)

    def table(self) -> pd.DataFrame:
        """One row: mean and 95 % interval over grids, quartiles over cells, the limits, and how it was played."""
        mean, low, high = (float(part) for part in mean_interval(self.grid_scores, bounds=SHARE))
        quartiles = dict(zip(("q25", "median", "q75"), np.percentile(self.scores, (25, 50, 75)), strict=True))
        row = {
            "model": self.model, "method": self.method, "setting": self.setting, "protocol": self.protocol,
            "grid": f"{self.side}x{self.side}", "seen": self.seen, "smooth": self.smooth, "grids": len(self.scores),
            "asked": self.asked, "score": mean, "low": low, "high": high, **quartiles,
            "floor": 1 / self.side**2, "ceiling_even_map": float(self.ceiling.mean()),
        }  # fmt: skip
        if self.square is not None:
            row["square"] = self.square
        return pd.DataFrame([{**row, **self.top_interval(), **self._accuracy()}])

    def top_interval(self) -> dict[str, float]:
        """The score of the strongest pixels alone with its interval, if that was asked for; columns of the table."""
        if self.top is None:
            return {}
        here = self.top_scores[:, :, self.top_counts.tolist().index(self.top)].mean(1)
        mean, low, high = (float(part) for part in mean_interval(here, bounds=SHARE))
        return {"top_pixels": self.top, "top_score": mean, "top_low": low, "top_high": high}

    def _accuracy(self) -> dict[str, object]:
        dropped = None if self.usable is None else self.pool - self.usable
        images: dict[str, object] = {"images": self.pool, "dropped": dropped, "wrong": self.wrong}
        return images if self.correct is None else {"accuracy": self.correct[0] / self.correct[1], **images}

    def summary(self) -> pd.DataFrame:
        """In per cent, intervals in brackets."""
        row = self.table().iloc[0]
        grids = str(row["grids"]) if row["grids"] == row["asked"] else f"{row['grids']} of {row['asked']}"
        shown = {
            "model": self.model, "method": self.method, "game": f"{self.setting} {self.side}×{self.side}",
            "grids": grids, "sees": self.seen, "smooth": str(self.smooth),
            "score %": percent_words(row["score"], row["low"], row["high"]),
            "floor": f"{100 * row['floor']:.1f}", "even map's ceiling": f"{100 * row['ceiling_even_map']:.1f}",
        }  # fmt: skip
        if self.square is not None:
            shown["square"] = str(self.square)
        if self.top is not None:
            top = percent_words(row["top_score"], row["top_low"], row["top_high"])
            shown["top %"] = f"{top} ({self.top:,} pixels)"
        return pd.DataFrame([{**shown, "dropped": self._dropped()}])

    def _dropped(self) -> str:
        """Images that the game was played without; of replayed grids, those that are in it although they are wrong."""
        if self.usable is not None:
            return f"{self.pool - self.usable} of {self.pool}"
        return "replayed" + (f", {self.wrong} of {self.indices.size} wrong" if self.wrong else "")

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, every score, the list of grids (which can be replayed), and the curve over the top pixels."""
        cells = mosaic_table(self.side, self.indices, np.array(self.classes)[self.targets])
        tables = {"table": self.table(), "grids": cells.assign(model=self.model)}
        scores = cells.assign(score=self.scores.ravel())
        scores.insert(0, "model", self.model)
        scores.insert(1, "method", self.method)
        if self.top is None:
            return {**tables, "scores": scores}
        scores["top_score"] = self.top_scores[:, :, self.top_counts.tolist().index(self.top)].ravel()
        return {**tables, "scores": scores, "top": self.curve()}

    def curve(self) -> pd.DataFrame:
        """The mean score by how many of the strongest pixels count, with its interval."""
        mean, low, high = mean_interval(self.top_scores.mean(1), bounds=SHARE)
        columns = {"pixels": self.top_counts, "score": mean, "low": low, "high": high}
        return pd.DataFrame({"model": self.model, "method": self.method, **columns})

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A box of the scores."""
        return panels.boxes([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The box, example grids with their maps, and the curve over the top pixels."""
        return panels.figures([self])


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalisationComparison(Comparison[LocalisationResult]):
    """The scores of several models, methods or both."""

    name = "localisation"

    def summary(self) -> pd.DataFrame:
        """The results' summaries; the paired difference to the reference, or the model's first method, in points."""
        summary = super().summary()
        for _, test in self.tests().iterrows():
            here = (summary["model"] == test["model"]) & (summary["method"] == test["method"])
            if "− reference's" not in summary or (summary.loc[here, "− reference's"] == "").all():
                summary.loc[here, "− reference's"] = _difference(test)
                summary = summary.fillna("")
        return summary

    def tests(self) -> pd.DataFrame:
        """Every model against its reference by the same method, and every method against the model's first.

        Sign flips over grids, Holm's correction over all of one kind; a row without a test says why.
        """
        methods = corrected(list(_method_tests(self.results)))
        kinds = [super().tests().assign(compared="model"), methods.assign(compared="method")]
        there = [table for table in kinds if len(table)]
        return pd.concat(there, ignore_index=True) if there else pd.DataFrame()

    def tables(self) -> dict[str, pd.DataFrame]:
        """The results' tables, and the tests. The list of grids once for each model that had its own."""
        return super().tables() | {"grids": self._lists()}

    def _lists(self) -> pd.DataFrame:
        first = {result.model: result for result in reversed(self.results)}
        shared = all(_same_grids(self.results[0], result) for result in self.results)
        lists = [result.tables()["grids"] for result in reversed(first.values())]
        return lists[0].assign(model="all") if shared else pd.concat(lists, ignore_index=True)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A box for every model and method."""
        return panels.boxes(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The boxes, examples, the curve over the top pixels, and over B where the models differ in it."""
        return panels.figures(self.results)


def _method_tests(results: Sequence[LocalisationResult]) -> Iterator[dict[str, object]]:
    """Every method against the first of the same model, on the same grids."""
    first: dict[str, LocalisationResult] = {}
    for result in results:
        reference = first.setdefault(result.model, result)
        if reference is not result and _same_grids(reference, result):
            names = {"model": result.model, "reference": reference.method, "metric": "localisation"}
            words = {"method": result.method, "less": "lower", "more": "higher"}
            yield {**names, **words, **compare_pair(result.grid_scores, reference.grid_scores, unit="grids")}


def _same_grids(a: LocalisationResult, b: LocalisationResult) -> bool:
    return a.setting == b.setting and np.array_equal(a.indices, b.indices)


def _difference(test: "pd.Series[Any]") -> str:
    difference, low, high = (100 * test[key] for key in ("difference", "low", "high"))
    interval = "" if np.isnan(low) else f" [{low:+.1f}, {high:+.1f}]"
    return f"{test['test']}" if np.isnan(difference) else f"{difference:+.1f}{interval} ({test['reference']})"
