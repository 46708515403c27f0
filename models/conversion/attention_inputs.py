"""Queries, keys and values: linear in B-cos transformers, without bias (B-cos v2, section 3.3.3)."""

from torch import nn

NAMES = {"qkv", "to_qkv", "q", "k", "v", "query", "key", "value", "q_proj", "k_proj", "v_proj"}


def attention_inputs(root: nn.Module) -> list[str]:
    """The names of the linear layers from which attention takes its queries, keys and values."""
    return [
        f"{name}.{key}".removeprefix(".")
        for name, module in root.named_modules()
        if "attention" in type(module).__name__.lower()
        for key, child in module.named_children()
        if key in NAMES and isinstance(child, nn.Linear)
    ]


def without_bias(root: nn.Module, names: list[str]) -> dict[str, str]:
    """Put new linear layers without bias in their places; name to what changed."""
    for name in names:
        old = root.get_submodule(name)
        assert isinstance(old, nn.Linear)
        new = nn.Linear(old.in_features, old.out_features, bias=False).to(old.weight)
        root.set_submodule(name, new.train(old.training))
    return dict.fromkeys(names, "Linear → Linear without bias")
