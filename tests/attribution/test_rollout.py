"""Attention rollout against a float64 computation from the weights, for torchvision's ViT and for our attention."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import VisionTransformer

from scs_eval.analyses.attribution.attention import logits_and_attention, patch_grid
from scs_eval.analyses.attribution.attribute import attribute, pixel_maps
from scs_eval.errors import NotApplicableError
from scs_eval.models.layers import SelfAttention

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.tensor([1, 0, 4])


def vit() -> VisionTransformer:
    torch.manual_seed(0)
    options = {"num_layers": 3, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32, "num_classes": 5}
    return VisionTransformer(image_size=32, patch_size=8, **options).double().eval()


class Plain(nn.Module):
    """Patches, two layers of our attention, no class token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 8, 8)
        self.first, self.second = (SelfAttention(8, 2, head_width=4) for _ in range(2))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = tokens + self.first(tokens)
        return self.head((tokens + self.second(tokens)).mean(1))


def shares(weight: Tensor, tokens: Tensor, heads: int) -> Tensor:
    """softmax(QK'/√d), the mean over heads, one pair of tokens at a time."""
    query, key, _ = (tokens @ weight.T).chunk(3, -1)
    count, width = tokens.shape[1], query.shape[-1] // heads
    out = torch.zeros(len(tokens), count, count, dtype=tokens.dtype)
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = torch.stack([(query[:, [i], part] * key[:, :, part]).sum(-1) for i in range(count)], 1)
        out += (scores / width**0.5).softmax(-1) / heads
    return out


def product(layers: list[Tensor]) -> Tensor:
    paths = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    for layer in layers:
        paths = (layer / 2 + torch.eye(layer.shape[-1]) / 2) @ paths
    return paths


def upsampled(rows: Tensor) -> Tensor:
    return F.interpolate(rows.reshape(3, 1, 4, 4), (32, 32), mode="bilinear").expand(-1, 3, -1, -1)


def test_torchvision_vit() -> None:
    model, layers = vit(), []
    tokens = model._process_input(IMAGES)
    tokens = torch.cat([model.class_token.expand(3, -1, -1), tokens], 1) + model.encoder.pos_embedding
    for block in model.encoder.layers:  # biases of queries and keys start at zero
        layers.append(shares(block.self_attention.in_proj_weight, block.ln_1(tokens), 2))
        tokens = block(tokens)
    expected = upsampled(product(layers)[:, 0, 1:])
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="rollout"), expected.detach())


def test_our_attention_without_class_token() -> None:
    model = Plain().double().eval()
    tokens = model.patches(IMAGES).flatten(2).transpose(1, 2)
    first = shares(model.first.to_qkv.weight, tokens, 2)
    second = shares(model.second.to_qkv.weight, tokens + model.first(tokens), 2)
    expected = upsampled(product([first, second]).mean(1))
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="rollout"), expected.detach())


@pytest.mark.parametrize("fails", [False, True])
def test_leaves_no_hooks(fails: bool) -> None:
    model, calls = vit(), []
    before = model(IMAGES)

    def break_later(_module: nn.Module, _inputs: object) -> None:
        calls.append(1)
        if fails and len(calls) > 1:  # the first call only checks what the model answers
            raise KeyError("broken on the way")

    handle = model.heads.register_forward_pre_hook(break_later)
    with pytest.raises(KeyError) if fails else nullcontext():
        attribute(model, IMAGES, TARGETS, method="rollout")
    handle.remove()
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    torch.testing.assert_close(model(IMAGES), before, rtol=0, atol=0)


def test_tokens_that_are_no_image() -> None:
    with pytest.raises(NotApplicableError, match="17 tokens"):
        patch_grid(17, torch.rand(1, 3, 32, 31))


def attention_by_hand(model: VisionTransformer) -> tuple[Tensor, list[Tensor]]:
    """The logits and every head's attention, block by block, without torch's attention."""
    tokens, layers = model._process_input(IMAGES), []
    tokens = torch.cat([model.class_token.expand(3, -1, -1), tokens], 1) + model.encoder.pos_embedding
    for block in model.encoder.layers:
        layer = block.self_attention
        parts = F.linear(block.ln_1(tokens), layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
        layers.append((query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(-1))
        tokens = tokens + layer.out_proj((layers[-1] @ value).transpose(1, 2).flatten(2))
        tokens = tokens + block.mlp(block.ln_2(tokens))
    return model.heads(model.encoder.ln(tokens)[:, 0]), layers


def gradients_by_hand(model: VisionTransformer) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    nn.init.normal_(model.heads.head.weight)  # torchvision's starts at 0, and so would every gradient
    logits, layers = attention_by_hand(model)
    torch.testing.assert_close(logits, model(IMAGES))
    return layers, torch.autograd.grad(logits[range(3), TARGETS].sum(), layers)


def test_gradient_rollout() -> None:
    model = vit()
    layers, gradients = gradients_by_hand(model)
    paths = torch.eye(17, dtype=torch.float64).repeat(3, 1, 1)
    for attention, gradient in zip(layers, gradients, strict=True):
        weighted = (attention * gradient).relu().mean(1)
        paths = paths + torch.einsum("nij,njk->nik", weighted, paths)
    expected = upsampled(paths[:, 0, 1:])
    assert expected.any()
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="gradrollout"), expected.detach())


def test_grad_sam() -> None:
    model = vit()
    layers, gradients = gradients_by_hand(model)
    sums = torch.stack([(a * g.relu()).sum((1, 2)) for a, g in zip(layers, gradients, strict=True)])
    expected = upsampled(sums.sum(0)[:, 1:] / (3 * 2 * 17))
    assert expected.any()
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="gradsam"), expected.detach())


@pytest.mark.parametrize("method", ["gradrollout", "gradsam", "attnlrp"])
def test_classes_together_as_one_by_one(method: str) -> None:
    model = vit()
    nn.init.normal_(model.heads.head.weight)
    together = pixel_maps(model, IMAGES, torch.tensor([[0, 3]] * 3), method=method)
    for position, number in enumerate((0, 3)):
        alone = attribute(model, IMAGES, torch.full((3,), number), method=method).sum(1)
        torch.testing.assert_close(together[:, position], alone)
    assert not torch.allclose(together[:, 0], together[:, 1])


@pytest.mark.parametrize("method", ["rollout", "gradrollout", "gradsam", "attnlrp"])
def test_without_attention(method: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5)).double()
    with pytest.raises(NotApplicableError, match="needs attention"):
        attribute(model, IMAGES, TARGETS, method=method)


def test_timm_attention() -> None:
    """timm's own unfused formula, read where it would drop some of it, against what we see of its fused one."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    options = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 5}
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, **options).double().eval()
    _, layers = logits_and_attention(model, IMAGES)
    seen: list[Tensor] = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    model(IMAGES)
    assert len(layers) == len(seen) == 2
    for ours, theirs in zip(layers, seen, strict=True):
        torch.testing.assert_close(ours, theirs)
