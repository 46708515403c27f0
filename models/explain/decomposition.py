"""A logit taken apart: f(x) = W(x)·x + b(x), with W from the gradient and b from the layers that add something.

The two halves are computed independently, so that their sum meeting the logit is evidence and not arithmetic. The
same serves for the activations of a layer inside the network, with the biases up to there.
Source: B-cos v2, Eq. 14 (W), section 3.3.2 and Fig. 13 (the bias).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scs_eval.errors import InputError
from scs_eval.models.explain.activations import capture_output
from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.explain.precision import exact_products
from scs_eval.models.layers.attention import HeldAttention
from scs_eval.models.layers.encoding import AddInverse
from scs_eval.models.layers.token_norm import TokenNorm


@dataclass(frozen=True)
class Decomposition:
    """One logit per image, or K of them, as a sum over the input plus a sum over biased layers.

    (N, [K,] …) is (N, …) where one class per image was asked for, and (N, K, …) where K were. Of a layer inside the
    network, `logits` are the mixtures of its activations that were asked for.
    """

    weights: Tensor  # (N, [K,] C, H, W), the logit's row of W(x); C is 6 for networks that encode [x, 1-x]
    inputs: Tensor  # (N, C, H, W), what W(x) multiplies
    biases: dict[str, Tensor]  # layer name -> (N, [K]), what its additive constant contributes to the logit
    logits: Tensor  # (N, [K])

    @property
    def contributions(self) -> Tensor:
        """W(x)⊙x, (N, [K,] C, H, W) (Eq. 16)."""
        several = self.weights.ndim > self.inputs.ndim
        return self.weights * (self.inputs.unsqueeze(1) if several else self.inputs)

    @property
    def bias(self) -> Tensor:
        """b(x), (N, [K])."""
        return sum(self.biases.values(), torch.zeros_like(self.logits))

    @property
    def residual(self) -> Tensor:
        """What neither half explains, (N, [K]): rounding for a dynamic-linear network, more for any other."""
        return self.logits - self.contributions.sum((-3, -2, -1)) - self.bias


def decompose(model: nn.Module, images: Tensor, targets: Tensor, *, layer: str | None = None) -> Decomposition:
    """Take apart logits of each image (N, 3, H, W), from one forward pass. The model must be in evaluation mode.

    targets: a class per image (N,), K classes per image (N, K), or as floats (N, K, classes) mixtures of logits, such
    as the difference of two or the mean of all: f is linear in them, and so are W and b.
    layer: the name of a module; then mixtures (N, K, …) of its output (N, …) are taken apart instead of logits.
    """
    _check(model)
    with _full_precision(images), explanation_mode(), _probed(model, len(images)) as taps:
        inputs = images.detach().clone().requires_grad_()  # a tensor of inference mode becomes an ordinary one
        # Its hook comes after the probes', so that the layer's own bias is counted.
        with nullcontext() if layer is None else capture_output(model, layer) as activation:
            output = model(inputs)
        if activation is not None:
            output = activation.output
        start = taps.encoded if taps.encoded is not None else inputs
        mixtures = _mixtures(targets, output, layer)
        rows = _rows(output, mixtures, start, taps, "logits" if layer is None else f"activations of {layer}")
    weights, *gradients = (torch.stack(parts, 1) for parts in zip(*rows, strict=True))
    biases: dict[str, Tensor] = {}
    for (name, _, bias), gradient in zip(taps.probes, gradients, strict=True):
        biases[name] = biases.get(name, 0) + gradient.flatten(2) @ bias  # a layer that runs twice adds twice
    logits = (mixtures * output.detach()[:, None]).flatten(2).sum(-1)
    if targets.ndim == 1:
        weights, logits = weights[:, 0], logits[:, 0]
        biases = {name: bias[:, 0] for name, bias in biases.items()}
    return Decomposition(weights, start.detach(), biases, logits)


def _check(model: nn.Module) -> None:
    if any(module.training for module in model.modules()):
        raise InputError("expected a model in evaluation mode, got one in training; call model.eval() first")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise InputError("expected a model made outside torch.inference_mode(), whose tensors have no gradients")


@contextmanager
def _full_precision(images: Tensor) -> Iterator[None]:
    """With gradients whatever the caller's mode, and not in autocast's precision, which changes W(x) by 1 to 10 %."""
    kind = images.device.type
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(kind, enabled=False), exact_products():
        yield


def _mixtures(targets: Tensor, output: Tensor, layer: str | None) -> Tensor:
    """The coefficients (N, K, classes), or (N, K, …) for a layer, of what is to be explained."""
    if layer is not None and (targets.shape[2:] != output.shape[1:] or not targets.is_floating_point()):
        wanted = ", ".join(map(str, output.shape[1:]))
        raise InputError(f"expected mixtures (N, K, {wanted}) of {layer}, got {targets.dtype} {tuple(targets.shape)}")
    if not targets.is_floating_point():
        targets = F.one_hot(targets.long().view(len(targets), -1), output.shape[1])
    return targets.to(output)


def _rows(output: Tensor, mixtures: Tensor, start: Tensor, taps: "_Taps", what: str) -> list[list[Tensor]]:
    """For each of the K mixtures its gradients with respect to the start and every probe: one backward pass each."""
    ends = [start, *(probe for _, probe, _ in taps.probes)]
    rows = []
    for mixture in mixtures.unbind(1):
        gradients = _gradients(output, ends, mixture)
        if gradients[0] is None:
            raise InputError(f"the model is not differentiable: its {what} have no gradient for the image")
        rows.append([torch.zeros_like(end) if g is None else g for end, g in zip(ends, gradients, strict=True)])
    return rows


def _gradients(output: Tensor, ends: list[Tensor], mixture: Tensor) -> Sequence[Tensor | None]:
    if not output.requires_grad:
        return [None] * len(ends)
    return torch.autograd.grad(output, ends, mixture, retain_graph=True, allow_unused=True)


class _Taps:
    """What the hooks saw during one forward pass."""

    def __init__(self) -> None:
        self.encoded: Tensor | None = None
        self.probes: list[tuple[str, Tensor, Tensor]] = []


# What transformers of other packages add to their tokens or put beside them.
TOKENS = ("cls_token", "class_token", "dist_token", "reg_token", "pos_embed", "pos_embedding")


@contextmanager
def _tokens_probed(model: nn.Module, images: int, taps: _Taps) -> Iterator[None]:
    """Give learned tokens and positions (1, L, C) of external transformers a copy for every image.

    They are constants, whose gradients weigh them as a layer's constant.
    """
    owned = [(name, module, key) for name, module in model.named_modules() for key in TOKENS]
    owned = [(name, module, key) for name, module, key in owned if _is_token(module._parameters.get(key))]
    before = [module._parameters[key] for _, module, key in owned]
    try:
        for (name, module, key), value in zip(owned, before, strict=True):
            assert value is not None
            constant = value.detach().flatten()
            probe = value.detach().expand(images, *value.shape[1:]).clone().requires_grad_()
            module._parameters[key] = probe
            taps.probes.append((f"{name}.{key}".removeprefix("."), probe, constant))
        yield
    finally:
        for (_, module, key), value in zip(owned, before, strict=True):
            module._parameters[key] = value


def _is_token(value: Tensor | None) -> bool:
    return value is not None and value.ndim == 3 and len(value) == 1


@contextmanager
def _probed(model: nn.Module, images: int) -> Iterator[_Taps]:
    """Add a zero to the output of every layer with an additive constant; the zero's gradient weighs the constant."""
    taps = _Taps()
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, AddInverse):
            handles.append(module.register_forward_hook(partial(_start_here, taps)))
        elif (bias := additive_bias(module)) is not None:
            handles.append(module.register_forward_hook(partial(_probe, taps, name, bias)))
    try:
        with _tokens_probed(model, images, taps):
            yield taps
    finally:
        for handle in handles:
            handle.remove()


