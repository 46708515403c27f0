"""Class-conditional Gaussians with one covariance, fitted to features (Lee et al. 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from scs_eval.analyses.core.precision import wide
from scs_eval.errors import InputError


@dataclass(frozen=True, eq=False)
class TiedGaussians:
    """means: (K, C), of the classes that there are images of; precision: (C, C), the inverse of their covariance."""

    means: Tensor
    precision: Tensor

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor) -> "TiedGaussians":
        """Fit features (n, C) with labels (n,) in double precision.

        Σ = 1/n Σᵢ (fᵢ − μ of its class)(…)ᵀ. Directions in which no feature varies have no say: the inverse is the
        pseudo-inverse.
        """
        if len(features) < 2:
            raise InputError(f"expected at least 2 images to fit Gaussians to, got {len(features)}")
        values = features.double()
        present, own = labels.unique(return_inverse=True)
        sums = values.new_zeros(len(present), values.shape[1]).index_add_(0, own, values)
        means = sums / own.bincount()[:, None]
        centred = values - means[own]
        return cls(means, torch.linalg.pinv(centred.T @ centred / len(values), hermitian=True))

    def score(self, features: Tensor) -> Tensor:
        """(n,) minus the squared Mahalanobis distance of features (n, C) to the nearest mean; gradients go through."""
        values = wide(features)
        precision, means = (part.to(values.dtype).to(values.device) for part in (self.precision, self.means))
        centred = values[:, None] - means
        return -((centred @ precision) * centred).sum(2).amin(1)
