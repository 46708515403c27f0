"""Where to compute: the device that was asked for, if this machine has it."""

import os

from scs_eval.errors import InputError


def choose_device(name: str) -> str:
    """The device, if this machine has it; for auto a GPU, else the CPU.

    Of several processes on a machine, auto and cuda give each a GPU of its own as far as there are any.
    """
    import torch

    mps = torch.backends.mps.is_available()
    if name in ("auto", "cuda") and torch.cuda.is_available():
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}" if several else "cuda"
    if name == "auto":
        return "mps" if mps else "cpu"
    there = ["cpu", *(["mps"] if mps else []), *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if name not in there:
        raise InputError(f"expected a device of this machine ({', '.join(there)}), got {name!r}")
    return name
