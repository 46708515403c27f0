"""Encoding, normalisation, logits, and attention against the published transformer's."""

import math

import pytest
import torch
from bcos.models import vit
from bcos.modules import BcosLinear as PublishedLinear
from torch import nn

from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.layers import AddInverse, LogitLayer, Normalize, SelfAttention


def test_add_inverse():
    x = torch.rand(2, 3, 4, 4)
    y = AddInverse()(x)
    assert torch.equal(y[:, :3], x)
    assert torch.allclose(y[:, :3] + y[:, 3:], torch.ones_like(x))


def test_normalize_is_inside_and_carries_no_state():
    layer = Normalize((0.5, 0.4, 0.3), (0.2, 0.1, 0.3))
    x = torch.rand(1, 3, 2, 2)
    assert torch.allclose(layer(x)[0, 1], (x[0, 1] - 0.4) / 0.1)
    assert not layer.state_dict()
    with pytest.raises(ValueError, match="positive"):
        Normalize((0.5,), (0.0,))


def test_silent_network_gives_every_class_its_share():
    for classes in (2, 10, 1000):
        p = LogitLayer(classes)(torch.zeros(1, classes)).sigmoid()
        assert torch.allclose(p, torch.full_like(p, 1 / classes))
    assert LogitLayer(10, temperature=4.0, bias=1.0)(torch.tensor([[8.0]])).item() == 3.0
    assert LogitLayer(10).bias == pytest.approx(math.log(0.1 / 0.9))
    with pytest.raises(ValueError, match="at least 2"):
        LogitLayer(1)


@pytest.mark.parametrize("explain", [False, True])
def test_attention_matches_the_published_one(explain):
    torch.manual_seed(0)
    published = vit.Attention(
        48, heads=3, dim_head=16, linear_layer=PublishedLinear, norm_layer=lambda dim: nn.Identity()
    ).double()
    ours = SelfAttention(48, 3, head_width=16).double()
    ours.load_state_dict(published.state_dict(), strict=True)
    for module in published.modules():
        if hasattr(module, "set_explanation_mode"):
            module.set_explanation_mode(explain)
    x = torch.randn(2, 5, 48, dtype=torch.double)
    results = []
    for layer in (ours, published):
        tokens = x.clone().requires_grad_()
        with explanation_mode(explain):
            y = layer(tokens)
        y.mul(torch.arange(y.numel(), dtype=y.dtype).cos().view_as(y)).sum().backward()
        results.append((y.detach(), tokens.grad))
    for actual, wanted in zip(*results, strict=True):
        assert (actual - wanted).abs().max() <= 1e-12 * wanted.abs().max() * 10
