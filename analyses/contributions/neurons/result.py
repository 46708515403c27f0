"""Neurons and directions of a layer with the images that activate them most: arrays, tables and figures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.completeness import bias_share, complete, ratio
from scs_eval.analyses.contributions.neurons.figure import PER_PAGE, draw_features
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.plotting import colour
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuronsResult(Result):
    """K features of a layer, neurons or directions, each with the T of n images that activate it most, strongest first.

    layer, kind: its name and class. searched: n.
    features: "neuron 3" or "direction 1". vectors: (K, C), what is multiplied with the layer's C channels.
    sources, source_positions, source_classes, source_contributions, source_logits: (K,), of a direction the index of
    the image it was taken from, where (K, 2), and what it adds to the logit of which class; -1 and NaN for a neuron.
    indices, labels: (K, T), which images; a label is -1 where unknown. positions: (K, T, 2), row and column in the
    layer's map (of tokens: number and 0). activations: (K, T). images: (K, T, 3, H, W).
    inputs: (K, T, C, H, W), what W multiplies; C is 6 for networks that encode [x, 1-x]. rows: as inputs, W_{1→l}(x).
    biases: (K, T, L), what each of the L biased layers of the network adds, 0 behind the layer. layers: their names.
    """

    name = "neurons"
    axes: ClassVar = axes_of(
        "feature, layer_channel: vectors", "feature: sources source_classes source_contributions source_logits",
        "feature, coordinate: source_positions", "feature, top: indices labels activations",
        "feature, top, coordinate: positions", "feature, top, channel, row, column: images",
        "feature, top, input_channel, row, column: inputs rows", "feature, top, layer: biases",
    )  # fmt: skip
    layer: str
    classes: tuple[str, ...]
    kind: str
    features: tuple[str, ...]
    searched: int
    vectors: np.ndarray
    sources: np.ndarray
    source_positions: np.ndarray
    source_classes: np.ndarray
    source_contributions: np.ndarray
    source_logits: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    positions: np.ndarray
    activations: np.ndarray
    images: np.ndarray
    inputs: np.ndarray
    rows: np.ndarray
    biases: np.ndarray
    layers: tuple[str, ...]
    picture: str = "paper"

    @property
    def maps(self) -> np.ndarray:
        """(K, T, H, W), what each pixel adds to the activation (Eq. 16, summed over channels)."""
        maps: np.ndarray = np.multiply(self.rows, self.inputs, dtype=float).sum(2)
        return maps

    @property
    def bias(self) -> np.ndarray:
        """(K, T), what the layers' constants add to the activation."""
        return self.biases.sum(-1)

    @property
    def residual(self) -> np.ndarray:
        """(K, T), what neither pixels nor biases explain."""
        return self.activations - self.maps.sum((2, 3)) - self.bias

    @property
    def bias_share(self) -> np.ndarray:
        """(K, T), |bias| / (Σ|W(x)⊙x| + |bias|): the part of what is added up that the map cannot show."""
        return bias_share(np.abs(self.rows * self.inputs).sum((2, 3, 4)), self.bias)

    @property
    def complete(self) -> np.ndarray:
        """(K, T), whether the residual is within a thousandth of the activation."""
        return complete(self.residual, self.activations)

    @property
    def coloured(self) -> bool:
        """Whether W has the six channels that colours can be read from."""
        return self.rows.shape[2] == 6

    def rgba(self, style: str | None = None) -> np.ndarray:
        """(K, T, H, W, 4), the pictures of W(x) in the style paper or bcos-v2; of three channels the signed maps."""
        if not self.coloured and style is not None:
            raise InputError(f"{self.label} has no colours: W has {self.rows.shape[2]} channels, not 6; use no style")
        if not self.coloured:
            signed = colour.off_white(colour.signed(self.maps.reshape(-1, *self.maps.shape[2:])))
            return signed.reshape(*self.maps.shape, 4)
        flat = (part.reshape(-1, *part.shape[2:]) for part in (self.rows, self.inputs))
        pictures = colour.rgba(*flat, style=style or self.picture)
        return pictures.reshape(*self.rows.shape[:2], *pictures.shape[1:])

    def table(self) -> pd.DataFrame:
        """One row per feature and image: the activation, where, and what makes it up."""
        count, top = self.activations.shape
        names = np.array([*self.classes, ""])  # -1 is the last
        columns = {
            "feature": np.repeat(self.features, top),
            "rank": np.tile(np.arange(1, top + 1), count),
            "index": self.indices,
            "class": names[self.labels],
            "row": self.positions[..., 0],
            "column": self.positions[..., 1],
            "activation": self.activations,
            "contributions": self.maps.sum((2, 3)),
            "bias": self.bias,
            "bias_share": self.bias_share,
            "residual": self.residual,
            "relative_residual": ratio(np.abs(self.residual), np.abs(self.activations)),
            "complete": self.complete,
        }
        flat = {key: np.ravel(values) for key, values in columns.items()}
        return pd.DataFrame({"model": self.label, "layer": self.layer, **flat})

    def sources_table(self) -> pd.DataFrame:
        """One row per direction: where it was taken from, and what it adds to which logit."""
        positions = {"row": self.source_positions[:, 0], "column": self.source_positions[:, 1]}
        columns = {
            "feature": self.features,
            "index": self.sources,
            **positions,
            "class": np.array([*self.classes, ""])[self.source_classes],
            "contribution": self.source_contributions,
            "logit": self.source_logits,
        }
        table = pd.DataFrame({"model": self.label, "layer": self.layer, **columns})
        return table[self.sources >= 0].reset_index(drop=True)

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and where the directions come from if there are any."""
        sources = self.sources_table()
        return {"table": self.table(), **({"directions": sources} if len(sources) else {})}

    def summary(self) -> pd.DataFrame:
        """Rounded; a row whose map is not complete says so."""
        table = self.table()
        text = {key: table[key] for key in ("model", "layer", "feature")}
        text["image"], text["class"] = table["index"].astype(str), table["class"]
        text["position"] = table["row"].astype(str) + ", " + table["column"].astype(str)
        for name in ("activation", "contributions", "bias"):
            text[name] = table[name].map("{:.3g}".format)
        text["residual"] = table["residual"].map("{:.0e}".format)
        text["residual / activation"] = table["relative_residual"].map("{:.0e}".format)
        text[""] = table["complete"].map({True: "", False: "INCOMPLETE"})
        return pd.DataFrame(text)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """The first features, a row each: the images that activate them most, and below each what its pixels add."""
        return draw_features([(self, position) for position in range(len(self.features))[:PER_PAGE]], ax)

    def figures(self) -> dict[str, "Figure"]:
        """All features, four to a page: figure, figure-2 …"""
        starts = range(0, len(self.features), PER_PAGE)
        pages = [range(len(self.features))[start : start + PER_PAGE] for start in starts]
        drawn = (draw_features([(self, position) for position in page]) for page in pages)
        return {"figure" + (f"-{i}" if i > 1 else ""): page for i, page in enumerate(drawn, start=1)}


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuronsComparison(Comparison[NeuronsResult]):
    """Features of a layer of several models. A channel of one has nothing to do with that channel of another."""

    name = "neurons"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """The first feature of each model, at most as many as a page holds."""
        return draw_features([(result, 0) for result in self.results[:PER_PAGE]], ax)

    def figures(self) -> dict[str, "Figure"]:
        """One figure for all, and each model's own."""
        own = {f"{result.label}_{key}": figure for result in self.results for key, figure in result.figures().items()}
        return {"figure": self.figure(), **{key.replace("/", "-"): figure for key, figure in own.items()}}
