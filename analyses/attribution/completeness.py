"""How much of a number its map leaves out: shares, and the limit above which a map is marked."""

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.gradient import references_for
from scs_eval.analyses.attribution.methods import MapOptions, Method
from scs_eval.analyses.core.batching import images_at_once, map_images
from scs_eval.analyses.core.inference import BATCH
from scs_eval.images import Images

LIMIT = 1e-3  # of the logit or activation: a residual above it means that the map is not the whole story


def complete(residual: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Whether the residual is within a thousandth of the whole."""
    return np.asarray(np.abs(residual) <= LIMIT * np.abs(whole))


def bias_share(map_size: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """|bias| / (Σ|W(x)⊙x| + |bias|), from 0 to 1: the part of what is added up that a map cannot show.

    map_size: Σ|W(x)⊙x| of each map. Unlike bias / logit it has no pole where positive and negative parts cancel.
    """
    whole = map_size + np.abs(bias)
    return np.divide(np.abs(bias), whole, out=np.zeros_like(whole), where=whole > 0)


@torch.no_grad()
def totals(model: nn.Module, images: Images, targets: Tensor, method: Method, options: MapOptions) -> Tensor | None:
    """(N,) what the maps of `targets` (N,) should add up to, if those of the method should.

    That is the logit, or its change from black or from references. The model must be in evaluation mode.
    """
    if method.adds_up_to is None:
        return None
    first = images[:1]
    like = next(model.parameters(), first)

    def logits(batch: Tensor, _part: object = None) -> Tensor:
        return model(batch.to(like.device, like.dtype)).cpu().double()

    every = torch.cat(map_images(logits, images, size=images_at_once(images, BATCH)))
    of_images = every.gather(1, targets.cpu()[:, None])[:, 0]
    if method.adds_up_to == "logit":
        return of_images
    if method.adds_up_to == "change from references":
        return of_images - logits(references_for(first, options)).mean(0)[targets.cpu()]
    return of_images - logits(torch.zeros_like(first))[0, targets.cpu()]


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part/whole; 0 of 0 is 0."""
    return np.divide(part, whole, out=np.where(part == 0, 0.0, np.inf), where=whole != 0)


def percent(share: float) -> str:
    """Rounded to what can be read."""
    text = f"{100 * share:.0f} %" if abs(share) >= 0.1 or share == 0 else f"{100 * share:.2g} %"
    return text.replace("-", "−")  # the sign that is printed
