"""Single precision that is single precision: NVIDIA's TF32, which rounds factors to 10 bits, is off where W(x) is made.

torch allows it for convolutions unless told otherwise. It changes a logit by about a thousandth, and by as much what a
map adds up to and the norm of a patch that a layer divides by. `allow_tf32(True)` (`--tf32`) gives it back.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Policy:
    allowed = False


def allow_tf32(allowed: bool) -> None:
    """For this process: whether matrix products and convolutions on a GPU may round their factors."""
    _Policy.allowed = allowed
    _set(allowed, allowed)


@contextmanager
def exact_products() -> Iterator[None]:
    """Inside, no TF32, unless it was allowed; what the host had set is put back."""
    if _Policy.allowed:
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    _set(False, False)
    try:
        yield
    finally:
        _set(*before)


def _set(products: bool, convolutions: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions
