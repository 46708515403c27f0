"""What B does to the optimum of one B-cos unit on two problems in the plane (B-cos v2, Fig. 2).

    python -m scs_eval.analyses.contributions.response_window --out response_window.png

Both problems have the same positive cluster; the others lie at its left or at its right. A linear unit (B = 1) turns
away from them, so its weight says as much of them as of the cluster; one with a large B looks like the cluster. The
paper does not give the numbers of its figure: those here are ours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWERS = 1.0, 2.0, 5.0, 20.0
CLUSTER, OTHERS = 90.0, (35.0, 145.0)  # degrees: of the positives, and of the others of either problem
SPREAD, POINTS = 0.12, 40
GAIN, BIAS = 10.0, np.log(0.1 / 0.9)  # of the logit; the bias as in the paper's networks for CIFAR-10
ANGLES = np.arange(0.0, 180.0, 0.5)


def direction(angle: np.ndarray | float) -> np.ndarray:
    """Unit vectors (…, 2) at these angles in degrees."""
    radians = np.deg2rad(angle)
    return np.stack([np.cos(radians), np.sin(radians)], -1)


def problem(others: float) -> tuple[np.ndarray, np.ndarray]:
    """Points (2 · POINTS, 2), and whether each belongs to the cluster; the cluster is the same for all `others`."""
    noise = np.random.default_rng(0).normal(scale=SPREAD, size=(2, POINTS, 2))
    points = np.concatenate([direction(CLUSTER) + noise[0], direction(others) + noise[1]])
    return points, np.arange(2 * POINTS) < POINTS


def response(points: np.ndarray, weights: np.ndarray, b: float) -> np.ndarray:
    """B-cos(x; w) = ŵ·x |cos(x, w)|^(B-1) (Eq. 3) for points (n, 2) and unit weights (k, 2), (n, k)."""
    products: np.ndarray = points @ weights.T
    return products * np.abs(products / np.linalg.norm(points, axis=-1, keepdims=True)) ** (b - 1)


def losses(points: np.ndarray, positive: np.ndarray, b: float) -> np.ndarray:
    """The mean binary cross-entropy of a unit whose weight points to each of ANGLES."""
    logits = GAIN * response(points, direction(ANGLES), b) + BIAS
    return np.asarray(np.logaddexp(0, np.where(positive[:, None], -logits, logits)).mean(0))


def optimum(others: float, b: float) -> float:
    """The angle of the weight with the least loss."""
    return float(ANGLES[losses(*problem(others), b).argmin()])


def response_window_figure(powers: Sequence[float] = POWERS) -> "Figure":
    """A row per B: the two problems with their optimal weights, and between them the losses over the angle."""
    from matplotlib import pyplot as plt

    from scs_eval.analyses.plotting import style

    with style.paper_style():
        figure, rows = plt.subplots(len(powers), 3, figsize=(5.6, 1.75 * len(powers)), layout="constrained")
        for row, b in zip(rows, powers, strict=True):
            for ax, others, name in zip(row[::2], OTHERS, "AB", strict=True):
                _draw_problem(ax, others, b)
                ax.set_title(f"problem {name}, B = {b:g}: w at {optimum(others, b):g}°")
            _draw_losses(row[1], b)
        rows[-1, 1].set_xlabel("angle of w in degrees")
    return figure


def _draw_problem(ax: "Axes", others: float, b: float) -> None:
    """Points, the optimal weight, and where its unit is active."""
    points, positive = problem(others)
    weight = direction(optimum(others, b))
    across, up = np.meshgrid(np.linspace(-1.5, 1.5, 121), np.linspace(-0.4, 1.6, 81))
    grid = np.stack([across.ravel(), up.ravel()], -1)
    active = response(grid + 1e-9, weight[None], b).reshape(across.shape).clip(0)
    ax.contourf(across, up, active, levels=8, cmap="Reds", alpha=0.7)
    for chosen, colour in ((positive, "tab:red"), (~positive, "0.45")):
        ax.scatter(points[chosen, 0], points[chosen, 1], s=5, color=colour, edgecolors="white", linewidths=0.2)
    ax.annotate("", xy=tuple(weight), xytext=(0, 0), arrowprops={"arrowstyle": "->", "lw": 1.5})
    ax.set(xticks=[], yticks=[], aspect="equal", xlim=(-1.5, 1.5), ylim=(-0.4, 1.6))


def _draw_losses(ax: "Axes", b: float) -> None:
    for others, name, line in zip(OTHERS, "AB", ("-", "--"), strict=True):
        values = losses(*problem(others), b)
        ax.plot(ANGLES, values, line, color="black", lw=1, label=name)
        ax.plot(ANGLES[values.argmin()], values.min(), "o", ms=4, color="tab:red")
    ax.axvline(CLUSTER, color="tab:red", lw=0.6, alpha=0.6)
    ax.set(title="loss (BCE)", xticks=[0, 45, 90, 135, 180])
    ax.legend(title="problem")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The figure to write.")
def main(out: Path) -> None:
    """Draw Figure 2 of the B-cos paper."""
    response_window_figure().savefig(out, dpi=150)
    for b in POWERS:
        click.echo(f"B = {b:g}: optimal weight at {optimum(OTHERS[0], b):g}° and {optimum(OTHERS[1], b):g}°")


if __name__ == "__main__":
    main()
