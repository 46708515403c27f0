"""Which layers put bias into a decision: what each adds to the logit, and its share of the lead (B-cos v2, Fig. 13)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 1.0  # per cent of the lead that an axis ends at
LARGEST = 12  # layers that get a bar of their own
CONSTANT = "LogitLayer"  # the kind of layer that adds the same to every class
RESIDUAL, ALL = "residual", "all biases"


def shares_of_the_lead(parts: Mapping[str, np.ndarray], logits: np.ndarray) -> dict[str, np.ndarray]:
    """What each part (n, 4) adds to first − second, as a share (n,) of that lead; ties of the two are NaN."""
    lead = logits[:, 1] - logits[:, 2]
    lead = np.where(lead > 0, lead, np.nan)
    return {name: (values[:, 1] - values[:, 2]) / lead for name, values in parts.items()}


def audit_table(model: str, parts: Mapping[str, np.ndarray], logits: np.ndarray, kinds: Sequence[str]) -> pd.DataFrame:
    """A row per layer and one for the residual: mean and mean size in the explained logit, quartiles of the shares."""
    shares = shares_of_the_lead(parts, logits)
    rows = []
    for (name, values), kind in zip(parts.items(), [*kinds, ""], strict=True):
        low, middle, high = _quartiles(shares[name])
        sizes = {"mean": values[:, 0].mean(), "mean_size": np.abs(values[:, 0]).mean()}
        quartiles = {"lead_share": middle, "lead_share_q25": low, "lead_share_q75": high}
        words = {"model": model, "layer": name, "kind": kind, "n": len(values)}
        rows.append({**words, **sizes, **quartiles, "meaningless": name in _meaningless(parts)})
    return pd.DataFrame(rows)


def _meaningless(parts: Mapping[str, np.ndarray]) -> set[str]:
    """The layers that add no more than what nothing explains: rounding could be all of it."""
    limit = np.abs(parts[RESIDUAL][:, 0]).mean()
    return {name for name, values in parts.items() if name != RESIDUAL and np.abs(values[:, 0]).mean() <= limit}


def audit_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The audit's table, rounded: what each layer adds to the logit on average, and its share of the lead."""
    shares = (100 * table[["lead_share", "lead_share_q25", "lead_share_q75"]]).to_numpy()
    percents = [f"{middle:.3g} [{low:.3g}, {high:.3g}]" for middle, low, high in shares]
    words = {True: "meaningless: no more than the residual", False: ""}
    text = {
        "model": table["model"],
        "biased layer": table["layer"] + table["kind"].map(lambda kind: f" ({kind})" if kind else ""),
        "n": table["n"].astype(str),
        "adds to the logit": table["mean"].map("{:.2g}".format),
        "mean size": table["mean_size"].map("{:.2g}".format),
        "% of the lead [quartiles]": percents,
        "": table["meaningless"].map(words).where(table["kind"] != CONSTANT, "the same for every class"),
    }
    return pd.DataFrame(text)


