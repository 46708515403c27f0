"""What an ε-sweep found, image by image: curves, areas, medians and the scorecard beside them follow from it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import named_interval, percent_words
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import SHARE, Interval, mean_interval, wilson
from scs_eval.analyses.pgd.figure import draw_attacked, draw_curves
from scs_eval.analyses.scorecard.check import SKIPPED
from scs_eval.analyses.scorecard.figure import draw_scorecard
from scs_eval.analyses.scorecard.result import Scorecard

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class PgdResult(Result):
    """What ε-attacks made of n images.

    norm, attacks, independent: how. classes: names. eps: (E,) rising, above 0.
    indices: (n,) which images; labels, predictions, attacked_predictions: (n,) positions in `classes`, the last of the
    adversarial image at min_eps, and the clean one's where there is none.
    min_eps: (n,) the smallest ε that fooled the model, polished to lie between the given ones (not by an
    independent sweep); 0 where it is wrong when clean, inf where no given ε did.
    min_eps_8bit: (n,) the same among the given ones, once the adversarial image is rounded to 8 bits.
    is_adversarial: (E, n) whether the image counts as wrong at each given ε: where min_eps is not above it.
    pictures: (k,) which of the n images the figure shows; images, adversarial: (k, 3, H, W); gradients, contributions:
    (k, 2, H, W) the explanation before and after; contributions are None where the network is not dynamic-linear.
    changes: (m, 3, H, W) what the attack added to the first m images; None where nobody asked.
    scorecard: whether to believe the curve; None where nobody asked.
    """

    name = "pgd"
    axes: ClassVar = axes_of(
        "eps: eps", "image: indices labels predictions attacked_predictions min_eps min_eps_8bit",
        "eps, image: is_adversarial", "shown: pictures", "shown, channel, row, column: images adversarial",
        "shown, attack_stage, row, column: gradients contributions", "kept, channel, row, column: changes",
    )  # fmt: skip
    norm: str
    attacks: tuple[str, ...]
    independent: bool
    classes: tuple[str, ...]
    eps: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    attacked_predictions: np.ndarray
    min_eps: np.ndarray
    min_eps_8bit: np.ndarray
    is_adversarial: np.ndarray
    pictures: np.ndarray
    images: np.ndarray
    adversarial: np.ndarray
    gradients: np.ndarray
    contributions: np.ndarray | None = None
    changes: np.ndarray | None = None
    scorecard: Scorecard | None = None

    @property
    def n(self) -> int:
        """How many images."""
        return len(self.labels)

    @property
    def eps_and_zero(self) -> np.ndarray:
        """(E + 1,) the ε of the curve: 0 and eps."""
        return np.concatenate([[0.0], self.eps])

    @property
    def right(self) -> np.ndarray:
        """(E + 1, n) whether the model is right, clean and at each ε."""
        return np.concatenate([[self.predictions == self.labels], ~self.is_adversarial])

    @property
    def accuracy(self) -> Interval:
        """(E + 1,) with Wilson's intervals."""
        return wilson(self.right.sum(1), self.n)

    @property
    def accuracy_8bit(self) -> Interval:
        """(E + 1,) the same with adversarial images rounded to 8 bits."""
        return wilson((self.min_eps_8bit > self.eps_and_zero[:, None]).sum(1), self.n)

    @property
    def areas(self) -> np.ndarray:
        """(n,) the share of [0, largest ε] over which the model is right, by the trapezoidal rule."""
        from scipy.integrate import trapezoid

        return np.asarray(trapezoid(self.right.astype(float), self.eps_and_zero, axis=0)) / self.eps_and_zero[-1]

    @property
    def median(self) -> tuple[float, float, float]:
        """The median smallest ε of the images that are right when clean, with its 95 % interval (order statistics)."""
        values = np.sort(self.min_eps[self.min_eps > 0])
        if not len(values):
            return (np.nan,) * 3
        half, spread = (len(values) - 1) / 2, 1.96 * np.sqrt(len(values)) / 2
        low, high = int(max(0, np.floor(half - spread))), int(min(len(values) - 1, np.ceil(half + spread)))
        return float(values[int(half)]), float(values[low]), float(values[high])

    @property
    def middle(self) -> float:
        """The given ε at which accuracy is nearest to half the clean one: where attacks differ most."""
        accuracy = self.accuracy.estimate
        return float(self.eps[np.abs(accuracy[1:] - accuracy[0] / 2).argmin()])

    def right_at(self, eps: float) -> np.ndarray:
        """(n,) whether the model is right at the nearest given ε."""
        right: np.ndarray = self.right[int(np.abs(self.eps_and_zero - eps).argmin())]
        return right

    def curve(self) -> pd.DataFrame:
        """One row per ε, from 0: how many are right, accuracy with its interval, and after rounding to 8 bits."""
        columns: dict[str, Any] = {"model": self.label, "norm": self.norm, "eps": self.eps_and_zero, "n": self.n}
        columns["correct"] = self.right.sum(1)
        columns.update(zip(("accuracy", "low", "high"), self.accuracy, strict=True))
        columns.update(zip(("accuracy_8bit", "low_8bit", "high_8bit"), self.accuracy_8bit, strict=True))
        return pd.DataFrame(columns)

    def per_image(self) -> pd.DataFrame:
        """One row per image: its classes and the smallest ε that fooled the model."""
        names = np.array(self.classes)
        columns = {"label": self.labels, "prediction": self.predictions, "attacked": self.attacked_predictions}
        named = {key: names[value] for key, value in columns.items()}
        numbers = {"min_eps": self.min_eps, "min_eps_8bit": self.min_eps_8bit}
        return pd.DataFrame({"model": self.label, "index": self.indices, **named, **numbers})

    def table(self) -> pd.DataFrame:
        """One row: clean accuracy, area, median, accuracy at the largest and at the middle ε, the worst case there."""
        area = tuple(map(float, mean_interval(self.areas, bounds=SHARE)))
        row: dict[str, Any] = {"model": self.label, "norm": self.norm, "attacks": ", ".join(self.attacks), "n": self.n}
        row.update(named_interval("clean_accuracy", [part[0] for part in self.accuracy]))
        row.update(named_interval("area", area) | named_interval("median_eps", self.median))
        row |= {"eps_max": self.eps[-1], **named_interval("accuracy_at_max", [part[-1] for part in self.accuracy])}
        row |= named_interval("accuracy_8bit_at_max", [part[-1] for part in self.accuracy_8bit])
        middle = wilson(self.right_at(self.middle).sum(), self.n)
        row |= {"eps_middle": self.middle, **named_interval("accuracy_at_middle", middle)}
        return pd.DataFrame([row | _card_columns(self.scorecard)])

    def summary(self) -> pd.DataFrame:
        """In per cent, intervals in brackets."""
        median, card = self.median, self.scorecard
        row = {
            "model": self.label,
            "n": str(self.n),
            "clean %": percent_words(*(part[0] for part in self.accuracy)),
            f"at ε = {self.eps[-1]:.3g} %": percent_words(*(part[-1] for part in self.accuracy)),
            "in 8 bits %": f"{100 * self.accuracy_8bit.estimate[-1]:.1f}",
            "area %": percent_words(*mean_interval(self.areas, bounds=SHARE)),
            "median ε": _median(*median, last=self.eps[-1]),
        }
        if card is not None:
            row["checked at ε"] = f"{card.eps:.3g} (n = {len(card.right)})"
            row["curve there %"] = percent_words(*card.reported_accuracy)
            row["worst of all attacks %"] = percent_words(*card.robust_accuracy)
            row["scorecard"] = ", ".join(f"{n} {word}" for word, n in card.counts().items() if n and word != SKIPPED)
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, the curve, every image, and the scorecard with its attacks."""
        card = self.scorecard
        checked = {} if card is None else {"scorecard": card.table(), "scorecard_attacks": card.attack_table()}
        return {"table": self.table(), "curve": self.curve(), "images": self.per_image(), **checked}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy against ε."""
        return draw_curves([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curve, the attacked images, the scorecard."""
        card = self.scorecard
        figures = {"figure": self.figure()}
        if len(self.pictures):
            figures["attacked"] = draw_attacked(self)
        return figures | ({} if card is None else {"scorecard": card.figure()})


@dataclass(frozen=True, eq=False, kw_only=True)
class PgdComparison(Comparison[PgdResult]):
    """The robustness of several models on the same images.

    What is tested is the area under the curve, which is fixed before the data are seen; an ε at which the curves happen
    to lie apart would not be.
    """

    name = "pgd"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """All curves on one axes."""
        return draw_curves(self.results, ax)

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


def _card_columns(card: Scorecard | None) -> dict[str, Any]:
    """The scorecard in a few columns of the table."""
    if card is None:
        return {}
    counts = {word.lower(): n for word, n in card.counts().items() if word != SKIPPED}
    accuracies = named_interval("curve_at_checked", card.reported_accuracy) | named_interval(
        "worst_at_checked", card.robust_accuracy
    )
    return {"eps_checked": card.eps, "n_checked": len(card.right), **accuracies, **counts}


def _median(median: float, low: float, high: float, *, last: float) -> str:
    """Medians beyond the given values are only known to be larger than its last ε."""
    texts = [f"{value:.3g}" if np.isfinite(value) else f"> {last:.3g}" for value in (median, low, high)]
    return "" if np.isnan(median) else f"{texts[0]} [{texts[1]}, {texts[2]}]"
