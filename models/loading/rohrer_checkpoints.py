"""State dicts of Rohrer's published scripts: the tensors of our Rohrer networks under other names and in older units.

The scripts name their layers scs1, scs2 (or scs2_depth, scs2_point), scs3 and the head out. The layer changed seven
times; the newest keeps `weight`, `p` and `log_q` as ours does. Before, it learned p and q in other units:

    p = exp(θ/5), q = exp(-θ/0.3)       versions 2 to 6
    p = (θ/10)², q = (θ/100)²           version 1, with kernels (O, C, k²) as `w`, as has version 2
    y = alpha · sign(c) |c|^p           version 6, some networks

Versions 3 and 4 add q inside the root of the patch norm, which for their q of e^-10 is as good as outside.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.layers import SCS2d

LAYER = re.compile(r"scs(\d+)(_depth|_point)?\.(weight|w|p|log_q|q|alpha|bias)")
CLAMPED_AT = 3.0  # one of the published layers holds its weights in [-3, 3], the others in [-1, 1]
P_SCALE, Q_SCALE = 5.0, 0.3
P_SCALE_1, Q_SCALE_1 = 10.0, 100.0  # of version 1
SQUARED_FROM = 9.0  # version 1 starts θ of p at 14 and p stays near 2; exp(9/5) = 6 is beyond all trained networks


def from_gallery(state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The state dict by our names and in our units, or None if it is not one of the scripts'."""
    layers = sorted({key.rpartition(".")[0] for key in state if LAYER.fullmatch(key)})
    rest = {key for key in state if not LAYER.fullmatch(key)}
    if not layers or rest - {"out.weight", "out.bias"}:
        return None
    by_layer = {layer: _tensors_of(layer, state) for layer in layers}
    head = _tensors_of("out", state)
    if all("log_q" not in tensors for tensors in by_layer.values()):
        _modernise(list(by_layer.values()), head)
    renamed = {f"stages.{index}.layer": by_layer[layer] for index, layer in enumerate(layers)} | {"head": head}
    return {f"{layer}.{name}": value for layer, tensors in renamed.items() for name, value in tensors.items()}


def widen_limits(model: nn.Module) -> bool:
    """Let weights beyond ±1 be: they come from the script whose layer holds them in ±3. Whether there were any."""
    layers = [module for module in model.modules() if isinstance(module, SCS2d)]
    if not any(layer.weight.detach().abs().max() > layer.w_max for layer in layers):
        return False
    for layer in layers:
        layer.w_max = CLAMPED_AT
    return True


def _tensors_of(layer: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.rpartition(".")[2]: value for key, value in state.items() if key.rpartition(".")[0] == layer}


def _modernise(layers: list[dict[str, Tensor]], head: dict[str, Tensor]) -> None:
    """Bring the layers of an older version, in their order, and the head into the units of the newest, in place.

    alpha scales the input of the next layer, whose cosine only notices it beside q: q/alpha undoes it; the head's
    weights take the last one.
    """
    scale = torch.ones(())
    for tensors in layers:
        squared = "w" in tensors and bool(tensors["p"].median() > SQUARED_FROM)
        q = _q(tensors, squared=squared) / scale
        scale = tensors.get("alpha", torch.ones(())).mean()
        if scale <= 0:
            raise InputError("a layer of this file has a negative alpha, which no layer of ours can express")
        weight = _kernels(tensors)
        p = (tensors["p"] / P_SCALE_1).square() if squared else (tensors["p"] / P_SCALE).exp()
        tensors.clear()
        tensors |= {"weight": weight, "p": p.flatten().expand(len(weight)).reshape(1, -1, 1, 1)}
        tensors["log_q"] = q.log().reshape(1, 1, 1, 1)
    if "weight" in head:
        head["weight"] = head["weight"] * scale


def _q(tensors: dict[str, Tensor], *, squared: bool) -> Tensor:
    """One q for the layer (version 2 has one per input channel, all close to e^-10); 0 in the very first layers."""
    if "q" not in tensors:
        return torch.tensor(torch.finfo(torch.float32).tiny)
    q = (tensors["q"] / Q_SCALE_1).square() if squared else (-tensors["q"] / Q_SCALE).exp()
    return q.mean().clamp(min=torch.finfo(torch.float32).tiny)


def _kernels(tensors: dict[str, Tensor]) -> Tensor:
    """(O, C, k, k), each kernel within ±1: older layers had no limit, and their length does not matter."""
    weight = tensors["w"] if "w" in tensors else tensors["weight"]
    if weight.ndim == 3:
        side = round(weight.shape[2] ** 0.5)
        weight = weight.unflatten(2, (side, side))
    return weight / weight.abs().amax((1, 2, 3), keepdim=True).clamp(min=1)
