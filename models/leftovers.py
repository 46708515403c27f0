"""What of a network a conversion does not reach: layers of other kinds, and activations that are function calls."""

from collections.abc import Iterator

import torch.fx
from torch import nn

from scs_eval.models.form import Form
from scs_eval.models.plain import is_plain

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Softplus, nn.Tanh)

SHOWN = 3  # places of one kind that a summary names
GATES = (nn.Sigmoid, nn.Hardsigmoid)  # these scale other activations, so they cannot just go


def left_modules(root: nn.Module, form: Form) -> Iterator[tuple[str, str]]:
    """Layers of a converted network that have weights or are activations, and no such form."""
    fine = (nn.Linear, nn.Conv2d) if form.layer == "conv" else (nn.Linear,)
    within = tuple(f"{name}." for name, each in root.named_modules() if isinstance(each, nn.MultiheadAttention))
    for name, module in root.named_modules():
        own = any(True for _ in module.parameters(recurse=False))
        ours = type(module).__module__.startswith("scs_eval.models.layers")
        kept = isinstance(module, (*ACTIVATIONS, *GATES)) and form.chosen_activation == "linear"
        known = type(module) in fine or is_plain(module, nn.Linear)
        unknown = own and not known and not ours and not _kept_norm(module, form)
        if (unknown or kept) and not name.startswith(within):
            yield _place(name, module), type(module).__name__


def summarise(left: dict[str, str]) -> str:
    """One part for each kind: `bn1, blocks.0.bn1 and 30 more (BatchNormAct2d)`."""
    places: dict[str, list[str]] = {}
    for place, kind in left.items():
        places.setdefault(kind, []).append(place)
    return "; ".join(
        f"{', '.join(found[:SHOWN])}{f' and {len(found) - SHOWN} more' if len(found) > SHOWN else ''} ({kind})"
        for kind, found in places.items()
    )


def _place(name: str, module: nn.Module) -> str:
    """A layer's name; of a part that is more than a layer, the names of the parameters it has for itself."""
    if not any(True for _ in module.children()) or isinstance(module, nn.MultiheadAttention):
        return name or "the network itself"
    return ", ".join(f"{name}.{key}".removeprefix(".") for key, _ in module.named_parameters(recurse=False))


def called_activations(root: nn.Module) -> dict[str, str]:
    """Activations that the forward pass calls as functions, which no swap of modules reaches."""
    try:
        graph = torch.fx.Tracer().trace(root)
    except Exception as error:  # whatever a foreign forward pass does with a stand-in for its input
        return {"the forward pass": f"could not be followed: {str(error).splitlines()[0]}"}
    names = {kind.__name__.lower() for kind in (*ACTIVATIONS, *GATES)} | {"relu_", "leaky_relu", "hardtanh"}
    called = (
        getattr(node.target, "__name__", str(node.target)) for node in graph.nodes if node.op.startswith("call_f")
    )
    methods = (str(node.target) for node in graph.nodes if node.op == "call_method")
    return {f"{name}()": "in the forward pass" for name in (*called, *methods) if name in names}


def _kept_norm(module: nn.Module, form: Form) -> bool:
    return form.chosen_norm == "keep" and "Norm" in type(module).__name__
