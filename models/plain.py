"""Whether a subclass of a torch layer computes just what the layer does, as timm's own Linear and LayerNorm do."""

import torch
from torch import Tensor, nn


def is_plain(module: nn.Module, base: type[nn.Linear] | type[nn.LayerNorm]) -> bool:
    """True for `base` itself, and for a subclass that answers a random input as `base` would with its parameters."""
    if type(module) is base:
        return True
    if not isinstance(module, (nn.Linear, nn.LayerNorm)) or not isinstance(module, base) or module.weight is None:
        return False
    try:
        with torch.no_grad():
            probe = _probe(module)
            return torch.allclose(module(probe), base.forward(module, probe), rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    except Exception:  # whatever a foreign forward pass asks for: it is another layer then
        return False


def _probe(module: nn.Linear | nn.LayerNorm) -> Tensor:
    shape = (module.in_features,) if isinstance(module, nn.Linear) else module.normalized_shape
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, *shape, generator=generator).to(module.weight)
