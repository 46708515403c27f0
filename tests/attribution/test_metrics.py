"""Metrics of maps whose values can be worked out by hand, and max-sensitivity against captum's."""

import math

import numpy as np
import pytest
import torch
from captum.metrics import sensitivity_max
from torch import Tensor

from scs_eval.analyses.attribution.metrics import entropy, gini, map_correlation, max_sensitivity, top_mass
from scs_eval.errors import InputError

UNIFORM, SPIKE, BLANK = np.ones((4, 5)), np.eye(20)[7].reshape(4, 5), np.zeros((4, 5))


def test_extremes() -> None:
    maps = np.stack([UNIFORM, SPIKE, BLANK])
    np.testing.assert_allclose(gini(maps), [0, 1 - 1 / 20, 0], atol=1e-15)
    np.testing.assert_allclose(entropy(maps), [1, 0, 1], atol=1e-15)
    np.testing.assert_allclose(top_mass(maps), [0.05, 1, 0.05])


def test_by_hand() -> None:
    one = np.array([[[1.0, 0.0], [3.0, 4.0]]])
    # Gini: half the mean absolute difference over the mean: Σ|vi − vj| = 2 (1+3+4 + 2+3 + 1) = 28; 28 / (2·16·2).
    assert gini(one)[0] == pytest.approx(28 / 64)
    shares = [1 / 8, 3 / 8, 4 / 8]
    assert entropy(one)[0] == pytest.approx(-sum(s * math.log(s) for s in shares) / math.log(4))
    assert top_mass(one, share=0.25)[0] == pytest.approx(1 / 2)
    assert top_mass(one, share=0.375)[0] == pytest.approx((4 + 3 / 2) / 8)  # a pixel and a half
    other = np.array([[[0.0, 1.0], [2.0, 7.0]]])
    assert map_correlation(one, other)[0] == pytest.approx(np.corrcoef(one.ravel(), other.ravel())[0, 1])


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1e150])
def test_scale_does_not_matter(scale: float) -> None:
    maps = np.random.default_rng(0).random((3, 6, 6))
    for metric in (gini, entropy, top_mass):
        np.testing.assert_allclose(metric(maps * scale), metric(maps), rtol=1e-12)
    np.testing.assert_allclose(map_correlation(maps * scale, maps), 1)


def test_a_constant_map_correlates_with_nothing() -> None:
    maps = np.stack([UNIFORM, BLANK, SPIKE])
    found = map_correlation(maps, np.stack([SPIKE, SPIKE, SPIKE]))
    assert np.isnan(found[:2]).all()
    assert found[2] == pytest.approx(1)


@pytest.mark.parametrize("bad", [np.ones((4, 4)), -np.ones((1, 2, 2)), np.full((1, 2, 2), np.nan), np.ones((0, 2, 2))])
def test_bad_maps(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="expected maps"):
        gini(bad)


def explain(images: Tensor) -> Tensor:
    return (images**3).sum(1)


def test_max_sensitivity_is_captums() -> None:
    images = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draw = torch.Generator().manual_seed(5)

    def perturb(inputs: Tensor, perturb_radius: float) -> Tensor:  # captum asks for all samples of all images at once
        noise = torch.stack([torch.rand(images.shape[1:], generator=draw) * 2 - 1 for _ in range(4)]).to(inputs)
        return (inputs + perturb_radius * noise.repeat(len(images), 1, 1, 1)).clamp(0, 1)

    def only(x: Tensor | tuple[Tensor]) -> Tensor:  # captum gives now one, now the other
        return x[0] if isinstance(x, tuple) else x

    peer = sensitivity_max(
        lambda x: (explain(only(x)),),
        images,
        perturb_func=lambda x, radius: perturb(only(x), radius),
        perturb_radius=0.1,
        n_perturb_samples=4,
    )
    ours = max_sensitivity(explain, images, explain(images), radius=0.1, samples=4, seed=5)
    np.testing.assert_allclose(ours, peer.numpy(), rtol=1e-6)  # captum divides in the dtype of the maps
    assert (ours > 0.01).all()


def test_max_sensitivity_of_a_blank_map_is_unknown() -> None:
    images = torch.rand(2, 3, 4, 4)
    maps = torch.stack([torch.zeros(4, 4), torch.ones(4, 4)])
    found = max_sensitivity(lambda moved: maps, images, maps, radius=0.02, samples=5)
    assert np.isnan(found[0])
    assert found[1] == 0
