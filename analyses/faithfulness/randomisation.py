"""Cascading parameter randomisation: the network forgets, layer by layer, from the head down (Adebayo et al. 2018).

A map that hardly changes while the network forgets what it learned does not come from what it learned. Efficient
parameter randomisation (Hedström et al. 2023) compares no pixels: it asks whether the map of the network that has
forgotten everything is more complex.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.layers import SharpenedSDP2d

EXPONENTS = 1.0, 3.0  # where p of a sharpened layer starts
Q = 1e-3
AROUND = 0.5
BINS = 100  # of the histogram of a map, as in the published code


class Depth(NamedTuple):
    """One step of the cascade: its name, and the modules that are randomised together."""

    name: str
    modules: tuple[str, ...]


def depths_of(model: nn.Module, image: Tensor) -> list[Depth]:
    """The layers that have parameters, last to run first; a norm goes with the layer that ran before it."""
    groups: list[list[str]] = []
    norms = {name for name, module in model.named_modules() if _is_norm(module)}
    for name in _run_order(model, image):
        if name in norms and groups:
            groups[-1].append(name)
        else:
            groups.append([name])
    if not groups:
        raise InputError("the model has no parameters to randomise: its cascade would be empty")
    return [Depth(group[0] or "network", tuple(group)) for group in reversed(groups)]


def cascade(model: nn.Module, depths: list[Depth], *, seed: int) -> Iterator[nn.Module]:
    """A copy of the model, yielded after each depth: all layers from the head to there are new, those below are not.

    A layer's new parameters depend on `seed` and its depth alone. The copy is one and the same module throughout.
    """
    network = copy.deepcopy(model)
    modules = dict(network.named_modules())
    for position, depth in enumerate(depths):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 * seed + position)
            for name in depth.modules:
                randomise_(modules[name])
        yield network


def randomised(model: nn.Module, depths: list[Depth], *, seed: int) -> nn.Module:
    """A copy whose layers are all re-initialised."""
    *_, network = cascade(model, depths, seed=seed)
    return network


def complexity_rise(maps: np.ndarray, forgotten: np.ndarray) -> np.ndarray:
    """(n,) eMPRT of maps (n, H, W): (Ĥ − H) / H, with Ĥ of the maps once every layer is random; NaN where H is 0.

    H is the entropy of a histogram of the map's values with 100 bins of equal width.
    """
    before, after = _histogram_entropy(maps), _histogram_entropy(forgotten)
    return np.divide(after - before, before, out=np.full(len(maps), np.nan), where=before > 0)


def _histogram_entropy(maps: np.ndarray) -> np.ndarray:
    """(n,) in nats; NaN of a map that is not finite."""
    from scipy.stats import entropy

    known = (np.isfinite(item).all() for item in maps)
    return np.array(
        [entropy(np.histogram(item, bins=BINS)[0]) if ok else np.nan for item, ok in zip(maps, known, strict=True)]
    )


@torch.no_grad()
def randomise_(module: nn.Module) -> None:
    """Give a module's own parameters new values, as if it had just been made; running statistics start anew.

    Kernels, heads and exponents p start at random. What has no initialisation of its own is drawn from a normal
    distribution with the mean and deviation that it has. What starts at a constant (q, γ, β) would be the same in
    every fresh network, so it is drawn around that: uniformly within ±0.5 (of log q, for q). Drawn on the CPU, so that
    all devices see the same values.
    """
    for name, parameter in module.named_parameters(recurse=False):
        parameter.copy_(_normal_like(parameter))
        if isinstance(module, SharpenedSDP2d) and name == "p":
            parameter.copy_(torch.empty(parameter.shape).uniform_(*EXPONENTS))
        if isinstance(module, SharpenedSDP2d) and name == "log_q":
            parameter.fill_(torch.tensor(Q).log().item())
    _reset(module)
    for parameter in module.parameters(recurse=False):
        if parameter.numel() == 1 or (parameter == parameter.flatten()[0]).all():
            parameter.add_(torch.empty(parameter.shape).uniform_(-AROUND, AROUND).to(parameter))


def _normal_like(parameter: Tensor) -> Tensor:
    values = parameter.detach().cpu().double()
    spread = values.std(correction=0).item()
    return values.mean() + spread * torch.randn(values.shape, dtype=torch.float64)


def _reset(module: nn.Module) -> None:
    """The module's own initialisation, on the CPU, and fresh running statistics."""
    if callable(reset := getattr(module, "reset_parameters", None)):
        here = next(module.parameters(recurse=False)).device
        module.cpu()
        reset()
        module.to(here)
    for name, start in (("running_mean", 0.0), ("running_var", 1.0)):
        if isinstance(statistic := getattr(module, name, None), Tensor):
            statistic.fill_(start)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _run_order(model: nn.Module, image: Tensor) -> list[str]:
    """Modules with parameters of their own, in the order in which they first run."""
    own = {name for name, module in model.named_modules() if next(module.parameters(recurse=False), None) is not None}
    ran: dict[str, None] = {}
    with _watched(model, own, ran), torch.no_grad():
        model(image)
    return list(ran)


@contextmanager
def _watched(model: nn.Module, names: set[str], ran: dict[str, None]) -> Iterator[None]:
    handles = [
        module.register_forward_pre_hook(lambda _module, _inputs, name=name: ran.setdefault(name))
        for name, module in model.named_modules()
        if name in names
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
