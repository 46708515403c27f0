"""All grids of a game, a few at a time: maps, scores, and a file that an interrupted game goes on from."""

import time
from collections.abc import Callable

import numpy as np
from torch import Tensor

from scs_eval.analyses.batching import in_halves
from scs_eval.analyses.game_grids import compose
from scs_eval.analyses.partial import Partial
from scs_eval.analyses.pointing import smoothed

SHOWN = 3  # grids whose maps are kept
SAVE_SECONDS = 5.0


def play(
    maps_of: Callable[[Tensor, Tensor], Tensor],
    score: Callable[[Tensor], tuple[Tensor, Tensor]],
    images: Tensor,
    places: Tensor,
    targets: Tensor,
    *,
    side: int,
    smooth: int,
    batch_size: int,
    store: Partial | None,
    progress: Callable[[int], None] | None,
    resumed: Callable[[int, float], None] | None,
) -> dict[str, np.ndarray]:
    """Scores of all grids, and the first few's smoothed maps; goes on where the store ends and keeps it up to date."""
    advance = progress or (lambda _: None)
    done = store.load() if store else {}
    count = len(done.get("scores", ()))
    spent, saved = float(done.get("seconds", 0.0)), time.monotonic()
    if resumed is not None:
        resumed(count, spent)
    else:
        advance(count)

    def work(part: slice) -> dict[str, np.ndarray]:
        here = slice(part.start + count, part.stop + count)
        maps = maps_of(compose(images, places[here], side=side), targets[here]).cpu()
        found, tops = score(maps)
        shown = smoothed(maps[: max(0, SHOWN - here.start)].double(), smooth)
        return {"scores": found.numpy(), "top_scores": tops.double().numpy(), "maps": shown.numpy()}

    try:
        clock = time.perf_counter()
        for part, new in in_halves(len(places) - count, batch_size, work):
            spent, clock = spent + time.perf_counter() - clock, time.perf_counter()
            joined = {key: np.concatenate([done[key], new[key]]) if key in done else new[key] for key in new}
            done = {**joined, "seconds": np.array(spent)}
            advance(part.stop - part.start)
            if store and time.monotonic() - saved > SAVE_SECONDS:
                store.save(done)
                saved = time.monotonic()
    finally:
        if store and done:
            store.save(done)
    return done
