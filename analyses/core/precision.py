"""The widest floats of a device: sums and distances are in double precision wherever there is one."""

import torch
from torch import Tensor


def widest(device: torch.device) -> torch.dtype:
    """Double precision; single on Apple's GPUs, which have no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def wide(values: Tensor) -> Tensor:
    """The values in the widest floats of their device."""
    return values.to(widest(values.device))
