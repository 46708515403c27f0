"""Self-attention as a dynamic-linear layer (B-cos v2, section 3.3.3)."""

import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.dynamic_linear import dynamic
from scs_eval.models.layers.bcos import BcosLinear


class SelfAttention(nn.Module):
    """Att(X) = softmax(QK'/√d) V with a B-cos output projection; the softmax is the dynamic-linear part (Eq. 29).

    Queries, keys and values come from one bias-free linear layer. Heads are `head_width` wide; pass another
    `projection` (for example nn.Linear) for the conventional layer.
    """

    def __init__(
        self, width: int, heads: int, *, head_width: int = 64, b: float = 2.0, projection: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.to_out = BcosLinear(heads * head_width, width, b=b) if projection is None else projection

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (N, L, C), same shape out."""
        query, key, value = self._by_head(x)
        mixed = F.scaled_dot_product_attention(dynamic(query), dynamic(key), value)
        return self.to_out(mixed.transpose(1, 2).flatten(2))

    def attention(self, x: Tensor) -> Tensor:
        """softmax(QK'/√d) for tokens (N, L, C): who draws from whom, (N, heads, L, L)."""
        query, key, _ = self._by_head(x)
        return (query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(-1)

    def _by_head(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, -1)]
