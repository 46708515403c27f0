"""How did training go? Accuracy and loss, weight norms and exponents over time (Figures 2 and 7 of the SCS paper)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.dynamics.run_files import LAYERS, NORMS, RECORDS, read_description, read_table, structured
from scs_eval.analyses.plotting import style
from scs_eval.errors import InputError, brief, check_text, several
from scs_eval.files import real_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = 8  # of an axis, about
PANELS_PER_PAGE = 8
POINTS = 1000  # a curve of more is thinned: print shows no more, and a PDF of every mini-batch would be huge


@dataclass(frozen=True, eq=False, kw_only=True)
class RunDynamics(Result):
    """What one run recorded, as structured arrays.

    records: one row per epoch (lr, train_ and test_ loss and accuracy, train_ and eval_ seconds).
    layers: epoch, layer, quantity (weight_norm, grad_norm, q, p), index (the kernel, for p; else NaN), value.
    norms: step, layer, weight_norm at every mini-batch; empty if these were not logged.
    """

    name = "dynamics"
    axes: ClassVar = {
        "records": ("epoch",),
        "layers": ("layer_value",),
        "norms": ("step_value",),
    }
    model: str
    records: np.ndarray
    layers: np.ndarray
    norms: np.ndarray

    def table(self) -> pd.DataFrame:
        """One row: the last epoch, the best one on the test set, and the median seconds of an epoch."""
        last, best = self.records[-1], self.records[np.nanargmax(_ranked(self.records["test_accuracy"]))]
        row = {"run": self.label, "model": self.model, "seed": self.settings.get("seed"), "epochs": int(last["epoch"])}
        for column in ("train_accuracy", "test_accuracy", "train_loss", "test_loss"):
            row[column] = float(last[column])
        row |= {"best_test_accuracy": float(best["test_accuracy"]), "best_epoch": int(best["epoch"])}
        for column in ("train_seconds", "eval_seconds"):
            row[column] = float(np.median(self.records[column]))
        return pd.DataFrame([row])

    def summary(self) -> pd.DataFrame:
        """In per cent, with the best epoch on the test set in brackets."""
        row = self.table().iloc[0]
        best = f"{100 * row['best_test_accuracy']:.1f} (epoch {row['best_epoch']})"
        shown = {"run": self.label, "model": self.model, "epochs": str(row["epochs"])}
        shown |= {"test %": f"{100 * row['test_accuracy']:.1f}", "best test %": best}
        shown |= {"training %": f"{100 * row['train_accuracy']:.1f}", "test loss": f"{row['test_loss']:.3f}"}
        shown |= {f"{phase} s/epoch": f"{row[f'{phase}_seconds']:.3g}" for phase in ("train", "eval")}
        return pd.DataFrame([shown])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, every epoch, and what became of each layer's quantities."""
        epochs = pd.DataFrame(self.records)
        epochs.insert(0, "run", self.label)
        return {"table": self.table(), "epochs": epochs, "layers": self.changes()}

    def changes(self) -> pd.DataFrame:
        """One row per layer and quantity: the first and last value, the extremes, how many kernels never turn back.

        first and last are the medians over kernels; monotone counts the kernels whose value only rises or only falls.
        """
        frame = pd.DataFrame(self.layers).fillna({"index": 0})
        groups = frame.groupby(["layer", "quantity"], sort=False)
        rows = [{"run": self.label, "layer": key[0], "quantity": key[1], **_change(part)} for key, part in groups]
        return pd.DataFrame(rows, columns=["run", "layer", "quantity", *_CHANGE])

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy over epochs; the curves of several runs may share the axes."""
        with style.drawing(ax, height=2.6) as ax:
            _draw_accuracy(ax, [self], first=len(ax.lines) // 2)
            return style.figure_of(ax)

    def weight_norms(self) -> tuple[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
        """What time counts ("mini-batch", or "epoch" where only those were logged), and each layer's (time, norm)."""
        if len(self.norms):
            return "mini-batch", dict(_by_layer(self.norms, "step", "weight_norm"))
        return "epoch", dict(_by_layer(self.layers[self.layers["quantity"] == "weight_norm"], "epoch", "value"))

    def exponents(self, layer: str | None = None) -> tuple[str, np.ndarray, np.ndarray] | None:
        """Layer, epochs (t,) and p (t, kernels) of a layer, by default the first that has p; None if none has."""
        rows = self.layers[self.layers["quantity"] == "p"]
        names = list(dict.fromkeys(rows["layer"].tolist()))
        if layer is None and not names:
            return None
        if layer is not None and layer not in names:
            raise InputError(f"no p of layer {layer!r} in {self.label}; it has p of: {', '.join(names) or 'no layer'}")
        chosen = pd.DataFrame(rows[rows["layer"] == (layer or names[0])])
        values = chosen.pivot_table("value", "epoch", "index", dropna=False)
        return layer or names[0], values.index.to_numpy(), values.to_numpy()


