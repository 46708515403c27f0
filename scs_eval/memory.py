"""Let the process keep the memory it has freed.

glibc gives the top of its heap back to the system as soon as it is free, and the next operation on a map of features
waits until the system has zeroed fresh pages: on two cores a tenth of an SCS training step.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
NEVER = -1
LARGEST = (
    32 << 20
)  # bytes: the most that every glibc allows; larger blocks still come from the system and go back to it


def keep_freed_memory() -> None:
    """For commands, whose process is their own; a library must leave the memory of its host alone."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None and hasattr(libc, "mallopt"):  # musl has none
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST)
