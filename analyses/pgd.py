"""How small a change of the image makes the model wrong, and is that to be believed?

One sweep finds for every image the smallest ε that breaks it; accuracy against ε (Figures 5, 6, 15 and 16 of the SCS
paper), areas and medians follow from it. The scorecard beside the curve says whether the robustness is real.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from scs_eval.analyses.answers import logits_in_chunks
from scs_eval.analyses.attacked_pictures import choose_pictures, explain
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.analyses.eight_bits import critical_rounded
from scs_eval.analyses.inputs import check_images, check_labels
from scs_eval.analyses.robustness import PgdComparison, PgdResult
from scs_eval.analyses.scorecard import find_preset, scorecard
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.sweep import check_grid, sweep
from scs_eval.errors import InputError

__all__ = ["PgdComparison", "PgdResult", "check_eps", "pgd"]


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: Sequence[float],
    classes: Sequence[str],
    attacks: Sequence[Attack] = (Attack(),),
    independent: bool = False,
    diagnose: str | None = "fast",
    twin: nn.Module | None = None,
    twin_name: str = "the twin",
    indices: Tensor | None = None,
    label: str = "model",
    shown: int = 6,
    seed: int = 0,
    batch_size: int = 512,
    progress: Callable[[int], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1,
) -> PgdResult:
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) at every ε, on the device that the model is on.

    attacks: an image counts as broken if one of them breaks it. independent: attack every ε afresh. diagnose: the
    scorecard's preset (fast, full), None for none; twin: the convolution network for its transfer attack.
    indices: where the images came from. checkpoint: a file from which an interrupted sweep goes on, written after
    every `checkpoint_every` batches.
    """
    radii = check_eps(eps)
    check_images(images)
    if len(classes) < 2:
        raise InputError(f"expected at least two classes, got {len(classes)}; one class cannot be wrong")
    check_labels(labels, images=images, classes=classes)
    preset = None if diagnose is None else find_preset(diagnose)
    images, labels = images.float().cpu(), labels.long().cpu()
    indices = torch.arange(len(images)) if indices is None else indices.cpu()
    with evaluating(model):
        predictions = logits_in_chunks(model, images, classes=len(classes)).argmax(1)
        swept = sweep(
            model, images, labels, radii.tolist(), attacks=attacks, seed=seed, ids=indices, batch_size=batch_size,
            independent=independent, progress=progress, checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )  # fmt: skip
        critical, adversarial = torch.as_tensor(swept.critical), swept.images
        rounded = critical_rounded(
            model, images, labels, adversarial, critical=critical, eps=radii, norm=attacks[0].norm,
            classes=len(classes),
        )  # fmt: skip
        attacked = logits_in_chunks(model, adversarial, classes=len(classes)).argmax(1)
        chosen = choose_pictures(critical, labels, most=shown)
        pictures = explain(
            model, images[chosen], adversarial[chosen], before=predictions[chosen], after=attacked[chosen]
        )
    result = PgdResult(
        label=label,
        settings={
            "device": str(device_of(model)),
            "seed": seed,
            "batch_size": batch_size,
            "shown": shown,
            "attacks": tuple(asdict(each) for each in attacks),
        },
        norm=attacks[0].norm,
        attacks=tuple(dict.fromkeys(each.label for each in attacks)),
        independent=independent,
        classes=tuple(classes),
        eps=radii.numpy(),
        indices=indices.numpy(),
        labels=labels.numpy(),
        predictions=predictions.numpy(),
        attacked_predictions=attacked.numpy(),
        critical=critical.numpy(),
        critical_8bit=rounded.numpy(),
        broken=swept.broken.T,
        pictures=chosen.numpy(),
        images=images[chosen].numpy(),
        adversarial=adversarial[chosen].numpy(),
        **pictures,
    )
    if preset is None or diagnose is None:
        return result
    few = slice(0, preset.images or None)
    card = scorecard(
        model, images[few], labels[few], eps=result.middle, attacks=attacks, twin=twin, twin_name=twin_name,
        reported=torch.from_numpy(~result.right_at(result.middle))[few], preset=diagnose, seed=seed,
        ids=indices[few], label=label,
        batch_size=batch_size, afresh=(radii.tolist(), torch.tensor(result.broken[:, few])) if independent else None,
    )  # fmt: skip
    return replace(
        result, card_eps=card.eps, card_checks=card.checks, card_attacks=card.attacks, card_right=card.right,
        card_reported=card.reported, card_broken=card.broken,
    )  # fmt: skip


def check_eps(eps: Sequence[float]) -> Tensor:
    """The values above 0 as (E,) float64, if the grid is one."""
    values = torch.from_numpy(check_grid(eps))
    if not (values > 0).any():
        raise InputError("expected at least one ε above 0, got 0 alone; try 0.001:0.03")
    return values[values > 0]  # ε = 0 is clean accuracy, which every curve starts with
