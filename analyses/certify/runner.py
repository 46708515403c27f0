"""Proofs and attacks, image by image, kept as they come."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.certify.found import attack_smoothed, counted_distance
from scs_eval.analyses.certify.options import CertifyOptions
from scs_eval.analyses.certify.result import CertifyResult
from scs_eval.analyses.certify.smoothing import ABSTAIN, certified_radius, votes
from scs_eval.analyses.core.batching import images_at_once, slices
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.outcomes import Outcomes, in_slices
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, check_several_classes
from scs_eval.images import Images
from scs_eval.progress import Progress

BLOCK = 256  # images that are attacked after each other before they are confirmed, fewer of large ones
AT_ONCE = 4  # images after which progress is told and work is kept
PROOF, SEARCH = 0, 1  # what random numbers are for


def run(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    options: CertifyOptions | None = None,
    indices: ArrayLike | None = None,
    label: str = "model",
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> CertifyResult:
    """See `scs_eval.certify`."""
    check_request(label=label, seed=seed, checkpoint=checkpoint)
    options = options or CertifyOptions()
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    check_images(data.images)
    names = data.class_names(model)
    check_labels(data.labels, images=data.images, classes=names)
    check_several_classes(names)
    pictures = data.images.float().cpu() if isinstance(data.images, Tensor) else data.images
    truth, ids = data.labels.long().cpu(), data.indices
    key = fingerprint(model, (pictures, truth, ids), (options, seed))
    state = Outcomes(Checkpoint(checkpoint, key) if checkpoint else None, progress)
    with evaluating(model), torch.no_grad():
        work = _Work(model, pictures, truth, ids, options, seed, len(names))
        proofs = [_prove(work, state, s) for s in range(len(options.sigma))]
        searches = [_search(work, state, s) for s in range(len(options.sigma))] if options.attack else []
    proven = np.stack(proofs)  # (σ, 3, n)
    wrong = (proven[:, 0] != ABSTAIN) & (proven[:, 0] != truth.numpy())
    upper = np.stack(searches)[:, 0] if searches else np.full(wrong.shape, np.inf)
    return CertifyResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "seed": seed},
        classes=names,
        samples=options.samples,
        alpha=options.alpha,
        attacked=options.attack,
        sigma=np.array(options.sigma),
        indices=ids.numpy(),
        labels=truth.numpy(),
        predictions=proven[:, 0].astype(np.int64),
        counts=proven[:, 1].astype(np.int64),
        radius=proven[:, 2],
        distance=np.where(wrong, 0.0, upper),
    )


class _Work:
    """What is done with an image: numbers by which it is known, and random numbers that follow from them alone."""

    def __init__(
        self, model: nn.Module, images: Images, labels: Tensor, ids: Tensor, options: CertifyOptions, seed: int,
        classes: int,
    ) -> None:  # fmt: skip
        self.model, self.images, self.labels, self.ids = model, images, labels, ids
        self.options, self.seed, self.classes = options, seed, classes

    def rng(self, index: int, s: int, purpose: int) -> np.random.Generator:
        """The random numbers of an image at a σ."""
        return np.random.default_rng((self.seed, int(self.ids[index]), s, purpose))

    def prove(self, s: int) -> Callable[[slice], np.ndarray]:
        """Of some images, (3, b): the certified class or ABSTAIN, how often it was counted, and the radius."""
        options, sigma = self.options, self.options.sigma[s]

        def one(index: int) -> tuple[float, float, float]:
            rng = self.rng(index, s, PROOF)
            draw = partial(votes, self.model, self.images[index], sigma=sigma, rng=rng, classes=self.classes)
            guess = int(draw(n=options.guesses).argmax())
            count = int(draw(n=options.samples)[guess])
            radius = certified_radius(count, options.samples, sigma=sigma, alpha=options.alpha)
            return (ABSTAIN if radius is None else guess, count, radius or 0.0)

        return lambda part: np.array([one(index) for index in range(part.start, part.stop)]).T

    def confirm(self, s: int, moved: Tensor, start: int) -> Callable[[slice], np.ndarray]:
        """Of some images, (1, b): the distance at which the smoothed model counts as wrong; moved: from `start` on."""
        options = self.options

        def one(index: int) -> float:
            return counted_distance(
                self.model, self.images[index], int(self.labels[index]), moved[index - start], sigma=options.sigma[s],
                guesses=options.guesses, samples=options.samples, alpha=options.alpha,
                rng=self.rng(index, s, SEARCH), classes=self.classes,
            )  # fmt: skip

        return lambda part: np.array([[one(index) for index in range(part.start, part.stop)]])


def _prove(work: _Work, state: Outcomes, s: int) -> np.ndarray:
    """(3, n) what is proven at one σ."""
    name = f"proof{s}"
    state.resume(name)
    return state.run(name, in_slices(len(work.labels), AT_ONCE, work.prove(s)))


def _search(work: _Work, state: Outcomes, s: int) -> np.ndarray:
    """(1, n) the distances at one σ, some images after the others; no attack is made again for those that are done."""
    name = f"search{s}"
    state.resume(name)
    for block in slices(len(work.labels), images_at_once(work.images, BLOCK)):
        if state.count(name) >= block.stop:
            state.tell(block.stop - block.start)
            continue
        with torch.enable_grad():
            moved = attack_smoothed(
                work.model, work.images[block], work.labels[block], sigma=work.options.sigma[s],
                draws=work.options.draws, seed=work.seed, ids=work.ids[block], progress=state.tell,
            )  # fmt: skip
        state.run(name, in_slices(block.stop, AT_ONCE, work.confirm(s, moved, block.start)))
    return state.values(name)
