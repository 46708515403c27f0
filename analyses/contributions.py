"""What does each pixel add to the logit? W(x)⊙x for every dynamic-linear network, and how much it leaves out.

f(x) = Σ W(x)⊙x + b(x) + residual: the map, the layers that add constants, and what neither explains. A map is only
worth looking at beside the other two, so they are in every table and figure. Source: B-cos v2, Eq. 16, Figs. 11-14.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses import colour
from scs_eval.analyses.bias_audit import audit_figure, audit_table
from scs_eval.analyses.grid import SHOWN, Column, Grid
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError
from scs_eval.models.decomposition import Decomposition, decompose

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIMIT = 1e-3  # of the logit: a residual above it means that the map is not the whole story
EXPLAINED, FIRST, SECOND, MEAN = range(4)  # what `rows` holds for each image
EXTRAS = ("audit", "delta", "mean-corrected")
SCALE = f"Full colour at the {colour.SCALE:g}th percentile of each map"
NOTE = f"W(x)⊙x summed over channels, for and against the class.\n{SCALE}."


@dataclass(frozen=True, eq=False, kw_only=True)
class ContributionsResult(Result):
    """Four decomposed logits of each of n images: the explained class, the two most likely ones, the mean of all.

    images: (n, 3, H, W). inputs: (n, C, H, W), what W multiplies; C is 6 for networks that encode [x, 1-x].
    labels: (n,), -1 where unknown. indices: (n,). targets: (n,), the explained class. pair: (n, 2), most likely first.
    rows: (n, 4, C, H, W), the four rows of W(x). logits: (n, 4). biases: (n, 4, L), what each biased layer adds.
    layers, kinds: the L biased layers, by name and class.
    picture: the style of the picture of six-channel networks. extras: what `figures` and `tables` have besides.
    """

    name = "contributions"
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

    @property
    def weights(self) -> np.ndarray:
        """(n, C, H, W), the row of W(x) that belongs to the explained class."""
        return self.rows[:, EXPLAINED]

    @property
    def maps(self) -> np.ndarray:
        """(n, H, W), what each pixel adds to the explained logit (Eq. 16, summed over channels)."""
        return self.map_of(EXPLAINED)

    @property
    def delta(self) -> np.ndarray:
        """(n, H, W), what each pixel adds to the lead of the most likely class over the second (Fig. 11)."""
        return self.map_of(FIRST) - self.map_of(SECOND)

    @property
    def mean_corrected(self) -> np.ndarray:
        """(n, H, W), what each pixel adds to the explained logit beyond the mean of all logits (Fig. 14)."""
        return self.maps - self.map_of(MEAN)

    @property
    def bias(self) -> np.ndarray:
        """(n,), what the layers' constants add to the explained logit."""
        return self.biases[:, EXPLAINED].sum(-1)

    @property
    def residual(self) -> np.ndarray:
        """(n,), what neither pixels nor biases explain: rounding for a dynamic-linear network."""
        return self.logits[:, EXPLAINED] - self.maps.sum((1, 2)) - self.bias

    @property
    def complete(self) -> np.ndarray:
        """(n,), whether the residual is within a thousandth of the logit."""
        return np.abs(self.residual) <= LIMIT * np.abs(self.logits[:, EXPLAINED])

    @property
    def coloured(self) -> bool:
        """Whether W has the six channels that colours can be read from."""
        return self.rows.shape[2] == 6

    def map_of(self, row: int) -> np.ndarray:
        """(n, H, W), the contributions of one of the four rows, in double precision."""
        found: np.ndarray = np.multiply(self.rows[:, row], self.inputs, dtype=float).sum(1)
        return found

    def rgba(self, style: str | None = None, *, row: int = EXPLAINED) -> np.ndarray:
        """(n, H, W, 4), the picture of W(x) in the style paper or bcos-v2; networks of three channels have none."""
        if not self.coloured:
            raise InputError(f"{self.label} has no colours: W has {self.rows.shape[2]} channels, not 6; use maps")
        return colour.rgba(self.rows[:, row], self.inputs, style=style or self.picture)

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
            "contributions": self.maps.sum((1, 2)),
            "bias": self.bias,
            "bias_share": _ratio(self.bias, logits),
            "residual": self.residual,
            "relative_residual": _ratio(np.abs(self.residual), np.abs(logits)),
            "complete": self.complete,
            "second": names[self.pair[:, 1]],
            "lead": lead,
            "lead_bias_share": _ratio((self.biases[:, FIRST] - self.biases[:, SECOND]).sum(-1), lead),
        }
        return pd.DataFrame({"model": self.label, **columns})

    def summary(self) -> pd.DataFrame:
        """Rounded; a row whose map is not complete says so."""
        table = self.table()
        text = {"model": table["model"], "image": table["index"].astype(str), "class": table["class"]}
        text["explained"] = table["explained"]
        for name in ("logit", "contributions", "bias"):
            text[name] = table[name].map("{:.3g}".format)
        text["bias %"] = (100 * table["bias_share"]).map("{:.1f}".format)
        text["residual"] = table["relative_residual"].map("{:.0e}".format)
        text[""] = table["complete"].map({True: "", False: "INCOMPLETE"})
        return pd.DataFrame(text)

    def audit(self) -> pd.DataFrame:
        """One row per biased layer, and the residual: what it adds to the logit, and its share of the lead."""
        return audit_table(self.label, self._parts(), self.logits, self.kinds)

    def _parts(self) -> dict[str, np.ndarray]:
        """Layer → (n, 4), what it adds to the four logits; last what nothing explains."""
        maps = np.stack([self.map_of(row).sum((1, 2)) for row in range(4)], 1)
        parts = {layer: self.biases[..., place] for place, layer in enumerate(self.layers)}
        return {**parts, "residual": self.logits - maps - self.biases.sum(-1)}

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and the audit of the biases if asked for."""
        return {"table": self.table(), **({"audit": self.audit()} if "audit" in self.extras else {})}

    def figures(self) -> dict[str, "Figure"]:
        """The figure, and those of the extras."""
        makers = {"audit": self.audit_figure, "delta": self.delta_figure, "mean-corrected": self.mean_figure}
        return {"figure": self.figure(), **{extra.replace("-", "_"): makers[extra]() for extra in self.extras}}

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """A row per image: the image, the picture (six channels), the signed map, the map over the image, numbers."""
        columns = [self._images()]
        if self.coloured:
            columns.append(Column(title=f"W(x) as colours\n({self.picture})", pictures=self._pictures(EXPLAINED)))
        columns.append(Column(title="contributions", pictures=colour.signed(self.maps[:SHOWN])))
        columns.append(Column(title="over the image", pictures=colour.overlay(self.images[:SHOWN], self.maps[:SHOWN])))
        texts = [self._text(place) for place in range(len(self.images[:SHOWN]))]
        return Grid(columns=columns, texts=texts, marked=list(~self.complete), note=f"{self._whose()}\n{NOTE}").draw(ax)

    def delta_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The two most likely classes and the difference of their maps (Fig. 11)."""
        maps = [self.map_of(row)[:SHOWN] for row in (FIRST, SECOND)]
        scale = np.maximum(*(colour.scale_of(each) for each in maps))
        columns = [self._images()]
        for place, title in enumerate(("most likely", "second")):
            shown = self._pictures(FIRST + place) if self.coloured else colour.signed(maps[place], scale=scale)
            names = [f"{self.classes[k]} {logit:.2f}" for k, logit in self._top(place)]
            columns.append(Column(title=title, pictures=shown, captions=names))
        columns.append(Column(title="difference Δ", pictures=colour.signed(self.delta[:SHOWN]), captions=self._leads()))
        note = f"{self._whose()}\nΔ: for the most likely class (orange) or the second (blue).\n{SCALE}"
        note += "." if self.coloured else ";\nthe two classes share one scale."
        return Grid(columns=columns, note=note).draw(ax)

    def mean_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The map, the mean of all classes' maps, and their difference, on one scale per image (Fig. 14)."""
        parts = {"contributions": self.maps, "mean of all classes": self.map_of(MEAN)}
        parts["mean-corrected"] = self.mean_corrected
        scale = np.max([colour.scale_of(each[:SHOWN]) for each in parts.values()], axis=0)
        sums = {title: maps.sum((1, 2))[:SHOWN] for title, maps in parts.items()}
        columns = [
            Column(
                title=title,
                pictures=colour.signed(maps[:SHOWN], scale=scale),
                captions=[f"sum {each:.2f}" for each in sums[title]],
            )
            for title, maps in parts.items()
        ]
        return Grid(
            columns=[self._images(), *columns],
            note=f"{self._whose()}\n{NOTE[:-1]},\nthe largest of a row for all of it.",
        ).draw(ax)

    def audit_figure(self, ax: "Axes | None" = None) -> "Figure":
        """The share of each biased layer in the lead of the most likely class over the second (Fig. 13)."""
        return audit_figure(self.label, self._parts(), self.logits, ax)

    def _images(self) -> Column:
        names = np.array([*self.classes, "unlabelled"])[self.labels]
        captions = [f"{name}, {index}" for name, index in zip(names, self.indices, strict=True)]
        return Column(title="image", pictures=np.moveaxis(self.images[:SHOWN], 1, -1), captions=captions)

    def _pictures(self, row: int) -> np.ndarray:
        return colour.on_white(self.rgba(row=row)[:SHOWN])

    def _top(self, place: int) -> list[tuple[int, float]]:
        return list(zip(self.pair[:SHOWN, place], self.logits[:SHOWN, FIRST + place], strict=True))

    def _leads(self) -> list[str]:
        """How far the most likely class leads, and how much of that the pixels explain."""
        table = self.table()[:SHOWN]
        return [f"{lead:.2f}, bias {_percent(share)}" for lead, share in table[["lead", "lead_bias_share"]].to_numpy()]

    def _text(self, place: int) -> str:
        row = self.table().iloc[place]
        lines = [
            f"explained: {row['explained']}",
            f"logit {row['logit']:.2f} =",
            f"   pixels {row['contributions']:.2f}",
            f"   + bias {row['bias']:.2f} ({_percent(row['bias_share'])})",
            f"   + residual {row['residual']:.0e}",
        ]
        return "\n".join(lines if row["complete"] else [*lines, f"INCOMPLETE by {_percent(row['relative_residual'])}"])

    def _whose(self) -> str:
        hidden = f"; {SHOWN} of {len(self.images)} images" if len(self.images) > SHOWN else ""
        return f"{self.label}{hidden}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ContributionsComparison(Comparison[ContributionsResult]):
    """The contributions to the logits of several models, for the same images."""

    name = "contributions"

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """A row per image, a column per model: the colour picture where W has six channels, else the signed map."""
        if any(not np.array_equal(each.indices, self.results[0].indices) for each in self.results):
            raise InputError("expected results for the same images in the same order; compare those")
        columns = [self.results[0]._images(), *map(_model_column, self.results)]
        return Grid(columns=columns, note=f"{NOTE}\n|bias|: its median share of the logit. !: incomplete.").draw(ax)

    def figures(self) -> dict[str, "Figure"]:
        """One figure for all, and each model's own."""
        own = {f"{one.label}_{key}": figure for one in self.results for key, figure in one.figures().items()}
        return {"figure": self.figure(), **{key.replace("/", "-"): figure for key, figure in own.items()}}


