"""DiFull and DiPart: a grid whose k-th head sees only the k-th cell, so that maps elsewhere are provably wrong.

DiFull: every cell runs through the network alone. DiPart: the network sees the grid, but the head only the part of the
last feature map that belongs to the cell, so that other cells come in at the edges alone, through receptive fields.
Source: Rao, Böhle, Schiele 2022, "Towards Better Understanding Attribution Methods", section 3.1. They look at two
corners of each grid; here all cells are asked about, as in the pointing game.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.batching import at_once, is_out_of_memory
from scs_eval.analyses.layer_maps import UnsuitableError, activation_and_gradient, last_convolution
from scs_eval.analyses.many_classes import class_gradients_at, pixel_maps
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.models.decomposition import decompose

LAYER_METHODS = ("gradcam", "normgrad")
# Their maps are 0 wherever the logit does not depend on the image: in DiFull a cell alone gives all there is.
BY_CELL = ("grad", "ixg", "intgrad", "smoothgrad", "guided-backprop", "deeplift", "wx")
BY_CHANCE = ("lime", "rise")  # ask for probabilities and not for logits
SETTINGS = ("grid", "difull", "dipart")


class Disconnected(nn.Module):
    """n² heads on a grid (N, 3, n·h, n·w), the k-th on the k-th cell: logits (N, n² · classes)."""

    def __init__(self, model: nn.Module, *, side: int, layer: str | None) -> None:
        """`layer` names the module whose output is cut into cells (DiPart); without one the image is (DiFull)."""
        super().__init__()
        self.model, self.side, self.layer = model, side, layer

    def forward(self, grids: Tensor) -> Tensor:
        """One pass for all heads; of one grid's cells fewer at once when memory runs out."""
        if self.layer is None:
            cells = tiles(grids, self.side)
            return at_once(lambda part: self.model(cells[part]), len(cells), units=len(grids)).view(len(grids), -1)
        handle = self.model.get_submodule(self.layer).register_forward_hook(self._cut)
        try:
            return self.model(grids).view(len(grids), -1)
        finally:
            handle.remove()

    def _cut(self, _module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return tiles(output, self.side)


class Chances(nn.Module):
    """The logarithms of the heads' probabilities, each head's own: a softmax over all of them divides these by n²."""

    def __init__(self, heads: Disconnected) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, grids: Tensor) -> Tensor:
        """(N, n² · classes)."""
        return self.heads(grids).unflatten(1, (self.heads.side**2, -1)).log_softmax(2).flatten(1)


def disconnect(model: nn.Module, grid: Tensor, *, side: int, setting: str) -> Disconnected:
    """The network with n² heads; `grid` (1, 3, H, W) serves to find out where DiPart cuts, and whether it can."""
    grid = grid.to(device_of(model))
    if setting == "difull":
        return Disconnected(model, side=side, layer=None)
    heads = Disconnected(model, side=side, layer=_last_map(model, grid, side))
    with evaluating(model), torch.no_grad():
        try:
            heads(grid)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise UnsuitableError(f"dipart cannot cut this network's last map into cells: {error}") from error
    return heads


def disconnected_maps(
    heads: Disconnected,
    grids: Tensor,
    targets: Tensor,
    *,
    method: str,
    seed: int,
    encoded: bool = False,
    square: int | None = None,
) -> Tensor:
    """Signed maps (G, n², H, W) of the k-th head's logit for the k-th cell's class, `targets` (G, n²).

    encoded, square: as in `pixel_maps`.
    """
    if method == "rollout":
        raise UnsuitableError("attention rollout is the same for every head, so it has no place in disconnected cells")
    with evaluating(heads), torch.enable_grad():
        like = next(heads.parameters(), grids)
        grids, targets = grids.detach().to(like.device, like.dtype), targets.long().to(device_of(heads))
        if heads.layer is None and method in (*BY_CELL, *LAYER_METHODS):
            maps = _of_cells(heads, grids, targets, method=method, seed=seed, encoded=encoded)
        else:
            options: dict[str, Any] = {"method": method, "seed": seed, "encoded": encoded, "square": square}
            maps = _of_all_heads(heads, grids, targets, **options)
    if not maps.isfinite().all():
        raise UnsuitableError(f"{method} gives NaN or infinity on this network")
    return maps.detach()


