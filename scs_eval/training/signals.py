"""Ctrl-C and SIGTERM become a polite request: finish the batch, save, stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
