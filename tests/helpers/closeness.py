"""How two implementations of a layer are compared: outputs and gradients, relative to the largest value."""

import torch

from scs_eval.models.explain.dynamic_linear import explanation_mode


def close(actual, wanted, tolerance, *, floor=0.0):
    """Largest difference relative to the largest value; `floor` for gradients that are truly zero."""
    assert actual.shape == wanted.shape
    assert (actual - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=floor)


def value_and_gradients(layer, x, *, parameters, explain=False):
    """Output, input gradient and parameter gradients of any callable, of a weighted sum that cancels nothing.

    In explanation mode of whichever package the layer is from.
    """
    for p in parameters:
        p.grad = None
    inputs = x.clone().requires_grad_()
    if hasattr(layer, "set_explanation_mode"):
        layer.set_explanation_mode(explain)
    with explanation_mode(explain):
        y = layer(inputs)
    y.mul(torch.arange(y.numel(), dtype=y.dtype).cos().view_as(y)).sum().backward()
    return y.detach(), inputs.grad, *(p.grad.clone() for p in parameters)
