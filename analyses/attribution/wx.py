"""W(x)⊙x: the logit of a dynamic-linear network as a sum over its input (B-cos v2, Eq. 16)."""

from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.errors import NotApplicableError
from scs_eval.models.explain.decomposition import Decomposition, decompose

INCOMPLETE = 1e-2  # share of the logit that may be missing before we say that W(x) does not apply


def dynamic_linear_contributions(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """W(x)⊙x, (N, K, 3, H, W); refused where it and the biases do not add up to the logit.

    Of networks that see [x, 1−x] a colour's two channels are added: pixel sums stay.
    """
    parts = decompose(model, images, targets)
    if not options.allow_incomplete:
        check_complete(parts)
    return contributions_of_colours(parts)


def contributions_of_colours(parts: Decomposition) -> Tensor:
    """W(x)⊙x (N, [K,] 3, H, W): of networks that see [x, 1−x], the two channels of a colour added."""
    return parts.contributions.unflatten(-3, (-1, 3)).sum(-4)


def check_complete(parts: Decomposition) -> None:
    """Raise where what is left over says that the network is not dynamic-linear."""
    scale = parts.contributions.abs().sum((-3, -2, -1)) + parts.bias.abs()
    gap = (parts.residual.abs() / scale.clamp(min=1e-12)).max().item()
    if not gap <= INCOMPLETE:
        raise NotApplicableError(f"wx needs a dynamic-linear network; here W(x)·x + b(x) misses the logit by {gap:.0%}")
