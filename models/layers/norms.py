"""The normalisation layers of the B-cos paper, centred and uncentred, without bias (section 3.3.2, Eqs. 19-27).

They differ in the dimensions over which mean and variance are taken. The bias-free forms keep only the scale; the
uncentred ones divide by the (mean-free) standard deviation but do not subtract the mean, so that nothing is added to
the network's output at inference time. The standard deviation is the dynamic-linear part.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.explain.checkpointing import marked
from scs_eval.models.explain.dynamic_linear import dynamic, explaining
from scs_eval.models.layers.kernels.autograd import replaceable
from scs_eval.models.layers.kernels.norms import FastUncentred, moments


class _Norm(nn.Module):
    """y = γ (x - centred·mean) / sqrt(var + eps) + β, with β only if `bias`; γ and β per channel."""

    dims: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        *,
        centred: bool = False,
        bias: bool = False,
        eps: float = 1e-5,
        scales: int | None = None,
    ) -> None:
        super().__init__()
        count = num_features if scales is None else scales
        self.num_features, self.centred, self.eps = num_features, centred, eps
        self.weight = nn.Parameter(torch.ones(count))
        self.bias = nn.Parameter(torch.zeros(count)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        y = marked(self._normalised(self._arranged(x)).reshape(x.shape), explaining())
        return y if self.bias is None else y + _per_channel(self.bias)

    def _normalised(self, x: Tensor) -> Tensor:
        weight = self._arranged(_per_channel(self.weight))
        if self._fast(x):
            return FastUncentred.apply(x, weight, self.dims, self.eps)[0]
        mean, var = moments(x, self.dims)
        return (x - mean if self.centred else x) * (dynamic(var) + self.eps).rsqrt() * weight

    def _arranged(self, x: Tensor) -> Tensor:
        """With its groups as a dimension, for the norms that have them."""
        return x

    def _fast(self, x: Tensor) -> bool:
        return not self.centred and not explaining() and replaceable(x) and x.dtype == self.weight.dtype

    def additive_bias(self) -> Tensor | None:
        """What the layer adds per channel: β, if it has one. Its own mean is linear in the input and adds nothing."""
        return None if self.bias is None else self.bias.detach()

    def extra_repr(self) -> str:
        """Channels, centring, bias."""
        return f"{self.num_features}, centred={self.centred}, bias={self.bias is not None}, eps={self.eps:g}"


class GroupNorm(_Norm):
    """Statistics over the channels of a group and all pixels, per image."""

    dims = (2, 3, 4)

    def __init__(
        self,
        num_groups: int,
        num_features: int,
        *,
        centred: bool = False,
        bias: bool = False,
        eps: float = 1e-5,
    ) -> None:
        if num_features % num_groups:
            raise ValueError(f"expected a number of channels divisible by {num_groups} groups, got {num_features}")
        super().__init__(num_features, centred=centred, bias=bias, eps=eps)
        self.num_groups = num_groups

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        if self.centred and not explaining():  # torch's kernel is the same formula in one pass
            return marked(F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps), explain=False)
        return super().forward(x)

    def _arranged(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.num_groups, -1))


class LayerNorm(GroupNorm):
    """CHW-Norm: statistics over everything in one image (Eq. 21)."""

    def __init__(self, num_features: int, **options: bool | float) -> None:
        super().__init__(1, num_features, **options)  # type: ignore[arg-type]


class InstanceNorm(GroupNorm):
    """HW-Norm: statistics over the pixels of one channel of one image (Eq. 22)."""

    def __init__(self, num_features: int, **options: bool | float) -> None:
        super().__init__(num_features, num_features, **options)  # type: ignore[arg-type]


class PositionNorm(_Norm):
    """C-Norm: statistics over the channels at one pixel (Eq. 23)."""

    dims = (1,)


class _RunningNorm(_Norm):
    """Statistics over the batch in training, running estimates in evaluation.

    `running_mean` exists in the uncentred form too, where it is never used, because published state dicts carry it.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, *, momentum: float = 0.1, **options: bool | float) -> None:
        super().__init__(num_features, **options)  # type: ignore[arg-type]
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros_like(self.weight, requires_grad=False))
        self.register_buffer("running_var", torch.ones_like(self.weight, requires_grad=False))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))

    def _normalised(self, x: Tensor) -> Tensor:
        weight = _per_channel(self.weight)
        if not self.training:
            mean, var = _per_channel(self.running_mean), _per_channel(self.running_var)
        elif self._fast(x):
            y, mean, var = FastUncentred.apply(x, weight, self.dims, self.eps)
            self._track(x, mean, var)
            return y
        else:
            mean, var = moments(x, self.dims)
            self._track(x, mean.detach(), var.detach())
        y = (x - mean if self.centred else x) / (dynamic(var) + self.eps).sqrt()  # the published order of steps
        return y * weight if torch.is_grad_enabled() else y.mul_(weight)

    @torch.no_grad()
    def _track(self, x: Tensor, mean: Tensor, var: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        if self.centred:
            count = x.numel() // var.numel()
            self.running_mean.lerp_(mean.flatten().to(self.running_mean), self.momentum)
            var = var * (count / max(count - 1, 1))  # torch tracks the unbiased variance, the uncentred form does not
        self.running_var.lerp_(var.flatten().to(self.running_var), self.momentum)

    def additive_bias(self) -> Tensor | None:
        """What the layer adds in evaluation, per channel: β - γ·running mean/σ, or nothing."""
        shift = super().additive_bias()
        if not self.centred:
            return shift
        offset = self.running_mean * self.weight.detach() * (self.running_var + self.eps).rsqrt()
        return -offset if shift is None else shift - offset


class BatchNorm(_RunningNorm):
    """BHW-Norm: statistics per channel over the batch (Eq. 20)."""

    dims = (0, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        if not self.centred or explaining():
            return super().forward(x)
        if self.training:
            self.num_batches_tracked.add_(1)
        running = (self.running_mean, self.running_var)
        y = F.batch_norm(x, *running, self.weight, self.bias, self.training, self.momentum, self.eps)
        return marked(y, explain=False)


class AllNorm(_RunningNorm):
    """BCHW-Norm: one mean and variance for the whole batch, and one γ (Eq. 24)."""

    dims = (0, 1, 2, 3)

    def __init__(self, num_features: int, **options: bool | float) -> None:
        super().__init__(num_features, scales=1, **options)


def _per_channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)