@dataclass(frozen=True, eq=False, kw_only=True)
class Dynamics(Comparison[RunDynamics]):
    """Several runs (or one). layer: whose exponents to draw; None takes the first that has any."""

    name = "dynamics"
    layer: str | None = None

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy and loss over epochs; on given axes the accuracy alone."""
        with style.paper_style():
            axes = style.panels(2, 1, height=4.2, sharex=True) if ax is None else [ax]
            _draw_accuracy(axes[0], self.results)
            if ax is None:
                axes[0].set_xlabel("")
                axes[1].set(xlabel="epoch", ylabel="loss")
                _draw_curves(axes[1], self.results, "loss")
            return style.figure_of(axes[0])

    def figures(self) -> dict[str, "Figure"]:
        """The curves, the weight norms (Figure 2), the same relative to their start, exponents (Figure 7) if any.

        Many runs have several pages of panels.
        """
        drawn = {"figure": self.figure()}
        for name, relative in (("norms", False), ("norms_relative", True)):
            for suffix, runs, words in style.pages(self.results, PANELS_PER_PAGE, "Runs"):
                drawn[f"{name}{suffix}"] = _norms_page(runs, words, relative=relative)
        exponents = self.with_exponents()
        for suffix, runs, words in style.pages(exponents, PANELS_PER_PAGE, "Runs") if exponents else ():
            drawn[f"p{suffix}"] = _exponents_page(runs, words, self.layer)
        return drawn

    def norms_figure(self, *, relative: bool = False) -> "Figure":
        """Weight norms of every layer over mini-batches or epochs, a panel per run.

        relative: in doublings since the start, which show how layers of very different norms change.
        """
        return _norms_page(self.results, "", relative=relative)

    def p_figure(self) -> "Figure":
        """p of each kernel of one layer over epochs, a panel per run that has exponents."""
        return _exponents_page(self.with_exponents(), "", self.layer)

    def with_exponents(self) -> list[RunDynamics]:
        """The runs of networks that have exponents."""
        return [run for run in self.results if (run.layers["quantity"] == "p").any()]


def dynamics(directories: Sequence[str | Path], *, layer: str | None = None) -> Dynamics:
    """Read the records of training runs, one directory each; runs go by their directory's name.

    layer: whose exponents to draw, by name; by default the first of each run that has any.

    >>> import json, pathlib, scs_eval, tempfile
    >>> run = pathlib.Path(tempfile.mkdtemp(), "run")  # as `scs-eval train` leaves one
    >>> run.mkdir()
    >>> names = "epoch,lr,train_loss,train_accuracy,test_loss,test_accuracy,train_seconds,eval_seconds"
    >>> _ = (run / "records.csv").write_text(names + "\\n1,0.1,2.0,0.3,1.9,0.4,5,1\\n2,0.1,1.5,0.5,1.6,0.6,5,1\\n")
    >>> _ = (run / "layers.csv").write_text("epoch,layer,quantity,index,value\\n")
    >>> _ = (run / "run.json").write_text(json.dumps({"model": "rohrer25k_scs"}))
    >>> scs_eval.dynamics([run]).to_dataframe()["test_accuracy"].tolist()
    [0.6]
    """
    if layer is not None:
        check_text(layer=layer)
    paths = [_directory(directory) for directory in several(directories=directories)]
    names = [real_path(path).name for path in paths]
    distinct = len(set(names)) == len(names)
    runs = tuple(_read(path, name if distinct else str(path)) for path, name in zip(paths, names, strict=True))
    compared = replace(Dynamics.of(runs, label="+".join(names)), layer=layer)
    if layer is not None:
        for run in compared.with_exponents() or runs:
            run.exponents(layer)  # raises for a layer without exponents, before anything is drawn
    return compared


def _directory(path: str | Path) -> Path:
    if not isinstance(path, str | Path):
        raise InputError(f"expected directories as paths, got {brief(path)}")
    return Path(path)


def _read(directory: Path, label: str) -> RunDynamics:
    about = read_description(directory)
    records = read_table(directory / "records.csv", RECORDS)
    if len(records) == 0:
        raise InputError(f"the run in {directory} has not finished an epoch; nothing to draw yet")
    norms = directory / "norms.csv"
    nothing = structured({"step": np.empty(0, int), "layer": np.empty(0, "U1"), "weight_norm": np.empty(0)})
    return RunDynamics(
        label=label,
        settings={key: about[key] for key in ("seed", "epochs", "recipe", "init_from", "data") if key in about},
        model=about["model"],
        records=records,
        layers=read_table(directory / "layers.csv", LAYERS),
        norms=read_table(norms, NORMS) if norms.exists() else nothing,
    )


_CHANGE = ("kernels", "first", "last", "lowest", "highest", "monotone")


def _change(rows: pd.DataFrame) -> dict[str, Any]:
    values = rows.pivot_table("value", "epoch", "index", dropna=False).to_numpy()
    steps = np.diff(values, axis=0)
    monotone = int(((steps >= 0).all(0) | (steps <= 0).all(0)).sum())
    ends = (float(np.median(values[0])), float(np.median(values[-1])), float(values.min()), float(values.max()))
    return dict(zip(_CHANGE, (values.shape[1], *ends, monotone), strict=True))


def _ranked(accuracy: np.ndarray) -> np.ndarray:
    """Accuracies for ranking: an epoch without one comes last."""
    return np.nan_to_num(accuracy, nan=-1.0)


def _by_layer(rows: np.ndarray, time: str, value: str) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for layer in dict.fromkeys(rows["layer"].tolist()):
        mine = rows[rows["layer"] == layer]
        thinned = mine[np.linspace(0, len(mine) - 1, min(len(mine), POINTS)).round().astype(int)]
        yield layer, (thinned[time], thinned[value])


def _grid(count: int, ylabel: str) -> list["Axes"]:
    """A panel per run, two in a row, with one scale of y."""
    columns = min(count, 2)
    rows = -(-count // columns)
    axes = style.panels(rows, columns, height=2.6 * rows, sharey=True)
    for first in axes[::columns]:
        first.set_ylabel(ylabel)
    for spare in axes[count:]:
        spare.set_visible(False)
    return axes[:count]


def _norms_page(runs: Sequence[RunDynamics], words: str, *, relative: bool) -> "Figure":
    with style.paper_style():
        axes = _grid(len(runs), "L2 norm of the weight" + " / initial norm" * relative)
        style.write_note(axes[0], words)
        _write_names(axes, [_draw_norms(ax, run, relative=relative) for ax, run in zip(axes, runs, strict=True)])
        return style.figure_of(axes[0])


def _exponents_page(runs: Sequence[RunDynamics], words: str, layer: str | None) -> "Figure":
    with style.paper_style():
        axes = _grid(len(runs), "exponent p of each kernel")
        style.write_note(axes[0], words)
        _write_names(axes, [_draw_exponents(ax, run, layer) for ax, run in zip(axes, runs, strict=True)])
        return style.figure_of(axes[0])


def _draw_accuracy(ax: "Axes", runs: Sequence[RunDynamics], *, first: int = 0) -> None:
    _draw_curves(ax, runs, "accuracy", first=first, factor=100)
    ax.set(xlabel="epoch", ylabel="accuracy in %")
    if first == 0:
        style.explain_dashes(ax, {"test": "-", "training": "--"})


def _draw_curves(ax: "Axes", runs: Sequence[RunDynamics], quantity: str, *, first: int = 0, factor: int = 1) -> None:
    """Test solid and training dashed, each run in a colour of its own with its name at the end of its test curve."""
    ends = []
    cycle = [style.CYCLE[i % len(style.CYCLE)] for i in range(first, first + len(runs))]
    colours: Sequence[style.Colour] = style.depths(len(runs)) if len(runs) > len(style.CYCLE) else cycle
    for colour, run in zip(colours, runs, strict=True):
        epochs, test = run.records["epoch"], factor * run.records[f"test_{quantity}"]
        training = factor * run.records[f"train_{quantity}"]
        ax.plot(epochs, training, _line(epochs, dash="--", mark="x"), color=colour, lw=0.8, ms=4, alpha=0.7)
        ax.plot(epochs, test, _line(epochs), color=colour)
        ends.append((epochs[-1], test[-1], run.label, colour))
    style.count_on_x(ax)
    style.label_ends(ax, ends)


def _line(x: np.ndarray, *, dash: str = "-", mark: str = "o") -> str:
    """A line, or a mark where there is only one point, of which a line would show nothing."""
    return dash if len(x) > 1 else mark


def _draw_norms(ax: "Axes", run: RunDynamics, *, relative: bool) -> list[style.End]:
    """One curve per layer; returns where to write the layers' names, once all panels have their scale."""
    time, curves = run.weight_norms()
    ends: list[style.End] = []
    for colour, (layer, (x, y)) in zip(style.depths(len(curves)), curves.items(), strict=True):
        y = np.log2(y / y[0]) if relative and y[0] else y
        ax.plot(x, y, _line(x), color=colour)
        ends.append((x[-1], y[-1], layer, colour))
    if relative:  # a head grows fortyfold while kernels double: in doublings both are seen
        ax.yaxis.set_major_formatter(lambda doublings, _: _times(doublings, np.ptp(ax.get_ylim())))
    ax.set(xlabel=time)
    ax.set_title(run.label, loc="left")
    style.count_on_x(ax)
    return ends


