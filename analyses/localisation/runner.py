"""All mosaics, a few at a time: maps, scores, and a file that an interrupted run goes on from."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import find_method
from scs_eval.analyses.core.batching import map_with_backoff
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import as_examples
from scs_eval.analyses.core.labelled_images import ImageSet, LabelledImages
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import broadcast_from_main
from scs_eval.analyses.core.validation import check_answer, check_images, check_labels, check_request
from scs_eval.analyses.localisation.explainer import Explainer, check_model, options_of
from scs_eval.analyses.localisation.mosaics import Mosaics, compose, count_misclassified, positions_of
from scs_eval.analyses.localisation.options import BCOS_V2, LocalisationOptions
from scs_eval.analyses.localisation.result import LocalisationResult
from scs_eval.analyses.localisation.score import Scorer, ceiling, default_smooth, smoothed
from scs_eval.errors import InputError
from scs_eval.images import Images
from scs_eval.models.layers import BcosConv2d, BcosLinear
from scs_eval.progress import Progress

SHOWN = 3  # mosaics whose maps are kept
SAVE_SECONDS = 5.0

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalisationRun:
    """One model by one method, everything checked and ready: `result` does the work.

    positions: (G, n²) where the mosaics' images stand in the data.
    """

    model: nn.Module
    data: LabelledImages
    mosaics: Mosaics
    options: LocalisationOptions
    label: str
    positions: Tensor
    explainer: Explainer
    scorer: Scorer

    @classmethod
    def prepare(
        cls, model: nn.Module, data: LabelledImages, mosaics: Mosaics, options: LocalisationOptions, *, method: str,
        label: str, seed: int,
    ) -> "LocalisationRun":  # fmt: skip
        """Raise whatever is wrong with the request before any mosaic is explained."""
        check_request(label=label, seed=seed)
        size = check_data(data, method)
        check_answer(model, data.images, classes=len(data.classes))
        positions = positions_of(mosaics, data.indices)
        scorer = _scorer(options, method, size=size, side=mosaics.side)
        map_options = options_of(method, options, size=size, seed=seed)
        broadcast_from_main(
            lambda: check_model(model, data.images[:1], data.labels[:1], method=method, options=map_options)
        )
        first = compose(data.images, positions[:1], side=mosaics.side)
        explainer = Explainer.of(
            model, first, options, map_options, method=method, classes=len(data.classes), size=size, side=mosaics.side
        )
        return cls(
            model=model, data=data, mosaics=mosaics, options=options, label=label, positions=positions,
            explainer=explainer, scorer=scorer,
        )  # fmt: skip

    @property
    def settings(self) -> dict[str, Any]:
        """What the scores depend on besides model and mosaics."""
        return {
            **as_examples(self.data).settings, "device": str(device_of(self.model)),
            "seed": self.explainer.options.seed,
            "protocol": self.options.protocol, "channels": self.explainer.channels,
            "setting": self.options.setting, "look": str(self.explainer.view), "smooth": self.scorer.smooth,
            "top": self.options.top, "method": self.explainer.method.name, "side": self.mosaics.side,
            "square": self.explainer.options.square,
        }  # fmt: skip

    def result(self, predictions: Tensor | None) -> LocalisationResult:
        """Explain and score every mosaic."""
        arrays = self.run()
        options, mosaics, scorer, images = self.options, self.mosaics, self.scorer, self.data.images
        return LocalisationResult(
            label=self.label,
            settings=self.settings,
            model=self.label,
            method=self.explainer.method.name,
            setting=options.setting,
            protocol=options.protocol,
            seen=str(self.explainer.view),
            side=mosaics.side,
            smooth=scorer.smooth,
            square=self.explainer.options.square,
            classes=tuple(self.data.classes),
            indices=mosaics.indices,
            targets=mosaics.targets,
            scores=arrays["scores"],
            ceiling=ceiling(size=images.shape[2], side=mosaics.side, smooth=scorer.smooth).numpy(),
            top=scorer.top,
            top_counts=np.array(scorer.counts, dtype=np.int64),
            top_scores=arrays["top_scores"],
            images=compose(images, self.positions[:SHOWN], side=mosaics.side).cpu().numpy().astype(np.float32),
            maps=arrays["maps"].astype(np.float32),
            asked=mosaics.requested,
            pool=mosaics.pool,
            usable=mosaics.usable,
            correct=None if predictions is None else _count_correct(predictions, self.data),
            wrong=None if predictions is None else count_misclassified(mosaics, self.data, predictions),
            b=_b_of(self.model),
            seconds=float(arrays["seconds"]) / len(mosaics),
        )

    def run(self) -> Arrays:
        """Scores of all mosaics, the first few's smoothed maps, and the seconds it took."""
        checkpoint, progress = self.options.checkpoint, self.options.progress
        store = None if checkpoint is None else Checkpoint(checkpoint, self._key())
        state = RunState(store, store.load() if store else {})
        _tell_resumed(progress, state.count)
        start, batch_size = state.count, self._batch_size()

        def work(part: slice) -> Arrays:
            return self.score(slice(part.start + start, part.stop + start))

        try:
            state.clock = time.perf_counter()
            for part, arrays in map_with_backoff(len(self.positions) - start, batch_size, work):
                state.add(arrays)
                if progress is not None:
                    progress(part.stop - part.start)
        finally:
            state.save()
        return state.arrays

    def score(self, part: slice) -> Arrays:
        """The scores of some mosaics, and of the first few the maps."""
        mosaics = compose(self.data.images, self.positions[part], side=self.mosaics.side)
        maps = self.explainer.maps(mosaics, torch.from_numpy(self.mosaics.targets)[part]).cpu()
        scores, top_scores = self.scorer(maps)
        shown = smoothed(maps[: max(0, SHOWN - part.start)].double(), self.scorer.smooth)
        return {"scores": scores.numpy(), "top_scores": top_scores.double().numpy(), "maps": shown.numpy()}

    def _key(self) -> str:
        """What a checkpoint must be of."""
        which = torch.tensor(self.mosaics.indices), torch.tensor(self.mosaics.targets)
        return fingerprint(self.model, (self.data.images, *which), sorted(self.settings.items()))

    def _batch_size(self) -> int:
        if self.options.batch_size is not None:
            return self.options.batch_size
        mosaic, cells = compose(self.data.images, self.positions[:1], side=self.mosaics.side), self.mosaics.side**2
        return broadcast_from_main(lambda: self.explainer.batch_size(mosaic, cells=cells))


