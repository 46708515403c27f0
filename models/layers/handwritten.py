"""When a layer may use its hand-written backward pass, and what such passes share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def replaceable(x: Tensor) -> bool:
    """Whether nothing but torch's plain backward mode will differentiate or rewrite what is done to `x`.

    torch.compile, torch.func, forward mode and autocast see through the plain formula, and get it.
    """
    return not (
        torch.compiler.is_compiling()
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
    return hasattr(node, "variable")  # torch does not tell for these


def differentiable_backward(
    ctx: Any, grad: Tensor, formula: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of `inputs` as a graph of their own, by differentiating the formula: for create_graph."""
    wanted = [tensor for tensor, needs in zip(inputs, ctx.needs_input_grad, strict=False) if needs]
    found = iter(torch.autograd.grad(formula(*inputs), wanted, grad, create_graph=True))
    return tuple(next(found) if needs else None for needs in ctx.needs_input_grad[: len(inputs)])