def _times(doublings: float, span: float) -> str:
    """The factor that so many doublings are, with the digits that tell it from the next of an axis of this span."""
    step = span / TICKS * np.log(2)
    return f"{2**doublings:.{max(3, 1 + int(np.ceil(-np.log10(step))))}g}×"


def _draw_exponents(ax: "Axes", run: RunDynamics, layer: str | None) -> list[style.End]:
    """One curve per kernel, coloured by its rank at the start so that crossings show, and their median."""
    exponents = run.exponents(layer)
    assert exponents is not None
    name, epochs, p = exponents
    order = np.argsort(p[0])
    for colour, kernel in zip(style.depths(len(order)), order, strict=True):
        ax.plot(epochs, p[:, kernel], color=colour, lw=0.7, alpha=0.8)
    median = np.median(p, axis=1)
    ax.plot(epochs, median, color="black", lw=1.8)
    ax.set(xlabel="epoch")
    ax.set_title(f"{run.label}: {name}, {p.shape[1]} kernels", loc="left")
    style.count_on_x(ax)
    return [(epochs[-1], median[-1], "median", "black")]


def _write_names(axes: Sequence["Axes"], ends: Sequence[Sequence[style.End]]) -> None:
    for ax, curves in zip(axes, ends, strict=True):
        style.label_ends(ax, curves, size=6)
