"""The compiled passes of fused.cpp, called by address: channels-last maps of the CPU in single or double precision.

setup.py compiles them where a compiler is at hand; without them `serves` says no, and the layers take torch's
operations.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.models.layers.convolution import Geometry
from scs_eval.models.layers.kernels.autograd import empty_map
from scs_eval.models.layers.pooling import MaxAbsPool2d, Pool

MOST_OF_A_WINDOW = 255  # places in a window of pooling that one byte can name


def _load() -> ctypes.CDLL | None:
    """The library beside this file, which shares torch's threads (its OpenMP is loaded already)."""
    here = Path(__file__).parent
    for path in (here / f"_fused{suffix}" for suffix in EXTENSION_SUFFIXES):
        if path.is_file():
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                return None
    return None


LIBRARY = _load()


def serves(x: Tensor, groups: int) -> bool:
    """Whether the compiled passes can do the work of a layer on `x`.

    They write to memory behind torch's back, so nothing may record or replace torch's operations meanwhile.
    """
    return (
        LIBRARY is not None
        and groups == 1
        and x.ndim == 4
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and type(x) in (Tensor, nn.Parameter)
        and torch._C._len_torch_dispatch_stack() == 0
    )


class _Window(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64 * 2) for name in ("kernel", "stride", "padding", "dilation")]


class _Maps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("images", "height", "width", "down", "across", "channels")]


def pools(pool: Pool | None) -> bool:
    """Whether a byte can name every place of the pooling's windows."""
    return pool is None or _places(pool) <= MOST_OF_A_WINDOW


def _places(pool: Pool) -> int:
    tall, wide = nn.modules.utils._pair(pool.kernel_size)
    return tall * wide


