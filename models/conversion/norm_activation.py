"""Take apart norms that carry their activation inside, as timm's BatchNormAct2d does, so that each part can change."""

import copy

import torch
from torch import nn

from scs_eval.models.conversion.equivalence import same_output
from scs_eval.models.conversion.swap import SwapRule


def take_apart(norm: nn.BatchNorm2d) -> nn.Sequential | None:
    """A BatchNorm and the modules that the norm has; None for one without any, or one that computes something else."""
    if not any(True for _ in norm.children()):
        return None
    bare = nn.BatchNorm2d(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    own = {key: value for key, value in norm.state_dict().items() if "." not in key}
    bare.load_state_dict(own)
    parts = nn.Sequential(bare.to(next(iter(own.values()), torch.empty(0)).device), *norm.children())
    return parts.train(norm.training) if _is_equivalent(norm, parts) else None


TAKE_APART = SwapRule((nn.BatchNorm2d,), take_apart)


def _is_equivalent(norm: nn.BatchNorm2d, parts: nn.Sequential) -> bool:
    """Compared on copies in evaluation mode, so that neither training mode nor statistics are touched."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(2, norm.num_features, 3, 3, generator=generator)
    first, second = (copy.deepcopy(module).cpu().float().eval() for module in (norm, parts))
    return same_output(first, second, probe)
