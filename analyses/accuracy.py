"""How often is the model right? Overall and class by class, with Wilson's 95 % intervals."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses import style
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.statistics import Interval, wilson
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Known(TypedDict, total=False):
    """What is known of a model from elsewhere: further columns of the table, in this order.

    recorded_accuracy: on the whole test set, when it was trained. paper_*: the row of the SCS paper that has the same
    settings; earlier_paper_*: a second such row (Table 1 beside Table 6: the same network, other initial weights).
    """

    epochs: int
    paper_epochs: int
    train_seconds_per_epoch: float
    eval_seconds_per_epoch: float
    recorded_accuracy: float
    paper_table: int
    paper_accuracy: float
    paper_train_seconds_per_epoch: float
    paper_eval_seconds_per_epoch: float
    earlier_paper_table: int
    earlier_paper_accuracy: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AccuracyResult(Result):
    """What a model said of n labelled images.

    labels, predictions: (n,) positions in `classes`.
    margins: (n,) the logit of the right class minus the largest other one; positive where the model is right.
    seconds: for all forward passes.
    """

    name = "accuracy"
    classes: tuple[str, ...]
    labels: np.ndarray
    predictions: np.ndarray
    margins: np.ndarray
    parameters: int
    seconds: float
    known: Known = field(default_factory=Known)

    @property
    def correct(self) -> np.ndarray:
        """(n,) whether the model was right."""
        return self.predictions == self.labels

    @property
    def accuracy(self) -> Interval:
        """The share of images that the model has right."""
        return wilson(self.correct.sum(), len(self.labels))

    def per_class(self) -> pd.DataFrame:
        """One row per class: n, correct, accuracy and its interval; NaN and [0, 1] for a class without images."""
        n = np.bincount(self.labels, minlength=len(self.classes))
        correct = np.bincount(self.labels[self.correct], minlength=len(self.classes))
        accuracy, low, high = wilson(correct, n)
        columns = {"n": n, "correct": correct, "accuracy": accuracy, "low": low, "high": high}
        return pd.DataFrame({"model": self.label, "class": self.classes, **columns})

    def table(self) -> pd.DataFrame:
        """One row: accuracy and its interval, n, parameters, seconds, what is known, then each class's accuracy."""
        accuracy, low, high = (float(part) for part in self.accuracy)
        overall = {"model": self.label, "accuracy": accuracy, "low": low, "high": high, "n": len(self.labels)}
        known = {key: self.known.get(key) for key in Known.__annotations__}
        classes = {f"class {name}": share for name, share in self.per_class()[["class", "accuracy"]].to_numpy()}
        row = {**overall, "parameters": self.parameters, "seconds": self.seconds, **known, **classes}
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and the classes one below the other with their n and intervals."""
        return {"table": self.table(), "classes": self.per_class()}

    def summary(self) -> pd.DataFrame:
        """In per cent, the interval in brackets; the paper's figure with its table; the weakest class."""
        accuracy, low, high = (100 * float(part) for part in self.accuracy)
        worst = self.per_class().dropna().sort_values("accuracy", kind="stable").iloc[0]
        row = {
            "model": self.label,
            "accuracy %": f"{accuracy:.1f} [{low:.1f}, {high:.1f}]",
            "paper %": _paper(self.known),
            "weakest class %": f"{worst['class']} {100 * worst['accuracy']:.0f}",
            "parameters": f"{self.parameters:,}",
            "epochs (paper)": _epochs(self.known),
            "train s/epoch": _seconds(self.known.get("train_seconds_per_epoch")),
            "eval s/epoch": _seconds(self.known.get("eval_seconds_per_epoch")),
        }
        return pd.DataFrame([row])

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Each class's accuracy with its interval, and the overall one as a line with a band."""
        classes = self.per_class().dropna().sort_values("accuracy", kind="stable")
        mean, low, high = (100 * float(part) for part in self.accuracy)
        colour, marker = style.look_of(self.label)
        with style.drawing(ax, width=4.2, height=0.9 + 0.17 * len(classes)) as ax:
            ax.axvspan(low, high, color=colour, alpha=0.15, lw=0)
            ax.axvline(mean, color=colour, lw=0.8)
            for y, (_, row) in enumerate(classes.iterrows()):
                _point(ax, y, (row["accuracy"], row["low"], row["high"]), colour, marker)
            ax.set_yticks(range(len(classes)), [f"{row['class']} ({row['n']})" for _, row in classes.iterrows()])
            ax.set_xlabel("accuracy in %, 95 % interval")
            ax.set_title(f"{self.label}: {mean:.1f} % of {len(self.labels):,} images", loc="left")
            return style.figure_of(ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class AccuracyComparison(Comparison[AccuracyResult]):
    """The accuracy of several models."""

    name = "accuracy"

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """One line per model, best first within an architecture; the paper's figures as diamonds; numbers beside."""
        lines = _lines(self.results)
        with style.drawing(ax, height=1.0 + 0.16 * (max(lines) + 1)) as ax:
            for y, result in lines.items():
                _model_line(ax, y, result)
            ax.set_yticks(list(lines), [result.label for result in lines.values()])
            ax.set_ylim(max(lines) + 0.8, -1)
            ax.grid(axis="both", lw=0.3, color="0.88")
            ax.set_axisbelow(True)
            ax.set_xlabel(f"accuracy in % on {_counts(self.results)} images, 95 % interval")
            _head(ax, self.results)
            return style.figure_of(ax)


def accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str],
    label: str = "model",
    batch_size: int = 250,
    known: Known | None = None,
) -> AccuracyResult:
    """Run the model over labelled images, on the device that the model is on.

    images: (n, 3, H, W) in [0, 1]; labels: (n,) positions in `classes`; label: the model's name in tables and figures.
    """
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")
    with evaluating(model), torch.inference_mode():
        start = time.perf_counter()
        batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        outcomes = shared_map(lambda batch: _outcome(model, *batch, len(classes)), batches)
        seconds = time.perf_counter() - start
    predictions, margins = (torch.cat(part).numpy() for part in zip(*outcomes, strict=True))
    return AccuracyResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        classes=tuple(classes),
        labels=labels.long().cpu().numpy(),
        predictions=predictions,
        margins=margins,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=seconds,
        known=known or Known(),
    )


