"""Self-attention as a dynamic-linear layer (B-cos v2, section 3.3.3)."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.explain.checkpointing import marked
from scs_eval.models.explain.dynamic_linear import dynamic, explaining
from scs_eval.models.layers.bcos import BcosLinear


class HeldFactor(nn.Module):
    """The identity, constant while explaining: put behind queries and keys, it makes an external attention linear."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, same shape out."""
        return dynamic(x)


class HeldAttention(nn.MultiheadAttention):
    """torch's attention with a softmax that is constant while explaining (Eq. 29); parameters and calls as torch's."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Any:
        """As nn.MultiheadAttention."""
        return super().forward(dynamic(query), dynamic(key), value, *arguments, **options)

    def additive_bias(self) -> Tensor | None:
        """What it adds to every token: the values' bias, which a softmax passes on whole, and that of the output."""
        inputs: Tensor | None = self._parameters["in_proj_bias"]
        if inputs is None:
            return None
        return (self.out_proj.weight @ inputs[-self.embed_dim :] + self.out_proj.bias).detach()


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
        return self.to_out(marked(mixed, explaining()).transpose(1, 2).flatten(2))

    def attention(self, x: Tensor) -> Tensor:
        """softmax(QK'/√d) for tokens (N, L, C): who draws from whom, (N, heads, L, L)."""
        query, key, _ = self._by_head(x)
        return (query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(-1)

    def _by_head(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, -1)]
