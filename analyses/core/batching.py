"""How much to compute at once: as much as a part of the free memory holds, and half as much when that was too much."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import processes, shared_map

CHUNK = 32
T = TypeVar("T")

SHARE = 0.25  # of the free memory that we take for ourselves
MOST = 32  # at once, so that a progress bar moves and a CPU's cache is of use
UNKNOWN = 2 * 2**30  # bytes, where a machine does not say how much is free
WORDS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")


def map_with_backoff(count: int, size: int, work: Callable[[slice], T]) -> Iterator[tuple[slice, T]]:
    """Do `work` on 0 … count in slices of `size`; whenever memory runs out, go on with half the size, down to one."""
    start, size = 0, min(size, count)
    while start < count:
        parts = [slice(first, min(first + size, count)) for first in range(start, count, size)[: processes()]]
        try:
            results = shared_map(work, parts)
        except (RuntimeError, MemoryError, ValueError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            size //= 2
        else:
            yield from zip(parts, results, strict=True)
            start = parts[-1].stop
            continue
        if torch.cuda.is_available():  # out here, where nothing holds on to the failed attempt's tensors
            torch.cuda.empty_cache()


def map_batched(work: Callable[[slice], Tensor], count: int, *, units: int) -> Tensor:
    """`work` on 0 … count at once; in halves when memory runs out and this is one unit of the caller's.

    Of several units the caller takes fewer, and does not try as many again.
    """
    if units > 1:
        return work(slice(0, count))
    return torch.cat([found for _, found in map_with_backoff(count, count, work)])


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, on any device, also where another error says so in its own words."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS):
            return True
        error = error.__cause__
    return False


def fitting(model: nn.Module, image: Tensor, *, each: int = 1) -> int:
    """How many times `each` copies of an image (1, 3, H, W) and what their gradients need fit into our share.

    Only one goes through the network, so that what it takes to find out fits wherever one image does.
    """
    room = SHARE * free_memory(device_of(model))
    return max(1, min(MOST, int(room // (2 * each * footprint(model, image)))))


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
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _container() -> int | None:
    most, now = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    return max(0, int(most) - int(now)) if most.isdigit() and now.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def chunks(values: Tensor) -> list[Tensor]:
    """Values in pieces of exactly CHUNK rows; copies of the first row fill the last piece."""
    missing = -len(values) % CHUNK
    filled = torch.cat([values, values[:1].expand(missing, *values.shape[1:])]) if missing else values
    return list(filled.split(CHUNK))
