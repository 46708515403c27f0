"""Explanation mode: the one idea every W(x) rests on.

A dynamic-linear layer computes y = s(x) · (w·x) + b. With s held constant the whole network is the affine map
f(x) = W(x) x + b(x), and the gradient of a logit with respect to the input is exactly its row of W(x). Inside
`explanation_mode()` every layer of ours passes its s(x) through `dynamic`, which detaches it.

Source: B-cos v2, Eqs. 11-16 and 25-29; for sharpened layers s(x) = (|c| + eps)^p / |w·x|.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

# One switch for the process and not one per module: nothing is left behind on a model, and a head that is replaced
# inside the context obeys it too. A plain global is what torch.compile can guard on.
_explaining = False


@contextmanager
def explanation_mode(enabled: bool = True) -> Iterator[None]:
    """Make the gradient of a logit its row of W(x); contexts nest, and `enabled=False` suspends an outer one.

    The switch is the process's: other threads see it too. What is computed again on the way back, as activation
    checkpointing does, must be so inside the context.
    """
    global _explaining
    before = _explaining
    _explaining = enabled
    try:
        yield
    finally:
        _explaining = before


def explaining() -> bool:
    """Whether an `explanation_mode` is in force."""
    return _explaining


def dynamic(scale: Tensor) -> Tensor:
    """Mark the input-dependent factor of a dynamic-linear layer: a constant while explaining."""
    return scale.detach() if _explaining else scale
