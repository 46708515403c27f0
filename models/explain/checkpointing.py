"""Activation checkpointing and explanation mode: what is computed again must be what was computed.

`torch.utils.checkpoint` runs a forward pass once more within the backward pass, perhaps in another thread and outside
the context in which it ran first. Its two passes share a frame of torch's, under which the layers note their mode.
torch also compares an empty tensor that each layer saves, whose shape tells the mode, and raises if the passes differ.

All this rests on names that torch keeps to itself. In a version that has others, checkpointing inside explanation mode
is refused, so that no gradient is silently another one; without checkpointing nothing changes.
"""

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as torch_checkpoint

_modes: "weakref.WeakKeyDictionary[Any, set[bool]]" = weakref.WeakKeyDictionary()  # frame -> modes of its layers


def _private(owner: Any, *names: str) -> Any:
    """What torch keeps under these names, one inside the other; None if this version has no such thing."""
    for name in names:
        owner = getattr(owner, name, None)
    return owner


_graph_task: Callable[[], int] | None = _private(torch, "_C", "_current_graph_task_id")
_default_hooks: Callable[[bool], Any] | None = _private(torch, "_C", "_autograd", "_top_saved_tensors_default_hooks")
_in_functorch: Callable[[], bool] | None = _private(torch, "_C", "_are_functorch_transforms_active")
_reentrant_code: Any = _private(torch_checkpoint, "CheckpointFunction", "forward", "__code__")


def is_known() -> bool:
    """Whether this version of torch has the names that this module rests on."""
    return None not in (_graph_task, _default_hooks, _in_functorch, _reentrant_code)


def backward_pass() -> int:
    """A number for the backward pass that this thread is in the midst of; -1 outside all."""
    return -1 if torch.compiler.is_compiling() or _graph_task is None else _graph_task()


def mode_of_forward_pass(*, default: bool) -> bool:
    """The mode in which a checkpointed forward pass ran first, asked for while it runs again."""
    if not _saving_hooks():
        return False  # reentrant checkpointing, which is forbidden inside the mode
    frame = _frame(explain=default)
    modes = set() if frame is None else _modes.get(frame, set())
    return next(iter(modes)) if len(modes) == 1 else default


def forbid_reentrant() -> None:
    """Raise inside reentrant checkpointing: its second forward pass could not know of the first one's mode."""
    if any(frame.f_code is _reentrant_code for frame in _callers()):
        raise RuntimeError(
            "explanation mode does not reach through reentrant activation checkpointing; "
            "call torch.utils.checkpoint.checkpoint with use_reentrant=False"
        )


def forbid_all() -> None:
    """Raise inside any activation checkpointing."""
    if any(frame.f_globals.get("__name__") == torch_checkpoint.__name__ for frame in _callers()):
        raise RuntimeError(
            f"explanation mode and the activation checkpointing of torch {torch.__version__} do not know each other; "
            "leave out checkpointing, or install a version of torch that scs-eval was tested with"
        )


def mark(like: Tensor, explain: bool) -> Tensor | None:
    """Note the mode, if this forward pass may run again; the returned tensor is to be saved.

    It is empty: torch compares the shapes of what both passes save.
    """
    if not _saving_hooks():
        return None
    if (frame := _frame(explain=explain)) is not None:
        _modes.setdefault(frame, set()).add(explain)
    return like.new_empty((0, 0) if explain else 0)


def marked(y: Tensor, explain: bool) -> Tensor:
    """The output of a layer, with its mode noted in the graph."""
    if torch.compiler.is_compiling() or not y.requires_grad or not _saving_hooks():
        return y
    return y if _in_functorch is not None and _in_functorch() else _Marked.apply(y, explain)


class _Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, explain: bool) -> Tensor:
        ctx.save_for_backward(mark(y, explain))
        return y.clone()  # the next layer may overwrite it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        _ = ctx.saved_tensors  # which computes them again, and compares
        return grad, None


def _saving_hooks() -> bool:
    return _hooks() is not None


def _hooks() -> Any:
    return _default_hooks(False) if is_known() and _default_hooks is not None else None


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frame(*, explain: bool) -> Any:
    """torch's own record of the checkpointed pass that is running, the first time or again; None if there is none.

    torch keeps it in the closure of the hook that packs saved tensors, by these names. If it does not: see the top.
    """
    pack = _hooks()[0]
    pack = inspect.unwrap(getattr(pack, "_torchdynamo_orig_callable", pack))
    names = getattr(getattr(pack, "__code__", None), "co_freevars", ())
    cells = dict(zip(names, getattr(pack, "__closure__", None) or (), strict=False))
    if "target_frame_ref" in cells:  # running again
        return cells["target_frame_ref"].cell_contents()
    if "frame" in cells:
        return cells["frame"].cell_contents
    if explain:
        forbid_all()
    return None