def contributions(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | None = None,
    *,
    labels: Tensor | None = None,
    classes: Sequence[str] | None = None,
    indices: Tensor | None = None,
    label: str = "model",
    picture: str = "paper",
    extras: Sequence[str] = (),
    batch_size: int = 50,
) -> ContributionsResult:
    """Take apart the logit of a class for each image (n, 3, H, W) in [0, 1], on the device that the model is on.

    targets: (n,) classes to explain, by default the predicted ones. classes: names, by default 0, 1, 2 and so on.
    indices: (n,) where the images come from, for the captions. picture: paper or bcos-v2. extras: any of EXTRAS.
    """
    check_images(images)
    _check_choices(picture, extras, batch_size)
    with evaluating(model):
        names = tuple(classes or map(str, range(_count_logits(model, images[:1]))))
        for given in (each for each in (targets, labels) if each is not None):
            check_labels(given, images=images, classes=names)
        parts = []
        for start in range(0, len(images), batch_size):
            part = slice(start, start + batch_size)
            parts.append(_explain(model, images[part], None if targets is None else targets[part], len(names)))
        kinds = tuple(type(model.get_submodule(layer)).__name__ for layer in parts[0][2].biases)
    chosen, pairs, found = zip(*parts, strict=True)
    layers = tuple(found[0].biases)
    return ContributionsResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        classes=names,
        images=images.cpu().numpy(),
        inputs=_joined([each.inputs for each in found]),
        labels=np.full(len(images), -1) if labels is None else labels.long().cpu().numpy(),
        indices=np.arange(len(images)) if indices is None else indices.cpu().numpy(),
        targets=_joined(chosen),
        pair=_joined(pairs),
        rows=_joined([each.weights for each in found]),
        logits=_joined([each.logits for each in found]).astype(float),
        biases=_joined([_stacked(each) for each in found]).astype(float),
        layers=layers,
        kinds=kinds,
        picture=picture,
        extras=tuple(extras),
    )


