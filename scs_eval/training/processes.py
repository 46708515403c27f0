"""The processes that torchrun started: which one this is, what they must agree on, and how they are asked to stop."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
from torch import Tensor, distributed

from scs_eval.devices import choose_device


@dataclass(frozen=True)
class World:
    """This process's place and device; a run without torchrun is a world of size one."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, on every one of them."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def copy_from_main(self, values: Iterable[Tensor]) -> None:
        """Overwrite the values by those of the main process."""
        if self.size > 1:
            for value in values:
                distributed.broadcast(value, src=0)

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in at least one process."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(int(flag), device=self.device)).item())

    def share(self, indices: Tensor) -> Tensor:
        """Every size-th element, starting at the rank: the shares of all processes together are the whole."""
        return indices[self.rank :: self.size]


@contextmanager
def join_world(device_request: str) -> Iterator[World]:
    """Join the processes that torchrun started (NCCL on GPUs, gloo on CPUs), and leave them at the end."""
    device = torch.device(choose_device(device_request))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(rank=0, size=1, device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or NCCL would open a context on the first GPU in every process
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(rank=distributed.get_rank(), size=size, device=device)
    finally:
        distributed.destroy_process_group()


STOP = signal.SIGINT, signal.SIGTERM
REQUEUE = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))  # not on Windows


class StopRequest:
    """Which signal asked to stop; 0 as long as none did."""

    signal_number = 0


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Catch the first SIGINT or SIGTERM; a second one acts as it would have without us.

    A signal that is being ignored, as Ctrl-C is in the background of a shell, stays ignored. SIGUSR1 and SIGUSR2 count
    where somebody waits for them, as a cluster's scheduler does when the time of a job is up.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # only there may Python set handlers
        yield request
        return
    handlers = {number: signal.getsignal(number) for number in (*STOP, *REQUEUE)}
    waited_for = {number: handler for number, handler in handlers.items() if number in STOP or callable(handler)}
    before = {number: handler for number, handler in waited_for.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        request.signal_number = number
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        restore()


def ignore_stop_signals(_worker: int) -> None:
    """For processes that read images: a signal to the whole group is the trainer's to answer, who then ends them."""
    for number in (*STOP, *REQUEUE):
        signal.signal(number, signal.SIG_IGN)
