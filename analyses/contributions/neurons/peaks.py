"""Where is a feature of a layer strongest: in which images, and at which position of each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import map_images
from scs_eval.analyses.core.model_state import device_of
from scs_eval.images import Images
from scs_eval.models.explain.activations import capture_output, features
from scs_eval.models.explain.dynamic_linear import explanation_mode


@dataclass(frozen=True)
class Peaks:
    """The T images with the highest activation of each of K features, the highest first."""

    images: Tensor  # (K, T), which of the images
    offsets: Tensor  # (K, T), the strongest position in the layer's map, counted row by row
    shape: torch.Size  # of the layer's output for one image: (C, h, w), (tokens, C) or (C,)

    def positions(self, offsets: Tensor) -> Tensor:
        """Row and column (…, 2) in the layer's map; of tokens the number and 0."""
        width = self.shape[2] if len(self.shape) == 3 else 1
        return torch.stack([offsets // width, offsets % width], -1)


def output_channels(model: nn.Module, image: Tensor, *, layer: str) -> int:
    """How many channels the layer gives for an image (1, 3, H, W)."""
    return features(_output(model, image, layer)).shape[1]


def find_peaks(
    model: nn.Module, images: Images, vectors: Tensor, *, layer: str, top: int, batch_size: int = 50
) -> Peaks:
    """The `top` images (n, 3, H, W) in which v·a is largest, for each v of vectors (K, C); one position per image.

    Largest with its sign: an answer to the opposite of a feature is another feature, which -v finds.
    """

    def strongest(batch: Tensor, _part: slice) -> tuple[Tensor, Tensor, torch.Size]:
        output = _output(model, batch, layer)
        maxima = torch.einsum("kc,ncp->nkp", vectors.to(output), features(output)).max(-1)
        return maxima.values.cpu(), maxima.indices.cpu(), output.shape[1:]

    strengths, offsets, shapes = zip(*map_images(strongest, images, size=batch_size), strict=True)
    order = torch.cat(strengths).argsort(dim=0, descending=True, stable=True)[:top]
    return Peaks(order.T, torch.cat(offsets).gather(0, order).T, shapes[0])


def _output(model: nn.Module, images: Tensor, layer: str) -> Tensor:
    """In explanation mode, as it will be explained: the fast path of a sharpened layer does not run its pool."""
    with torch.no_grad(), explanation_mode(), capture_output(model, layer) as activation:
        model(images.to(device_of(model)))
    return activation.output
