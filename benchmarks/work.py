"""What is timed of a network: a training step, a forward pass, a row of W(x)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.explain.dynamic_linear import explanation_mode


def batch(images: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Random images in [0, 1] and labels."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(images, 3, size, size, generator=generator), torch.arange(images) % 10


def laid_out(model: nn.Module, x: Tensor, *, channels_last: bool = True) -> tuple[nn.Module, Tensor]:
    """Network and images in the layout that training uses, or (published layers) in torch's default one."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return model.to(memory_format=layout), x.contiguous(memory_format=layout)


def step(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Forward, backward and one update of plain gradient descent."""
    loss = F.cross_entropy(model(x), y)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p.add_(p.grad, alpha=-1e-4)


@torch.no_grad()
def forward(model: nn.Module, x: Tensor, _: Tensor) -> None:
    """Logits alone."""
    model(x)


def pixel_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Forward and backward pass down to the pixels, parameters left out: what an attack does at every step."""
    inputs = x.clone().requires_grad_()
    return torch.autograd.grad(model(inputs).gather(1, y[:, None]).sum(), inputs)[0]


def explain_one_class(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The row of W(x) of one class for every image, of a network of ours or of the package bcos."""
    theirs = next((module for module in model.modules() if hasattr(module, "explanation_mode")), None)
    with explanation_mode() if theirs is None else theirs.explanation_mode():  # type: ignore[operator]
        return pixel_gradient(model, x, y)
