"""How small a change of the image makes the model wrong, and is that to be believed?

One sweep finds for every image the smallest ε that breaks it; accuracy against ε (Figures 5, 6, 15 and 16 of the SCS
paper), areas and medians follow from it. The scorecard beside the curve says whether the robustness is real.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.eps_search import SearchResult
from scs_eval.analyses.attacks.own_attacks import AttackLike, as_attacks
from scs_eval.analyses.attacks.sweep import Sweep, check_grid, sweep
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_names
from scs_eval.analyses.pgd.examples import choose_pictures, explain
from scs_eval.analyses.pgd.quantisation import min_eps_rounded
from scs_eval.analyses.pgd.result import PgdComparison, PgdResult
from scs_eval.analyses.scorecard import Scorecard, find_preset
from scs_eval.analyses.scorecard import scorecard as make_scorecard
from scs_eval.errors import InputError
from scs_eval.images import Images
from scs_eval.progress import Progress

__all__ = ["PgdComparison", "PgdResult", "check_eps", "pgd"]


def pgd(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    eps: Sequence[float],
    classes: Sequence[str] | None = None,
    attacks: Sequence[AttackLike] = ("pgd",),
    independent: bool = False,
    scorecard: str | None = "fast",
    twin: nn.Module | None = None,
    twin_name: str = "the twin",
    indices: ArrayLike | None = None,
    label: str = "model",
    shown: int = 6,
    kept: int = 0,
    seed: int = 0,
    batch_size: int = 512,
    progress: Progress | None = None,
    scorecard_progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1,
) -> PgdResult:
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) at every ε, on the device that the model is on.

    images: arrays, or data that bring labels, classes and indices; they are read when they are attacked, and of the
    adversarial images only those that are `shown` or `kept` stay.
    attacks: names as of `--attack`, `Attack`s, or functions of (model, images, labels, eps) as `register_attack` takes
    them; an image counts as wrong if one of them fools the model. independent: attack every ε afresh.
    scorecard: its preset (fast, full), None for none; twin: the convolution network for its transfer attack.
    indices: where the images came from. shown: how many images the figure shows. kept: of how many images, from the
    first, the result keeps what the attack added. checkpoint: a file from which an interrupted sweep goes on, written
    after every `checkpoint_every` batches. progress: is told how many more images are decided; scorecard_progress: of
    each of the scorecard's STEPS parts.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> result = scs_eval.pgd(scs_eval.load_model("rohrer25k_scs"), data, eps=[0.01, 0.3], scorecard=None)
    >>> bool(result.is_adversarial[-1].all())
    True
    """
    radii, chosen = check_eps(eps), as_attacks(attacks)
    check_names(label=label)
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    check_images(data.images)
    names = data.class_names(model)
    if len(names) < 2:
        raise InputError(f"expected at least two classes, got {len(names)}; one class cannot be wrong")
    check_labels(data.labels, images=data.images, classes=names)
    if scorecard is not None:
        find_preset(scorecard)
    pictures = data.images.float().cpu() if isinstance(data.images, Tensor) else data.images
    truth, ids = data.labels.long().cpu(), data.indices
    with evaluating(model):
        predictions = predict_logits(model, pictures, classes=len(names)).argmax(1)
        swept = sweep(
            model, pictures, truth, radii.tolist(), attacks=chosen, seed=seed, ids=ids, batch_size=batch_size,
            independent=independent, progress=progress, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
            summarise=partial(_summarise, model, truth, radii, chosen[0].norm, len(names)),
            keep=partial(_wanted, truth, shown, kept),
        )  # fmt: skip
        outcomes = _outcomes(model, pictures, truth, swept, predictions, shown=shown, kept=kept)
    known = {"device": str(device_of(model)), "seed": seed, "batch_size": batch_size, "shown": shown}
    result = PgdResult(
        label=label,
        settings={**data.settings, **known, "attacks": tuple(asdict(settings) for settings in chosen)},
        attacks=tuple(dict.fromkeys(settings.label for settings in chosen)),
        independent=independent,
        classes=names,
        indices=ids.numpy(),
        **outcomes,
    )
    if scorecard is None:
        return result
    card = _scorecard(
        model, pictures, truth, result, chosen, preset=scorecard, twin=twin, twin_name=twin_name, seed=seed,
        batch_size=batch_size, progress=scorecard_progress,
    )  # fmt: skip
    return replace(result, scorecard=card)


