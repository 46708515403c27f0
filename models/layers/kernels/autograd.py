"""When a layer may use its hand-written backward pass, and what such passes share."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor


def replaceable(x: Tensor) -> bool:
    """Whether nothing but torch's plain backward mode will differentiate or rewrite what is done to `x`.

    torch.compile, tracing, torch.func, forward mode, autocast and half precision see through the plain formula, and
    get it; and a `meta` tensor, which has a shape and no numbers.
    """
    if x.device.type == "meta" or x.dtype not in (torch.float32, torch.float64):
        return False
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled(x.device.type)
        or torch.autograd.forward_ad._current_level >= 0
    )


def wanted(ctx: Any, index: int) -> bool:
    """Whether this backward pass asks for the gradient of input `index`.

    `needs_input_grad` is true of every parameter, even where only the gradient of the image is asked for: a map of
    attribution or an attack would compute the gradients of all weights for nothing.
    """
    node = ctx.next_functions[index][0]
    if node is None or not ctx.needs_input_grad[index] or _is_leaf(node):
        return bool(ctx.needs_input_grad[index])
    return torch._C._will_engine_execute_node(node)


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")  # torch does not know of these


def counter_of_changes(x: Tensor) -> Tensor:
    """A tensor without data whose `_version` goes on counting what is done to `x` in place, but not through `.data`."""
    counter = x.detach()  # shares the counter
    counter.data = x.new_empty(0)  # and lets go of the memory
    return counter


def differentiable_backward(
    ctx: Any, grad: Tensor, formula: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of `inputs` as a graph of their own, by differentiating the formula: for create_graph."""
    wanted = [tensor for tensor, needs in zip(inputs, ctx.needs_input_grad, strict=False) if needs]
    y = formula(*inputs)
    # Unused: what explanation mode holds constant.
    gradients = iter(torch.autograd.grad(y, wanted, grad, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if needs else None for needs in ctx.needs_input_grad[: len(inputs)])


def images_per_slice(x: Tensor, slice_bytes: int, bytes_per_image: int) -> int:
    """How many images of the batch `x` to work on at a time, so that what is made of them stays in the CPU's cache."""
    if x.device.type != "cpu":
        return max(len(x), 1)
    return max(1, min(len(x), slice_bytes // max(bytes_per_image, 1)))


def batch_slices(images: int, *tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """A few images at a time of every tensor; None stays None."""
    return zip(*(repeat(None) if tensor is None else tensor.split(images) for tensor in tensors), strict=False)


def empty_map(like: Tensor, *shape: int) -> Tensor:
    """An empty (N, C, H, W) of the type and place of `like`, channels last."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def joined_gradients(parts: tuple[Tensor | None, ...]) -> Any:
    """The gradients of all slices one after another; None if there are none."""
    return parts[0] if len(parts) == 1 or parts[0] is None else torch.cat(parts)  # type: ignore[arg-type]


def added(parts: tuple[Tensor | None, ...]) -> Any:
    """The sum of what the slices give; None if they give nothing."""
    return parts[0] if len(parts) == 1 or parts[0] is None else torch.stack(parts).sum(0)  # type: ignore[arg-type]
