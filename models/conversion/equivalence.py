"""Whether a layer computes just what another one does, as timm's own Linear and LayerNorm do what torch's do."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scs_eval.models.conversion.swap import Kinds


def is_equivalent(module: nn.Module, kinds: Kinds) -> bool:
    """True for a layer of these kinds (Linear, LayerNorm), and for a subclass that computes what its base does."""
    base = next((kind for kind in kinds if isinstance(module, kind)), None)
    if base is None or type(module) is base:
        return base is not None
    if not isinstance(module, (nn.Linear, nn.LayerNorm)) or module.weight is None:
        return False
    return same_output(module, lambda x: base.forward(module, x), _probe(module))


def same_output(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], probe: Tensor) -> bool:
    """Whether both give the same for `probe`, to rounding; one that cannot take it is another layer."""
    try:
        with torch.no_grad():
            return torch.allclose(first(probe.clone()), second(probe.clone()), rtol=1e-4, atol=1e-5)
    except Exception:  # whatever an external forward pass asks for
        return False


def _probe(module: nn.Linear | nn.LayerNorm) -> Tensor:
    shape = (module.in_features,) if isinstance(module, nn.Linear) else module.normalized_shape
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, *shape, generator=generator).to(module.weight)
