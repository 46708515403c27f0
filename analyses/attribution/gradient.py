"""The gradient of a logit, and its means over a path or a cloud of images, for several classes of one image at once.

All classes share the forward passes; each costs a backward pass.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.analyses.attribution.perturbation import versions_at_once
from scs_eval.analyses.core.batching import map_with_backoff
from scs_eval.errors import InputError

INTGRAD_STEPS = 50  # B-cos v2, supplement D
SMOOTHGRAD_SAMPLES, SMOOTHGRAD_SIGMA = 25, 0.15  # Smilkov et al. 2017: noise of 10-20 % of the range of the image


def gradient(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """∂ logit / ∂ x (Simonyan et al. 2014), with its sign: (N, K, C, H, W)."""
    start = images.detach().requires_grad_()
    return class_gradients(model(start), start, targets)


def input_times_gradient(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """x ⊙ ∂ logit / ∂ x (Shrikumar et al. 2016)."""
    return gradient(model, images, targets, options) * images[:, None]


def integrated_gradients(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """x ⊙ ∫ ∂ logit / ∂ x at α·x dα from black (Sundararajan et al. 2017), by Gauss and Legendre's rule."""
    nodes, weights = (torch.from_numpy(part).to(images) for part in np.polynomial.legendre.leggauss(INTGRAD_STEPS))

    def along_path(part: slice) -> Tensor:
        return images * ((nodes[part] + 1) / 2).view(-1, 1, 1, 1, 1)

    return mean_gradients(model, images, targets, along_path, weights / 2) * images[:, None]


def expected_gradients(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """E (x − x′) ⊙ ∂ logit / ∂ x at x′ + α (x − x′), over references x′ and α in [0, 1] (Erion et al. 2021).

    As many draws as integrated gradients have steps, one α in each of as many equal parts of [0, 1], in random order;
    references and α are the same for every image and class.
    """
    references = references_for(images, options)
    draw = torch.Generator().manual_seed(options.seed)
    parts = torch.randperm(len(references), generator=draw) + torch.rand(len(references), generator=draw)
    alphas = (parts / len(references)).view(-1, 1, 1, 1, 1).to(images)
    weights = images.new_full((len(references),), 1 / len(references))

    def between(part: slice) -> Tensor:
        return references[part, None] + alphas[part] * (images - references[part, None])

    def difference(part: slice) -> Tensor:
        return images - references[part, None]

    return mean_gradients(model, images, targets, between, weights, factors=difference)


def references_for(images: Tensor, options: MapOptions) -> Tensor:
    """(S, C, H, W) the references of expected gradients: drawn from those given, else even images of random colours."""
    draw = torch.Generator().manual_seed(options.seed)
    if options.references is None:
        colours = torch.rand(INTGRAD_STEPS, 3, 1, 1, generator=draw).to(images)
        chosen = colours.expand(-1, -1, *images.shape[2:])
    else:
        chosen = options.references[torch.randint(len(options.references), (INTGRAD_STEPS,), generator=draw)].to(images)
        if chosen.shape[1:] != (3, *images.shape[2:]):
            raise InputError(f"expected references of {tuple(images.shape[2:])} pixels, got {tuple(chosen.shape[2:])}")
    return torch.cat([chosen, 1 - chosen], 1) if images.shape[1] == 6 else chosen  # as [x, 1−x] encodes them


def smoothgrad(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """The mean gradient of noisy copies (Smilkov et al. 2017); the noise is the same for every image and class."""
    torch.manual_seed(options.seed)  # put back by `evaluating`
    noise = torch.normal(0, images.new_full((SMOOTHGRAD_SAMPLES, 1, *images.shape[1:]), SMOOTHGRAD_SIGMA))
    weights = images.new_full((SMOOTHGRAD_SAMPLES,), 1 / SMOOTHGRAD_SAMPLES)
    return mean_gradients(model, images, targets, lambda part: images + noise[part], weights)


def mean_gradients(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    versions: Callable[[slice], Tensor],
    weights: Tensor,
    *,
    factors: Callable[[slice], Tensor] | None = None,
) -> Tensor:
    """Σ_s weights_s · ∂ logit / ∂ x at the s-th version of the images, (N, K, C, H, W).

    versions: from a slice of 0 … S to (s, N, C, H, W). As many at once as are worth it, fewer when memory runs out.
    factors: likewise, what each gradient is multiplied by.
    """

    def some(part: slice) -> Tensor:
        start = versions(part).flatten(0, 1).detach().requires_grad_()
        count = part.stop - part.start
        gradients = class_gradients(model(start), start, targets.repeat(count, 1)).unflatten(0, (count, -1))
        scaled = gradients if factors is None else gradients * factors(part)[:, :, None]
        return torch.tensordot(weights[part], scaled, 1)

    at_once = max(1, versions_at_once(images) // len(images))
    parts = [part for _, part in map_with_backoff(len(weights), at_once, some)]
    return torch.stack(parts).sum(0)


def class_gradients(logits: Tensor, start: Tensor, targets: Tensor) -> Tensor:
    """∂ logit / ∂ start (N, K, …) for each of the K classes `targets` (N, K)."""
    gradients = [
        torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), start, retain_graph=True)[0]
        for classes in targets.unbind(1)
    ]
    return torch.stack(gradients, 1)
