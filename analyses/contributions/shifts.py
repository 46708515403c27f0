"""Does the explanation move with the image? One image shifted along its diagonal (B-cos v2, Fig. 8, bottom).

An image is shifted with its edge mirrored, and every copy explained for the class that the network sees in the image
itself. Beside the pictures stands the correlation of each map, shifted back, with that of the image.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scs_eval.analyses.contributions import ContributionsResult, contributions
from scs_eval.analyses.core.inputs import ModelLike, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.errors import InputError

MOST = 4  # pixels, as in the paper


def shifted(image: Tensor, by: int) -> Tensor:
    """The image (3, H, W) moved down and to the right by so many pixels, with its edge mirrored."""
    height, width = image.shape[1:]
    wide = F.pad(image[None], (abs(by),) * 4, mode="reflect")[0]
    start = abs(by) - by
    return wide[:, start : start + height, start : start + width]


def explain_shifts(model: ModelLike, image: Tensor, *, label: str, most: int = MOST) -> ContributionsResult:
    """The contributions of the copies shifted by -most … most pixels, to the class seen in the image itself."""
    if not 1 <= most < min(image.shape[1:]) // 2:
        raise InputError(f"expected shifts from 1 to less than half of the image, got {most}")
    network = as_model(model)
    with torch.no_grad(), evaluating(network):
        target = network(image[None].to(device_of(network))).argmax(1).cpu()
    copies = torch.stack([shifted(image, by) for by in range(-most, most + 1)])
    shifts = np.arange(-most, most + 1)
    result = contributions(model, copies, target.expand(len(copies)), indices=shifts, label=label)
    return replace(result, extras=("shifts",))
