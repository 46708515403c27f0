"""From a converted network to one of its new kind: B or p rises, and what is added goes, over the first epochs.

A B-cos network begins at B = 1 with biases, an SCS network at p = 1 with a large q; both then compute what the network
did that they were made of (models/conversion). Source: Arya et al. 2024; the path for SCS is our own.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.conversion.bcosify import additive_parameters, learning_layers, set_b, set_constants
from scs_eval.models.layers import BcosConv2d, BcosLinear, ChannelGain, SCS2d
from scs_eval.models.layers.norms import _Norm
from scs_eval.training.ramp_paths import BcosPath, Path, ScsPath
from scs_eval.training.recipe import Recipe

NORMS = (_Norm, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)


class Ramp:
    """How far a network has come, from 0 to 1 in `recipe.ramp_epochs`; weights, p, q and learned B move besides.

    Powers of a cosine shrink responses. Norms make up for that; in a network without any, each layer does, as far as
    its response to `images` at the start tells, which must be the same in every process.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, images: Tensor, *, steps_per_epoch: int) -> None:
        self.model, self.b = model, recipe.ramp_b
        self.steps = max(1, round(recipe.ramp_epochs * steps_per_epoch))
        self.bcos = any(isinstance(module, BcosConv2d | BcosLinear) for module in model.modules())
        self.learning = learning_layers(model)
        self.paths = list(_bcos_paths(model, images, self.b) if self.bcos else _scs_paths(model, images, recipe.ramp_p))
        if not self.bcos and not self.paths:
            raise InputError("ramp_epochs is for networks that `scs-eval convert --same-function` made")

    @torch.no_grad()
    def advance(self, step: int) -> None:
        """After so many updates: everything to where it then belongs."""
        before, now = self._share(step - 1), self._share(step)
        for path in self.paths:
            path.move(before, now)
        for layer in self.learning:
            assert layer.learned_b is not None
            layer.learned_b.add_((self.b - 1) * (now - before))
            layer.constrain_()
        for _, bias in additive_parameters(self.model, gains_only=not self.bcos):
            bias.mul_((1 - now) / (1 - before) if before < 1 else 0)
        self.resume(step)

    def resume(self, step: int) -> None:
        """Set what no state dict holds: B, the input's mean, the logit bias."""
        if self.bcos and not self.learning:
            set_b(self.model, 1 + self._share(step) * (self.b - 1))
        if self.bcos:
            set_constants(self.model, 1 - self._share(step))

    def _share(self, step: int) -> float:
        return min(1.0, step / self.steps)


def _bcos_paths(model: nn.Module, images: Tensor, b: float) -> Iterator[Path]:
    if not any(isinstance(module, NORMS) for module in model.modules()):
        for layer, x in _inputs(model, images, (BcosConv2d, BcosLinear)):
            assert isinstance(layer, BcosConv2d | BcosLinear)
            yield BcosPath(layer, x, b=b)


def _scs_paths(model: nn.Module, images: Tensor, p: float) -> Iterator[Path]:
    pairs = [module for module in model.modules() if isinstance(module, nn.Sequential) and len(module) == 2]
    gains: dict[nn.Module, ChannelGain] = {pair[0]: pair[1] for pair in pairs if isinstance(pair[1], ChannelGain)}
    for layer, x in _inputs(model, images, (SCS2d,)):
        if isinstance(layer, SCS2d) and layer in gains:
            yield ScsPath(layer, gains[layer], x, p=p)


@torch.no_grad()
def _inputs(model: nn.Module, images: Tensor, kinds: tuple[type[nn.Module], ...]) -> list[tuple[nn.Module, Tensor]]:
    """The layers of these kinds with what each of them sees, in evaluation mode."""
    seen: list[tuple[nn.Module, Tensor]] = []
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    hooks = [layer.register_forward_hook(lambda layer, args, _: seen.append((layer, args[0]))) for layer in layers]
    training = model.training
    try:
        model.eval()(images)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return seen
