"""How much to compute at once: as much as a part of the free memory holds, and half as much when that was too much."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import own_share, processes, shared_map
from scs_eval.images import Images, read_batches
from scs_eval.progress import Progress

CHUNK = 32
FULL_BATCH = 96**2  # pixels of an image, up to which batches have their full size
KEPT_BYTES = 2**26  # of the maps that a result keeps: 16,384 of 32 pixels, 334 of 224
T = TypeVar("T")

SHARE = 0.25  # of the free memory that we take for ourselves
CPU_ROOM = 2**31  # bytes at most on a CPU, where larger batches are no faster
MOST = 32  # at once, so that a progress bar moves and a CPU's cache is of use
UNKNOWN = 2 * 2**30  # bytes, where a machine does not say how much is free
WORDS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")


def slices(count: int, size: int, *, start: int = 0) -> list[slice]:
    """start … count in slices of `size`."""
    return [slice(first, min(first + size, count)) for first in range(start, count, size)]


def images_at_once(images: Images, most: int) -> int:
    """`most` images of up to 96 × 96 pixels, and fewer of larger ones: it follows from their size alone.

    For the last bit of an answer depends on the size of the batch, and results must not depend on the machine.
    """
    pixels = images.shape[2] * images.shape[3]
    return max(1, min(most, most * FULL_BATCH // pixels))


def maps_kept(images: Images) -> int:
    """Of how many images, the first, a result keeps a map; it follows from their size alone."""
    return max(1, KEPT_BYTES // (4 * images.shape[2] * images.shape[3]))


def map_images(
    work: Callable[[Tensor, slice], T], images: Images, *, size: int, progress: Progress | None = None
) -> list[T]:
    """`work(batch, where)` for all images in batches of `size`, shared by the processes; files are read ahead.

    progress: called with how many more images are done.
    """

    def told(count: int) -> None:
        if progress is not None:
            progress(min(count * size, left[0]))
            left[0] -= count * size

    def read(parts: list[slice]) -> Iterator[tuple[Tensor, slice]]:
        return zip(read_batches(images, parts), parts, strict=True)

    left = [len(images)]
    return shared_map(lambda batch: work(*batch), slices(len(images), size), read=read, progress=told)


def map_with_backoff(count: int, size: int, work: Callable[[slice], T]) -> Iterator[tuple[slice, T]]:
    """Do `work` on 0 … count in slices of `size`; whenever memory runs out, go on with half the size, down to one."""
    yield from _backing_off(count, size, work, lambda parts: parts)


def map_images_with_backoff(work: Callable[[Tensor], T], images: Images, *, size: int) -> Iterator[tuple[slice, T]]:
    """As `map_images`, but with half the size whenever memory runs out."""
    yield from _backing_off(len(images), size, work, lambda parts: read_batches(images, parts))


def _backing_off(
    count: int, size: int, work: Callable[[Any], T], read: Callable[[list[slice]], Iterable[Any]]
) -> Iterator[tuple[slice, T]]:
    """`work` on what `read` makes of the slices, a slice for each process at a time."""
    start, size, step = 0, min(size, count), processes()
    while start < count:
        parts = slices(count, size, start=start)
        do_next = partial(_do_next, work, iter(read(own_share(parts))))
        for first in range(0, len(parts), step):
            together = parts[first : first + step]
            try:
                results = shared_map(do_next, together)
            except (RuntimeError, MemoryError, ValueError) as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                size //= 2
                break
            yield from zip(together, results, strict=True)
            start = together[-1].stop
        if start < count and torch.cuda.is_available():  # here nothing holds on to the failed attempt's tensors
            torch.cuda.empty_cache()


def _do_next(work: Callable[[Any], T], ahead: Iterator[Any], _part: slice) -> T:
    return work(next(ahead))


def map_batched(work: Callable[[slice], Tensor], count: int, *, units: int) -> Tensor:
    """`work` on 0 … count at once; in halves when memory runs out and this is one unit of the caller's.

    Of several units the caller takes fewer, and does not try as many again.
    """
    if units > 1:
        return work(slice(0, count))
    return torch.cat([part for _, part in map_with_backoff(count, count, work)])


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, on any device, also where another error says so in its own words."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS):
            return True
        error = error.__cause__
    return False


def fitting(model: nn.Module, image: Tensor, *, copies: int = 1) -> int:
    """How many times `each` copies of an image (1, 3, H, W) and what their gradients need fit into our share.

    Only one goes through the network, so that what it takes to find out fits wherever one image does.
    """
    device = device_of(model)
    room = SHARE * free_memory(device)
    if device.type == "cpu":
        room = min(room, CPU_ROOM)
    return max(1, min(MOST, int(room // (2 * copies * footprint(model, image)))))


def footprint(model: nn.Module, images: Tensor) -> int:
    """Bytes that a forward pass of these images keeps for the backward pass, besides the network's own."""
    kept: dict[int, int] = {}
    own = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with (
        evaluating(model),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        model(images.detach().to(device_of(model), copy=True).requires_grad_())
    return max(sum(kept.values()), images.numel() * images.element_size())


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; on a CPU at most what a container may still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [_available(), _container()]
    return min((limit for limit in limits if limit is not None), default=UNKNOWN)


def _available() -> int | None:
    lines = _read("/proc/meminfo").splitlines()
    kibibytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(kibibytes[0]) if kibibytes else None


def _container() -> int | None:
    most, now = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    return max(0, int(most) - int(now)) if most.isdigit() and now.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def chunk_size(images: Images) -> int:
    """How many images an attack shows to the model at a time: CHUNK, fewer of large ones."""
    return images_at_once(images, CHUNK)


def chunks(values: Tensor, size: int = CHUNK) -> list[Tensor]:
    """Values in pieces of exactly `size` rows; copies of the first row fill the last piece."""
    return list(filled(values, size).split(size))


def filled(values: Tensor, size: int) -> Tensor:
    """Values with copies of their first row behind them, as many as make whole pieces of `size`."""
    missing = -len(values) % size
    return torch.cat([values, values[:1].expand(missing, *values.shape[1:])]) if missing else values
