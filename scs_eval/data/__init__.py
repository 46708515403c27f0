"""Images to look at: the bundled sample, CIFAR-10, or a folder of class folders, as RGB in [0, 1] with labels.

Names are imported when first used, so that showing where data would be found does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scs_eval.data.image_data import ImageData as ImageData
    from scs_eval.data.load import load_data as load_data

_HOME = {"ImageData": "scs_eval.data.image_data", "load_data": "scs_eval.data.load"}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'scs_eval.data' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