def additive_bias(module: nn.Module) -> Tensor | None:
    """The constant a layer adds to each of its output channels in evaluation mode, or None.

    Layers of torch that are not affine in evaluation mode (its LayerNorm, GroupNorm, GELU …) end up in the residual.
    """
    if callable(own := getattr(module, "additive_bias", None)):
        constant: Tensor | None = own()
        return constant
    if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
        factor = (module.running_var + module.eps).rsqrt() * (1 if module.weight is None else module.weight.detach())
        return -module.running_mean * factor + (0 if module.bias is None else module.bias.detach())
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        return module.bias.detach()
    return None


def _start_here(taps: _Taps, _module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    if taps.encoded is not None:
        raise InputError("the model encodes [x, 1-x] twice; W(x) has one input, so leave one encoding out")
    taps.encoded = output.detach().requires_grad_()
    return taps.encoded


def _probe(taps: _Taps, name: str, bias: Tensor, module: nn.Module, _inputs: Any, output: Any) -> Any:
    if isinstance(output, tuple):  # attention's, with its weights or None
        return _probe(taps, name, bias, module, _inputs, output[0]), *output[1:]
    probe = output.new_zeros(output.shape[0], bias.numel(), requires_grad=True)
    taps.probes.append((name, probe, bias.to(output)))
    last = isinstance(module, nn.Linear | TokenNorm | HeldAttention) or output.ndim == 2  # where the channels are
    shape = [output.shape[0], *[1] * (output.ndim - 2)]
    shape.insert(len(shape) if last else 1, bias.numel())
    return output + probe.view(shape)
