"""What of a network a conversion does not reach: layers of other kinds, and activations that are function calls."""

from collections.abc import Iterator

import torch.fx
from torch import nn

from scs_eval.models.conversion.equivalence import is_equivalent
from scs_eval.models.conversion.rules import ACTIVATIONS
from scs_eval.models.conversion.target import ConversionSpec

SHOWN = 3  # names of one kind in a summary
GATES = (nn.Sigmoid, nn.Hardsigmoid)  # these scale other activations, so they cannot just go


def unconverted_modules(root: nn.Module, spec: ConversionSpec) -> Iterator[tuple[str, str]]:
    """Layers of a converted network that have weights or are activations, and have no counterpart."""
    expected = (nn.Linear, nn.Conv2d) if spec.layer == "conv" else (nn.Linear,)
    within = tuple(f"{name}." for name, part in root.named_modules() if isinstance(part, nn.MultiheadAttention))
    for name, module in root.named_modules():
        own = any(True for _ in module.parameters(recurse=False))
        ours = type(module).__module__.startswith("scs_eval.models.layers")
        kept = isinstance(module, (*ACTIVATIONS, *GATES)) and spec.chosen_activation == "linear"
        known = type(module) in expected or is_equivalent(module, (nn.Linear,))
        unknown = own and not known and not ours and not _is_kept_norm(module, spec)
        if (unknown or kept) and not name.startswith(within):
            yield _label(name, module), type(module).__name__


def summarise(unconverted: dict[str, str]) -> str:
    """One part for each kind: `bn1, blocks.0.bn1 and 30 more (BatchNormAct2d)`."""
    names_by_kind: dict[str, list[str]] = {}
    for name, kind in unconverted.items():
        names_by_kind.setdefault(kind, []).append(name)
    return "; ".join(
        f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''} ({kind})"
        for kind, names in names_by_kind.items()
    )


def _label(name: str, module: nn.Module) -> str:
    """A layer's name; of a part that is more than a layer, the names of the parameters it has for itself."""
    if not any(True for _ in module.children()) or isinstance(module, nn.MultiheadAttention):
        return name or "the network itself"
    return ", ".join(f"{name}.{key}".removeprefix(".") for key, _ in module.named_parameters(recurse=False))


def called_activations(root: nn.Module, spec: ConversionSpec) -> dict[str, str]:
    """Activations that the forward pass calls as functions, which no swap of modules reaches.

    Where activations are kept, ReLU and its kin may be functions: they are linear by themselves.
    """
    ours = type(root).__module__.startswith("scs_eval.models.architectures")  # all their activations are modules
    if ours or (spec.chosen_activation != "linear" and not spec.same_function):
        return {}
    try:
        graph = torch.fx.Tracer().trace(root)
    except Exception as error:  # whatever an external forward pass does with a stand-in for its input
        return {"the forward pass": f"could not be traced: {str(error).splitlines()[0]}"}
    names = {kind.__name__.lower() for kind in (*ACTIVATIONS, *GATES)} | {"relu_", "leaky_relu", "hardtanh"}
    if spec.same_function:
        names -= {"relu", "relu_", "relu6", "leakyrelu", "leaky_relu", "hardtanh"}
    called = (
        getattr(node.target, "__name__", str(node.target)) for node in graph.nodes if node.op.startswith("call_f")
    )
    methods = (str(node.target) for node in graph.nodes if node.op == "call_method")
    return {f"{name}()": "in the forward pass" for name in (*called, *methods) if name in names}


def _is_kept_norm(module: nn.Module, spec: ConversionSpec) -> bool:
    return spec.chosen_norm == "keep" and "Norm" in type(module).__name__
