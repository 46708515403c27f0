"""Work shared among the processes that torchrun started: each does a part of the batches, and all know the whole.

Every process runs the same program on the same images. Where an analysis goes through batches of images, `shared_map`
gives each process every size-th of them and hands all outcomes to all. The batches are those of a single process, and
whatever is not shared is done by every process alike: so the result is that of a single process, to the bit.
"""

import io
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")
Item = TypeVar("Item")

PATIENCE = timedelta(days=1)  # how long one process may keep the others waiting; torchrun ends all when one fails


class _Team:
    """Whether work is shared now. Not inside a piece of shared work: the other processes do not know of that."""

    on = False


@contextmanager
def sharing() -> Iterator[None]:
    """Share work inside, if torchrun started several processes; inside a second such block too."""
    if _Team.on or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    distributed.init_process_group("gloo", timeout=PATIENCE)  # outcomes travel by way of the CPU
    _Team.on = True
    try:
        yield
    finally:
        _Team.on = False
        distributed.destroy_process_group()


def processes() -> int:
    """Among how many processes work is shared."""
    return distributed.get_world_size() if _Team.on else 1


def is_main_process() -> bool:
    """Whether this process writes files and talks to the user."""
    return not _Team.on or distributed.get_rank() == 0


def barrier() -> None:
    """Until every process is here."""
    if _Team.on:
        distributed.barrier()


def shared_map(
    function: Callable[[Any], T],
    items: Iterable[Item],
    *,
    read: Callable[[list[Item]], Iterable[Any]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[T]:
    """`[function(item) for item in items]`, its work shared; what fails in one process fails in all.

    An item's outcome must not depend on those before it. Tensors that were shared are on the CPU. read: from the items
    of this process, in order, to what the function is given for each, so that it can be read ahead. progress: called
    with how many more items are done, by all processes if they are as fast as this one.
    """
    every = list(items)
    own = own_share(every)
    inputs = own if read is None else read(own)
    if not _Team.on:
        return [value for _, value, _ in _outcomes(function, inputs, len(every), progress)]
    mine, outcomes = _own_part(function, inputs, len(every), progress), []
    for part in _gathered(mine):
        outcomes += part
    values = []
    for _, value, errors in sorted(outcomes, key=lambda outcome: outcome[0]):
        if errors:
            raise _relinked(errors)
        values.append(value)
    return values


def broadcast_from_main(function: Callable[[], T]) -> T:
    """What the function gives in the first process, in all of them: for what depends on a machine, such as files."""
    return shared_map(lambda _: function(), [None])[0]


def share_size(count: int, at_most: int, *, multiple: int = 1) -> int:
    """A batch size of at most `at_most` by which `count` images make a batch for every process, in whole multiples."""
    if not _Team.on:
        return at_most
    share = -(-count // processes())
    return max(1, min(at_most, -(-share // multiple) * multiple))


def own_share(items: Sequence[Item]) -> list[Item]:
    """Every size-th item from this process's rank on: what `shared_map` lets it do."""
    first, step = (distributed.get_rank(), distributed.get_world_size()) if _Team.on else (0, 1)
    return list(items[first::step])


def gather_dicts(own: dict[Any, T]) -> dict[Any, T]:
    """What the processes have, each something else, in all of them."""
    return {key: value for part in (_gathered(own) if _Team.on else [own]) for key, value in part.items()}


Outcome = tuple[int, Any, list[Exception]]  # (place, value, errors)


def _own_part(
    function: Callable[[Any], T], inputs: Iterable[Any], count: int, progress: Callable[[int], None] | None
) -> list[Outcome]:
    """The outcomes of this process's items, up to the first that fails."""
    outcomes: list[Outcome] = []
    _Team.on, first, step = False, distributed.get_rank(), distributed.get_world_size()
    try:
        for outcome in _outcomes(function, inputs, count, progress, first=first, step=step):
            outcomes.append(outcome)
    except Exception as error:
        outcomes.append((first + step * len(outcomes), None, _causes(error)))
    finally:
        _Team.on = True
    return outcomes


def _outcomes(
    function: Callable[[Any], T],
    inputs: Iterable[Any],
    count: int,
    progress: Callable[[int], None] | None,
    *,
    first: int = 0,
    step: int = 1,
) -> Iterator[Outcome]:
    for turn, value in enumerate(inputs):
        yield first + step * turn, function(value), []
        if progress is not None:
            progress(min(step, count - step * turn))


def _gathered(own: Any) -> list[Any]:
    """What every process has, in the order of processes."""
    packed = io.BytesIO()
    torch.save(own, packed)
    every: list[bytes] = [b""] * distributed.get_world_size()
    distributed.all_gather_object(every, packed.getvalue())
    # Not weights_only: these bytes come from the other processes of this very command.
    return [torch.load(io.BytesIO(sent), map_location="cpu", weights_only=False) for sent in every]


def _causes(error: BaseException | None) -> list[Exception]:
    """An error and what caused it, each as something that can be sent."""
    causes = []
    while isinstance(error, Exception):
        causes.append(_sendable(error))
        error = error.__cause__
    return causes


def _sendable(error: Exception) -> Exception:
    try:
        same = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")


def _relinked(errors: list[Exception]) -> Exception:
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]
