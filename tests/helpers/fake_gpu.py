"""A pretended GPU in the CPU's memory, as strict as Apple's: it mixes with nothing and has no double precision.

Tensors that were sent to "mps" are marked, and so is what is computed from them. Raises what a GPU raises: where
tensors of both devices meet, where one is made in double precision, where one goes to numpy without a copy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GPU, CPU = torch.device("mps"), torch.device("cpu")
MARK = "_is_on_the_pretended_gpu"
MIXING = {  # of a tensor on one device, what is given or filled in may lie on the other
    Tensor.copy_, Tensor.__setitem__, Tensor.__getitem__, Tensor.to, Tensor.type_as, Tensor.index_put_,
    Tensor.data.__set__, Tensor.grad.__set__, torch._has_compatible_shallow_copy_type,
}  # fmt: skip
TO_NUMPY = {Tensor.numpy, Tensor.__array__}
FACTS = {Tensor.device.__get__, Tensor.is_cpu.__get__, Tensor.is_mps.__get__}


class FakeGPU(TorchFunctionMode):
    """While it is active, the device "mps" exists.

    unmarked: whether tensors that no function here made are on it. So are those of autograd in a backward pass there.
    """

    def __init__(self, *, unmarked: bool = False) -> None:
        super().__init__()
        self.unmarked = unmarked

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if function == torch._C._nn._parse_to:  # it only reads what was asked for
            return function(*arguments, **(options or {}))
        tensors = list(_tensors([arguments, options]))
        given = [self.has(value) for value in tensors]
        if function in FACTS:
            return _fact(function, given[0])
        if any(given):
            _refuse_mixtures(function, tensors, given)
        target = self._target(function, arguments, options or {})
        made = function(*_on_cpu(arguments), **_on_cpu(options or {}))
        first = given[:1] if function in MIXING else given
        there = any(first) if target is None else target == GPU
        if target is not None and any(made is value and self.has(value) != there for value in tensors):
            made = made.clone()
        if there and any(value.dtype == torch.float64 for value in _tensors(made)):
            raise TypeError(f"{function}: the MPS framework doesn't support float64")
        if function == Tensor.data.__set__:
            setattr(tensors[0], MARK, given[1])
        for value in _tensors(made):
            setattr(value, MARK, there)
        return made

    def has(self, value: Tensor) -> bool:
        """Whether a tensor is there."""
        return getattr(value, MARK, self.unmarked)

    def _target(self, function: Callable[..., Any], arguments: Any, options: Any) -> torch.device | None:
        """The device that a call names, if it does."""
        if function == Tensor.cpu:
            return CPU
        for value in [options.get("device"), *(arguments[1:2] if function == Tensor.to else ())]:
            if isinstance(value, Tensor):
                return GPU if self.has(value) else CPU
            if isinstance(value, str | torch.device):
                return torch.device(value)
        return None


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _fact(function: Callable[..., Any], there: bool) -> Any:
    if function == Tensor.device.__get__:
        return GPU if there else CPU
    return there == (function == Tensor.is_mps.__get__)


def _on_cpu(values: Any) -> Any:
    """Arguments with the CPU where the GPU was named."""
    if isinstance(values, dict):
        return {name: _on_cpu(value) for name, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_on_cpu(value) for value in values)
    return CPU if isinstance(values, str | torch.device) and str(values).split(":")[0] == "mps" else values


def _refuse_mixtures(function: Callable[..., Any], tensors: list[Tensor], given: list[bool]) -> None:
    if function in TO_NUMPY:
        raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() first")
    if function not in MIXING and any(value.ndim and not there for value, there in zip(tensors, given, strict=True)):
        raise RuntimeError(f"{function}: expected all tensors to be on the same device, mps:0 and cpu")


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPU]:
    """A machine with a GPU "mps", also for what is written in Python of a backward pass."""
    run_backward = torch.autograd.graph._engine_run_backward

    def backward(outputs: Any, *arguments: Any, **options: Any) -> Any:
        with FakeGPU(unmarked=any(map(FakeGPU().has, outputs))):
            return run_backward(outputs, *arguments, **options)

    def subclass(kind: type, tensor: Tensor, *arguments: Any) -> Tensor:  # of a parameter, also of a copied one
        made = make_subclass(kind, tensor, *arguments)
        setattr(made, MARK, getattr(tensor, MARK, False))
        return made

    make_subclass = Tensor._make_subclass
    monkeypatch.setattr(Tensor, "_make_subclass", staticmethod(subclass))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", backward)
    with FakeGPU() as gpu:
        yield gpu
