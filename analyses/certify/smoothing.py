"""Randomised smoothing (Cohen et al. 2019): the class that a model gives to most noisy copies of an image.

If an image plus N(0, σ²) noise is given class c with probability at least p > ½, the smoothed classifier says c
everywhere within σ Φ⁻¹(p) of the image in L2. p is bounded from below by counting.
"""

import math

import numpy as np
import torch
from scipy.special import betaincinv, ndtri
from torch import Tensor, nn

from scs_eval.analyses.core.batching import images_at_once, slices
from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.core.validation import logits_of

ABSTAIN = -1
AT_ONCE = 200  # noisy copies in a forward pass, fewer of large images


def lower_bound(successes: int, n: int, *, alpha: float) -> float:
    """Clopper and Pearson's (1934) exact lower bound of a probability, wrong with probability at most alpha."""
    return float(betaincinv(successes, n - successes + 1, alpha)) if successes else 0.0


def certified_radius(successes: int, n: int, *, sigma: float, alpha: float) -> float | None:
    """σ Φ⁻¹(p) with p the lower bound; None where p is not above ½."""
    bound = lower_bound(successes, n, alpha=alpha)
    return sigma * float(ndtri(bound)) if bound > 0.5 else None


def votes(
    model: nn.Module, image: Tensor, *, sigma: float, n: int, rng: np.random.Generator, classes: int
) -> np.ndarray:
    """(classes,) how often each class is given to n copies of an image (3, H, W) with noise; not cut to [0, 1]."""
    counts = torch.zeros(classes, dtype=torch.long)
    for part in slices(n, images_at_once(image[None], AT_ONCE)):
        shape = (part.stop - part.start, *image.shape)
        noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
        predictions = logits_of(model, image + sigma * noise, classes=classes).argmax(1).cpu()
        counts += predictions.bincount(minlength=classes)
    return counts.numpy()


class Smoothed(nn.Module):
    """The log of the mean probability over fixed noise: a smoothed classifier that gradients can go through.

    Its class is an estimate of the smoothed classifier's; what an attack on it finds is checked by counting.
    """

    def __init__(self, model: nn.Module, *, sigma: float, draws: int, shape: torch.Size, seed: int) -> None:
        super().__init__()
        self.model, self.draws = model, draws
        rng = np.random.default_rng((seed, draws))
        noise = torch.from_numpy(rng.standard_normal((draws, *shape), dtype=np.float32))
        self.register_buffer("noise", (sigma * noise).to(device_of(model)))

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) to log probabilities (N, classes)."""
        noisy = (images[:, None] + self.get_buffer("noise")).flatten(0, 1)
        logs = self.model(noisy).log_softmax(1).unflatten(0, (len(images), self.draws))
        return logs.logsumexp(1) - math.log(self.draws)
