"""Accuracy under corruptions, mean corruption errors, the published files, and the command."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats
from torch import nn

from scs_eval import InputError, corruptions, load_data, load_model, load_result
from scs_eval.analyses.core.statistics import bootstrap_interval
from scs_eval.analyses.corruptions import CorruptionsComparison, CorruptionsResult
from scs_eval.analyses.corruptions.corrupt import CORRUPTIONS, corrupt
from scs_eval.cli.main import cli
from scs_eval.data.cifar10c_files import Cifar10C
from scs_eval.models.loading.sources import trained_reference
from tests.helpers.cut_off import CutOff, StopError

DATA = load_data("sample", n=20)
NAMES = ("contrast", "gaussian_noise")


def measure(model: nn.Module, **options: object) -> CorruptionsResult:
    given = {"classes": DATA.classes, "names": NAMES, "indices": DATA.indices, "batch_size": 8, **options}
    return corruptions(model, DATA.images, DATA.labels, **given)  # type: ignore[arg-type]


def test_outcomes_are_those_of_the_model_on_corrupted_images() -> None:
    model, reference = load_model("rohrer100k_scs"), load_model("rohrer100k_conv")
    result = measure(model, reference=reference, reference_name="conv", seed=4)
    assert result.names == ("gaussian_noise", "contrast"), "in the order of the paper"
    for place, name in enumerate(result.names):
        images = corrupt(DATA.images, name, 5, seed=4, ids=DATA.indices.numpy())
        for network, right in ((model, result.right), (reference, result.reference_right)):
            with torch.no_grad():
                assert right is not None
                assert right[place, 4].tolist() == (network(images).argmax(1) == DATA.labels).tolist()
    np.testing.assert_array_equal(result.pictures[1], corrupt(DATA.images[:1], "contrast", 3)[0])
    again = measure(model, reference=reference, reference_name="conv", seed=4, batch_size=20)
    np.testing.assert_array_equal(again.right, result.right)


def test_mean_corruption_error_by_hand() -> None:
    result = measure(load_model("rohrer100k_scs"), reference=load_model("rohrer100k_conv"), reference_name="conv")
    assert result.reference_right is not None
    ratios = [(~result.right[c]).sum() / (~result.reference_right[c]).sum() for c in range(2)]
    mce = result.mce
    assert mce.estimate == pytest.approx(np.mean(ratios))
    assert mce.low < mce.estimate < mce.high
    np.testing.assert_allclose(result.corruption_errors(), ratios)
    assert np.isnan(measure(load_model("rohrer100k_conv")).mce.estimate)
    np.testing.assert_allclose(result.drops.mean(1), result.clean.mean() - result.right.mean((1, 2)))


def test_bootstrap_interval_is_scipys() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.gamma(2, size=150), rng.gamma(3, size=150)])
    mine = bootstrap_interval(values, lambda means: means[..., 0] / means[..., 1])
    peer = stats.bootstrap(
        (values[:, 0], values[:, 1]), lambda a, b, axis: a.mean(axis) / b.mean(axis), paired=True, method="percentile",
        n_resamples=10_000, rng=0,
    ).confidence_interval  # fmt: skip
    width = peer.high - peer.low
    assert [mine.low, mine.high] == pytest.approx([peer.low, peer.high], abs=0.03 * width)  # 10,000 resamples each
    assert np.isnan(bootstrap_interval(values[:9], lambda means: means[..., 0]).low)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    model, stop = load_model("rohrer100k_scs"), CutOff(after=2)

    with pytest.raises(StopError):
        measure(model, progress=stop, checkpoint=tmp_path / "part.npz")
    told: list[int] = []
    resumed = measure(model, progress=told.append, checkpoint=tmp_path / "part.npz")
    assert told == [16, 4], "two batches of 8 were done"
    np.testing.assert_array_equal(resumed.right, measure(model).right)


def test_a_model_is_left_as_it_was() -> None:
    model = load_model("rohrer100k_scs").train()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    state = torch.random.get_rng_state()
    measure(model)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert (model.head.weight.grad == 1).all()
    assert torch.equal(torch.random.get_rng_state(), state)


def published(folder: Path) -> Path:
    """Files as CIFAR-10-C has them, in which a severity is a grey value, and the labels are 0 … 9 again and again."""
    folder.mkdir()
    grey = np.repeat(np.arange(1, 6, dtype=np.uint8), 10_000)
    np.save(folder / "labels.npy", np.tile(np.arange(50_000) % 10, 1).astype(np.uint8))
    stored = np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    stored[:] = grey[:, None, None, None]
    stored[30_007] = 200  # severity 4, test image 7
    stored.flush()
    return folder


def test_published_files(tmp_path: Path) -> None:
    source = Cifar10C(published(tmp_path / "c"))
    assert source.names() == ["fog"]
    clean = torch.zeros(2, 3, 32, 32)
    images = source("fog", 4, np.array([3, 7]), clean)
    assert images.shape == clean.shape
    assert (255 * images.amax((1, 2, 3))).tolist() == pytest.approx([4, 200])
    source.check(torch.tensor([3, 17]), torch.tensor([3, 7]))
    with pytest.raises(InputError, match="not those"):
        source.check(torch.tensor([3, 17]), torch.tensor([3, 3]))
    with pytest.raises(InputError, match=r"snow\.npy"):
        source("snow", 1, np.array([0]), clean[:1])
    np.save(tmp_path / "c" / "frost.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="no file of CIFAR-10-C"):
        source("frost", 1, np.array([0]), clean[:1])
    with pytest.raises(InputError, match="no folder"):
        Cifar10C(tmp_path / "nothing")


def test_references_are_the_zoos() -> None:
    assert trained_reference("rohrer100k_scs")[0] == "rohrer100k_conv"
    assert trained_reference("rohrer100k_scs@1")[0] == "rohrer100k_conv@1"
    assert trained_reference("rohrer100k_scs", seed=1)[0] == "rohrer100k_conv@1"
    assert trained_reference("rohrer100k_conv") == ("", None)
    assert trained_reference("somebody's") == ("", None)


def test_command(tmp_path: Path) -> None:
    words = ["corruptions", "rohrer100k_scs", "rohrer100k_conv", "-n", "12", "--corruption", "contrast"]
    done = CliRunner().invoke(cli, [*words, "--corruption", "brightness", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "o")
    assert isinstance(result, CorruptionsComparison)
    assert result.results[0].reference == "rohrer100k_conv"
    assert set(result.tables()) == {"table", "corruptions", "curve", "tests", "drop_tests"}
    assert len(result.drop_tests()) == 2
    assert {path.stem for path in (tmp_path / "o").glob("*.png")} == {"figure", "heatmap", "examples"}
    assert "severity 3 of 5" in result.figures()["examples"].get_supxlabel()
    wrong = CliRunner().invoke(cli, ["corruptions", "rohrer100k_scs", "--corruption", "rain"])
    assert isinstance(wrong.exception, InputError)
    assert next(iter(CORRUPTIONS)) in str(wrong.exception)
