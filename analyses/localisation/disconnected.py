"""DiFull and DiPart: a grid whose k-th head sees only the k-th cell, so that maps elsewhere are provably wrong.

DiFull: every cell runs through the network alone. DiPart: the network sees the grid, but the head only the part of the
last feature map that belongs to the cell, so that other cells come in at the edges alone, through receptive fields.
Source: Rao, Böhle, Schiele 2022, "Towards Better Understanding Attribution Methods", section 3.1. They look at two
corners of each grid; here all cells are asked about, as in the pointing game.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import pixel_maps
from scs_eval.analyses.attribution.cam import activation_and_gradients, last_convolution
from scs_eval.analyses.attribution.encoding import EncodedInput, encode, encodes
from scs_eval.analyses.attribution.methods import MapOptions, Method
from scs_eval.analyses.core.batching import is_out_of_memory, map_batched
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.errors import NotApplicableError


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
            return map_batched(lambda part: self.model(cells[part]), len(cells), units=len(grids)).view(len(grids), -1)
        handle = self.model.get_submodule(self.layer).register_forward_hook(self._cut)
        try:
            return self.model(grids).view(len(grids), -1)
        finally:
            handle.remove()

    def encode(self, mosaics: Tensor) -> Tensor:
        """(N, 6, n·h, n·w): what the network's encoding makes of every cell."""
        cells = tiles(mosaics, self.side)
        encoded = map_batched(lambda part: encode(self.model, cells[part]), len(cells), units=len(mosaics))
        return untiled(encoded, self.side)

    def encoded(self) -> "Disconnected":
        """The same heads on mosaics of six channels, as the network's encoding makes them."""
        layer = None if self.layer is None else f"model.{self.layer}"
        return Disconnected(EncodedInput(self.model), side=self.side, layer=layer)

    def _cut(self, _module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return tiles(output, self.side)


class LogProbabilities(nn.Module):
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
            raise NotApplicableError(f"dipart cannot cut this network's last map into cells: {error}") from error
    return heads


def disconnected_maps(
    heads: Disconnected, mosaics: Tensor, targets: Tensor, *, method: Method, options: MapOptions, channels: int = 3
) -> Tensor:
    """Signed maps (G, n², H, W) of the k-th head's logit for the k-th cell's class, `targets` (G, n²)."""
    if not method.class_specific:
        raise NotApplicableError(
            f"{method.label} is the same for every head, so disconnected cells cannot tell where it is right"
        )
    with evaluating(heads), torch.enable_grad():
        like = next(heads.parameters(), mosaics)
        x, classes = mosaics.detach().to(like.device, like.dtype), targets.long().to(device_of(heads))
        if channels == 6 and encodes(heads) and not method.at_encoding:
            x, heads = heads.encode(x), heads.encoded()
        by_cell = heads.layer is None and (method.local or method.layer_rule is not None)
        maps = (_of_cells if by_cell else _of_all_heads)(heads, x, classes, method, options)
    if not maps.isfinite().all():
        raise NotApplicableError(f"{method.name} gives NaN or infinity on this network")
    return maps.detach()


def _of_cells(heads: Disconnected, mosaics: Tensor, targets: Tensor, method: Method, options: MapOptions) -> Tensor:
    """DiFull: every cell is asked about its own class, all cells in one batch."""
    model, cells, classes = heads.model, tiles(mosaics, heads.side), targets.flatten()[:, None]
    if method.layer_rule is None:

        def cell_maps(part: slice) -> Tensor:
            return pixel_maps(model, cells[part], classes[part], method=method.name, options=options)

        return _in_own_cell(map_batched(cell_maps, len(cells), units=len(mosaics)), heads.side)[:, :, 0]
    layer = last_convolution(model, cells[:1], method=method.name)

    def both(part: slice) -> Tensor:
        activation, gradients = activation_and_gradients(model, layer, cells[part], classes[part])
        return torch.stack([activation, gradients[:, 0]], 1)

    stacked = map_batched(both, len(cells), units=len(mosaics))
    activation, gradients = untiled(stacked[:, 0], heads.side), _in_own_cell(stacked[:, 1], heads.side)
    return _upsampled(method, activation, gradients, mosaics)


def _in_own_cell(cells: Tensor, side: int) -> Tensor:
    """(G·n², C, h, w) of cells to (G, n², C, n·h, n·w): the k-th is 0 but in the k-th cell."""
    own = cells.unflatten(0, (-1, side**2))
    spread = own.new_zeros(len(own), side**2, *own.shape[1:])
    spread[:, range(side**2), range(side**2)] = own
    return untiled(spread.flatten(0, 2), side).unflatten(0, (-1, side**2))


def _of_all_heads(heads: Disconnected, mosaics: Tensor, targets: Tensor, method: Method, options: MapOptions) -> Tensor:
    """All at once: a class of the k-th head is the output k · classes + class."""
    with torch.no_grad():
        classes = heads(mosaics[:1]).shape[1] // heads.side**2
    outputs = targets + classes * torch.arange(heads.side**2, device=targets.device)
    if method.layer_rule is not None:
        layer = last_convolution(heads.model, tiles(mosaics[:1], heads.side)[:1], method=method.name)
        before_the_cut = activation_and_gradients(heads, layer, mosaics, outputs, first_hook=True)
        return _upsampled(method, *before_the_cut, mosaics)
    if method.on == "probability":
        log_probabilities = LogProbabilities(heads)
        return heads.side**2 * pixel_maps(log_probabilities, mosaics, outputs, method=method.name, options=options)
    # The heads' biases are not those of one network, so what W(x) leaves over says nothing.
    free = replace(options, allow_incomplete=True)
    return pixel_maps(heads, mosaics, outputs, method=method.name, options=free)


def _upsampled(method: Method, activation: Tensor, gradients: Tensor, mosaics: Tensor) -> Tensor:
    """Maps over whole mosaics, from activation (G, C, h, w) and gradients (G, n², C, h, w)."""
    assert method.layer_rule is not None
    maps = method.layer_rule(activation, gradients)
    return F.interpolate(maps, mosaics.shape[2:], mode="bilinear", align_corners=False)


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
        raise NotApplicableError("dipart needs a network with feature maps, and this one has none")
    return maps[-1][0]


def _shape(output: Any) -> torch.Size:
    return output.shape if isinstance(output, Tensor) else torch.Size()


def tiles(maps: Tensor, side: int) -> Tensor:
    """(N, C, n·h, n·w) to the cells (N·n², C, h, w), row by row."""
    if maps.shape[2] % side or maps.shape[3] % side:
        size = "×".join(map(str, maps.shape[2:]))
        raise NotApplicableError(
            f"a map of {size} cannot be cut into {side}×{side} cells; this network cannot be dipart"
        )
    cells = maps.unflatten(3, (side, -1)).unflatten(2, (side, -1))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)


def untiled(cells: Tensor, side: int) -> Tensor:
    """Cells (N·n², C, h, w) back to (N, C, n·h, n·w)."""
    parts = cells.unflatten(0, (-1, side, side)).permute(0, 3, 1, 4, 2, 5)
    return parts.flatten(4).flatten(2, 3)
