"""The maps of mosaics: how a model looks at them, and how many it can look at at once."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import check_logits, pixel_maps
from scs_eval.analyses.attribution.methods import MapOptions, Method, find_method
from scs_eval.analyses.attribution.perturbation import window
from scs_eval.analyses.core.batching import fitting
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.localisation.disconnected import Disconnected, disconnect, disconnected_maps, tiles
from scs_eval.analyses.localisation.options import BCOS_V2, LocalisationOptions
from scs_eval.analyses.localisation.windows import Windows, half_of, has_attention, takes
from scs_eval.errors import InputError

WHOLE = "whole grid"
FEW = 4  # mosaics at once of a costly method


@dataclass(frozen=True, eq=False, kw_only=True)
class Explainer:
    """One model and one method, ready for mosaics.

    view: the windows through which the model sees a mosaic, or in words how else. heads: of disconnected cells.
    channels: 6 to explain what enters a network that encodes [x, 1−x].
    """

    model: nn.Module
    method: Method
    options: MapOptions
    channels: int
    view: Windows | str
    heads: Disconnected | None

    @classmethod
    def of(
        cls, model: nn.Module, mosaic: Tensor, options: LocalisationOptions, map_options: MapOptions, *, method: str,
        classes: int, size: int, side: int,
    ) -> "Explainer":  # fmt: skip
        """For mosaics such as this one (1, 3, H, W), of images of `size` pixels, `side` in a row."""
        apart = options.setting != "grid"
        return cls(
            model=model,
            method=find_method(method),
            options=map_options,
            channels=options.channels or (6 if options.protocol == BCOS_V2 else 3),
            view=view_of(model, mosaic, options, size=size, classes=classes),
            heads=disconnect(model, mosaic, side=side, setting=options.setting) if apart else None,
        )

    def maps(self, mosaics: Tensor, targets: Tensor) -> Tensor:
        """Signed maps (G, n², H, W) of the classes `targets` (G, n²) of mosaics (G, 3, H, W)."""
        if self.heads is not None:
            return disconnected_maps(
                self.heads, mosaics, targets, method=self.method, options=self.options, channels=self.channels
            )
        if isinstance(self.view, Windows):
            return self.view.maps(self.image_maps, mosaics, targets)
        return self.image_maps(mosaics, targets)

    def image_maps(self, images: Tensor, targets: Tensor) -> Tensor:
        """Signed maps (N, K, H, W) of images that the model sees whole."""
        return pixel_maps(
            self.model, images, targets, method=self.method.name, options=self.options, channels=self.channels
        )

    def batch_size(self, mosaic: Tensor, *, cells: int) -> int:
        """How many mosaics fit: each is its windows or cells, and there for every class unless classes share passes.

        Of methods that take many passes for a mosaic only a few at once, so that the bar moves and little is lost.
        """
        if self.method.image_by_image:
            return 1
        heads, copies = self.heads, 1 if self.method.shares_passes else cells
        if heads is not None and heads.layer is None:
            fits = fitting(self.model, tiles(mosaic, heads.side)[:1], copies=cells)  # a cell is asked about one class
        elif isinstance(self.view, Windows):
            windows = self.view.cut(mosaic)
            fits = fitting(self.model, windows[:1], copies=len(windows) * copies)
        else:
            fits = fitting(heads or self.model, mosaic, copies=copies)
        return fits if self.method.cheap else min(FEW, fits)


def check_model(model: nn.Module, image: Tensor, label: Tensor, *, method: str, options: MapOptions) -> None:
    """Raise now what would be raised later: of one image, because it needs less memory than a mosaic."""
    with evaluating(model), torch.enable_grad():
        check_logits(model, image, label, find_method(method))
    pixel_maps(model, image, label[:, None], method=method, options=options)


def options_of(method: str, options: LocalisationOptions, *, size: int, seed: int) -> MapOptions:
    """What maps depend on: of images of `size` pixels."""
    square = square_of(method, size, options.square)
    return MapOptions(seed=seed, square=square, published=options.protocol == BCOS_V2)


def view_of(
    model: nn.Module, mosaic: Tensor, options: LocalisationOptions, *, size: int, classes: int
) -> Windows | str:
    """How the model looks at a mosaic: through windows, or in words how else."""
    if options.setting != "grid":
        return "cell by cell" if options.setting == "difull" else WHOLE
    if options.look == "whole" and not takes(model, mosaic, classes=classes):
        raise InputError(f"the model cannot take a grid of {mosaic.shape[2]}×{mosaic.shape[3]}; let it look at windows")
    if options.look == "whole" or (
        options.look == "auto" and not has_attention(model) and takes(model, mosaic, classes=classes)
    ):
        return WHOLE
    return Windows(size, half_of(size) if options.stride is None else options.stride)


def square_of(method: str, size: int, requested: int | None) -> int | None:
    """The side of occlusion's square, which fits into a single image of `size` pixels; other methods have none.

    By default that of a single image, also where the whole mosaic is seen, so that models that see it through windows
    are asked the same.
    """
    if "square" not in find_method(method).reads:
        if requested is not None:
            raise InputError(f"expected a square for occlusion alone, got one for {method}")
        return None
    square = window(size) if requested is None else requested
    if not 1 <= square <= size:
        raise InputError(f"expected --square from 1 to {size} pixels, an image's side, got {square}")
    return square
