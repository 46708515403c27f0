"""What images go through before they are learned from: crops, flips, mixing, PGD (Madry et al. 2018).

Every random number of a run is a function of (seed, epoch, batch), so a resumed run needs no generator's state.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scs_eval.training.recipe import Recipe


def crop_flip(images: Tensor, *, padding: int, offsets: Tensor, flips: Tensor) -> Tensor:
    """Shift every image within its zero padding and mirror some of them.

    images (N, C, H, W); offsets (N, 2), the top and left corner of the crop in the padded image, each in
    0 … 2·padding; flips (N,), bool. The result has the shape and type of `images`: what torchvision's
    RandomCrop(H, padding) and RandomHorizontalFlip would give for the same draws.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (padding, padding, padding, padding))
    # A view of every possible crop, (N, C, 2·padding + 1, 2·padding + 1, H, W); indexing copies only those wanted.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows = torch.arange(len(images), device=images.device)
    crops = windows[rows, :, offsets[:, 0], offsets[:, 1]]
    return torch.where(flips[:, None, None, None], crops.flip(-1), crops)


def to_unit(images: Tensor) -> Tensor:
    """Bytes (N, C, H, W) -> floats in [0, 1], laid out channels last."""
    return images.to(torch.float32, memory_format=torch.channels_last).div_(255)


Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def make_mixing(recipe: Recipe, *, num_classes: int) -> Mixing | None:
    """One of the mixings that the recipe switches on, chosen anew for each batch; None if there is none.

    It turns images and labels (N,) into mixed images and class shares (N, C), drawing from torch's global generator.
    """
    if not (recipe.mixup or recipe.cutmix):
        return None
    from torchvision.transforms import v2  # slow to import, and most recipes do without

    pairs = (v2.MixUp, recipe.mixup), (v2.CutMix, recipe.cutmix)
    return v2.RandomChoice([mixing(alpha=alpha, num_classes=num_classes) for mixing, alpha in pairs if alpha])


def derive_seed(*numbers: int) -> int:
    """One 63-bit seed from a run's seed and counters such as epoch, batch and rank."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(*numbers: int) -> torch.Generator:
    """A CPU generator at the start of the stream that belongs to these numbers."""
    return torch.Generator().manual_seed(derive_seed(*numbers))


REL_STEP_SIZE = 2.5  # of ε/steps: steps enough to get from anywhere in the ball to its edge, as in Madry et al.


def attacked(images: Tensor, loss: Callable[[Tensor], Tensor], *, eps: float, steps: int) -> Tensor:
    """Images within ε of the given ones (maximum norm, pixels in [0, 1]) that raise the loss, from a random start.

    Random numbers come from torch's global generator. No gradient reaches the parameters.
    """
    low, high = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
    adversarial = torch.min(torch.max(images + eps * (2 * torch.rand_like(images) - 1), low), high)
    for _ in range(steps):
        adversarial.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(adversarial), adversarial)
        step = REL_STEP_SIZE * eps / steps * gradient.sign()
        adversarial = torch.min(torch.max(adversarial.detach() + step, low), high)
    return adversarial
