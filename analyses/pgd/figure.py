"""Pictures of robustness: accuracy against ε for many models, and attacked images with their explanations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.image_grid import Grid, PictureColumn, empty_maps
from scs_eval.analyses.plotting.lines import Dash, LineStyles, label_curves, shade
from scs_eval.analyses.plotting.map_columns import COLOURS, unit_scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.pgd.result import PgdResult

NORMS = {"linf": "L∞", "l2": "L2"}


def draw_curves(results: "Sequence[PgdResult]", ax: "Axes | None" = None) -> "Figure":
    """Accuracy against ε with 95 % bands, named at the ends; a diamond is the worst of the scorecard's attacks."""
    with style.drawing(ax, height=3.3 + 0.06 * max(0, len(results) - 4)) as ax:
        styles = LineStyles()
        ends: list[style.End] = []
        dashes: list[Dash] = []
        for result in results:
            tint, _, dash = styles.next_for(result.label)
            _curve(ax, result, tint, dash, alpha=shade(len(results)))
            ends.append((result.eps_and_zero[-1], 100 * float(result.accuracy.estimate[-1]), _name(result), tint))
            dashes.append(dash)
        _axes(ax, results)
        order = np.argsort([result.areas.mean() for result in results], kind="stable")  # of equal ends, the best on top
        size = 7 if len(results) <= 8 else 6
        label_curves(ax, [ends[i] for i in order], [dashes[i] for i in order], size=size)
        return style.figure_of(ax)


def _curve(ax: "Axes", result: "PgdResult", tint: str, dash: Dash, *, alpha: float) -> None:
    accuracy, low, high = (100 * part for part in result.accuracy)
    ax.fill_between(result.eps_and_zero, low, high, color=tint, alpha=alpha, lw=0)
    ax.plot(result.eps_and_zero, accuracy, ls=dash, color=tint, label=result.label)
    ax.plot(0, accuracy[0], style.look_of(result.label)[1], color=tint, ms=4, clip_on=False, zorder=5)
    if (card := result.scorecard) is not None:
        curve, worst = (100 * float(share.estimate) for share in (card.reported_accuracy, card.robust_accuracy))
        drop = curve - worst  # on the images of the scorecard; shown as a drop from the curve, which is of all
        top = float(np.interp(card.eps, result.eps_and_zero, accuracy))
        ax.plot([card.eps] * 2, [top, top - drop], color=tint, lw=0.7)
        ax.plot(card.eps, top - drop, "D", mfc="white", mec=tint, ms=4, mew=0.9, zorder=6, clip_on=False)


def _name(result: "PgdResult") -> str:
    return result.label if result.scorecard is None else f"{result.label}  {result.scorecard.verdict}"


def _axes(ax: "Axes", results: "Sequence[PgdResult]") -> None:
    first = results[0]
    last = max(result.eps_and_zero[-1] for result in results)
    ax.set(xlim=(0, last), ylim=(0, None))
    ax.set_ylim(0, min(100, ax.get_ylim()[1]))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_xlabel(f"ε ({NORMS[first.norm]}, pixels in [0, 1])")
    ax.set_ylabel("accuracy in %, 95 % band")
    if first.norm == "linf":
        above = ax.secondary_xaxis("top", functions=(lambda x: np.multiply(x, 255), lambda x: np.divide(x, 255)))
        above.set_xlabel("ε × 255")
        above.tick_params(labelsize=style.points(7), width=0.6, length=2.5)
        above.spines["top"].set_visible(True)
    counts = sorted({result.n for result in results})
    attacks = ", ".join(dict.fromkeys(name for result in results for name in result.attacks))
    n = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    title = f"{attacks}; {n} images. Mark at ε = 0: clean."
    if any(result.scorecard for result in results):
        title += " Diamond: worst of all the scorecard's attacks; PASS, WARN, FAIL: its worst check."
    ax.set_title(style.note(title), loc="left", fontsize=style.points(6.5))


def draw_attacked(result: "PgdResult", ax: "Axes | None" = None) -> "Figure":
    """Image, attacked image, perturbation magnified, and the explanation of what the model says before and after."""
    names, shown = np.array(result.classes), result.pictures
    columns = [
        PictureColumn(
            title="image", pictures=_channels_last(result.images), captions=list(names[result.predictions[shown]])
        ),
        PictureColumn(
            title="attacked",
            pictures=_channels_last(result.adversarial),
            captions=[f"→ {name}" for name in names[result.attacked_predictions[shown]]],
        ),
        _perturbations(result),
        *_before_after("gradient", _bright(result.gradients), result.gradients),
    ]
    note = f"{result.label}: why it predicts what it predicts, before and after the attack (r: correlation).\n"
    note += "Gradient: largest |value| of the channels, bright is large."
    if (maps := result.contributions) is not None:
        signed = colour.signed(maps.reshape(-1, *maps.shape[2:])).reshape(*maps.shape, 3)
        columns += _before_after("W(x)⊙x", signed, maps)
        note += " W(x)⊙x: for and against the class."
    note += "\nEach map has its own scale. ε: the smallest given one that fooled it."
    return Grid(columns=columns, note=note).draw(ax)


def _perturbations(result: "PgdResult") -> PictureColumn:
    """Grey where nothing changed; each magnified so that its largest change is clear to see."""
    change = result.adversarial - result.images
    factors = np.array([_magnification(size) for size in np.abs(change).max((1, 2, 3))])
    radii = [_eps(value, result.norm) for value in result.min_eps[result.pictures]]
    captions = [f"ε = {radius}, ×{factor:g}" for radius, factor in zip(radii, factors, strict=True)]
    pictures = _channels_last(0.5 + change * factors[:, None, None, None])
    return PictureColumn(title="perturbation,\nmagnified", pictures=pictures, captions=captions)


def _before_after(name: str, pictures: np.ndarray, maps: np.ndarray) -> list[PictureColumn]:
    """Two columns from pictures (k, 2, H, W, 3); how much the maps (k, 2, H, W) have in common."""
    alike = [_correlation(*pair) for pair in maps]
    return [
        PictureColumn(title=f"{name}\nbefore", pictures=pictures[:, 0], empty=empty_maps(maps[:, 0])),
        PictureColumn(title=f"{name}\nafter", pictures=pictures[:, 1], captions=alike, empty=empty_maps(maps[:, 1])),
    ]


def _correlation(before: np.ndarray, after: np.ndarray) -> str:
    """Pearson's, of two maps (H, W); none where one is constant."""
    if before.std() == 0 or after.std() == 0:
        return ""
    return f"r = {style.format_number(np.corrcoef(before.ravel(), after.ravel())[0, 1])}"


def _bright(maps: np.ndarray) -> np.ndarray:
    """Maps (k, 2, H, W) as RGB (k, 2, H, W, 3)."""
    from matplotlib import colormaps

    return np.stack([[colormaps[COLOURS](unit_scaled(single))[..., :3] for single in pair] for pair in maps])


def _magnification(size: float) -> float:
    """A round number that makes the largest change of a pixel about half the range."""
    if size <= 0:
        return 1.0
    wanted = 0.5 / size
    power = 10 ** np.floor(np.log10(wanted))
    return float(max(power * step for step in (1, 2, 5) if power * step <= wanted))


def _eps(value: float, norm: str) -> str:
    return f"{255 * value:.2g}/255" if norm == "linf" else f"{value:.2g}"


def _channels_last(images: np.ndarray) -> np.ndarray:
    return np.moveaxis(images, 1, -1)
