"""What this installation computes with: versions, devices, threads, and which path the layers take."""

import platform


def system_facts() -> dict[str, str]:
    """One line for each, as `scs-eval doctor --system` prints them."""
    import torch

    from scs_eval import __version__
    from scs_eval.models.layers.kernels import fused

    devices = [f"cuda:{k} {torch.cuda.get_device_name(k)}" for k in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    layers = (
        "compiled passes on the CPU"
        if fused.LIBRARY is not None
        else "torch's operations: there was no compiler when this was installed (or it was built elsewhere)"
    )
    return {
        "scs-eval": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "devices": ", ".join(["cpu", *devices]),
        "threads": str(torch.get_num_threads()),
        "layers": layers,
    }
