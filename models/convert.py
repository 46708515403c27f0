"""Swap the layers of any network: convolutions for SCS, SharpenedSDP, cosine or B-cos layers, and back.

What the B-cos form of a network is: B-cos v2, section 3.3; that of an SCS network: Wu et al. 2023, section 3.1.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.form import Form
from scs_eval.models.layers import (
    AddInverse,
    AllNorm,
    BatchNorm,
    BcosConv2d,
    BcosLinear,
    CosineSim2d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LogitLayer,
    Normalize,
    PositionNorm,
    SCS2d,
    SharpenedSDP2d,
)
from scs_eval.models.layers.token_norm import TokenNorm
from scs_eval.models.leftovers import ACTIVATIONS, called_activations, left_modules, summarise
from scs_eval.models.outputs import count_outputs
from scs_eval.models.plain import is_plain
from scs_eval.models.transplant import transplant
from scs_eval.models.unfold import unfold_norms

OURS: dict[str, type[nn.Conv2d]] = {"scs": SCS2d, "ssdp": SharpenedSDP2d, "cos": CosineSim2d, "bcos": BcosConv2d}
NORMS = {"bn": BatchNorm, "ln": LayerNorm, "in": InstanceNorm, "pn": PositionNorm, "an": AllNorm}


class Conversion(NamedTuple):
    """The new network, its layers that were replaced, and what stayed though it does not belong, both by place."""

    model: nn.Module
    replaced: dict[str, str]
    left: dict[str, str]


class Encoded(nn.Module):
    """A B-cos network: [x, 1-x] in front, the logit layer behind; takes RGB in [0, 1]."""

    def __init__(self, network: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.encode, self.network, self.logits = AddInverse(), network, LogitLayer(num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        return self.logits(self.network(self.encode(x)))


def convert(
    model: nn.Module,
    *,
    layer: str,
    norm: str | None = None,
    activation: str | None = None,
    b: float = 2.0,
    classifier_first: bool = False,
    keep_weights: bool = False,
    seed: int = 0,
) -> nn.Module:
    """A new network made of other layers (see `Form`); `model` stays as it is. A warning names what was left over."""
    form = Form(layer=layer, norm=norm, activation=activation, b=b, classifier_first=classifier_first)
    done = conversion(model, form, keep_weights=keep_weights, seed=seed)
    if done.left:
        warnings.warn(f"left as they are: {summarise(done.left)}", stacklevel=2)
    return done.model


def conversion(model: nn.Module, form: Form, *, keep_weights: bool = False, seed: int = 0) -> Conversion:
    """The same, with what was replaced and what could not be.

    keep_weights carries kernels over (a stem's w becomes [w, -w]/2 for [x, 1-x]), to be fine-tuned; biases of replaced
    layers are dropped. Otherwise replaced layers start as such layers do, by `seed`.
    """
    result = copy.deepcopy(model)
    unfold_norms(result)
    called = called_activations(result) if form.chosen_activation == "linear" else {}
    start = {key: value.clone() for key, value in result.state_dict().items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        replaced = dict(_swap(result, form, {}, ""))
        if not replaced:
            raise InputError(f"found nothing to convert to {form.layer} in {type(model).__name__}")
        moved = _classifier_first(result) if form.classifier_first else None
    if keep_weights:
        transplant(_renamed(start, moved), result)
        _carry_statistics(start, result)
    left = dict(left_modules(result, form)) | called
    if form.layer == "bcos" and any("3 → 6" in change for change in replaced.values()):
        result = Encoded(result, count_outputs(result) or 0).train(model.training)
    return Conversion(result, replaced, left)


def _swap(root: nn.Module, form: Form, done: dict[int, nn.Module], prefix: str) -> Iterator[tuple[str, str]]:
    """Replace what has another form, in place; yields where and what. A shared layer stays shared."""
    for name, child in [(name, child) for name, child in root._modules.items() if child is not None]:
        place = f"{prefix}{name}"
        new = done[id(child)] if id(child) in done else _new(child, form)
        if new is None:
            yield from _swap(child, form, done, f"{place}.")
        else:
            done[id(child)] = new
            setattr(root, name, new.to(_device(child)).train(child.training))
            yield place, _change(child, new)


def _new(module: nn.Module, form: Form) -> nn.Module | None:
    """What stands in the module's place, or None where it stays or is looked into; a subclass may be another layer."""
    kind = type(module)
    if isinstance(module, nn.Conv2d) and (kind is nn.Conv2d or kind in OURS.values()):
        return _convolution(module, form)
    if isinstance(module, nn.Linear) and (kind is BcosLinear or is_plain(module, nn.Linear)):
        return _linear(module, form)
    if kind is Normalize and form.layer == "bcos":
        return nn.Identity()  # [x, 1-x] comes instead
    if kind in ACTIVATIONS and form.chosen_activation != "keep":
        return nn.ReLU() if form.chosen_activation == "relu" else nn.Identity()
    return _norm(module, form)


def _convolution(conv: nn.Conv2d, form: Form) -> nn.Module | None:
    wanted = OURS.get(form.layer, nn.Conv2d)
    if type(conv) is wanted:
        return None
    if getattr(conv, "pool", None) is not None or getattr(conv, "relu", False):
        raise InputError("a sharpened layer with pooling inside is the zoo's own: build its twin by name instead")
    inputs = 6 if form.layer == "bcos" and conv.in_channels == 3 else conv.in_channels
    outputs = conv.out_channels // getattr(conv, "max_out", 1)
    place = (inputs, outputs, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups)
    options: dict[str, dict[str, Any]] = {"bcos": {"b": form.b}, "conv": {"bias": False}}
    extra = options.get(form.layer, {})
    return wanted(*place, padding_mode=conv.padding_mode, dtype=conv.weight.dtype, **extra)  # type: ignore[arg-type]


def _linear(linear: nn.Linear, form: Form) -> nn.Module | None:
    if form.layer == "bcos" and not isinstance(linear, BcosLinear):
        return BcosLinear(linear.in_features, linear.out_features, b=form.b, dtype=linear.weight.dtype)
    if form.layer == "conv" and isinstance(linear, BcosLinear):
        return nn.Linear(linear.in_features, linear.out_features // linear.max_out, dtype=linear.weight.dtype)
    return None


def _norm(module: nn.Module, form: Form) -> nn.Module | None:
    name, known = form.chosen_norm, (nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d, *NORMS.values(), GroupNorm)
    if name != "keep" and isinstance(module, nn.LayerNorm):
        return _token_norm(module, form)
    if name == "keep" or type(module) not in known:
        return None
    channels = int(getattr(module, "num_features", 0) or getattr(module, "num_channels", 0))
    return nn.Identity() if name == "none" else NORMS[name[:2]](channels, centred=not name.endswith("u"))


def _token_norm(norm: nn.LayerNorm, form: Form) -> nn.Module | None:
    """Norms per token or pixel lose their bias and stay what they are, as in B-cos transformers and ConvNeXts.

    Asked for by name, another norm takes the place of those per pixel, which torchvision and timm call LayerNorm2d.
    """
    if form.chosen_norm == "none":
        return nn.Identity()
    pixels = type(norm).__name__ == "LayerNorm2d"
    if len(norm.normalized_shape) != 1 or not (pixels or is_plain(norm, nn.LayerNorm)):
        return None
    if not pixels:
        return TokenNorm(norm.normalized_shape[0], centred=True, eps=norm.eps)
    kind = PositionNorm if form.norm is None else NORMS[form.norm[:2]]
    return kind(norm.normalized_shape[0], centred=not (form.norm or "").endswith("u"), eps=norm.eps)


def _classifier_first(root: nn.Module) -> tuple[str, str]:
    """Put the last linear layer, as a 1×1 convolution, before the global pooling; from where, to where.

    The pooling's place takes both, the classifier's place nothing, so the network's own forward pass stays as it is.
    """
    linears = [(name, module) for name, module in root.named_modules() if isinstance(module, nn.Linear)]
    pools = [(name, module) for name, module in root.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)]
    if not linears or not pools or pools[-1][1].output_size not in (1, (1, 1)):
        raise InputError("the classifier cannot come first: the network has no global average pooling module before it")
    if between := _with_weights_between(root, pools[-1][0], linears[-1][0]):
        raise InputError(f"the classifier cannot come first: {between} stands between the global pooling and it")
    (head, linear), (pooled, pool) = linears[-1], pools[-1]
    shape = (linear.in_features, linear.out_features, 1)
    first = BcosConv2d(*shape, b=linear.b) if isinstance(linear, BcosLinear) else nn.Conv2d(*shape)
    root.set_submodule(pooled, nn.Sequential(first.to(linear.weight), pool))
    root.set_submodule(head, nn.Identity())
    return head, f"{pooled}.0"


def _with_weights_between(root: nn.Module, first: str, last: str) -> str | None:
    """The name of a layer with weights among those that the network has between these two."""
    names = [name for name, module in root.named_modules() if not any(module.children())]
    inner = names[names.index(first) + 1 : names.index(last)]
    return next((name for name in inner if any(True for _ in root.get_submodule(name).parameters())), None)


def _renamed(state: dict[str, Tensor], moved: tuple[str, str] | None) -> dict[str, Tensor]:
    if moved is None:
        return state
    head, new = moved
    return {new + key.removeprefix(head) if key.startswith(f"{head}.") else key: value for key, value in state.items()}


def _carry_statistics(start: dict[str, Tensor], result: nn.Module) -> None:
    """Running means and variances of norms that became others of their kind."""
    for key, buffer in result.named_buffers():
        if key in start and start[key].shape == buffer.shape:
            buffer.copy_(start[key])


def _change(old: nn.Module, new: nn.Module) -> str:
    stem = " 3 → 6 channels" if (getattr(old, "in_channels", 0), getattr(new, "in_channels", 0)) == (3, 6) else ""
    return f"{type(old).__name__} → {type(new).__name__}{stem}"


def _device(module: nn.Module) -> torch.device | None:
    return next((parameter.device for parameter in module.parameters()), None)
