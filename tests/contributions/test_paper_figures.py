"""Figures 2, 8 and 13 of the B-cos paper, against the published layer and networks that are known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from bcos.modules import BcosLinear
from click.testing import CliRunner
from matplotlib import pyplot as plt
from scipy.optimize import minimize_scalar
from torch import nn

from scs_eval import InputError, load_data, load_model, page
from scs_eval.analyses.contributions import contributions, response_window, shifts
from scs_eval.analyses.contributions.bias_audit import lead_figure
from scs_eval.analyses.contributions.shift_figure import shift_figure, stability
from scs_eval.analyses.core.result import side_by_side
from scs_eval.cli.main import cli
from tests.helpers.figure_words import cut_words


@pytest.mark.parametrize("b", [1.0, 2.0, 5.0])
def test_a_unit_responds_as_the_published_layer(b: float) -> None:
    points, _ = response_window.problem(35.0)
    weights = response_window.direction(np.array([20.0, 90.0, 130.0]))
    published = BcosLinear(2, 3, b=b).double()
    published.linear.weight.data = torch.from_numpy(weights)
    wanted = published(torch.from_numpy(points)).detach().numpy()
    # The published layer adds 1e-6 to the cosine unless B is 1 or 2.
    np.testing.assert_allclose(response_window.response(points, weights, b), wanted, rtol=1e-4, atol=1e-5)


def test_the_optimum_is_that_of_a_search_of_another_kind() -> None:
    points, positive = response_window.problem(35.0)

    def loss(angle: float) -> float:
        products = points @ [np.cos(angle), np.sin(angle)]
        logits = torch.tensor(response_window.GAIN * products + response_window.BIAS)
        return nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(positive).double()).item()

    found = minimize_scalar(loss, bounds=(np.pi / 2, np.pi), method="bounded")
    assert response_window.optimum(35.0, 1.0) == pytest.approx(np.rad2deg(found.x), abs=0.5)  # a step of ANGLES


def test_a_large_b_looks_like_the_cluster_whatever_the_others_are() -> None:
    left, right = response_window.OTHERS
    assert abs(response_window.optimum(left, 1.0) - response_window.optimum(right, 1.0)) > 45
    for others in (left, right):
        assert response_window.optimum(others, 20.0) == pytest.approx(response_window.CLUSTER, abs=3)


def test_shifts_move_the_image() -> None:
    image = torch.rand(3, 9, 8)
    assert torch.equal(shifts.shifted(image, 0), image)
    assert torch.equal(shifts.shifted(image, 3)[:, 3:, 3:], image[:, :-3, :-3])
    assert torch.equal(shifts.shifted(image, -2)[:, :-2, :-2], image[:, 2:, 2:])
    assert torch.equal(shifts.shifted(image, 1)[:, 0, 1:], image[:, 1, :-1])  # mirrored at the edge


class Everywhere(nn.Module):
    """A convolution and the mean over all places: what a pixel adds moves with it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


def test_stability_of_networks_that_are_known() -> None:
    torch.manual_seed(0)
    image = load_data("sample", n=1).images[0]
    moving = shifts.explain_shifts(Everywhere(), image, label="moving")
    assert moving.maps.shape == (9, 32, 32)
    np.testing.assert_allclose(stability(moving.maps), 1, atol=1e-9)
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4, bias=False))
    others = np.delete(stability(shifts.explain_shifts(fixed, image, label="fixed").maps), 4)
    assert (others < 0.5).all()  # its weights stay where they are
    with pytest.raises(InputError, match="less than half of the image"):
        shifts.explain_shifts(fixed, image, label="fixed", most=16)


def test_the_command_of_figure_2(tmp_path: Path) -> None:
    out = tmp_path / "figure.png"
    done = CliRunner().invoke(response_window.main, ["--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "B = 1: optimal weight at" in done.output
    assert plt.imread(out).std() > 0.02  # not blank


def test_the_command_of_figure_8(tmp_path: Path) -> None:
    asked = ["contributions", "rohrer25k_scs", "rohrer25k_conv", "--shift", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert plt.imread(tmp_path / "out" / "shifts.png").std() > 0.02
    with pytest.raises(InputError, match="--shift shows the maps of one image"):
        CliRunner().invoke(cli, ["contributions", "rohrer25k_scs", "--shift", "1", "--audit"], catch_exceptions=False)


def test_boxes_of_what_biases_lead_by() -> None:
    """Figure 13: none for a network without biases, and the table's median for one with them."""
    data = load_data("sample", n=12)
    names = ("rohrer100k_scs", "resnet20_conv")
    results = [contributions(load_model(name), data, extras=["audit"], label=name) for name in names]
    figure = side_by_side(results, label="both").figures()["lead_bias"]
    axes = figure.axes[0]
    medians = [
        line.get_xdata()[0] for line in axes.lines if line.get_color() == "black" and len(set(line.get_xdata())) == 1
    ]
    wanted = [100 * result.table()["lead_bias_share"].median() for result in results]
    assert all(min(abs(value - median) for median in medians) < 1e-9 for value in wanted)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(names)


def test_words_beside_boxes_stay_inside() -> None:
    figure = lead_figure({"rohrer25k_ssdp_relu_maxpool": np.linspace(-0.4, 1.4, 20), "a": np.zeros(3)})
    assert not cut_words(figure)


def test_the_figure_of_shifts_has_the_size_of_its_page() -> None:
    image = load_data("sample", n=1).images[0]
    result = shifts.explain_shifts(Everywhere(), image, label="any", most=1)
    with page(size=(4.0, 3.0)):
        assert shift_figure({"any": result}).get_size_inches().tolist() == [4, 3]


@pytest.mark.filterwarnings("error")
def test_empty_maps_of_shifted_images_say_so() -> None:
    class Nothing(Everywhere):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0 * super().forward(x)

    result = shifts.explain_shifts(Nothing(), load_data("sample", n=1).images[0], label="nothing", most=1)
    figure = shift_figure({"nothing": result})
    assert [ax.get_xlabel() for ax in figure.axes] == ["−1", "0", "+1", *["0 everywhere"] * 3]
    assert not cut_words(figure)
