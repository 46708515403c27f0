"""Do explanations survive an attack? Localisation and the likeness of maps on attacked images, as ε grows.

An attack that changes the answer may also move the map. Here every image is attacked at its full ε (no early stop, so
that models are compared at the same distance), the map of its true class is compared with that of the clean image, and
the pointing game is played on grids of attacked images.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.sweep import check_eps_values
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.methods import find_method
from scs_eval.analyses.attribution.similarity import spearman, ssim
from scs_eval.analyses.compare.attacked.result import AttackedComparison, AttackedResult
from scs_eval.analyses.core.batching import CHUNK
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import share_size, shared_map
from scs_eval.analyses.core.validation import check_images, check_labels, check_request
from scs_eval.progress import Progress

__all__ = ["AttackedComparison", "AttackedResult", "attacked_explanations"]

AT_ONCE = 256  # images attacked together: a matter of memory, not of the result

Play = Callable[[Tensor], np.ndarray]  # images (n, 3, H, W) -> the score of every grid made of them (G,)


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
    progress: Progress | None = None,
) -> AttackedResult:
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) at every ε, and explain their labels before and after.

    play: scores grids that are made of these images in their attacked form; without it there is no localisation.
    floor: what chance scores. progress: is told after every ε that one more is done.
    """
    check_request(label=label, classes=classes, seed=seed)
    find_method(method)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    radii = np.concatenate([[0.0], [radius for radius in check_eps_values(eps) if radius > 0]])
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
    predictions = predict_logits(model, moved, classes=classes, batch_size=BATCH).argmax(1)
    (now, before), (drawn, was) = ([reduce(values) for values in (maps, clean)] for reduce in (_signed, _picture))
    return {
        "right": (predictions == labels.cpu()).numpy(),
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