@dataclass
class RunState:
    """What a run has so far, saved every few seconds."""

    store: Checkpoint | None
    arrays: Arrays
    clock: float = field(default_factory=time.perf_counter)
    saved: float = field(default_factory=time.monotonic)

    @property
    def count(self) -> int:
        """Mosaics that are done."""
        return len(self.arrays.get("scores", ()))

    @property
    def seconds(self) -> float:
        """What they took."""
        return float(self.arrays.get("seconds", 0.0))

    def add(self, new: Mapping[str, np.ndarray]) -> None:
        """Append the arrays of more mosaics."""
        now = time.perf_counter()
        seconds, self.clock = self.seconds + now - self.clock, now
        old = self.arrays
        joined = {key: np.concatenate([old[key], new[key]]) if key in old else new[key] for key in new}
        self.arrays = {**joined, "seconds": np.array(seconds)}
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what there is, if it is to be kept."""
        if self.store and self.arrays:
            self.store.save(self.arrays)
            self.saved = time.monotonic()


def as_image_set(model: nn.Module, images: Any, labels: Any = None) -> ImageSet:
    """Whatever an analysis takes as its images, with the names of the classes, or the numbers of the model's logits."""
    given = as_examples(images, labels)
    check_images(given.images)
    return ImageSet(
        given.images, given.labels, given.class_names(model), given.indices, source=given.settings.get("data"),
        seed=given.settings.get("data_seed"),
    )  # fmt: skip


def image_logits(model: nn.Module, images: Images, *, classes: int, progress: Progress | None = None) -> Tensor:
    """The model's logits (N, classes) for single images: what mosaics are chosen by."""
    check_images(images)
    with evaluating(model):
        return predict_logits(model, images, classes=classes, batch_size=BATCH, progress=progress).float()


def check_data(data: LabelledImages, method: str) -> int:
    """The side of the images, if the request makes sense."""
    find_method(method)
    check_images(data.images)
    check_labels(data.labels, images=data.images, classes=data.classes)
    height, width = data.images.shape[2:]
    if height != width:
        raise InputError(f"expected square images, got {height}×{width}")
    return height


def _scorer(options: LocalisationOptions, method: str, *, size: int, side: int) -> Scorer:
    """Coarse maps are not smoothed (as in the paper), nor where cells are disconnected: nothing crosses their edges."""
    plain = find_method(method).resolution == "coarse" or options.setting != "grid"
    smooth = options.smooth or (1 if plain else default_smooth(size))
    return Scorer.of(side=side, size=size, smooth=smooth, top=options.top, published=options.protocol == BCOS_V2)


def _tell_resumed(progress: Progress | None, count: int) -> None:
    """What an interrupted run had done; a plain callable hears of it as of any other mosaics."""
    if callable(resume := getattr(progress, "resume", None)):
        resume(count)
    elif progress is not None:
        progress(count)


def _count_correct(predictions: Tensor, data: LabelledImages) -> tuple[int, int]:
    """How many single images the model has right, and of how many."""
    return int((predictions.cpu() == data.labels.cpu()).sum()), len(data.labels)


def _b_of(model: nn.Module) -> float | None:
    """The exponent of a B-cos network, if all its layers have the same."""
    exponents = {float(module.b) for module in model.modules() if isinstance(module, BcosConv2d | BcosLinear)}
    return exponents.pop() if len(exponents) == 1 else None