def _summarise(
    model: nn.Module,
    labels: Tensor,
    eps: Tensor,
    norm: str,
    classes: int,
    at: Tensor,
    clean: Tensor,
    searched: SearchResult,
) -> dict[str, np.ndarray]:
    """What the model says of a batch's adversarial images, and what rounding to 8 bits leaves of them."""
    attacked = predict_logits(model, searched.images, classes=classes).argmax(1)
    rounded = min_eps_rounded(
        model, clean, labels[at], searched.images, min_eps=torch.from_numpy(searched.min_eps), eps=eps, norm=norm,
        classes=classes,
    )  # fmt: skip
    return {"attacked_predictions": attacked.numpy(), "min_eps_8bit": rounded.numpy()}


def _wanted(labels: Tensor, shown: int, kept: int, min_eps: np.ndarray) -> np.ndarray:
    """Whose adversarial images are needed: those that the figure shows, then the first ones."""
    chosen = choose_pictures(torch.from_numpy(min_eps), labels, most=shown).numpy()
    first = np.arange(min(kept, len(labels)))
    return np.concatenate([chosen, first[~np.isnan(min_eps[first]) & ~np.isin(first, chosen)]])


def _changes(images: Images, swept: Sweep, kept: int) -> np.ndarray | None:
    """What the attack added to the first images; half precision tells changes of a thousandth of a step apart."""
    if kept == 0:
        return None
    first = np.arange(min(kept, len(images)))
    order = {position: row for row, position in enumerate(swept.positions.tolist())}
    adversarial = swept.images[[order[position] for position in first.tolist()]]
    return np.asarray((adversarial - images[torch.from_numpy(first)].cpu()).half().numpy())


def _outcomes(
    model: nn.Module, images: Images, labels: Tensor, swept: Sweep, predictions: Tensor, *, shown: int, kept: int
) -> dict[str, Any]:
    """What the sweep found, image by image, as the result keeps it."""
    chosen = choose_pictures(torch.from_numpy(swept.min_eps), labels, most=shown)
    clean = images[chosen]
    adversarial = swept.images[: len(chosen)] if len(chosen) else clean
    attacked = torch.from_numpy(swept.summaries["attacked_predictions"])
    maps = explain(model, clean, adversarial, before=predictions[chosen], after=attacked[chosen])
    return {
        "norm": swept.attacks[0].norm,
        "eps": swept.eps,
        "labels": labels.numpy(),
        "predictions": predictions.numpy(),
        "min_eps": swept.min_eps,
        "is_adversarial": swept.is_adversarial.T,
        **swept.summaries,
        "pictures": chosen.numpy(),
        "images": clean.numpy(),
        "adversarial": adversarial.numpy(),
        "changes": _changes(images, swept, kept),
        **maps,
    }


def _scorecard(
    model: nn.Module,
    images: Images,
    labels: Tensor,
    result: PgdResult,
    attacks: Sequence[Attack],
    *,
    preset: str,
    **options: Any,
) -> Scorecard:
    """The checks at the ε where accuracy is half the clean one, on as many images as the preset takes."""
    few = slice(0, find_preset(preset).images or None)
    afresh = (result.eps.tolist(), torch.tensor(result.is_adversarial[:, few])) if result.independent else None
    return make_scorecard(
        model, images[few], labels[few], eps=result.middle, attacks=attacks, preset=preset, label=result.label,
        reported=torch.from_numpy(~result.right_at(result.middle))[few], ids=torch.from_numpy(result.indices)[few],
        afresh=afresh, **options,
    )  # fmt: skip


def check_eps(eps: Sequence[float]) -> Tensor:
    """The values above 0 as (E,) float64, if the grid is one."""
    values = torch.from_numpy(check_grid(eps))
    if not (values > 0).any():
        raise InputError("expected at least one ε above 0, got 0 alone; try 0.001:0.03")
    return values[values > 0]  # ε = 0 is clean accuracy, which every curve starts with
