"""Do explanations survive an attack? Localisation and the likeness of maps on attacked images, as ε grows.

An attack that changes the answer may also move the map. Here every image is attacked at its full ε (no early stop, so
that models are compared at the same distance), the map of its true class is compared with that of the clean image, and
the pointing game is played on grids of attacked images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses import attacked_figures
from scs_eval.analyses.attacks.problem import CHUNK
from scs_eval.analyses.attacks.run import attack
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.analyses.attribution import attribute, find_method
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.map_similarity import spearman, ssim
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.score_table import mean_of
from scs_eval.analyses.shards import share_size, shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.statistics import wilson
from scs_eval.analyses.sweep import check_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = ("localisation", "similarity", "ssim")
AT_ONCE = 256  # images attacked together: a matter of memory, not of the result

Play = Callable[[Tensor], np.ndarray]  # images (n, 3, H, W) -> the score of every grid made of them (G,)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackedResult(Result):
    """What became of the maps of n images, and of G grids made of them, at E values of ε, the first of which is 0.

    eps: (E,). right: (E, n) whether the model is right. localisation: (E, G) the score of each grid; G = 0 without any.
    similarity, ssim: (E, n) Spearman's correlation of the signed maps and SSIM of the drawn ones, with those at ε = 0.
    floor: the score of chance. images: (E, 3, H, W), maps: (E, H, W) the first image and its signed map at each ε.
    """

    name = "attacked"
    method: str
    classes: tuple[str, ...]
    eps: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    right: np.ndarray
    localisation: np.ndarray
    similarity: np.ndarray
    ssim: np.ndarray
    floor: float
    images: np.ndarray
    maps: np.ndarray

    def curve(self, kind: str) -> pd.DataFrame:
        """Mean and 95 % interval of one of CURVES at every ε."""
        return pd.DataFrame(
            [{"eps": eps, **mean_of(row)} for eps, row in zip(self.eps, getattr(self, kind), strict=True)]
        )

    def table(self) -> pd.DataFrame:
        """One row per ε: accuracy on these images, and every curve with its interval."""
        accuracy, low, high = wilson(self.right.sum(1), self.right.shape[1])
        columns: dict[str, Any] = {"model": self.label, "method": self.method, "eps": self.eps}
        columns |= {"n": self.right.shape[1], "accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
        for kind in CURVES:
            curve = self.curve(kind)
            columns |= {kind: curve["mean"], f"{kind}_low": curve["low"], f"{kind}_high": curve["high"]}
        return pd.DataFrame({**columns, "grids": self.localisation.shape[1]})

    def summary(self) -> pd.DataFrame:
        """One row per ε, intervals in brackets."""
        rows = []
        for _, row in self.table().iterrows():
            shown = {
                "model": self.label,
                "ε × 255": f"{255 * row['eps']:.3g}",
                "accuracy %": f"{100 * row['accuracy']:.0f}",
            }
            for kind in CURVES:
                shown[kind] = f"{row[kind]:.3f} [{row[f'{kind}_low']:.3f}, {row[f'{kind}_high']:.3f}]"
            rows.append(shown)
        return pd.DataFrame(rows)

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Localisation and likeness against ε; on given axes localisation alone."""
        return attacked_figures.draw_curves([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, and the first image's map at every ε."""
        return {"figure": self.figure(), **attacked_figures.map_pages([self])}


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackedComparison(Comparison[AttackedResult]):
    """The same for several models, each attacked for itself."""

    name = "attacked"

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """All curves."""
        return attacked_figures.draw_curves(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, and a row of maps for each model."""
        return {"figure": self.figure(), **attacked_figures.map_pages(self.results)}


def attacked_explanations(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str],
    eps: Sequence[float],
    play: Play | None = None,
    floor: float = 0.0,
    method: str = "wx",
    settings: Attack = Attack(),  # noqa: B008 (frozen)
    indices: Tensor | None = None,
    label: str = "model",
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> AttackedResult:
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) at every ε, and explain their labels before and after.

    play: scores grids that are made of these images in their attacked form; without it there is no localisation.
    floor: what chance scores. progress: is told after every ε that one more is done.
    """
    find_method(method)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    radii = np.concatenate([[0.0], [each for each in check_grid(eps) if each > 0]])
    ids = torch.arange(len(images)) if indices is None else indices.cpu()
    rows: list[dict[str, Any]] = []
    clean: Tensor | None = None
    with evaluating(model):
        for draw, radius in enumerate(radii.tolist()):
            moved = _attacked(model, images, labels, radius, settings=settings, seed=seed, ids=ids, draw=draw)
            maps = attribute(model, moved, labels, method=method, seed=seed).cpu()
            clean = maps if clean is None else clean
            rows.append(_row(model, moved, labels, maps, clean, classes=len(classes), play=play))
            if progress is not None:
                progress(1)
    return AttackedResult(
        label=label,
        settings={"device": str(device_of(model)), "seed": seed, "attack": settings.label, "steps": settings.steps},
        method=method,
        classes=tuple(classes),
        eps=radii,
        indices=ids.numpy(),
        labels=labels.long().cpu().numpy(),
        floor=floor,
        **{key: np.stack([row[key] for row in rows]) for key in rows[0]},
    )


def _attacked(model: nn.Module, images: Tensor, labels: Tensor, eps: float, *, ids: Tensor, **options: Any) -> Tensor:
    """The images at the full distance ε."""
    if eps == 0:
        return images

    def attack_some(at: Tensor) -> Tensor:
        return attack(model, images[at], labels[at], eps, ids=ids[at], stop_early=False, **options).images

    size = share_size(len(images), AT_ONCE, multiple=CHUNK)
    return torch.cat(shared_map(attack_some, torch.arange(len(images)).split(size))).to(images.device)


def _row(
    model: nn.Module, moved: Tensor, labels: Tensor, maps: Tensor, clean: Tensor, *, classes: int, play: Play | None
) -> dict[str, np.ndarray]:
    """Everything at one ε."""
    with torch.no_grad():
        answers = torch.cat([logits_of(model, part, classes=classes).argmax(1).cpu() for part in moved.split(250)])
    (now, before), (drawn, was) = ([reduce(each) for each in (maps, clean)] for reduce in (_signed, _picture))
    return {
        "right": (answers == labels.cpu()).numpy(),
        "localisation": np.zeros(0) if play is None else play(moved),
        "similarity": spearman(before, now),
        "ssim": ssim(was, drawn),
        "images": moved[0].cpu().numpy().astype(np.float32),
        "maps": now[0].astype(np.float32),
    }


def _signed(maps: Tensor) -> np.ndarray:
    """(n, H, W) what a pixel says, with its sign."""
    return maps.double().sum(1).numpy()


def _picture(maps: Tensor) -> np.ndarray:
    """(n, H, W) ≥ 0, the largest |value| of the channels."""
    return maps.double().abs().amax(1).numpy()
