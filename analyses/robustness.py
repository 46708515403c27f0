"""What an ε-sweep found, image by image: curves, areas, medians and the scorecard beside them follow from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses import robustness_figures as figures
from scs_eval.analyses.diagnosis.check import SKIPPED
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.scorecard import Scorecard
from scs_eval.analyses.scorecard_figure import draw_scorecard
from scs_eval.analyses.statistics import Interval, bootstrap_mean, holm, mcnemar, paired_bootstrap, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class PgdResult(Result):
    """What ε-attacks made of n images.

    norm, attacks, independent: how. classes: names. eps: (E,) rising, above 0.
    indices: (n,) which images; labels, predictions, attacked_predictions: (n,) positions in `classes`, the last of the
    adversarial image at the critical ε, and the clean one's where there is none.
    critical: (n,) the smallest ε of the grid that broke the image; 0 where it is wrong when clean, inf where none did.
    critical_8bit: (n,) the same, once the adversarial image is rounded to 8 bits.
    broken: (E, n) whether the image counts as wrong at each ε.
    pictures: (k,) which of the n images the figure shows; images, adversarial: (k, 3, H, W); gradients, contributions:
    (k, 2, H, W) the explanation before and after; contributions are None where the network is not dynamic-linear.
    card_*: the scorecard, see there; card_eps is None without one.
    """

    name = "pgd"
    norm: str
    attacks: tuple[str, ...]
    independent: bool
    classes: tuple[str, ...]
    eps: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    attacked_predictions: np.ndarray
    critical: np.ndarray
    critical_8bit: np.ndarray
    broken: np.ndarray
    pictures: np.ndarray
    images: np.ndarray
    adversarial: np.ndarray
    gradients: np.ndarray
    contributions: np.ndarray | None = None
    card_eps: float | None = None
    card_checks: tuple[tuple[str, str, str, str], ...] = ()
    card_attacks: tuple[str, ...] = ()
    card_right: np.ndarray | None = None
    card_reported: np.ndarray | None = None
    card_broken: np.ndarray | None = None

    @property
    def n(self) -> int:
        """How many images."""
        return len(self.labels)

    @property
    def grid(self) -> np.ndarray:
        """(E + 1,) the ε of the curve: 0 and eps."""
        return np.concatenate([[0.0], self.eps])

    @property
    def right(self) -> np.ndarray:
        """(E + 1, n) whether the model is right, clean and at each ε."""
        return np.concatenate([[self.predictions == self.labels], ~self.broken])

    @property
    def accuracy(self) -> Interval:
        """(E + 1,) with Wilson's intervals."""
        return wilson(self.right.sum(1), self.n)

    @property
    def accuracy_8bit(self) -> Interval:
        """(E + 1,) the same with adversarial images rounded to 8 bits."""
        return wilson((self.critical_8bit > self.grid[:, None]).sum(1), self.n)

    @property
    def areas(self) -> np.ndarray:
        """(n,) the share of [0, largest ε] over which the model is right, by the trapezoidal rule."""
        steps = np.diff(self.grid)[:, None]
        inside = (self.right[1:].astype(float) + self.right[:-1]) / 2
        found: np.ndarray = (steps * inside).sum(0) / self.grid[-1]
        return found

    @property
    def median(self) -> tuple[float, float, float]:
        """The median critical ε of the images that are right when clean, with its 95 % interval (order statistics)."""
        values = np.sort(self.critical[self.critical > 0])
        if not len(values):
            return (np.nan,) * 3
        half, spread = (len(values) - 1) / 2, 1.96 * np.sqrt(len(values)) / 2
        low, high = int(max(0, np.floor(half - spread))), int(min(len(values) - 1, np.ceil(half + spread)))
        return float(values[int(half)]), float(values[low]), float(values[high])

    @property
    def middle(self) -> float:
        """The ε of the grid at which accuracy is nearest to half the clean one: where attacks differ most."""
        accuracy = self.accuracy.estimate
        return float(self.eps[np.abs(accuracy[1:] - accuracy[0] / 2).argmin()])

    @property
    def scorecard(self) -> Scorecard | None:
        """The scorecard, if the result has one."""
        if self.card_eps is None or self.card_right is None or self.card_reported is None or self.card_broken is None:
            return None
        return Scorecard(
            label=self.label, settings=self.settings, eps=self.card_eps, norm=self.norm, checks=self.card_checks,
            attacks=self.card_attacks, right=self.card_right, reported=self.card_reported, broken=self.card_broken,
        )  # fmt: skip

    def right_at(self, eps: float) -> np.ndarray:
        """(n,) whether the model is right at the nearest ε of the grid."""
        found: np.ndarray = self.right[int(np.abs(self.grid - eps).argmin())]
        return found

    def curve(self) -> pd.DataFrame:
        """One row per ε, from 0: how many are right, accuracy with its interval, and after rounding to 8 bits."""
        columns: dict[str, Any] = {"model": self.label, "norm": self.norm, "eps": self.grid, "n": self.n}
        columns["correct"] = self.right.sum(1)
        columns.update(zip(("accuracy", "low", "high"), self.accuracy, strict=True))
        columns.update(zip(("accuracy_8bit", "low_8bit", "high_8bit"), self.accuracy_8bit, strict=True))
        return pd.DataFrame(columns)

    def per_image(self) -> pd.DataFrame:
        """One row per image: its classes and the smallest ε that broke it."""
        names = np.array(self.classes)
        columns = {"label": self.labels, "prediction": self.predictions, "attacked": self.attacked_predictions}
        named = {key: names[value] for key, value in columns.items()}
        numbers = {"critical_eps": self.critical, "critical_eps_8bit": self.critical_8bit}
        return pd.DataFrame({"model": self.label, "index": self.indices, **named, **numbers})

    def table(self) -> pd.DataFrame:
        """One row: clean accuracy, area, median, accuracy at the largest and at the middle ε, the worst case there."""
        area = tuple(map(float, bootstrap_mean(self.areas)))
        row: dict[str, Any] = {"model": self.label, "norm": self.norm, "attacks": ", ".join(self.attacks), "n": self.n}
        row.update(_named("clean_accuracy", [part[0] for part in self.accuracy]))
        row.update(_named("area", area) | _named("median_eps", self.median))
        row |= {"eps_max": self.eps[-1], **_named("accuracy_at_max", [part[-1] for part in self.accuracy])}
        row |= _named("accuracy_8bit_at_max", [part[-1] for part in self.accuracy_8bit])
        middle = wilson(self.right_at(self.middle).sum(), self.n)
        row |= {"eps_middle": self.middle, **_named("accuracy_at_middle", middle)}
        return pd.DataFrame([row | _card_columns(self.scorecard)])

    def summary(self) -> pd.DataFrame:
        """In per cent, intervals in brackets."""
        median, card = self.median, self.scorecard
        row = {
            "model": self.label,
            "n": str(self.n),
            "clean %": _percent(*(part[0] for part in self.accuracy)),
            f"at ε = {self.eps[-1]:.3g} %": _percent(*(part[-1] for part in self.accuracy)),
            "in 8 bits %": f"{100 * self.accuracy_8bit.estimate[-1]:.1f}",
            "area %": _percent(*bootstrap_mean(self.areas)),
            "median ε": _critical(*median, last=self.eps[-1]),
        }
        if card is not None:
            row["checked at ε"] = f"{card.eps:.3g} (n = {len(card.right)})"
            row["curve there %"] = _percent(*card.reported_accuracy)
            row["worst of all attacks %"] = _percent(*card.robust_accuracy)
            row["scorecard"] = ", ".join(f"{n} {word}" for word, n in card.counts().items() if n and word != SKIPPED)
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, the curve, every image, and the scorecard with its attacks."""
        card = self.scorecard
        checked = {} if card is None else {"scorecard": card.table(), "scorecard_attacks": card.attack_table()}
        return {"table": self.table(), "curve": self.curve(), "images": self.per_image(), **checked}

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy against ε."""
        return figures.draw_curves([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curve, the attacked images, the scorecard."""
        card = self.scorecard
        found = {"figure": self.figure()}
        if len(self.pictures):
            found["attacked"] = figures.draw_attacked(self)
        return found | ({} if card is None else {"scorecard": card.figure()})


@dataclass(frozen=True, eq=False, kw_only=True)
class PgdComparison(Comparison[PgdResult]):
    """The robustness of several models on the same images."""

    name = "pgd"

    def tests(self) -> pd.DataFrame:
        """Every pair of models on the same images at one ε: who is right (McNemar, Holm), and the areas' difference."""
        eps = float(np.median([result.middle for result in self.results]))
        pairs = [pair for pair in combinations(self.results, 2) if np.array_equal(pair[0].indices, pair[1].indices)]
        table = pd.DataFrame([_test(one, other, eps) for one, other in pairs])
        if len(table):
            table["p_holm"] = holm(table["p_value"])
        return table

    def tables(self) -> dict[str, pd.DataFrame]:
        """The results' tables, and the tests."""
        tests = self.tests()
        return super().tables() | ({"tests": tests} if len(tests) else {})

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """All curves on one axes."""
        return figures.draw_curves(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves; the scorecards side by side; each model's attacked images and its scorecard with sentences."""
        cards = [card for card in (result.scorecard for result in self.results) if card is not None]
        own = {
            f"{key}_{result.label}".replace("/", "-"): figure
            for result in self.results
            for key, figure in result.figures().items()
            if key != "figure"
        }
        return {"figure": self.figure(), **({"scorecard": draw_scorecard(cards)} if cards else {}), **own}


def _test(one: PgdResult, other: PgdResult, eps: float) -> dict[str, Any]:
    """Who is right at ε, and by how much the areas differ."""
    found = mcnemar(one.right_at(eps), other.right_at(eps))
    area = paired_bootstrap(one.areas, other.areas)
    row = {"model": one.label, "other": other.label, "eps": eps, "n": one.n, "only_model": found.only_a}
    row |= {"only_other": found.only_b, "p_value": found.p_value, "area_difference": area.difference}
    return row | {"area_low": area.low, "area_high": area.high}


def _card_columns(card: Scorecard | None) -> dict[str, Any]:
    """The scorecard in a few columns of the table."""
    if card is None:
        return {}
    counts = {word.lower(): n for word, n in card.counts().items() if word != SKIPPED}
    accuracies = _named("curve_at_checked", card.reported_accuracy) | _named("worst_at_checked", card.robust_accuracy)
    return {"eps_checked": card.eps, "n_checked": len(card.right), **accuracies, **counts}


def _named(name: str, values: Iterable[Any]) -> dict[str, float]:
    """An estimate and the ends of its interval as three columns."""
    return {key: float(value) for key, value in zip((name, f"{name}_low", f"{name}_high"), values, strict=True)}


def _percent(estimate: Any, low: Any, high: Any) -> str:
    return f"{100 * float(estimate):.1f} [{100 * float(low):.1f}, {100 * float(high):.1f}]"


def _critical(median: float, low: float, high: float, *, last: float) -> str:
    """Medians beyond the grid are only known to be larger than its last ε."""
    texts = [f"{value:.3g}" if np.isfinite(value) else f"> {last:.3g}" for value in (median, low, high)]
    return "" if np.isnan(median) else f"{texts[0]} [{texts[1]}, {texts[2]}]"
