"""What was proven and what was found, image by image."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.certify.figure import draw_bounds
from scs_eval.analyses.certify.smoothing import ABSTAIN
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import named_interval, percent_cell
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import Interval, mean_interval, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = (0.5, 1.0)  # radii of the table, in units of σ


@dataclass(frozen=True, eq=False, kw_only=True)
class CertifyResult(Result):
    """Certificates of n images for S values of σ.

    samples: noisy copies a certificate is counted with; alpha: the probability with which one is wrong, at most.
    attacked: whether upper bounds were looked for. sigma: (S,).
    indices: (n,) which images; labels: (n,) positions in `classes`. predictions: (S, n) what the smoothed model says,
    −1 where it abstains. counts: (S, n) how many copies said so. radius: (S, n) the L2 distance within which it says
    nothing else; 0 where it abstains. distance: (S, n) at which a point was found that it gets wrong, 0 where it is
    wrong when clean, inf where none was found.
    """

    name = "certify"
    axes: ClassVar = axes_of(
        "sigma: sigma", "image: indices labels", "sigma, image: predictions counts radius distance",
    )  # fmt: skip
    classes: tuple[str, ...]
    samples: int
    alpha: float
    attacked: bool
    sigma: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    counts: np.ndarray
    radius: np.ndarray
    distance: np.ndarray

    @property
    def n(self) -> int:
        """How many images."""
        return len(self.labels)

    @property
    def right(self) -> np.ndarray:
        """(S, n) whether the smoothed model is certain and right."""
        return self.predictions == self.labels

    @property
    def proven(self) -> np.ndarray:
        """(S, n) the distance up to which it is proven to be right: the radius, 0 where it is wrong or abstains."""
        return np.where(self.right, self.radius, 0.0)

    def certified(self, sigma: int, radii: np.ndarray) -> Interval:
        """The share of images that are proven right at these radii (r,): at least so many are."""
        held = self.right[sigma] & (self.radius[sigma] >= radii[:, None])
        return wilson(held.sum(1), self.n)

    def unbroken(self, sigma: int, radii: np.ndarray) -> Interval:
        """The share of images for which nothing wrong was found up to these radii (r,): at most so many are right."""
        return wilson((self.distance[sigma] > radii[:, None]).sum(1), self.n)

    def table(self) -> pd.DataFrame:
        """One row per σ: accuracy of the smoothed model, abstentions, radii, and both bounds at radii σ/2 and σ."""
        rows = []
        for s, sigma in enumerate(self.sigma):
            row: dict[str, Any] = {"model": self.label, "sigma": sigma, "n": self.n, "samples": self.samples}
            row |= {"alpha": self.alpha, **named_interval("accuracy", wilson(self.right[s].sum(), self.n))}
            row |= named_interval("abstained", wilson((self.predictions[s] == ABSTAIN).sum(), self.n))
            row |= named_interval("radius", (max(0.0, float(part)) for part in mean_interval(self.proven[s])))
            for factor in SHOWN:
                at = np.array([factor * sigma])
                row |= named_interval(f"certified_at_{factor:g}_sigma", (part[0] for part in self.certified(s, at)))
                row |= named_interval(f"unbroken_at_{factor:g}_sigma", (part[0] for part in self.unbroken(s, at)))
            rows.append(row)
        return pd.DataFrame(rows)

    def per_image(self) -> pd.DataFrame:
        """One row per σ and image."""
        names = np.append(np.array(self.classes, dtype=object), "abstained")  # −1 is the last
        parts = []
        for s, sigma in enumerate(self.sigma):
            columns = {"prediction": names[self.predictions[s]], "count": self.counts[s], "radius": self.radius[s]}
            named = {"model": self.label, "sigma": sigma, "index": self.indices, "label": names[self.labels]}
            parts.append(pd.DataFrame({**named, **columns, "distance": self.distance[s]}))
        return pd.concat(parts, ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """In per cent, intervals in brackets; the truth lies between what is proven and what is not broken."""
        rows = []
        for _, row in self.table().iterrows():
            shown = {"model": self.label, "σ": f"{row['sigma']:g}", "n": str(self.n)}
            shown["right %"] = percent_cell(row, "accuracy")
            shown["abstains %"] = f"{100 * row['abstained']:.1f}"
            shown["mean radius"] = f"{row['radius']:.3f} [{row['radius_low']:.3f}, {row['radius_high']:.3f}]"
            for factor in SHOWN:
                low, high = (100 * row[f"{kind}_at_{factor:g}_sigma"] for kind in ("certified", "unbroken"))
                upper = f" to {high:.1f}" if self.attacked else " or more"
                shown[
                    f"right at {factor * row['sigma']:.3g} %" if len(self.sigma) == 1 else f"right at {factor:g} σ %"
                ] = f"{low:.1f}{upper}"
            rows.append(shown)
        return pd.DataFrame(rows)

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and every image."""
        return {"table": self.table(), "images": self.per_image()}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Both bounds against the radius, a panel for each σ."""
        return draw_bounds([self], ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class CertifyComparison(Comparison[CertifyResult]):
    """Certificates of several models on the same images."""

    name = "certify"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Both bounds of all models."""
        return draw_bounds(self.results, ax)
