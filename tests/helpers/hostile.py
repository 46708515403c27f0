"""One rule for whatever a user may throw at the tool: it works, or one line says why, soon and with little memory."""

import ctypes
import io
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import numpy as np

from scs_eval.errors import InputError

SECONDS = 60  # far more than a refusal needs on a busy machine, far less than a hang
MEGABYTES = 1500  # that a case may add to the largest memory of the process; the cases that failed took 5 to 30 GB


class Run(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


@contextmanager
def limited(seconds: int = SECONDS, megabytes: int = MEGABYTES) -> Iterator[None]:
    """Fail if what is inside takes longer, or makes the process grow by more."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"still at work after {seconds} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    earlier = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # kilobytes on Linux
    assert grown < megabytes, f"grew by {grown:.0f} MB"


def without_privilege() -> None:
    """In a process that is about to run a program: not even root may read and write what its mode forbids."""
    if sys.platform == "linux" and os.getuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                os._exit(99)


def command(*words: str) -> Run:
    """`scs-eval WORDS` in this process."""
    from scs_eval.cli.main import main

    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["scs-eval", *words]
    try:
        with limited(), redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    finally:
        sys.argv = argv
    return Run(code, out.getvalue(), err.getvalue())


def assert_refused(run: Run) -> None:
    """Exit 2, and one line on stderr that a terminal can show."""
    assert run.code == 2, (run.code, run.stderr[-400:])
    assert_one_line(run.stderr.strip())
    assert run.stderr.startswith("Error: "), run.stderr[:200]


def assert_one_line(text: str) -> None:
    """A message, not a traceback, not a page, no control characters."""
    assert text, "no message"
    assert "\n" not in text, text[:400]
    assert len(text) < 1000, f"{len(text)} characters"
    assert text.isprintable(), ascii(text)[:300]
    assert "Traceback" not in text


def works_or_refused(function: Callable[[], object]) -> bool:
    """Whether the call works; if it does not, it raises an InputError of one line."""
    try:
        with limited():
            function()
    except InputError as error:
        assert_one_line(str(error))
        return False
    return True


def refused(function: Callable[[], object]) -> None:
    """The call raises an InputError of one line."""
    assert not works_or_refused(function), "accepted"


def few_images(data_dir: object = None, *, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Instead of CIFAR-10, which a test must neither need nor download."""
    return np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8), np.arange(40) % 10