def _outcome(model: nn.Module, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Predictions and margins (b,) of one batch, on the CPU."""
    logits = logits_of(model, images, classes=classes)
    right = labels.long().to(logits.device)[:, None]
    best_other = logits.scatter(1, right, float("-inf")).amax(1)
    return logits.argmax(1).cpu(), (logits.gather(1, right)[:, 0] - best_other).cpu()


def _paper(known: Known) -> str:
    """The paper's accuracy with its table: 81.8 (T6), 77.6 (T1)."""
    pairs = [(known.get("paper_accuracy"), known.get("paper_table"))]
    pairs.append((known.get("earlier_paper_accuracy"), known.get("earlier_paper_table")))
    return ", ".join(f"{100 * share:.1f} (T{table})" for share, table in pairs if share is not None)


def _epochs(known: Known) -> str:
    """For how many epochs it was trained, and for how many in the paper it comes from: 12 (800)."""
    epochs, paper = known.get("epochs"), known.get("paper_epochs")
    return "" if epochs is None else f"{epochs} ({paper})" if paper else str(epochs)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _counts(results: Iterable[AccuracyResult]) -> str:
    """How many images each model saw: "1,000", or "500 to 1,000" if they differ."""
    counts = sorted({len(result.labels) for result in results})
    return " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))


def _lines(results: Sequence[AccuracyResult]) -> dict[float, AccuracyResult]:
    """Where each model stands: architectures in the order they came with a gap between, best first within one."""
    order = list(dict.fromkeys(_architecture(result) for result in results))
    ranked = sorted(results, key=lambda one: (order.index(_architecture(one)), -float(one.accuracy.estimate)))
    return {place + 0.5 * order.index(_architecture(one)): one for place, one in enumerate(ranked)}


def _architecture(result: AccuracyResult) -> str:
    """The part of a zoo name before its layer (`bcos_cnn9` names both at once); other labels form one group."""
    layer, parts = style.layer_of(result.label), result.label.lower().split("_")
    return "" if layer is None else "_".join(parts[: parts.index(layer)] or parts[:2])


def _model_line(ax: "Axes", y: float, result: AccuracyResult) -> None:
    """The accuracy with its interval, the paper's figures, and both as numbers right of the axes."""
    colour, marker = style.look_of(result.label)
    _point(ax, y, tuple(map(float, result.accuracy)), colour, marker)
    texts = [f"{100 * float(result.accuracy.estimate):.1f}", ""]
    if (paper := result.known.get("paper_accuracy")) is not None:
        texts[1] = f"{100 * paper:.1f}"
        _diamond(ax, paper, y, size=3.8)
    if (earlier := result.known.get("earlier_paper_accuracy")) is not None:
        _diamond(ax, earlier, y, size=2)
    _numbers(ax, (1, y), texts, (colour, style.GREY))


def _diamond(ax: "Axes", share: float, y: float, *, size: float, label: str | None = None) -> None:
    """The paper's figure, above the other marks."""
    ax.plot(100 * share, y, "D", mfc="none", mec=style.GREY, ms=size, mew=0.8, zorder=5, label=label)


def _numbers(ax: "Axes", at: tuple[float, float], texts: Sequence[str], colours: Sequence[str]) -> None:
    """Two columns right of the axes, in points from their edge, so that they fit at any size."""
    for points, text, colour in zip((26, 54), texts, colours, strict=True):
        ax.annotate(
            text, at, (points, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points", color=colour,
            fontsize=7, ha="right", va="center", annotation_clip=False,
        )  # fmt: skip


def _head(ax: "Axes", results: Sequence[AccuracyResult]) -> None:
    """What the marks and the two columns of numbers mean."""
    paper = any("paper_accuracy" in result.known for result in results)
    _numbers(ax, (1, ax.get_ylim()[1] + 0.1), ("here", "paper" if paper else ""), ("black", style.GREY))
    kinds = dict.fromkeys(style.layer_of(result.label) or "other" for result in results)
    for kind in kinds:
        colour, marker = style.LAYERS.get(kind, style.OTHER)
        ax.plot([], [], marker, color=colour, ms=3.5, label=kind)
    if paper:
        _diamond(ax, float("nan"), float("nan"), size=3.8, label="paper")
    for table in {result.known["earlier_paper_table"] for result in results if "earlier_paper_table" in result.known}:
        _diamond(ax, float("nan"), float("nan"), size=2, label=f"its Table {table} (other initial weights)")
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=9, handletextpad=0.1, columnspacing=1)


def _point(ax: "Axes", y: float, interval: tuple[float, ...], colour: str, marker: str) -> None:
    """An accuracy with its interval, in per cent."""
    mean, low, high = (100 * part for part in interval)
    ax.errorbar(mean, y, xerr=[[mean - low], [high - mean]], fmt=marker, color=colour, elinewidth=0.9, ms=3.5)
