"""Attribution by hiding parts of the image and watching the answer: occlusion, RISE and LIME. No gradient needed."""

import math
from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

PASSES_AT_ONCE = 500
RISE_MASKS, RISE_GRID, RISE_SHARE = 1000, 7, 0.5
LIME_SAMPLES, LIME_WIDTH, LIME_RIDGE = 500, 0.25, 1.0  # B-cos v2, supplement D: the published package's defaults
SEGMENTS = 50


def occlusion(model: nn.Module, images: Tensor, targets: Tensor, seed: int = 0) -> Tensor:
    """How far the logit falls when a black square covers a pixel (Zeiler and Fergus 2014).

    The square's side is a sixth of the image's (5 of 32 pixels), its step half of that.
    """
    from captum.attr import Occlusion

    side, at_once = window(images), max(1, PASSES_AT_ONCE // len(images))
    step = max(1, side // 2)
    with torch.no_grad():
        return Occlusion(model).attribute(
            images,
            target=targets,
            sliding_window_shapes=(images.shape[1], side, side),
            strides=(images.shape[1], step, step),
            perturbations_per_eval=at_once,
        )


def window(images: Tensor) -> int:
    """The side of the occluding square in pixels."""
    return max(1, round(min(images.shape[2:]) / 6))


def rise(model: nn.Module, images: Tensor, targets: Tensor, seed: int = 0) -> Tensor:
    """RISE: random smooth masks, each weighted by the probability it leaves the class (Petsiuk et al. 2018).

    map = Σ_m (P_m − P̄) m / (M E[m]), P_m = P(class | x ⊙ m); the same M = 1000 masks serve every image. The published
    formula has no P̄, the mean of all P_m: it adds nearly the same to every pixel, and without it a map has signs.
    """
    masks = rise_masks(images.shape[2:], seed).to(images)
    maps = []
    for image, target in zip(images, targets, strict=True):
        scores = _probabilities(model, (image * part for part in masks.split(PASSES_AT_ONCE)), target)
        maps.append(((scores - scores.mean())[:, None, None, None] * masks).sum(0) / (len(masks) * RISE_SHARE))
    return torch.stack(maps).expand(-1, images.shape[1], -1, -1)


def rise_masks(size: torch.Size, seed: int) -> Tensor:
    """(M, 1, H, W) in [0, 1]: coarse coin tosses, upsampled bilinearly and shifted by a part of a cell."""
    draw = torch.Generator().manual_seed(seed)
    height, width = (math.ceil(side / RISE_GRID) for side in size)
    coins = (torch.rand(RISE_MASKS, 1, RISE_GRID + 1, RISE_GRID + 1, generator=draw) < RISE_SHARE).float()
    smooth = F.interpolate(coins, scale_factor=(float(height), float(width)), mode="bilinear", align_corners=False)
    tops, lefts = (torch.randint(0, cell, (RISE_MASKS,), generator=draw).tolist() for cell in (height, width))
    corners = zip(smooth, tops, lefts, strict=True)
    return torch.stack([mask[:, top : top + size[0], left : left + size[1]] for mask, top, left in corners])


def lime(model: nn.Module, images: Tensor, targets: Tensor, seed: int = 0) -> Tensor:
    """LIME: the weight of each superpixel in a local linear model of the class's probability (Ribeiro et al. 2016).

    500 samples, each superpixel shown or replaced by its mean colour with equal chance; weights exp(−d²/0.25²) with d
    the cosine distance to the whole image; ridge regression. The published package segments by quickshift with kernel
    4, made for 224 pixels; a CIFAR image it leaves in one to three pieces, so superpixels are SLIC's.
    """
    maps = [_lime_one(model, image, target, seed) for image, target in zip(images, targets, strict=True)]
    return torch.stack(maps).expand(-1, images.shape[1], -1, -1)


def superpixels(image: Tensor) -> Tensor:
    """(H, W) numbers 0, 1 … of the superpixels of an image (3, H, W)."""
    from skimage.segmentation import slic

    pixels = image.permute(1, 2, 0).double().cpu().numpy()
    _, numbers = np.unique(slic(pixels, n_segments=SEGMENTS, start_label=0), return_inverse=True)
    return torch.from_numpy(numbers.reshape(pixels.shape[:2])).long()


def _lime_one(model: nn.Module, image: Tensor, target: Tensor, seed: int) -> Tensor:
    segments = superpixels(image).to(image.device)
    count = int(segments.max()) + 1
    shown = torch.randint(0, 2, (LIME_SAMPLES, count), generator=torch.Generator().manual_seed(seed)).to(image)
    shown[0] = 1  # the image itself, as in the published package
    gone = _mean_colours(image, segments, count)
    versions = (torch.where(part[:, segments][:, None] > 0, image, gone) for part in shown.split(PASSES_AT_ONCE))
    weights = ridge(shown.double(), _probabilities(model, versions, target).double())
    return weights[segments][None].to(image)


def ridge(shown: Tensor, answers: Tensor) -> Tensor:
    """Coefficients (S,) of the weighted ridge regression with intercept of `answers` (M,) on `shown` (M, S)."""
    cosine = shown.sum(1) / (shown.norm(dim=1) * math.sqrt(shown.shape[1])).clamp(min=1e-12)
    weight = torch.exp(-((1 - cosine) ** 2) / LIME_WIDTH**2).sqrt()  # the published kernel is this root
    share = weight / weight.sum()
    centred, response = shown - share @ shown, answers - share @ answers
    scaled = centred * weight[:, None]
    penalty = LIME_RIDGE * torch.eye(shown.shape[1], dtype=shown.dtype, device=shown.device)
    return torch.linalg.solve(scaled.T @ centred + penalty, scaled.T @ response)


def _mean_colours(image: Tensor, segments: Tensor, count: int) -> Tensor:
    """The image (C, H, W) with every superpixel in its mean colour."""
    member = F.one_hot(segments.flatten(), count).to(image)
    means = image.flatten(1) @ member / member.sum(0)
    return means[:, segments]


@torch.no_grad()
def _probabilities(model: nn.Module, versions: Iterable[Tensor], target: Tensor) -> Tensor:
    """(M,) the softmax of the class for every version of an image."""
    return torch.cat([model(part).softmax(1)[:, target] for part in versions])
