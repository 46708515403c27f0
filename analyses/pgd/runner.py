"""The sweep, what is kept of it, and the scorecard after it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.eps_search import EpsSearchResult
from scs_eval.analyses.attacks.own_attacks import AttackLike, as_attacks
from scs_eval.analyses.attacks.sweep import Sweep, check_eps_values, sweep
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_request
from scs_eval.analyses.pgd.examples import choose_pictures, explain_attacked
from scs_eval.analyses.pgd.options import PgdOptions
from scs_eval.analyses.pgd.quantisation import min_eps_rounded
from scs_eval.analyses.pgd.result import PgdResult
from scs_eval.analyses.scorecard import STEPS, Scorecard, find_preset
from scs_eval.analyses.scorecard import scorecard as make_scorecard
from scs_eval.errors import InputError
from scs_eval.images import Images, take_images
from scs_eval.progress import Advance, Progress

CARD_COST = {"fast": 3.5, "full": 30.0}  # of a scorecard, in sweeps of its images: measured; estimated by its queries


def count_steps(images: int, preset: str | None) -> int:
    """What the progress of a sweep and its scorecard is counted in: images of the sweep."""
    return images + STEPS * check_cost(images, preset)


def check_cost(images: int, preset: str | None) -> int:
    """What one of the scorecard's parts costs, in images of the sweep; 0 without a scorecard."""
    if preset is None:
        return 0
    few = min(images, find_preset(preset).images or images)
    return max(1, round(few * CARD_COST[preset] / STEPS))


def run(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None,
    options: PgdOptions,
    *,
    eps: Sequence[float],
    attacks: Sequence[AttackLike],
    classes: Sequence[str] | None,
    label: str,
    seed: int,
) -> PgdResult:
    """What `pgd` gives."""
    radii, chosen = check_eps(eps), as_attacks(attacks)
    check_request(label=label, seed=seed)
    network, data = as_model(model), as_examples(images, labels, classes=classes)
    check_images(data.images)
    names = data.class_names(network)
    if len(names) < 2:
        raise InputError(f"expected at least two classes, got {len(names)}; one class cannot be wrong")
    check_labels(data.labels, images=data.images, classes=names)
    pictures = data.images.float().cpu() if isinstance(data.images, Tensor) else data.images
    truth, ids = data.labels.long().cpu(), data.indices
    with evaluating(network):
        predictions = predict_logits(network, pictures, classes=len(names)).argmax(1)
        swept = sweep(
            network, pictures, truth, radii.tolist(), attacks=chosen, seed=seed, ids=ids,
            batch_size=options.batch_size, independent=options.independent, progress=options.progress,
            checkpoint=None if options.checkpoint is None else Path(options.checkpoint),
            checkpoint_every=options.checkpoint_every,
            summarise=partial(_summarise, network, truth, radii, chosen[0].norm, len(names)),
            keep=partial(_wanted, truth, options.shown, options.kept),
        )  # fmt: skip
        outcomes = _outcomes(network, pictures, truth, swept, predictions, shown=options.shown, kept=options.kept)
    known = {"seed": seed, "batch_size": options.batch_size, "shown": options.shown}
    result = PgdResult(
        label=label,
        settings={
            **data.settings,
            "device": str(device_of(network)),
            **known,
            "attacks": tuple(asdict(settings) for settings in chosen),
        },
        attacks=tuple(dict.fromkeys(settings.label for settings in chosen)),
        independent=options.independent,
        classes=names,
        indices=ids.numpy(),
        **outcomes,
    )
    if options.scorecard is None:
        return result
    twin_name, twin = options.twin or ("the twin", None)
    card = _scorecard(
        network, pictures, truth, result, chosen, preset=options.scorecard, twin=twin, twin_name=twin_name, seed=seed,
        batch_size=options.batch_size,
        progress=_card_progress(options.progress, check_cost(len(pictures), options.scorecard)),
    )  # fmt: skip
    return replace(result, scorecard=card)


def _card_progress(progress: Progress | None, cost: int) -> Progress | None:
    """What the scorecard tells of its parts, in images of the sweep."""
    if progress is None:
        return None
    if isinstance(progress, Advance):
        progress(0, "scorecard")
    return lambda count: progress(count * cost)


def _summarise(
    model: nn.Module,
    labels: Tensor,
    eps: Tensor,
    norm: str,
    classes: int,
    at: Tensor,
    clean: Tensor,
    searched: EpsSearchResult,
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
    maps = explain_attacked(model, clean, adversarial, before=predictions[chosen], after=attacked[chosen])
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
        model, take_images(images, few), labels[few], eps=result.middle, attacks=attacks, preset=preset,
        label=result.label, reported=torch.from_numpy(~result.right_at(result.middle))[few],
        indices=torch.from_numpy(result.indices)[few],
        afresh=afresh, **options,
    )  # fmt: skip


def check_eps(eps: Sequence[float]) -> Tensor:
    """The values above 0 as (E,) float64, if they rise."""
    values = torch.from_numpy(check_eps_values(eps))
    if not (values > 0).any():
        raise InputError("expected eps with at least one ε above 0, got 0 alone; try 0.001:0.03")
    return values[values > 0]  # ε = 0 is clean accuracy, which every curve starts with
