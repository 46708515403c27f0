"""Infidelity: how far a map is from predicting what changes of the image do to the logit (Yeh et al. 2019).

Each pixel loses a random share of itself, x' = (1 − m) ⊙ x with m ~ N(0, σ²), one m per pixel for all three channels. A
map Φ of contributions predicts that the logit falls by Σ m Φ, a gradient that it falls by Σ m x Φ: captum's rule for
maps that have the input in them and for those that have not. Black is where a pixel has lost everything, as for
input × gradient and W(x)⊙x.

Infidelity is E[(β·prediction − fall)²], in squared logits. β is the best factor for each map and image (captum's
`normalize`), since gradients, contributions, Grad-CAM and edges do not share a unit; a map with all signs wrong is not
punished, for β may be negative. Divided by E[fall²], the infidelity of a map of zeros, it is the share of the change
that the map leaves unexplained: 0 perfect, 1 useless, whatever the scale of the logits. It grows with σ: a gradient is
exact for ever smaller changes of a smooth network and says little of large ones. Fitting β to the samples alone
explains 1 / samples on average, so a random map has 0.98 with 50.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.perturbation import versions_at_once
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.analyses.faithfulness.options import SAMPLES, SIGMA

IMAGES_AT_ONCE = 50

Perturb = Callable[[Tensor], tuple[Tensor, Tensor]]


def infidelity(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    maps: Tensor,
    *,
    gradient: bool,
    scale: bool = True,
    sigma: float = SIGMA,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Tensor:
    """(N,) captum's infidelity of maps (N, 3, H, W), with β if `scale`; every image has the same m."""
    from captum.metrics import infidelity as of_captum

    at_once = versions_at_once(images)
    shares = sigma * torch.randn(samples, 1, *images.shape[2:], generator=torch.Generator().manual_seed(seed))

    def measure(part: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        x, y, phi = part
        return of_captum(
            model, perturbation(shares.to(images), len(x), gradient=gradient), x, phi, target=y,
            n_perturb_samples=samples, normalize=scale,
            max_examples_per_batch=min(at_once, len(x) * samples),
        )  # fmt: skip

    size = min(IMAGES_AT_ONCE, at_once)
    parts = zip(*(item.split(size) for item in (images, targets, maps)), strict=True)
    return torch.cat(shared_map(measure, parts)).cpu().double()


def perturbation(shares: Tensor, images: int, *, gradient: bool) -> Perturb:
    """What captum asks in turn: of images repeated k times each, the next k perturbations and what comes of them.

    `shares` (samples, 1, H, W) are used up in their order, the same for each of the images.
    """
    used = 0

    def perturb(repeated: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal used
        count = len(repeated) // images
        lost = shares[used : used + count].repeat(images, 1, 1, 1).expand_as(repeated)
        used += count
        return (lost * repeated if gradient else lost), repeated - lost * repeated

    return perturb
