"""How detectors are fitted, trained and tested: no image does two of these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack, parse_attack
from scs_eval.analyses.core.batching import images_at_once, map_images_with_backoff
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.inputs import ArrayLike, Examples, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.outcomes import Batches, Outcomes, in_slices
from scs_eval.analyses.core.validation import (
    check_answer,
    check_images,
    check_labels,
    check_request,
    check_several_classes,
    logits_of,
)
from scs_eval.analyses.detect.gaussians import TiedGaussians
from scs_eval.analyses.detect.options import DetectOptions
from scs_eval.analyses.detect.parts import FIT, TEST, TRAIN, halves, roles
from scs_eval.analyses.detect.regression import fit_logistic
from scs_eval.analyses.detect.result import DetectResult
from scs_eval.analyses.detect.scores import PLAIN, plain_scores, stage_features, stage_scores
from scs_eval.analyses.detect.stages import stages_of
from scs_eval.errors import InputError
from scs_eval.images import Images, take_images
from scs_eval.progress import Progress

FEWEST = 2  # images of a kind in either part, without which it is not measured


def run(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    others: Mapping[str, ImagesLike] | None = None,
    fit: ImagesLike | None = None,
    options: DetectOptions | None = None,
    indices: ArrayLike | None = None,
    label: str = "model",
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> DetectResult:
    """See `scs_eval.detect`."""
    check_request(label=label, seed=seed, checkpoint=checkpoint)
    options, wanted = options or DetectOptions(), dict(others or {})
    if not options.eps and not wanted:
        raise InputError("expected something to tell from clean images: an ε, or other images")
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    names = _checked(model, data)
    known = None if fit is None else as_examples(fit)
    if known is not None and _checked(model, known) != names:
        raise InputError("expected fitting images of the same classes as the others")
    foreign = {name: as_examples(some).images for name, some in wanted.items()}
    for some in foreign.values():
        check_images(some)
    role = roles(data.labels, seed=seed, fitted_elsewhere=known is not None)
    fitting = known or _subset(data, role == FIT)
    state = Outcomes(None, progress)
    if checkpoint is not None:
        seen = (data.images, data.labels, data.indices, fitting.images, fitting.labels, *foreign.values())
        state = Outcomes(Checkpoint(checkpoint, fingerprint(model, seen, (options, seed))), progress)
    with evaluating(model):
        scorer = _Scorer.fitted(model, fitting, options, len(names))
        rest = _subset(data, role != FIT)
        clean = _clean_and_adversarial(scorer, rest, options, seed, state)
        kinds = {
            name: _scored(scorer, some, options, state, f"other {number}")
            for number, (name, some) in enumerate(foreign.items())
        }
    adversarial = {f"ε = {255 * radius:.3g}/255": clean[1 + index] for index, radius in enumerate(options.eps)}
    parts = {name: (values, role[role != FIT]) for name, values in adversarial.items()}
    parts |= {name: (values, halves(values.shape[1], seed=seed)) for name, values in kinds.items()}
    outcomes = [_outcome(clean[0], role[role != FIT], *part) for part in parts.values()]
    return DetectResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "seed": seed, "batch_size": options.batch_size},
        classes=names,
        kinds=tuple(parts),
        stages=scorer.stages,
        attack=options.attack,
        noise=options.noise,
        fitted_on=_source(known, data),
        fitted=len(fitting.labels),
        eps=np.array(options.eps),
        indices=rest.indices.numpy()[role[role != FIT] == TEST],
        known=np.stack([outcome[0] for outcome in outcomes]),
        other=_padded([outcome[1] for outcome in outcomes]),
        weights=np.stack([outcome[2] for outcome in outcomes]),
    )


def steps(n: int, others: Mapping[str, Images], options: DetectOptions, *, fitted_elsewhere: bool) -> int:
    """How many images `detect` scores, adversarial ones included."""
    rest = n if fitted_elsewhere else n - (n + 1) // 2
    return rest * (1 + len(options.eps)) + sum(len(images) for images in others.values())


def _checked(model: nn.Module, data: Examples) -> tuple[str, ...]:
    check_images(data.images)
    names = data.class_names(model)
    check_labels(data.labels, images=data.images, classes=names)
    check_several_classes(names)
    check_answer(model, data.images, classes=len(names))
    return names


def _subset(data: Examples, where: np.ndarray) -> Examples:
    at = torch.from_numpy(np.flatnonzero(where))
    return Examples(
        images=take_images(data.images, at), labels=data.labels[at], classes=data.classes, indices=data.indices[at],
        settings=data.settings,
    )  # fmt: skip


def _source(known: Examples | None, data: Examples) -> str:
    return (
        f"half of the images of {data.settings.get('data', 'the request')}"
        if known is None
        else str(known.settings.get("data", "other images"))
    )


@dataclass(frozen=True, eq=False)
class _Scorer:
    """A model with its stages and the Gaussians that were fitted to them."""

    model: nn.Module
    stages: tuple[str, ...]
    gaussians: list[TiedGaussians]
    noise: float
    classes: int

    @classmethod
    def fitted(cls, model: nn.Module, data: Examples, options: DetectOptions, classes: int) -> "_Scorer":
        stages = options.stages or stages_of(model, data.images[:1])
        batches = map_images_with_backoff(
            lambda batch: stage_features(model, batch, stages, classes=classes),
            data.images,
            size=images_at_once(data.images, options.batch_size),
        )
        columns = [torch.cat(part) for part in zip(*(outputs for _, outputs in batches), strict=True)]
        gaussians = [TiedGaussians.fit(column, data.labels.cpu()) for column in columns]
        return cls(model, stages, gaussians, options.noise, classes)

    def scores(self, images: Tensor) -> np.ndarray:
        """(3 + stages, n) of every detector."""
        model, noise, classes = self.model, self.noise, self.classes
        plain = plain_scores(model, images, noise=noise, classes=classes)
        staged = stage_scores(model, images, self.stages, self.gaussians, noise=noise, classes=classes)
        return torch.cat([plain, staged]).numpy()


def _scored(scorer: _Scorer, images: Images, options: DetectOptions, state: Outcomes, name: str) -> np.ndarray:
    """(detectors, m) the scores of other images."""
    size = images_at_once(images, options.batch_size)

    def rest(done: int) -> Batches:
        return map_images_with_backoff(scorer.scores, take_images(images, slice(done, None)), size=size)

    state.resume(name)
    return state.run(name, rest)


def _clean_and_adversarial(
    scorer: _Scorer, data: Examples, options: DetectOptions, seed: int, state: Outcomes
) -> np.ndarray:
    """(1 + ε, detectors, n) scores of clean images, then of adversarial ones, NaN where the attack changed nothing."""
    settings = parse_attack(options.attack)

    def work(part: slice) -> np.ndarray:
        images, labels, ids = data.images[part].float().cpu(), data.labels[part].long().cpu(), data.indices[part]
        with torch.no_grad():
            right = (logits_of(scorer.model, images, classes=scorer.classes).argmax(1).cpu() == labels).numpy()
        rows = [scorer.scores(images)]
        for index, radius in enumerate(options.eps):
            rows.append(_adversarial_scores(scorer, settings, images, labels, radius, right, seed, ids, index))
        return np.stack(rows)

    size, weight = images_at_once(data.images, options.batch_size), 1 + len(options.eps)
    state.resume("clean", weight=weight)
    return state.run("clean", in_slices(len(data.labels), size, work), weight=weight)


def _adversarial_scores(
    scorer: _Scorer, settings: Attack, images: Tensor, labels: Tensor, radius: float, right: np.ndarray, seed: int,
    ids: Tensor, index: int,
) -> np.ndarray:  # fmt: skip
    moved = attack(scorer.model, images, labels, radius, settings=settings, seed=seed, ids=ids, draw=index)
    fooled = right & moved.is_adversarial.numpy()
    return np.where(fooled, scorer.scores(moved.images), np.nan)


def _outcome(
    clean: np.ndarray, clean_role: np.ndarray, other: np.ndarray, other_role: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of the tested clean and other images by the result's detectors, and the regression's weights (stages,)."""
    there = ~np.isnan(other[0])
    train, test = other[:, there & (other_role == TRAIN)], np.where(there, other, np.nan)[:, other_role == TEST]
    plain = len(PLAIN)
    if train.shape[1] < FEWEST or (~np.isnan(test[0])).sum() < FEWEST:
        weights, test = np.full(len(clean) - plain, np.nan), np.full_like(test, np.nan)
        joined = [np.full(part.shape[1], np.nan) for part in (clean[:, clean_role == TEST], test)]
    else:
        weights, intercept = fit_logistic(clean[plain:, clean_role == TRAIN].T, train[plain:].T)
        joined = [weights @ part[plain:] + intercept for part in (clean[:, clean_role == TEST], test)]
    tested = [clean[:, clean_role == TEST], test]
    rows = [np.concatenate([part[:plain], part[-1:], line[None]]) for part, line in zip(tested, joined, strict=True)]
    return rows[0], rows[1], weights


def _padded(parts: list[np.ndarray]) -> np.ndarray:
    """Arrays (detectors, m) of any m as one, NaN behind the last."""
    longest = max(part.shape[1] for part in parts)
    return np.stack([np.pad(part, ((0, 0), (0, longest - part.shape[1])), constant_values=np.nan) for part in parts])
