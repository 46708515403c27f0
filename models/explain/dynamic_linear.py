"""Explanation mode: the one idea every W(x) rests on.

A dynamic-linear layer computes y = s(x) · (w·x) + b. With s held constant the whole network is the affine map
f(x) = W(x) x + b(x), and the gradient of a logit with respect to the input is exactly its row of W(x). Inside
`explanation_mode()` every layer of ours passes its s(x) through `dynamic`, which detaches it.

Source: B-cos v2, Eqs. 11-16 and 25-29; for sharpened layers s(x) = (|c| + eps)^p / |w·x|.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from scs_eval.models.explain import checkpointing
from scs_eval.models.explain.checkpointing import backward_pass, mode_of_forward_pass


class _Mode(NamedTuple):
    enabled: bool
    backward_pass: int  # within which the context was entered; -1 outside all


# Of the thread (or task) and not of a module: nothing is left behind on a model, and a head that is replaced inside the
# context obeys it too. A context variable is what torch.compile guards on; it does not see threading.local change.
_OFF = _Mode(enabled=False, backward_pass=-1)
_mode: ContextVar[_Mode] = ContextVar("explanation_mode", default=_OFF)


@contextmanager
def explanation_mode(enabled: bool = True) -> Iterator[None]:
    """Make the gradient of a logit its row of W(x); contexts nest, and `enabled=False` suspends an outer one.

    It holds for the forward passes of this thread. Their backward passes may run anywhere, also outside the context,
    and with `torch.utils.checkpoint.checkpoint(…, use_reentrant=False)`. Reentrant checkpointing is refused.

    >>> import scs_eval
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=1)
    >>> x = data.images.requires_grad_()
    >>> with scs_eval.explanation_mode():
    ...     logit = model(x)[0, 3]
    >>> logit.backward()
    >>> x.grad.shape  # the row of W(x) that makes this logit
    torch.Size([1, 3, 32, 32])
    """
    before = _mode.get()
    _mode.set(_Mode(enabled, backward_pass()))
    try:
        yield
    finally:
        _mode.set(before)


def explaining() -> bool:
    """Whether an `explanation_mode` is in force, or was when the forward pass ran that is now computed again."""
    mode = _mode.get()
    if torch.compiler.is_compiling():
        return mode.enabled
    if backward_pass() != mode.backward_pass:
        return mode_of_forward_pass(default=mode.enabled)
    if mode.enabled and not checkpointing.is_known():
        checkpointing.forbid_all()
    elif mode.enabled and not torch.is_grad_enabled():
        checkpointing.forbid_reentrant()
    return mode.enabled


def dynamic(scale: Tensor) -> Tensor:
    """Mark the input-dependent factor of a dynamic-linear layer: a constant while explaining."""
    return scale.detach() if explaining() else scale