def _window_of(pool: Pool | None) -> _Window:
    parts = (1, 1, 0, 1) if pool is None else (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    return _window(*map(nn.modules.utils._pair, parts))


def _window(*pairs: Sequence[int]) -> _Window:
    return _Window(*((ctypes.c_int64 * 2)(*pair) for pair in pairs))


def _patches(at: Geometry) -> _Window:
    return _window(at.kernel_size, at.stride, at.padding, at.dilation)


def pooled_size(size: Sequence[int], pool: Pool | None) -> tuple[int, int]:
    """Height and width of pooled responses, by torch's own rule."""
    if pool is None:
        return size[0], size[1]
    window = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    return _pooled_size(tuple(size), *map(nn.modules.utils._pair, window), ceil_mode=pool.ceil_mode)


@lru_cache(maxsize=1024)  # asking torch takes as long as the pooling of a small image
def _pooled_size(size: tuple[int, ...], *window: tuple[int, int], ceil_mode: bool) -> tuple[int, int]:
    shape = torch.empty(1, 1, *size, device="meta")
    kernel, stride, padding, dilation = window
    down, across = nn.functional.max_pool2d(shape, kernel, stride, padding, dilation, ceil_mode=ceil_mode).shape[2:]
    return down, across


def is_dense(x: Tensor) -> bool:
    """Whether `x` lies in memory as the compiled passes read it: channels last, without gaps.

    torch's own test passes over the strides of dimensions of size 1, and of a batch of one.
    """
    channels, height, width = x.shape[1:]
    wanted = (height * width * channels, 1, width * channels, channels)
    return all(size == 1 or stride == want for size, stride, want in zip(x.shape, x.stride(), wanted, strict=True))


def dense(x: Tensor) -> Tensor:
    """`x`, or a copy of it, as the compiled passes read it."""
    return x if is_dense(x) else x.contiguous(memory_format=torch.channels_last)


def sharpen(
    u: Tensor,
    inverse: Tensor | None,
    p: Tensor,
    y: Tensor,
    c: Tensor | None,
    codes: Tensor | None,
    *,
    pool: Pool | None,
    relu: bool,
    eps: float,
) -> None:
    """Normalise, pool, rectify and sharpen responses `u`: fills y and, if they are wanted, c and where it lay."""
    magnitude = isinstance(pool, MaxAbsPool2d)
    _call("sharpen", u, inverse, p, y, c, codes, _sizes(u, y), _window_of(pool), eps, int(magnitude), int(relu))


def sharpen_backward(
    grad: Tensor,
    c: Tensor,
    codes: Tensor | None,
    inverse: Tensor | None,
    p: Tensor,
    *,
    size: tuple[int, int],
    pool: Pool | None,
    eps: float,
    needs_norm: bool,
    needs_p: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the responses (of height and width `size`), of ‖patch‖ and of p."""
    full = empty_map(grad, *grad.shape[:2], *size)
    norm = grad.new_empty(len(grad), 1, *size) if needs_norm else None
    exponents = grad.new_zeros(torch.get_num_threads(), grad.shape[1]) if needs_p else None
    sizes = _sizes(full, grad)
    _call("sharpen_backward", grad, c, codes, inverse, p, full, norm, exponents, sizes, _window_of(pool), eps)
    return full, norm, None if exponents is None else exponents.sum(0).view_as(p)


def patch_norm(x: Tensor, at: Geometry, eps: float) -> Tensor:
    """‖patch‖ = sqrt(Σ x² + eps), (N, C, H, W) to (N, 1, h, w)."""
    return _patch_norm(x, at, eps, 0.0, inverse=False)[0]


def patch_norm_and_inverse(x: Tensor, at: Geometry, eps: float, q: float) -> tuple[Tensor, Tensor]:
    """‖patch‖ and 1/(‖patch‖ + q)."""
    norm, inverse = _patch_norm(x, at, eps, q, inverse=True)
    return norm, inverse  # type: ignore[return-value]


def _patch_norm(x: Tensor, at: Geometry, eps: float, q: float, *, inverse: bool) -> tuple[Tensor, Tensor | None]:
    norm = x.new_empty(len(x), 1, *at.output_size(x.shape[2:]))
    reciprocal = torch.empty_like(norm) if inverse else None
    _call("patch_norm", x, norm, reciprocal, _sizes(x, norm, channels=x.shape[1]), _patches(at), eps, q)
    return norm, reciprocal


def add_norm_gradient(grad_x: Tensor, x: Tensor, grad_norm: Tensor, norm: Tensor, at: Geometry) -> None:
    """Add to `grad_x` what reaches the pixels through ‖patch‖: d‖patch‖/dx = x/‖patch‖."""
    _call("norm_gradient", x, grad_norm, norm, grad_x, _sizes(x, norm, channels=x.shape[1]), _patches(at))


def align(u: Tensor, norm: Tensor, y: Tensor, *, b: float, eps: float, scale: float) -> None:
    """MaxOut and alignment of responses `u` (N, rivals · O, h, w) to patches of length `norm`: fills y (N, O, h, w)."""
    _call("align", u, norm, y, *_units(u, y), b - 1.0, eps, float(scale))


def align_backward(
    u: Tensor, norm: Tensor, grad: Tensor, *, b: float, eps: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Gradients of the responses and of ‖patch‖."""
    full, share = torch.empty_like(u), torch.empty_like(norm)
    _call("align_backward", u, norm, grad, full, share, *_units(u, grad), b - 1.0, eps, float(scale))
    return full, share


def _units(u: Tensor, y: Tensor) -> tuple[int, int, int]:
    return y.shape[0] * y.shape[2] * y.shape[3], y.shape[1], u.shape[1] // y.shape[1]


def _sizes(full: Tensor, small: Tensor, channels: int | None = None) -> _Maps:
    return _Maps(len(full), *full.shape[2:], *small.shape[2:], channels or small.shape[1])


def _call(name: str, *arguments: Any) -> None:
    kind = next(argument.dtype for argument in arguments if isinstance(argument, Tensor))
    function = getattr(LIBRARY, f"{str(kind).removeprefix('torch.')}_{name}")
    function(*map(_as_c, (*arguments, torch.get_num_threads())))


def _as_c(argument: Any) -> Any:
    if argument is None:
        return None
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return ctypes.c_double(argument) if isinstance(argument, float) else ctypes.c_int64(argument)
