"""Attribution by hiding parts of the image and watching the logits: occlusion, RISE and LIME. No gradient needed."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.analyses.core.batching import map_with_backoff

PASSES_AT_ONCE = 500  # of the hidden versions of an image at most so many,
PIXELS_AT_ONCE, PIXELS_ON_CPU = 2**22, 2**18  # and so large in all; a CPU is faster where layers fit into its cache
RISE_MASKS, RISE_GRID, RISE_SHARE = 1000, 7, 0.5
LIME_SAMPLES, LIME_WIDTH, LIME_RIDGE = 500, 0.25, 1.0  # B-cos v2, supplement D: the published package's defaults
QUICKSHIFT = {"kernel_size": 4, "max_dist": 200, "ratio": 0.2, "rng": 42}  # the published package's; ties by lot
FEWEST, SEGMENTS = 10, 50  # superpixels of quickshift that will do; of SLIC where they do not

# Which parts are hidden does not depend on the class, so one round of passes serves all classes of an image.


def occlusion(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """How far the logit falls when a black square covers a pixel (Zeiler and Fergus 2014).

    The square's side is a sixth of the image's (5 of 32 pixels) unless options.square says, its step half of that; a
    pixel has the mean of the squares that cover it.
    """
    return _image_by_image(partial(_occlusion, square=options.square), model, images, targets)


def _image_by_image(
    function: Callable[[nn.Module, Tensor, Tensor], Tensor], model: nn.Module, images: Tensor, targets: Tensor
) -> Tensor:
    """(N, K, C, H, W), every channel the same, from a function of one image (C, H, W) and K classes to (K, H, W)."""
    maps = [function(model, image, classes) for image, classes in zip(images, targets, strict=True)]
    return torch.stack(maps)[:, :, None].expand(-1, -1, images.shape[1], -1, -1)


def _occlusion(model: nn.Module, image: Tensor, targets: Tensor, *, square: int | None) -> Tensor:
    side = square or window(min(image.shape[1:]))
    squares = [(slice(top, top + side), slice(left, left + side)) for top, left in _corners(image, side)]

    def hidden(part: slice) -> Tensor:
        versions = torch.stack([image] * len(squares[part]))
        for version, (rows, columns) in zip(versions, squares[part], strict=True):
            version[:, rows, columns] = 0
        return versions

    falls = _responses(model, image, 1, lambda _: image[None], targets) - _responses(
        model, image, len(squares), hidden, targets
    )
    total, cover = image.new_zeros(len(targets), *image.shape[1:]), image.new_zeros(image.shape[1:])
    for fall, (rows, columns) in zip(falls, squares, strict=True):
        total[:, rows, columns] += fall[:, None, None]
        cover[rows, columns] += 1
    return total / cover


def _corners(image: Tensor, side: int) -> list[tuple[int, int]]:
    """Top and left of every square, half a side apart; those at the far edges are cut off there."""
    step = max(1, side // 2)
    tops, lefts = (range(0, math.ceil((length - side) / step) * step + 1, step) for length in image.shape[1:])
    return [(top, left) for top in tops for left in lefts]


def window(extent: int) -> int:
    """The side of the occluding square in pixels, for images whose shorter side has so many."""
    return max(1, round(extent / 6))


def rise(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """RISE: random smooth masks, each weighted by the probability it leaves the class (Petsiuk et al. 2018).

    map = Σ_m (P_m − P̄) m / (M E[m]), P_m = P(class | x ⊙ m); the same M = 1000 masks serve every image. The published
    formula has no P̄, the mean of all P_m: it adds nearly the same to every pixel, and without it a map has signs.
    """
    return _image_by_image(partial(_rise, seed=options.seed), model, images, targets)


def _rise(model: nn.Module, image: Tensor, targets: Tensor, *, seed: int) -> Tensor:
    def masks(part: slice) -> Tensor:  # made anew each time: of a large image they would not all fit
        return rise_masks(image.shape[1:], seed, part).to(image)

    scores = _responses(model, image, RISE_MASKS, lambda part: image * masks(part), targets, probabilities=True)
    centred = (scores - scores.mean(0)).T * _changes(scores)[:, None]
    parts = map_with_backoff(
        RISE_MASKS, versions_at_once(image), lambda part: centred[:, part] @ masks(part).flatten(1)
    )
    total = sum((part for _, part in parts), image.new_zeros(()))
    return total.unflatten(1, image.shape[1:]) / (RISE_MASKS * RISE_SHARE)


def rise_masks(size: torch.Size, seed: int, part: slice = slice(None)) -> Tensor:
    """(M, 1, H, W) in [0, 1], or a part of them: coarse coin tosses, upsampled bilinearly, shifted within a cell."""
    draw = torch.Generator().manual_seed(seed)
    height, width = (math.ceil(side / RISE_GRID) for side in size)
    coins = (torch.rand(RISE_MASKS, 1, RISE_GRID + 1, RISE_GRID + 1, generator=draw) < RISE_SHARE).float()
    tops, lefts = (torch.randint(0, cell, (RISE_MASKS,), generator=draw)[part].tolist() for cell in (height, width))
    factors = float(height), float(width)
    smooth = F.interpolate(coins[part], scale_factor=factors, mode="bilinear", align_corners=False)
    corners = zip(smooth, tops, lefts, strict=True)
    return torch.stack([mask[:, top : top + size[0], left : left + size[1]] for mask, top, left in corners])


def lime(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """LIME: the weight of each superpixel in a local linear model of the class's probability (Ribeiro et al. 2016).

    500 samples, each superpixel shown or replaced by its mean colour with equal chance; weights exp(−d²/0.25²) with d
    the cosine distance to the whole image; ridge regression.
    """
    return _image_by_image(partial(_lime, seed=options.seed), model, images, targets)


def superpixels(image: Tensor) -> Tensor:
    """(H, W) numbers 0, 1 … of the superpixels of an image (3, H, W).

    Quickshift's with kernel 4, as in the published package. Made for 224 pixels, it leaves a CIFAR image in one to
    three pieces; of an image with so few pieces the superpixels are SLIC's.
    """
    from skimage.segmentation import quickshift, slic

    pixels = image.permute(1, 2, 0).cpu().double().numpy()
    labels = quickshift(pixels, **QUICKSHIFT)
    if len(np.unique(labels)) < FEWEST:
        labels = slic(pixels, n_segments=SEGMENTS, start_label=0)
    _, numbers = np.unique(labels, return_inverse=True)
    return torch.from_numpy(numbers.reshape(pixels.shape[:2])).long()


def _lime(model: nn.Module, image: Tensor, targets: Tensor, *, seed: int) -> Tensor:
    segments = superpixels(image[:3]).to(image.device)
    count = int(segments.max()) + 1
    shown = torch.randint(0, 2, (LIME_SAMPLES, count), generator=torch.Generator().manual_seed(seed)).to(image)
    shown[0] = 1  # the image itself, as in the published package
    gone = _mean_colours(image, segments, count)

    def versions(part: slice) -> Tensor:
        return torch.where(shown[part][:, segments][:, None] > 0, image, gone)

    probabilities = _responses(model, image, LIME_SAMPLES, versions, targets, probabilities=True).cpu()
    weights = ridge(shown.cpu().double(), probabilities.double() * _changes(probabilities))
    return weights.T.to(image)[:, segments]


def _changes(responses: Tensor) -> Tensor:
    """(K,) whether the responses (M, K) differ at all: where they do not, a map is 0 and not what rounding makes."""
    return responses.amax(0) > responses.amin(0)


def ridge(shown: Tensor, responses: Tensor) -> Tensor:
    """Coefficients (S[, K]) of the weighted ridge regression, with intercept, of `responses` (M[, K]) on `shown`."""
    cosine = shown.sum(1) / (shown.norm(dim=1) * math.sqrt(shown.shape[1])).clamp(min=1e-12)
    weight = torch.exp(-((1 - cosine) ** 2) / LIME_WIDTH**2).sqrt()  # the published kernel is this root
    share = weight / weight.sum()
    centred, response = shown - share @ shown, responses - share @ responses
    scaled = centred * weight[:, None]
    penalty = LIME_RIDGE * torch.eye(shown.shape[1], dtype=shown.dtype, device=shown.device)
    return torch.linalg.solve(scaled.T @ centred + penalty, scaled.T @ response)


def _mean_colours(image: Tensor, segments: Tensor, count: int) -> Tensor:
    """The image (C, H, W) with every superpixel in its mean colour."""
    member = F.one_hot(segments.flatten(), count).to(image)
    means = image.flatten(1) @ member / member.sum(0)
    return means[:, segments]


@torch.no_grad()
def _responses(
    model: nn.Module,
    image: Tensor,
    count: int,
    versions: Callable[[slice], Tensor],
    targets: Tensor,
    *,
    probabilities: bool = False,
) -> Tensor:
    """(M, K) the logits, or their softmax, of K classes for `count` versions of an image, made as they are needed."""

    def some(part: slice) -> Tensor:
        logits = model(versions(part))
        return (logits.softmax(1) if probabilities else logits)[:, targets]

    return torch.cat([responses for _, responses in map_with_backoff(count, versions_at_once(image), some)])


def versions_at_once(images: Tensor) -> int:
    """How many images of this size (…, H, W) go through a network together."""
    pixels = PIXELS_ON_CPU if images.device.type == "cpu" else PIXELS_AT_ONCE
    return max(1, min(PASSES_AT_ONCE, pixels // images.shape[-2:].numel()))