def audit_figure(
    model: str,
    parts: Mapping[str, np.ndarray],
    logits: np.ndarray,
    kinds: Sequence[str],
    ax: "Axes | None" = None,
) -> "Figure":
    """A bar per biased layer: what it adds to the explained logit, and its share of the lead; on given axes the share.

    Bars are medians, with quartiles. The constant of a logit layer is the same for every class, so that it has no share
    of a lead; what is no larger than the residual is drawn pale.
    """
    constant = {name for name, kind in zip(parts, kinds, strict=False) if kind == CONSTANT}
    bars = _bars(parts, shares_of_the_lead(parts, logits), constant)
    with style.paper_style():
        axes = [ax] if ax is not None else style.panels(1, 2, height=1.15 + 0.2 * len(bars), sharey=True)
        pale, shade = _meaningless(parts), style.look_of(model)[0]
        for y, (name, (added, share)) in enumerate(bars.items()):
            look = {"color": shade if name == ALL else style.GREY, "alpha": 0.25 if name in pale else 0.85}
            _bar(axes[-1], y, 100 * share, look)
            if ax is None:
                _bar(axes[0], y, added, look)
        last = {ALL: " but the constant" * bool(constant), **dict.fromkeys(constant, " (all classes)")}
        words = [name + last.get(name, "") for name in bars]
        axes[0].set_yticks(range(len(bars)), words)
        axes[0].set_ylim(len(bars) - 0.4, -0.6)
        if ax is None:
            axes[0].set_xlabel("adds to the explained logit")
        axes[-1].set_xlabel("share of the lead over the second class in %")
        axes[-1].locator_params(axis="x", nbins=5)
        if np.abs(axes[-1].get_xlim()).max() < LEAST:
            axes[-1].set_xlim(-LEAST, LEAST)  # rounding is not worth an axis of its own
        title = f"{model}: where its bias comes from" + ("" if kinds else "; no layer adds any")
        axes[0].set_title(title, loc="left")
        note = f"Median and quartiles of {len(logits):,} images."
        note += " Pale: no larger than the residual, so it may be rounding." if pale else ""
        note += " The constant that all classes get has no share of a lead." if constant else ""
        style.write_note(axes[0], note)
        return style.figure_of(axes[0])


def lead_figure(leads: Mapping[str, np.ndarray], ax: "Axes | None" = None) -> "Figure":
    """Models side by side: how much of the lead over the second class all biases make up, image by image (Fig. 13).

    leads: model → (n,) shares; ties of the two classes are NaN.
    """
    with style.drawing(ax, height=1.1 + 0.3 * len(leads)) as ax:
        known = [100 * values[np.isfinite(values)] for values in leads.values()]
        ax.boxplot(known, orientation="horizontal", widths=0.6, showfliers=False, medianprops={"color": "black"})
        ax.set_yticks(range(1, len(leads) + 1), list(leads))
        ax.invert_yaxis()
        for position in (0, 100):
            ax.axvline(position, color="0.6", lw=0.6)
        count = max(map(len, known))
        ax.set_xlabel("share of the biases in the lead over the second class in %")
        style.write_note(ax, f"Quartiles of {count:,} images, and whiskers of at most 1.5 times their distance.")
        ax.set_title("0: none of the decision is bias; 100: all of it", loc="left")
        return style.figure_of(ax)


def _bar(ax: "Axes", y: int, values: np.ndarray, look: Mapping[str, Any]) -> None:
    low, middle, high = _quartiles(values)
    ax.barh(y, middle, height=0.62, **look)
    ax.errorbar(middle, y, xerr=[[middle - low], [high - middle]], color="black", lw=0.8, capsize=2)
    ax.axvline(0, color="black", lw=0.6)


def _bars(
    parts: Mapping[str, np.ndarray], shares: Mapping[str, np.ndarray], constant: Collection[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(Added, share of the lead) of all biases, the largest layers as they run, the others together, the residual.

    A constant that all classes get counts by itself alone: it decides nothing.
    """
    both = {name: (values[:, 0], shares[name]) for name, values in parts.items()}
    residual = both.pop(RESIDUAL)
    ranked = sorted(both, key=lambda name: -np.abs(both[name][0]).mean())[:LARGEST]
    bars = {ALL: _sum((pair for name, pair in both.items() if name not in constant), like=residual)}
    bars.update((name, pair) for name, pair in both.items() if name in ranked)
    if rest := [name for name in both if name not in ranked]:
        bars[f"{len(rest)} other layers"] = _sum((both[name] for name in rest), like=residual)
    return {**bars, RESIDUAL: residual}


def _sum(
    pairs: Iterable[tuple[np.ndarray, np.ndarray]], *, like: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    added, share = (np.zeros_like(part) for part in like)
    for more, further in pairs:
        added, share = added + more, share + further
    return added, share


def _quartiles(values: np.ndarray) -> tuple[float, float, float]:
    known = values[np.isfinite(values)]
    low, middle, high = np.percentile(known, [25, 50, 75]) if len(known) else [np.nan] * 3
    return float(low), float(middle), float(high)
