"""Which layers put bias into a decision: what each adds to the logit, and its share of the lead (B-cos v2, Fig. 13)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 12  # layers that get a bar of their own


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
        rows.append({"model": model, "layer": name, "kind": kind, "n": len(values), **sizes, **quartiles})
    return pd.DataFrame(rows)


def audit_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The audit's table, rounded: what each layer adds to the logit on average, and its share of the lead."""
    shares = (100 * table[["lead_share", "lead_share_q25", "lead_share_q75"]]).to_numpy()
    text = {
        "model": table["model"],
        "biased layer": table["layer"] + table["kind"].map(lambda kind: f" ({kind})" if kind else ""),
        "n": table["n"].astype(str),
        "adds to the logit": table["mean"].map("{:.2g}".format),
        "mean size": table["mean_size"].map("{:.2g}".format),
        "% of the lead [quartiles]": [f"{middle:.3g} [{low:.3g}, {high:.3g}]" for middle, low, high in shares],
    }
    return pd.DataFrame(text)


def audit_figure(model: str, parts: Mapping[str, np.ndarray], logits: np.ndarray, ax: "Axes | None" = None) -> "Figure":
    """A bar per biased layer: the median share of the lead, with quartiles; all biases together on top."""
    shares = _bars(shares_of_the_lead(parts, logits))
    with style.drawing(ax, width=4.6, height=0.9 + 0.2 * len(shares)) as ax:
        for y, (name, values) in enumerate(shares.items()):
            low, middle, high = (100 * part for part in _quartiles(values))
            shade = style.look_of(model)[0] if name == "all biases" else style.GREY
            ax.barh(y, middle, height=0.62, color=shade, alpha=0.85)
            ax.errorbar(middle, y, xerr=[[middle - low], [high - middle]], color="black", lw=0.8, capsize=2)
        ax.axvline(0, color="black", lw=0.6)
        ax.set_yticks(range(len(shares)), list(shares))
        ax.set_ylim(len(shares) - 0.4, -0.6)
        ax.set_xlabel(f"share of the lead over the second class in %\nmedian and quartiles of {len(logits):,} images")
        ax.set_title(f"{model}: where its bias comes from", loc="left")
        return style.figure_of(ax)


def lead_figure(leads: Mapping[str, np.ndarray], ax: "Axes | None" = None) -> "Figure":
    """Models side by side: how much of the lead over the second class all biases make up, image by image (Fig. 13).

    leads: model → (n,) shares; ties of the two classes are NaN.
    """
    with style.drawing(ax, width=4.6, height=0.9 + 0.3 * len(leads)) as ax:
        known = [100 * values[np.isfinite(values)] for values in leads.values()]
        ax.boxplot(known, orientation="horizontal", widths=0.6, showfliers=False, medianprops={"color": "black"})
        ax.set_yticks(range(1, len(leads) + 1), list(leads))
        ax.invert_yaxis()
        for position in (0, 100):
            ax.axvline(position, color="0.6", lw=0.6)
        count = max(map(len, known))
        ax.set_xlabel(
            f"share of the biases in the lead over the second class in %\nquartiles of {count:,} images, and 1.5 times "
            "their distance"
        )
        ax.set_title("0: none of the decision is bias; 100: all of it", loc="left")
        return style.figure_of(ax)


def _bars(shares: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All biases, the largest layers in the order of the network, the others together."""
    layers = {name: values for name, values in shares.items() if name != "residual"}
    ranked = sorted(layers, key=lambda name: -abs(_quartiles(layers[name])[1]))[:LARGEST]
    none = np.zeros_like(shares["residual"])
    bars = {"all biases": sum(layers.values(), none)}
    bars.update((name, layers[name]) for name in layers if name in ranked)
    if rest := [name for name in layers if name not in ranked]:
        bars[f"{len(rest)} other layers"] = sum((layers[name] for name in rest), none)
    return bars


def _quartiles(values: np.ndarray) -> tuple[float, float, float]:
    known = values[np.isfinite(values)]
    low, middle, high = np.percentile(known, [25, 50, 75]) if len(known) else [np.nan] * 3
    return float(low), float(middle), float(high)
