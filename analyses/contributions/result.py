"""The logits of images taken apart: arrays, tables and figures. What they mean: see `contributions`."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.completeness import bias_share, complete, ratio
from scs_eval.analyses.contributions import figure as contribution_figures
from scs_eval.analyses.contributions.bias_audit import CONSTANT, audit_figure, audit_table, lead_figure
from scs_eval.analyses.contributions.figure import EXPLAINED, FIRST, MEAN, SECOND
from scs_eval.analyses.contributions.shift_figure import shift_figure
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.image_grid import SHOWN
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS_PER_PAGE = 6


def map_of(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(n, H, W), W(x)⊙x summed over channels, in double precision: weights and inputs are (n, C, H, W)."""
    terms: np.ndarray = np.multiply(weights, inputs, dtype=float)
    return np.asarray(terms.sum(1))


def map_sums(rows: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(n, 4), what the maps of four rows (n, 4, C, H, W) add up to."""
    return np.stack([map_of(rows[:, row], inputs).sum((1, 2)) for row in range(rows.shape[1])], 1)


def map_sizes(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(n,), the sum of |W(x)⊙x|."""
    return np.asarray(np.abs(weights * inputs).sum((1, 2, 3)).astype(float))


@dataclass(frozen=True, eq=False, kw_only=True)
class ContributionsResult(Result):
    """Four decomposed logits of each of n images: the explained class, the two most likely ones, the mean of all.

    labels: (n,), -1 where unknown. indices: (n,). targets: (n,), the explained class. pair: (n, 2), most likely first.
    logits: (n, 4). biases: (n, 4, L), what each biased layer adds. layers, kinds: the L biased layers, by name and
    class. sums: (n, 4), what the pixels add to the logits; sizes: (n,), the sum of |W(x)⊙x| of the explained class.
    Of the first k images also the maps: images: (k, 3, H, W). inputs: (k, C, H, W), what W multiplies; C is 6 for
    networks that encode [x, 1-x]. rows: (k, 4, C, H, W), the four rows of W(x).
    picture: the style of the picture of six-channel networks. extras: what `figures` and `tables` have besides. shown:
        so many of the k images are in the figure.
    """

    name = "contributions"
    axes: ClassVar = axes_of(
        "image: labels indices targets sizes", "image, rank: pair", "image, logit: logits sums",
        "image, logit, layer: biases", "kept, channel, row, column: images", "kept, input_channel, row, column: inputs",
        "kept, logit, input_channel, row, column: rows",
    )  # fmt: skip
    classes: tuple[str, ...]
    images: np.ndarray
    inputs: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    targets: np.ndarray
    pair: np.ndarray
    rows: np.ndarray
    logits: np.ndarray
    biases: np.ndarray
    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    picture: str = "paper"
    extras: tuple[str, ...] = ()
    sums: np.ndarray | None = None
    sizes: np.ndarray | None = None
    shown: int = SHOWN

    def __post_init__(self) -> None:
        """Version 0.1 kept the maps of all images, and not their sums."""
        if self.sums is None or self.sizes is None:
            object.__setattr__(self, "sums", map_sums(self.rows, self.inputs))
            object.__setattr__(self, "sizes", map_sizes(self.weights, self.inputs))
        super().__post_init__()

    @property
    def weights(self) -> np.ndarray:
        """(k, C, H, W), the row of W(x) that belongs to the explained class."""
        return self.rows[:, EXPLAINED]

    @property
    def maps(self) -> np.ndarray:
        """(k, H, W), what each pixel adds to the explained logit (Eq. 16, summed over channels)."""
        return self.map_of(EXPLAINED)

    @property
    def delta(self) -> np.ndarray:
        """(k, H, W), what each pixel adds to the lead of the most likely class over the second (Fig. 11)."""
        return self.map_of(FIRST) - self.map_of(SECOND)

    @property
    def mean_corrected(self) -> np.ndarray:
        """(k, H, W), what each pixel adds to the explained logit beyond the mean of all logits (Fig. 14)."""
        return self.maps - self.map_of(MEAN)

    @property
    def bias(self) -> np.ndarray:
        """(n,), what the network's layers add to the explained logit, but for a constant that all classes get."""
        return self.biases[:, EXPLAINED][:, ~self._constant].sum(-1)

    @property
    def logit_bias(self) -> np.ndarray:
        """(n,), the constant that all classes get, as in B-cos networks (Eq. 17); it decides nothing."""
        return self.biases[:, EXPLAINED][:, self._constant].sum(-1)

    @property
    def _constant(self) -> np.ndarray:
        """(L,), which of the biased layers add the same to every class."""
        return np.array([kind == CONSTANT for kind in self.kinds], dtype=bool)

    @property
    def residual(self) -> np.ndarray:
        """(n,), what neither pixels nor biases explain: rounding for a dynamic-linear network."""
        return self.logits[:, EXPLAINED] - self._sums[:, EXPLAINED] - self.bias - self.logit_bias

    @property
    def bias_share(self) -> np.ndarray:
        """(n,), |bias| / (Σ|W(x)⊙x| + |bias|): the part of what is added up that the map cannot show."""
        assert self.sizes is not None
        return bias_share(self.sizes, self.bias)

    @property
    def complete(self) -> np.ndarray:
        """(n,), whether the residual is within a thousandth of the logit."""
        return complete(self.residual, self.logits[:, EXPLAINED])

    @property
    def meaningless(self) -> np.ndarray:
        """(n,), whether the map's |values| add up to no more than the residual: then it may be rounding alone."""
        assert self.sizes is not None
        return np.asarray(self.sizes <= np.abs(self.residual))

    @property
    def coloured(self) -> bool:
        """Whether W has the six channels that colours can be read from."""
        return self.rows.shape[2] == 6

    def least_sure(self, count: int) -> "ContributionsResult":
        """Of the images whose maps are kept, those with the smallest lead of the first class, as the paper shows."""
        lead = (self.logits[:, FIRST] - self.logits[:, SECOND])[: len(self.images)]
        chosen = np.argsort(lead, kind="stable")[:count]
        return replace(self, **{name: getattr(self, name)[chosen] for name in self.axes})

    def map_of(self, row: int) -> np.ndarray:
        """(k, H, W), the contributions of one of the four rows, in double precision."""
        return map_of(self.rows[:, row], self.inputs)

    @property
    def _sums(self) -> np.ndarray:
        assert self.sums is not None
        return self.sums

    def rgba(self, style: str | None = None, *, row: int = EXPLAINED) -> np.ndarray:
        """(k, H, W, 4), the picture of W(x) in the style paper or bcos-v2; of three channels the signed map.

        Colours are in pairs of channels, so three have none, and a style that is asked for then raises.
        """
        if self.coloured:
            return colour.rgba(self.rows[:, row], self.inputs, style=style or self.picture)
        if style is not None:
            raise InputError(f"{self.label} has no colours: W has {self.rows.shape[2]} channels, not 6; use no style")
        return colour.off_white(colour.signed(self.map_of(row)))

    def table(self) -> pd.DataFrame:
        """One row per image: the logit, what makes it up, and the share of the bias in the lead over the second."""
        logits, lead = self.logits[:, EXPLAINED], self.logits[:, FIRST] - self.logits[:, SECOND]
        names = np.array([*self.classes, ""])  # -1 is the last
        columns = {
            "index": self.indices,
            "class": names[self.labels],
            "predicted": names[self.pair[:, 0]],
            "explained": names[self.targets],
            "logit": logits,
            "contributions": self._sums[:, EXPLAINED],
            "bias": self.bias,
            "bias_share": self.bias_share,
            "logit_bias": self.logit_bias,
            "residual": self.residual,
            "relative_residual": ratio(np.abs(self.residual), np.abs(logits)),
            "complete": self.complete,
            "meaningless": self.meaningless,
            "second": names[self.pair[:, 1]],
            "lead": lead,
            "lead_bias_share": ratio((self.biases[:, FIRST] - self.biases[:, SECOND]).sum(-1), lead),
        }
        return pd.DataFrame({"model": self.label, **columns})

    def summary(self) -> pd.DataFrame:
        """Rounded; a row whose map is not complete, or no larger than its residual, says so."""
        table = self.table()
        text = {"model": table["model"], "image": table["index"].astype(str), "class": table["class"]}
        text["explained"] = table["explained"]
        for name in ("logit", "contributions"):
            text[name] = table[name].map("{:.3g}".format)
        within = (table["bias"] != 0) & (table["bias"].abs() <= table["residual"].abs())
        text["bias"] = table["bias"].map("{:.3g}".format).where(~within, "within the residual")
        if self._constant.any():
            text["logit bias"] = table["logit_bias"].map("{:.3g}".format)
        text["bias share %"] = (100 * table["bias_share"]).map("{:.1f}".format)
        text["residual"] = table["residual"].map("{:.0e}".format)
        text["residual / logit"] = table["relative_residual"].map("{:.0e}".format)
        text[""] = table["complete"].map({True: "", False: "INCOMPLETE"}).where(~table["meaningless"], "MEANINGLESS")
        return pd.DataFrame(text)

    def audit(self) -> pd.DataFrame:
        """One row per biased layer, and the residual: what it adds to the logit, and its share of the lead."""
        return audit_table(self.label, self._parts(), self.logits, self.kinds)

    def _parts(self) -> dict[str, np.ndarray]:
        """Layer → (n, 4), what it adds to the four logits; last what nothing explains."""
        parts = {layer: self.biases[..., position] for position, layer in enumerate(self.layers)}
        return {**parts, "residual": self.logits - self._sums - self.biases.sum(-1)}

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and the audit of the biases if asked for."""
        return {"table": self.table(), **({"audit": self.audit()} if "audit" in self.extras else {})}

    def figures(self) -> dict[str, "Figure"]:
        """The figure, and those of the extras."""
        makers = {"audit": self.audit_figure, "delta": self.delta_figure, "mean-corrected": self.mean_figure}
        drawn = {extra.replace("-", "_"): makers[extra]() for extra in self.extras if extra in makers}
        if "shifts" in self.extras:
            drawn["shifts"] = shift_figure({self.label: self})
        return {"figure": self.figure(), **drawn}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A row per image: the image, the picture (six channels), the signed map, the map over the image, numbers."""
        return contribution_figures.map_figure(self, ax)

    def delta_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The two most likely classes and the difference of their maps (Fig. 11)."""
        return contribution_figures.delta_figure(self, ax)

    def mean_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The map, the mean of all classes' maps, and their difference, on one scale per image (Fig. 14)."""
        return contribution_figures.mean_figure(self, ax)

    def audit_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The share of each biased layer in the lead of the most likely class over the second (Fig. 13)."""
        return audit_figure(self.label, self._parts(), self.logits, self.kinds, ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class ContributionsComparison(Comparison[ContributionsResult]):
    """The contributions to the logits of several models, for the same images."""

    name = "contributions"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A row per image, a column per model: the colour picture where W has six channels, else the signed map."""
        if any(not np.array_equal(item.indices, self.results[0].indices) for item in self.results):
            raise InputError("expected results for the same images in the same order; compare those")
        return contribution_figures.comparison_figure(self.results, ax)

    def lead_figure(self, ax: "Axes | None" = None) -> "Figure":
        """A box per model: what share of the lead of the most likely class over the second biases make up (Fig. 13)."""
        return lead_figure({result.label: result.table()["lead_bias_share"].to_numpy() for result in self.results}, ax)

    def figures(self) -> dict[str, "Figure"]:
        """All models, six to a page (figure, figure-2 …), and each model's own figures."""
        drawn = {
            f"figure{suffix}": contribution_figures.comparison_figure(part, page=words)
            for suffix, part, words in style.pages(self.results, COLUMNS_PER_PAGE)
        }
        if "audit" in self.results[0].extras:
            drawn["lead_bias"] = self.lead_figure()
        if "shifts" in self.results[0].extras:
            drawn |= {
                f"shifts{suffix}": shift_figure({result.label: result for result in part}, page=words)
                for suffix, part, words in style.pages(self.results, COLUMNS_PER_PAGE)
            }
        own = {f"{result.label}_{key}": figure for result in self.results for key, figure in result.figures().items()}
        return {**drawn, **{key.replace("/", "-"): figure for key, figure in own.items()}}
