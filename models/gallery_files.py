"""State dicts of Rohrer's published scripts: the same tensors as our Rohrer networks under other names.

The scripts name their layers scs1, scs2 (or scs2_depth, scs2_point), scs3 and the head out.
"""

import re
from collections.abc import Mapping

from torch import Tensor, nn

from scs_eval.models.layers import SCS2d

LAYER = re.compile(r"scs(\d+)(_depth|_point)?\.(weight|p|log_q)")
CLAMPED_AT = 3.0  # one of the published layers holds its weights in [-3, 3], the others in [-1, 1]


def from_gallery(state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The state dict by our names, or None if it is not one of the scripts'."""
    layers = sorted({key.rpartition(".")[0] for key in state if LAYER.fullmatch(key)})
    rest = {key for key in state if not LAYER.fullmatch(key)}
    if not layers or rest - {"out.weight", "out.bias"}:
        return None
    places = {layer: f"stages.{place}.layer" for place, layer in enumerate(layers)} | {"out": "head"}
    return {".".join((places[layer], name)): state[key] for key in state for layer, _, name in [key.rpartition(".")]}


def widen_limits(model: nn.Module) -> bool:
    """Let weights beyond ±1 be: they come from the script whose layer holds them in ±3. Whether there were any."""
    layers = [module for module in model.modules() if isinstance(module, SCS2d)]
    if not any(layer.weight.detach().abs().max() > layer.w_max for layer in layers):
        return False
    for layer in layers:
        layer.w_max = CLAMPED_AT
    return True
