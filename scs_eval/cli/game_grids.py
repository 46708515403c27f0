"""Which grids the models of `scs-eval localisation` play: replayed, the same for all, or each its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from scs_eval.analyses.game_grids import Grids
    from scs_eval.data import ImageData

GRIDS, SIDE = 500, 3
BCOS_V2 = "bcos-v2"


def choose(
    logits: "Mapping[str, Tensor]",
    pictures: "Mapping[str, ImageData]",
    *,
    replay: Path | None,
    own: bool,
    protocol: str,
    side: int | None,
    count: int | None,
    seed: int,
) -> "dict[str, Grids]":
    """The grids of each model: replayed, the same for all, or each its own. A side that the list has not raises."""
    from scs_eval.analyses.game_grids import choose_grids, published_grids, read_grids

    def grids_of(name: str) -> "Grids":
        found = pictures[name]
        if replay is not None:
            listed = read_grids(replay, found.labels, found.indices, classes=found.classes, model=name, count=count)
            if side not in (None, listed.side):
                raise InputError(f"expected --grid {listed.side}, as in {replay}, or none, got {side}")
            return listed
        size: dict[str, int] = {"side": side or SIDE, "count": count or GRIDS}
        if protocol == BCOS_V2:
            return published_grids(logits[name], found.labels, found.indices, **size)
        judges = [logits[name]] if own else list(logits.values())
        return choose_grids(judges, found.labels, found.indices, **size, seed=seed)

    return {name: grids_of(name) for name in logits}


def warn(
    grids: "Mapping[str, Grids]",
    wrong: Mapping[str, int],
    published: Sequence[str],
    *,
    replay: Path | None,
    each: bool,
) -> None:
    """Say on stderr what one might not expect of the grids, and which of the `published` methods are not theirs."""
    from scs_eval.analyses.many_classes import PUBLISHED

    lines = []
    for name, found in grids.items():
        if len(found) < found.asked:
            why = "the images ran out" if replay is None else f"there are no more in {replay}"
            whose = f" of {name}" if each and replay is None else ""
            lines.append(f"Only {len(found)} of {found.asked} grids{whose}: {why}")
        if wrong[name]:
            of = found.indices.size
            lines.append(f"Warning: {name} has {wrong[name]} of the grids' {of} images wrong; they are scored as well")
    if others := [method for method in published if method not in PUBLISHED]:
        theirs = ", ".join(PUBLISHED)
        lines.append(f"Warning: maps by {', '.join(others)} are ours; bcos-v2 is the published code's for {theirs}")
    for line in dict.fromkeys(lines):
        click.echo(line, err=True)


def count_wrong(logits: "Tensor", pictures: "ImageData", grids: "Grids") -> int:
    """How many of the grids' images the model has wrong: none, unless the grids were chosen elsewhere."""
    from scs_eval.analyses.game_grids import places_of

    places = places_of(grids, pictures.indices)
    return int((logits.argmax(1) != pictures.labels)[places].sum())
