"""AttnLRP's rules, one after the other in float64 and without any gradient, on one layer of attention."""

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attnlrp import HeldFactors
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.models.layers import SelfAttention

HEADS, WIDTH = 2, 4
IMAGES = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.tensor([1, 3])


class OneLayer(nn.Module):
    """Patches, attention beside the identity, the mean token, a head; no biases."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.patches = nn.Conv2d(3, 8, 8, 8, bias=False)
        self.attention = SelfAttention(8, HEADS, head_width=WIDTH, projection=nn.Linear(8, 8, bias=False))
        self.head = nn.Linear(8, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head((tokens + self.attention(tokens)).mean(1))


def linear_rule(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """R_c = Σ_p x_c W_pc R_p / (Wx)_p, the ε-rule with ε → 0."""
    return torch.einsum("...c,pc,...p->...c", x, weight, relevance / (x @ weight.T))


def by_hand(model: OneLayer) -> Tensor:
    tokens = model.patches(IMAGES).flatten(2).transpose(1, 2)
    weight = model.attention.to_qkv.weight
    query, key, value = (
        part.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for part in (tokens @ weight.T).chunk(3, -1)
    )
    scores = query @ key.transpose(2, 3) / WIDTH**0.5
    shares = scores.softmax(-1)
    mixed = shares @ value
    count, rows = tokens.shape[1], model.head.weight[TARGETS]
    # The logit is the sum over tokens of head · (token + projected mixture) / count.
    at_tokens = tokens * rows[:, None] / count
    flat = mixed.transpose(1, 2).flatten(2)
    projected = flat @ model.attention.to_out.weight.T
    at_mixed = linear_rule(flat, model.attention.to_out.weight, projected * rows[:, None] / count)
    at_mixed = at_mixed.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
    # A product of two matrices: every term to both of its factors, half each.
    terms = torch.einsum("nhij,nhjp,nhip->nhijp", shares, value, at_mixed / mixed) / 2
    at_shares, at_value = terms.sum(-1), terms.sum(2)
    # Softmax: its first-order expansion.
    at_scores = scores * (at_shares - shares * at_shares.sum(-1, keepdim=True))
    terms = torch.einsum("nhip,nhjp,nhij->nhijp", query, key, at_scores / scores / WIDTH**0.5) / 2
    at_query, at_key = terms.sum(3), terms.sum(2)
    parts = [part.transpose(1, 2).flatten(2) for part in (at_query, at_key, at_value)]
    at_tokens = at_tokens + linear_rule(tokens, weight, torch.cat(parts, -1))
    pixels = IMAGES.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    at_pixels = linear_rule(pixels, model.patches.weight.flatten(1), at_tokens)
    return at_pixels.view(2, 2, 2, 3, 8, 8).permute(0, 3, 1, 4, 2, 5).reshape(IMAGES.shape)


def test_every_rule() -> None:
    model = OneLayer().double().eval()
    expected = by_hand(model).detach()
    # Relevance is divided by scores and mixtures, some of which are near 0: a few digits of the sixteen go there.
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="attnlrp"), expected, rtol=1e-8, atol=1e-12)


def test_what_it_leaves_out_is_said() -> None:
    """The expansion of a softmax at the origin has a constant, which reaches no pixel, even without any bias."""
    model = OneLayer().double().eval()
    logits = model(IMAGES)[range(2), TARGETS]
    wanted = (logits - by_hand(model).sum((1, 2, 3))).detach().numpy()
    options = SaliencyOptions(target="label", samples=0)
    result = saliency(model, IMAGES, TARGETS, classes=list("abcde"), method="attnlrp", options=options, label="net")
    np.testing.assert_allclose(result.left_out, wanted, rtol=1e-7)
    assert "net by attnlrp leave out" in result.notes()[0]


def test_norms_and_activations_pass_relevance_on_whole() -> None:
    """x ⊙ gradient adds up to the output where a norm has no bias and an activation is a line through the origin."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.LayerNorm(6, bias=False), nn.Linear(6, 6, bias=False), nn.GELU(), nn.SiLU()).double()
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    with HeldFactors():
        output = layers(x)
    torch.testing.assert_close(output, layers(x))
    (gradient,) = torch.autograd.grad(output.sum(), x)
    torch.testing.assert_close((x * gradient).sum(), output.sum())
    (plain,) = torch.autograd.grad(layers(x).sum(), x)
    assert not torch.allclose((x * plain).sum(), output.sum())
