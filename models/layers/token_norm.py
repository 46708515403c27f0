"""The norm of transformers: per token, over its features."""

from torch import Tensor

from scs_eval.models.layers.norms import PositionNorm


class TokenNorm(PositionNorm):
    """PositionNorm (Eq. 23) where the features come last: a token is a pixel (section 3.3.3)."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, C), same shape out."""
        return super().forward(x.reshape(-1, x.shape[-1], 1, 1)).view_as(x)
