"""Take apart norms that carry their activation inside, as timm's BatchNormAct2d does, so that each part can change."""

import copy

import torch
from torch import nn


def unfold_norms(root: nn.Module) -> None:
    """Replace every BatchNorm with modules of its own by a BatchNorm and those modules, in place.

    Only where that answers alike: what a subclass does besides is not known.
    """
    for name, child in list(root.named_children()):
        parts = _parts(child)
        if parts is None:
            unfold_norms(child)
        else:
            setattr(root, name, parts)


def _parts(norm: nn.Module) -> nn.Sequential | None:
    if not isinstance(norm, nn.BatchNorm2d) or not any(True for _ in norm.children()):
        return None
    plain = nn.BatchNorm2d(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    own = {key: value for key, value in norm.state_dict().items() if "." not in key}
    plain.load_state_dict(own)
    parts = nn.Sequential(plain.to(next(iter(own.values()), torch.empty(0)).device), *norm.children())
    return parts.train(norm.training) if _same(norm, parts) else None


@torch.no_grad()
def _same(norm: nn.BatchNorm2d, parts: nn.Sequential) -> bool:
    """Compared on copies in evaluation mode, so that neither training mode nor statistics are touched."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(2, norm.num_features, 3, 3, generator=generator)
    first, second = (copy.deepcopy(each).cpu().float().eval() for each in (norm, parts))
    try:
        return torch.allclose(first(probe.clone()), second(probe.clone()), rtol=1e-4, atol=1e-5)
    except Exception:  # whatever a foreign forward pass asks for: it is another layer then
        return False
