"""The entry points of the package `bcos`, which of our networks each is, and how far two such networks differ."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from bcos.models import pretrained
from torch import Tensor, nn

from scs_eval.models.architectures._imagenet import MEAN, STD
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.zoo.registry import create_model

SIZES = ("ti", "s", "b", "l")
OURS = {
    "resnet18": "resnet18_224_bcos",
    **{f"resnet{depth}": f"resnet{depth}_bcos" for depth in (34, 50, 101, 152)},
    **{f"resnet{depth}_long": f"resnet{depth}_bcos" for depth in (50, 152)},
    "resnext50_32x4d": "resnext50_32x4d_bcos",
    "vgg11_bnu": "vgg11_bcos",
    **{f"densenet{depth}": f"densenet{depth}_bcos" for depth in (121, 161, 169, 201)},
    "densenet121_long": "densenet121_bcos",
    **{f"convnext_{size}{norm}": f"convnext_{size}_bcos{norm}" for size in ("tiny", "base") for norm in ("", "_bnu")},
    **{f"simple_vit_{size}_patch16_224": f"vit_{size}_bcos" for size in SIZES},
    **{f"vitc_{size}_patch1_14": f"vitc_{size}_bcos" for size in SIZES},
    **{f"standard_simple_vit_{size}_patch16_224": f"vit_{size}_conv" for size in SIZES},
    **{f"standard_vitc_{size}_patch1_14": f"vitc_{size}_conv" for size in SIZES},
}
CLASS = 3  # whose row of W is compared
FP32, FP64 = 5e-5, 1e-10


class Row(NamedTuple):
    """One line of the table: differences relative to the largest value."""

    entry_point: str
    name: str
    parameters: int
    pixels: int
    pre_logits_fp32: float
    w_fp32: float
    pre_logits_fp64: float
    w_fp64: float
    their_rounding_pre_logits: float  # of the published network in fp32 against itself in fp64: what fp32 can tell
    their_rounding_w: float
    our_rounding_pre_logits: float
    our_rounding_w: float


def published(entry: str) -> nn.Module:
    """The untrained network of an entry point."""
    return getattr(pretrained, entry)(pretrained=False)


def awakened(model: nn.Module, pixels: int, *, standard: bool = False) -> nn.Module:
    """The network with weights as after training: norms off their start, statistics of a batch.

    At initialisation the signal drowns in the logit bias, and ConvNeXt's blocks count for a millionth.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or name.endswith("layer_scale"):
            low, high = (-0.2, 0.2) if name.endswith("bias") else (0.5, 1.5)
            nn.init.uniform_(parameter, low, high)
    for module in model.modules():
        if hasattr(module, "momentum"):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(encoded(torch.rand(8, 3, pixels, pixels), standard=standard))
    return model.eval()


def agree(differences: Sequence[float]) -> bool:
    """Whether two networks give the same answers.

    B-cos layers square small cosines, so that a hundred of them magnify the last digit of fp32 to 1e-4: deep networks
    agree to 5e-5 only if every step rounds alike.
    """
    return max(differences[:2]) <= FP32 and max(differences[2:4]) <= FP64


def encoded(x: Tensor, *, standard: bool) -> Tensor:
    """What the published network is given for RGB in [0, 1]."""
    if standard:
        mean, std = (torch.tensor(values).view(-1, 1, 1).to(x) for values in (MEAN, STD))  # rounded as in fp32
        return (x - mean) / std
    return torch.cat([x, 1 - x], 1)


def compare_entry(entry: str, pixels: int) -> Row:
    """An entry point and our network of that name."""
    torch.manual_seed(0)
    standard = entry.startswith("standard_")
    theirs = awakened(published(entry), pixels, standard=standard)
    ours = create_model(OURS[entry], num_classes=1000)
    differences = compare(theirs, ours, pixels, standard=standard)
    return Row(entry, OURS[entry], sum(p.numel() for p in ours.parameters()), pixels, *differences)


def compare(theirs: nn.Module, ours: nn.Module, pixels: int, *, standard: bool = False) -> list[float]:
    """Load the published network's state dict into ours, strictly, and compare what both answer."""
    ours.eval().load_state_dict(theirs.state_dict(), strict=True)
    x = torch.rand(2, 3, pixels, pixels, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    wanted, actual = [], []
    for dtype in (torch.float, torch.double):  # the networks are never there twice
        wanted.append(answers_of_theirs(theirs.to(dtype), x.to(dtype), standard=standard))
        actual.append(answers_of_ours(ours.to(dtype), x.to(dtype)))
    pairs = [(actual[0], wanted[0]), (actual[1], wanted[1]), (wanted[0], wanted[1]), (actual[0], actual[1])]
    return [difference(mine, yours) for pair in pairs for mine, yours in zip(*pair, strict=True)]


def difference(actual: Tensor, wanted: Tensor) -> float:
    """The largest, relative to the largest value."""
    assert actual.shape == wanted.shape
    assert wanted.std() > 0.01 * wanted.abs().max() > 0, "answers that hardly differ would hide a mistake"
    return ((actual - wanted).abs().max() / wanted.abs().max()).item()


def answers_of_theirs(model: nn.Module, x: Tensor, *, standard: bool) -> tuple[Tensor, Tensor]:
    """What enters the logit layer (of a conventional network: its logits), and a row of W (or the gradient)."""
    inputs = (x if standard else encoded(x, standard=False)).clone().requires_grad_()
    last = model if standard else getattr(model, "logit_layer", None) or model[1]
    with nullcontext() if standard else model.explanation_mode():
        entering = heard(last, lambda: model(encoded(inputs, standard=True) if standard else inputs), output=standard)
        return entering.detach(), torch.autograd.grad(entering[:, CLASS].sum(), inputs)[0]


def answers_of_ours(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of our network, W by `decompose`."""
    inputs = x.clone().requires_grad_()
    entering = heard(model.logits, lambda: model(inputs))
    if isinstance(model.logits, nn.Identity):
        return entering.detach(), torch.autograd.grad(entering[:, CLASS].sum(), inputs)[0]
    return entering.detach(), decompose(model, x, torch.full((len(x),), CLASS)).weights


def heard(module: nn.Module, run: Callable[[], Tensor], *, output: bool = False) -> Tensor:
    """What goes into a module, or comes out of it, while `run` runs."""
    found: list[Tensor] = []
    handle = module.register_forward_hook(lambda _, inputs, out: found.append(out if output else inputs[0]))
    run()
    handle.remove()
    return found[0]