def _of_cells(heads: Disconnected, grids: Tensor, targets: Tensor, *, method: str, seed: int, encoded: bool) -> Tensor:
    """DiFull: every cell is asked about its own class, all cells in one batch."""
    model, cells, classes = heads.model, tiles(grids, heads.side), targets.flatten()
    if method in BY_CELL:
        options: dict[str, Any] = {"method": method, "seed": seed, "encoded": encoded}
        maps = at_once(
            lambda part: pixel_maps(model, cells[part], classes[part, None], **options), len(cells), units=len(grids)
        )
        return _in_own_cell(maps, heads.side)[:, :, 0]
    layer = last_convolution(model, cells[:1], method=method)
    found = at_once(
        lambda part: torch.stack(activation_and_gradient(model, layer, cells[part], classes[part]), 1),
        len(cells),
        units=len(grids),
    )
    activation, gradients = untiled(found[:, 0], heads.side), _in_own_cell(found[:, 1], heads.side)
    return _layer_maps(activation, gradients, grids, method=method)


def _in_own_cell(cells: Tensor, side: int) -> Tensor:
    """(G·n², C, h, w) of cells to (G, n², C, n·h, n·w): the k-th is 0 but in the k-th cell."""
    own = cells.unflatten(0, (-1, side**2))
    spread = own.new_zeros(len(own), side**2, *own.shape[1:])
    spread[:, range(side**2), range(side**2)] = own
    return untiled(spread.flatten(0, 2), side).unflatten(0, (-1, side**2))


def _of_all_heads(heads: Disconnected, grids: Tensor, targets: Tensor, *, method: str, **options: Any) -> Tensor:
    """All at once: a class of the k-th head is the output k · classes + class."""
    with torch.no_grad():
        classes = heads(grids[:1]).shape[1] // heads.side**2
    outputs = targets + classes * torch.arange(heads.side**2, device=targets.device)
    if method in LAYER_METHODS:
        return _layer_maps(*_of_layer(heads, grids, outputs, method=method), grids, method=method)
    if method in BY_CHANCE:
        return heads.side**2 * pixel_maps(Chances(heads), grids, outputs, method=method, **options)
    if method == "wx":  # the heads' biases are not those of one network, so what is left over says nothing
        return decompose(heads, grids, outputs).contributions.sum(2)
    return pixel_maps(heads, grids, outputs, method=method, **options)


def _of_layer(heads: Disconnected, grids: Tensor, outputs: Tensor, *, method: str) -> tuple[Tensor, Tensor]:
    """DiPart: the last convolution's output (G, C, h, w) and its gradients (G, n², C, h, w)."""
    layer, kept = last_convolution(heads.model, tiles(grids[:1], heads.side)[:1], method=method), []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        kept.append(output)
        return output.clone()  # what follows may work in place

    handle = layer.register_forward_hook(keep, prepend=True)  # before DiPart's own
    try:
        logits = heads(grids.detach().clone().requires_grad_())
    finally:
        handle.remove()
    return kept[-1].detach(), torch.stack(class_gradients_at(logits, kept[-1], outputs), 1)


def _layer_maps(activation: Tensor, gradients: Tensor, grids: Tensor, *, method: str) -> Tensor:
    """Grad-CAM and NormGrad over whole grids, from activation (G, C, h, w) and gradients (G, n², C, h, w)."""
    if method == "gradcam":
        maps = (gradients.mean((3, 4), keepdim=True) * activation[:, None]).sum(2).clamp(min=0)
    else:
        maps = activation.norm(dim=1)[:, None] * gradients.norm(dim=2)
    return F.interpolate(maps, grids.shape[2:], mode="bilinear", align_corners=False)


def _last_map(model: nn.Module, grid: Tensor, side: int) -> str:
    """The module that ends with the last feature map of more than one place: what follows is the head."""
    ran: list[tuple[str, torch.Size]] = []
    handles = [
        module.register_forward_hook(lambda _m, _i, output, name=name: ran.append((name, _shape(output))))
        for name, module in model.named_modules()
        if name
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(tiles(grid, side)[:1])
    finally:
        for handle in handles:
            handle.remove()
    maps = [(name, shape) for name, shape in ran if len(shape) == 4 and shape[2] * shape[3] > 1]
    if not maps:
        raise UnsuitableError("dipart needs a network with feature maps, and this one has none")
    return maps[-1][0]


def _shape(output: Any) -> torch.Size:
    return output.shape if isinstance(output, Tensor) else torch.Size()


def tiles(maps: Tensor, side: int) -> Tensor:
    """(N, C, n·h, n·w) to the cells (N·n², C, h, w), row by row."""
    if maps.shape[2] % side or maps.shape[3] % side:
        size = "×".join(map(str, maps.shape[2:]))
        raise UnsuitableError(f"a map of {size} cannot be cut into {side}×{side} cells; this network cannot be dipart")
    cells = maps.unflatten(3, (side, -1)).unflatten(2, (side, -1))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)


def untiled(cells: Tensor, side: int) -> Tensor:
    """Cells (N·n², C, h, w) back to (N, C, n·h, n·w)."""
    parts = cells.unflatten(0, (-1, side, side)).permute(0, 3, 1, 4, 2, 5)
    return parts.flatten(4).flatten(2, 3)
