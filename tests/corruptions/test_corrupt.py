"""Each corruption against the library function or the formula that defines it."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from skimage import color, data, transform, util

from scs_eval.analyses.corruptions import blur, digital, noise, weather
from scs_eval.analyses.corruptions.corrupt import CORRUPTIONS, SEVERITIES, corrupt
from scs_eval.errors import InputError

RNG = np.random.default_rng


def photograph(side: int) -> np.ndarray:
    """(side, side, 3) in steps of 1/255."""
    return np.rint(255 * transform.resize(data.astronaut(), (side, side), anti_aliasing=True)) / 255


def as_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None].float()


@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption_is_an_image_of_8_bits_and_follows_its_seed(name: str, side: int) -> None:
    clean = as_tensor(photograph(side))
    first, again = (corrupt(clean, name, 3, seed=1, ids=np.array([7])) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == clean.shape
    assert torch.equal((255 * first).round() / 255, first)
    assert (first - clean).abs().mean() > 1e-3
    stacked = corrupt(clean.expand(2, -1, -1, -1), name, 3, seed=1, ids=np.array([9, 7]))
    assert torch.equal(stacked[1:], first), "an image is corrupted alike in any batch"
    fixed = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
    assert torch.equal(stacked[0], stacked[1]) == (name in fixed), "other random numbers for other images"


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in ("elastic_transform", "glass_blur")])
def test_severities_grow(name: str) -> None:
    # Not of elastic transforms and glass: the published parameters trade one kind of distortion for another.
    for side in (32, 224):
        clean = as_tensor(photograph(side)).expand(4, -1, -1, -1)
        change = [(corrupt(clean, name, level) - clean).square().mean().item() for level in SEVERITIES]
        assert change[0] < change[4]


def test_noise_has_the_moments_of_its_formula() -> None:
    grey = np.full((200, 200, 3), 0.4)
    added = noise.gaussian_noise(grey, RNG(0), 0.1) - grey
    assert added.mean() == pytest.approx(0, abs=4 * 0.1 / 120_000**0.5)  # 4 standard errors
    assert stats.kstest(added.ravel() / 0.1, "norm").pvalue > 1e-3
    photons = noise.shot_noise(grey, RNG(0), 25)
    assert photons.mean() == pytest.approx(0.4, abs=0.002)
    assert photons.var() == pytest.approx(0.4 / 25, rel=0.02)  # Poisson: variance is the mean, over the photons
    mine, peer = noise.impulse_noise(grey, RNG(0), 0.1), util.random_noise(grey, mode="s&p", amount=0.1, rng=0)
    for value in (0.0, 1.0):
        assert (mine == value).mean() == pytest.approx((peer == value).mean(), abs=0.003)  # 4 standard errors


def test_brightness_raises_v_of_hsv() -> None:
    image = photograph(32)
    image[0, 0] = 0  # black has no hue: it turns grey
    hsv = color.rgb2hsv(image)
    hsv[..., 2] = np.minimum(hsv[..., 2] + 0.2, 1)
    np.testing.assert_allclose(weather.brightness(image, RNG(0), 0.2), color.hsv2rgb(hsv), atol=1e-12)  # float64


def test_contrast_keeps_the_mean() -> None:
    image = photograph(32)
    flat = digital.contrast(image, RNG(0), 0.3)
    np.testing.assert_allclose(flat.mean((0, 1)), image.mean((0, 1)))
    np.testing.assert_allclose(flat.std((0, 1)), 0.3 * image.std((0, 1)))


def test_jpeg_and_pixels_are_those_of_pillow() -> None:
    image = photograph(32)
    picture, file = Image.fromarray(np.rint(255 * image).astype(np.uint8)), io.BytesIO()
    picture.save(file, "JPEG", quality=40)
    np.testing.assert_array_equal(255 * digital.jpeg_compression(image, RNG(0), 40), np.asarray(Image.open(file)))
    wanted = np.asarray(picture.reduce(2)).repeat(2, 0).repeat(2, 1)  # half: means of 2 × 2 blocks
    np.testing.assert_allclose(255 * digital.pixelate(image, RNG(0), 0.5), wanted, atol=1)  # rounding of halves


def test_defocus_is_the_mean_over_a_disk() -> None:
    dot = np.zeros((41, 41, 3))
    dot[20, 20] = 1
    spread = blur.defocus_blur(dot, RNG(0), 5, 1e-3)  # as good as no softening
    rows, columns = np.nonzero(spread[..., 0])
    assert ((rows - 20) ** 2 + (columns - 20) ** 2).max() == 25
    assert len(rows) == 81  # whole points within a circle of radius 5 (Gauss's circle problem)
    np.testing.assert_allclose(spread[rows, columns, 0], 1 / 81)
    soft = blur.defocus_blur(dot, RNG(0), 5, 0.5)
    np.testing.assert_allclose(soft.sum(), 3)
    wanted = ndimage.gaussian_filter(spread[..., 0], 0.5, radius=1)
    np.testing.assert_allclose(soft[..., 0], wanted, atol=1e-12)  # float64


def test_motion_goes_one_way_and_keeps_what_is_even() -> None:
    np.testing.assert_allclose(blur.smeared(np.full((9, 9, 3), 0.3), 6, 2, 33.0), 0.3)
    dot = np.zeros((21, 21, 1))
    dot[10, 10] = 1
    line = blur.smeared(dot, 3, 2.0, 0.0)[..., 0]
    weights = stats.norm.pdf(np.arange(7), scale=2)
    np.testing.assert_allclose(line[10, 10:3:-1], weights / weights.sum())
    assert line.sum() == pytest.approx(1)


def test_zooming_keeps_the_middle() -> None:
    image = np.random.default_rng(0).random((33, 33, 3))
    np.testing.assert_array_equal(blur.enlarged(image, 1.0), image)
    for factor in (1.1, 2.0):
        large = blur.enlarged(image, factor)
        assert large.shape == image.shape
    ramp = np.linspace(0, 1, 64)[:, None, None] * np.ones((1, 64, 3))
    steep = np.diff(blur.enlarged(ramp, 2.0)[:, 0, 0])
    np.testing.assert_allclose(steep, 0.5 / 63, rtol=0.05)  # half as steep; the ends of the part are its own


def test_glass_moves_colours_no_further_than_its_reach() -> None:
    rows = np.arange(16)[:, None, None] * np.ones((1, 16, 3))
    moved = blur.glass_blur(rows, RNG(0), 1e-3, 2, 1)
    assert np.abs(moved - rows).max() <= 2 * 16
    assert set(np.unique(moved)) <= set(range(16)), "colours are moved, none is made"
    np.testing.assert_array_equal(moved[:3], rows[:3])  # the rim has no room
    assert (moved != rows).any()


def test_elastic_without_any_strength_is_the_image() -> None:
    image = photograph(32)
    np.testing.assert_allclose(digital.elastic_transform(image, RNG(0), 0, 0, 0), image, atol=1e-12)  # float64
    columns = np.arange(64.0)[None, :, None] * np.ones((64, 1, 3))
    affine = digital.elastic_transform(columns, RNG(0), 0, 0, 0.05)[20:44, 20:44, 0]
    assert np.abs(np.diff(affine, 2, axis=0)).max() < 1e-9, "an affine map of a ramp is a ramp"
    assert np.abs(np.diff(affine, 2, axis=1)).max() < 1e-9


def test_clouds_fill_zero_to_one_and_get_rougher() -> None:
    smooth, rough = (weather.plasma(RNG(0), 32, decay) for decay in (3.0, 1.2))
    for surface in (smooth, rough):
        assert (surface.min(), surface.max()) == (0, 1)
    assert np.abs(np.diff(rough)).mean() > 2 * np.abs(np.diff(smooth)).mean()
    assert weather.plasma(RNG(0), 20, 2.0).shape == (20, 20)


def test_frost_is_about_as_bright_as_photographs_of_it() -> None:
    # Those of ImageNet-C have a mean of 0.55 to 0.6, with the random crops that are taken of them.
    means = [weather.frost_texture(RNG(seed), 64).mean() for seed in range(20)]
    assert 0.4 < np.mean(means) < 0.65


def test_wrong_requests() -> None:
    clean = torch.zeros(1, 3, 8, 8)
    with pytest.raises(InputError, match="corruption of gaussian_noise"):
        corrupt(clean, "rain", 1)
    with pytest.raises(InputError, match="from 1 to 5"):
        corrupt(clean, "fog", 6)
    with pytest.raises(InputError, match="square"):
        corrupt(torch.zeros(1, 3, 8, 9), "fog", 1)