def _explain(
    model: nn.Module, images: Tensor, targets: Tensor | None, classes: int
) -> tuple[Tensor, Tensor, Decomposition]:
    """The explained classes (b,), the two most likely (b, 2), and the four decomposed logits of a batch."""
    with torch.no_grad():
        logits = logits_of(model, images, classes=classes)
    pair = logits.topk(2).indices
    chosen = pair[:, 0] if targets is None else targets.long().to(pair.device)
    rows = nn.functional.one_hot(torch.cat([chosen[:, None], pair], 1), classes).to(logits)
    mean = torch.full_like(rows[:, :1], 1 / classes)
    return chosen, pair, decompose(model, images.to(logits.device), torch.cat([rows, mean], 1))


def _count_logits(model: nn.Module, images: Tensor) -> int:
    """How many classes the model has, by asking it."""
    try:
        with torch.no_grad():
            logits = model(images.to(device_of(model)))
    except RuntimeError as error:
        raise InputError(f"the model cannot take images of {'×'.join(map(str, images.shape[1:]))}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError("expected a model that gives at least two logits for each image, (n, classes)")
    return logits.shape[1]


def _check_choices(picture: str, extras: Sequence[str], batch_size: int) -> None:
    if picture not in colour.STYLES:
        raise InputError(f"expected a style of {', '.join(colour.STYLES)}, got {picture!r}")
    if unknown := set(extras) - set(EXTRAS):
        raise InputError(f"expected extras of {', '.join(EXTRAS)}, got {min(unknown)!r}")
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")


def _stacked(found: Decomposition) -> Tensor:
    """(b, 4, L), what each biased layer adds; L may be 0."""
    return torch.stack([torch.zeros_like(found.logits), *found.biases.values()], -1)[..., 1:]


def _joined(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).cpu().numpy()


def _model_column(result: ContributionsResult) -> Column:
    """One model's pictures, the size of its bias above, its class and logit below each."""
    shown = result._pictures(EXPLAINED) if result.coloured else colour.signed(result.maps[:SHOWN])
    table = result.table()
    cells = zip(table["explained"], table["logit"], table["complete"], strict=True)
    names = [f"{name} {logit:.1f}{'' if complete else ' !'}" for name, logit, complete in cells]
    name = result.label.replace("_", "\n_", 1) if len(result.label) > 12 else result.label
    title = f"{name}\n|bias| {_percent(float(table['bias_share'].abs().median()))}"
    return Column(title=title, pictures=shown, captions=names)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part/whole; 0 of 0 is 0."""
    return np.divide(part, whole, out=np.where(part == 0, 0.0, np.inf), where=whole != 0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 or share == 0 else f"{100 * share:.2g} %"
