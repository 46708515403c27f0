"""Which images make which mosaic.

Source: B-cos v2, C.2.1: images sorted by confidence for each class, a random set of classes for each mosaic, of each
class the most confident image that has not been used. Then the first mosaics are the easiest, and a score depends on
how many are played; here images are a random sample, unless the published order is asked for. An image must be right
for every model that is compared.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.core.labelled_images import LabelledImages
from scs_eval.analyses.core.validation import check_labels
from scs_eval.analyses.localisation.mosaics import Mosaics, read_mosaics
from scs_eval.analyses.localisation.options import BCOS_V2, COUNT, SIDE, MosaicOptions, Order
from scs_eval.errors import InputError

PUBLISHED_SEED = 42


def mosaics_of(
    logits: Mapping[str, Tensor], data: Mapping[str, LabelledImages], options: MosaicOptions, *, seed: int = 0
) -> dict[str, Mosaics]:
    """The mosaics of each model from its logits (N, classes) for the single images; `select_mosaics` asks the models.

    A side that a replayed list has not raises.
    """
    return {name: _mosaics_of_model(name, logits, data[name], options, seed=seed) for name in logits}


def _mosaics_of_model(
    name: str, logits: Mapping[str, Tensor], data: LabelledImages, options: MosaicOptions, *, seed: int
) -> Mosaics:
    check_labels(data.labels, images=data.images, classes=data.classes)
    if options.replay is not None:
        return _replayed(data, options, model=name)
    size: dict[str, int] = {"side": options.side or SIDE, "count": options.count or COUNT}
    if options.protocol == BCOS_V2:
        return published_mosaics(logits[name], data.labels, data.indices, **size)
    judges = [logits[name]] if options.own else list(logits.values())
    return choose_mosaics(judges, data.labels, data.indices, **size, order=options.order, seed=seed)


def _replayed(data: LabelledImages, options: MosaicOptions, *, model: str) -> Mosaics:
    assert options.replay is not None
    listed = read_mosaics(options.replay, data, model=model, count=options.count)
    if options.side not in (None, listed.side):
        raise InputError(f"expected --grid {listed.side}, as in {options.replay}, or none, got {options.side}")
    return listed


def choose_mosaics(
    logits: Sequence[Tensor],
    labels: Tensor,
    indices: Tensor,
    *,
    side: int = SIDE,
    count: int = COUNT,
    order: Order = "random",
    seed: int = 0,
) -> Mosaics:
    """Mosaics of images that all models have right, drawn at random or the most confident first, no image twice.

    logits: (N, classes) of each model; labels, indices: (N,). Models are confident on different scales, so that order
    within a class is by the mean of an image's ranks. Fewer than `count` if the images run out.

    >>> import scs_eval
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=60)
    >>> mosaics = scs_eval.choose_grids([model(data.images).detach()], data.labels, data.indices, side=2, count=3)
    >>> mosaics.indices.shape
    (3, 4)
    """
    MosaicOptions(side=side, count=count)  # which refuses other sizes
    usable = torch.stack([model_logits.argmax(1) == labels for model_logits in logits]).all(0)
    queues, random = _queues(logits, labels, usable), np.random.default_rng(seed)
    if order == "random":
        queues = {label: random.permutation(queue).tolist() for label, queue in queues.items()}
    cells: list[list[int]] = []
    while len(cells) < count and len(left := [label for label, queue in queues.items() if queue]) >= side**2:
        cells.append([queues[label].pop() for label in random.choice(left, side**2, replace=False)])
    return _mosaics(cells, labels, indices, side=side, requested=count, usable=int(usable.sum()))


def _queues(logits: Sequence[Tensor], labels: Tensor, usable: Tensor) -> dict[int, list[int]]:
    """For each class the positions of its usable images, the most confident last."""
    queues = {}
    for label in labels[usable].unique().tolist():
        here = (usable & (labels == label)).nonzero()[:, 0]
        losses = [-model_logits[here].double().log_softmax(1)[:, label] for model_logits in logits]
        ranks = [loss.argsort(stable=True).argsort() for loss in losses]
        order = torch.stack(ranks).double().mean(0).argsort(stable=True)
        queues[label] = here[order].flip(0).tolist()
    return queues


def published_mosaics(
    logits: Tensor, labels: Tensor, indices: Tensor, *, side: int = SIDE, count: int = COUNT
) -> Mosaics:
    """The mosaics of the B-cos authors' code, its quirks included.

    Its seed is fixed; images count while the sigmoid of their logit is above ½; it stops when no more than n² classes
    have any; one image is skipped after every mosaic, after which a class may come twice and is passed over; cells are
    filled column by column.
    """
    MosaicOptions(side=side, count=count)  # which refuses other sizes
    right = logits.argmax(1) == labels
    order = _published_order(logits.amax(1), labels, right, logits.shape[1], side**2)
    cells = _published_cells(order, labels, side=side, count=count)
    return _mosaics(cells, labels, indices, side=side, requested=count, usable=int(right.sum()))


def _published_cells(order: list[int], labels: Tensor, *, side: int, count: int) -> list[list[int]]:
    """Mosaics as they are filled from that order, as far as it goes."""
    cells: list[list[int]] = []
    start = 0
    while len(cells) < count:
        taken: list[int] = []
        while len(taken) < side**2 and start < len(order):
            if int(labels[order[start]]) not in [int(labels[position]) for position in taken]:
                taken.append(order[start])
            start += 1
        if len(taken) < side**2:
            break  # there the code would die
        cells.append(np.array(taken).reshape(side, side).T.ravel().tolist())
        start += 1
    return cells


def _published_order(best: Tensor, labels: Tensor, right: Tensor, classes: int, cells: int) -> list[int]:
    """Positions of images in blocks of n² classes."""
    queues = []
    for label in range(classes):
        here = (right & (labels == label)).nonzero()[:, 0]
        here = here[best[here].argsort(descending=True, stable=True)]
        queues.append(here[best[here].float().sigmoid() > 0.5].tolist())
    used, random, order = [0] * classes, np.random.RandomState(PUBLISHED_SEED), []
    while len(left := [label for label in range(classes) if used[label] < len(queues[label])]) > cells:
        for label in random.choice(left, cells, replace=False):
            order.append(queues[label][used[label]])
            used[label] += 1
    return order


def _mosaics(
    cells: list[list[int]], labels: Tensor, indices: Tensor, *, side: int, requested: int, usable: int
) -> Mosaics:
    """From positions among the images to their indices; not even one mosaic raises."""
    if not cells:
        raise InputError(
            f"{usable} of {len(labels)} images can be used, too few for one grid of {side**2} different classes; "
            "take more images, fewer models or smaller grids"
        )
    positions = torch.tensor(cells)
    chosen, targets = indices[positions].numpy(), labels[positions].numpy()
    return Mosaics(side=side, indices=chosen, targets=targets, requested=requested, pool=len(labels), usable=usable)


choose_grids = choose_mosaics  # the name that `scs_eval` exports since 0.1
