"""The scorecard passes an honest network and fails each kind of dishonest one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import Attacked
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.scorecard import PRESETS, STEPS, Preset, Scorecard, adaptive, scorecard, self_test, strength
from scs_eval.analyses.scorecard import context as subject_module
from scs_eval.analyses.scorecard.check import FAIL, PASS, SKIPPED, WARN, Check, at_most, in_points, worst
from scs_eval.analyses.scorecard.figure import draw_scorecard
from scs_eval.analyses.scorecard.sanity_checks import monotone
from scs_eval.analyses.scorecard.self_test import Planted, find_planted_example
from scs_eval.errors import InputError
from scs_eval.models.explain.dynamic_linear import dynamic, explanation_mode
from scs_eval.models.layers import BcosConv2d, SharpenedSDP2d
from tests.helpers.figure_words import cut_words

N = 24
ADAPTIVE = [f"adaptive: {name}" for name in strength.ADAPTIVE]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "fast", Preset(images=100, queries=150, points=40, afresh=3))


def linear(pixels: int = 12, classes: int = 2) -> nn.Sequential:
    layer = nn.Linear(pixels, classes)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, pixels, generator=torch.Generator().manual_seed(1)))
        layer.bias.copy_(-0.5 * layer.weight.sum(1))
    return nn.Sequential(nn.Flatten(), layer).eval()


IMAGES = torch.rand(N, 3, 2, 2, generator=torch.Generator().manual_seed(2)) * 0.4 + 0.3
LABELS = linear()(IMAGES).argmax(1)
EPS = 0.03  # breaks about half of them
GREY = 0.5 + 0.002 * (IMAGES - 0.5)


class Quantised(nn.Module):
    """Steps of 1/50: the answer moves, the gradient is 0."""

    def forward(self, images: Tensor) -> Tensor:
        return (images * 50).round() / 50


class Noisy(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images + 0.2 * torch.randn_like(images)


class WildGradient(nn.Module):
    """x + 0·√(x − x): the gradient is 0·∞."""

    def forward(self, images: Tensor) -> Tensor:
        return images + 0 * (images - images.detach()).sqrt()


class Torn(nn.Module):
    """Class 1 is within reach along u; eight others, further behind and bounded, pull cross-entropy the other way."""

    def forward(self, images: Tensor) -> Tensor:
        u = (images - 0.5).mean((1, 2, 3))[:, None]
        return torch.cat([0 * u, -1 + 40 * u, (-1.05 + torch.tanh(-60 * u)).expand(-1, 8)], 1)


class Sunken(nn.Module):
    """A sharpened layer so far from its kernel that |u|^p is 0 in single precision; class 1 wins at u > 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SharpenedSDP2d(3, 1, 2, p=40.0)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([1.0, -1, 1, -1] * 3).view(1, 3, 2, 2))

    def forward(self, images: Tensor) -> Tensor:
        y = self.layer(images - 0.5).flatten(1)
        return torch.cat([0.5 + 0 * y, y], 1)


class Gated(nn.Module):
    """u · (round(u)/u) with the factor marked as dynamic: the plain gradient is 0, the detached one is not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SharpenedSDP2d(3, 3, 1, p=2.0)  # something sharpened, so that there is something to adapt to
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(3).view(3, 3, 1, 1))
        self.head = linear()

    def forward(self, images: Tensor) -> Tensor:
        u = self.layer(images).clamp(min=1e-3)
        return self.head(u * dynamic((u * 100).round() / 100 / u))


def distances(model: nn.Sequential, images: Tensor) -> Tensor:
    """(N,) how far each image is from the nearest other class of a linear network, in L∞."""
    weight, logits = model[1].weight.detach(), model(images).detach()
    labels = logits.argmax(1)
    gaps = logits.gather(1, labels[:, None]) - logits
    reach = (weight[labels][:, None] - weight[None]).abs().sum(2)
    return (gaps / reach).nan_to_num(torch.inf).amin(1)


def card(model: nn.Module, labels: Tensor | None = None, **options: object) -> Scorecard:
    given = {"eps": EPS, "label": "m", **options}
    images = GREY if isinstance(model, Torn | Sunken) else IMAGES
    labels = model.eval()(images).argmax(1) if labels is None else labels
    return scorecard(model, images, labels, **given)  # type: ignore[arg-type]


def verdicts(result: Scorecard) -> dict[str, str]:
    return {check.name: check.verdict for check in result.lines}


HONEST = card(linear(), twin=linear())


def test_an_honest_network_passes() -> None:
    found = verdicts(HONEST)
    assert set(found.values()) == {PASS, SKIPPED}, HONEST.summary()
    assert [name for name, verdict in found.items() if verdict == SKIPPED] == ADAPTIVE
    assert HONEST.verdict == PASS
    # A linear network's robust accuracy is known: min over j of (z_y - z_j) / |w_y - w_j|_1, no pixel near 0 or 1.
    distance = distances(linear(), IMAGES)
    assert 0.2 < (distance > EPS).double().mean() < 0.8
    np.testing.assert_array_equal(HONEST.worst_case, (distance < EPS).numpy())


class Steep(nn.Module):
    """Logits a thousand times as large."""

    def forward(self, logits: Tensor) -> Tensor:
        return 1000 * logits


def masked() -> nn.Module:
    return nn.Sequential(Quantised(), linear())


@pytest.mark.parametrize(
    ("model", "failed", "options"),
    [
        (nn.Sequential(linear(), nn.Softmax(1)), "logits, not probabilities", {}),
        (nn.Sequential(Noisy(), linear()), "deterministic", {}),
        (nn.Sequential(Noisy(), linear()), "ε = 0 is clean accuracy", {}),
        (masked(), "gradients", {}),
        (nn.Sequential(WildGradient(), linear()), "gradients", {}),
        (masked(), "full range", {"attacks": (Attack(random_start=False),)}),
        (masked(), "Square (no gradients)", {"attacks": (Attack(random_start=False),)}),
        (masked(), "Square at a larger ε", {"eps": 0.001, "attacks": (Attack(random_start=False),)}),
        (nn.Sequential(linear(), Steep(), nn.Sigmoid()), "logits, not probabilities", {}),
        (masked(), "random search", {"attacks": (Attack(random_start=False),)}),
        (masked(), "loss settled, last 10 steps", {"attacks": (Attack(random_start=False),)}),
        (masked(), "transfer from the convolution twin", {"twin": linear()}),
        (linear(), "FGSM", {"attacks": (Attack(steps=1, rel_step_size=0.01, random_start=False),)}),
        (linear(), "loss settled, last 10 steps", {"attacks": (Attack(rel_step_size=0.02, random_start=False),)}),
        (linear(), "twice the steps", {"attacks": (Attack(rel_step_size=0.04, random_start=False),)}),
        (Torn(), "two losses agree", {"eps": 0.05, "attacks": (Attack(random_start=False),)}),
        (Sunken(), ADAPTIVE[0], {"eps": 0.2, "attacks": (Attack(random_start=False),)}),
        (Sunken(), ADAPTIVE[1], {"eps": 0.2, "attacks": (Attack(random_start=False),)}),
        (Gated(), ADAPTIVE[2], {"eps": 0.1, "attacks": (Attack(random_start=False),)}),
    ],
)
def test_a_dishonest_network_fails(model: nn.Module, failed: str, options: dict[str, object]) -> None:
    noisy = any(isinstance(module, Noisy) for module in model.modules())
    result = card(model, LABELS if noisy else None, **options)
    assert verdicts(result)[failed] == FAIL, result.summary()
    assert result.verdict == FAIL


def test_outputs_that_a_sigmoid_bounds_are_a_warning() -> None:
    assert verdicts(card(nn.Sequential(linear(), nn.Sigmoid())))["logits, not probabilities"] == WARN


def test_progress_tells_of_every_part() -> None:
    told: list[int] = []
    card(linear(), progress=told.append)
    assert sum(told) == STEPS


def test_log_probabilities_are_a_warning() -> None:
    assert verdicts(card(nn.Sequential(linear(), nn.LogSoftmax(1))))["logits, not probabilities"] == WARN


def test_the_worst_case_counts_all_attacks() -> None:
    found = card(masked(), attacks=(Attack(random_start=False),))
    assert (found.worst_case >= found.reported).all()
    assert found.robust_accuracy.estimate < found.reported_accuracy.estimate
    table = found.attack_table().set_index("attack")
    assert table.loc["all together", "robust_accuracy"] == pytest.approx(float(found.robust_accuracy.estimate))
    assert (
        table.loc["Square", "missed_by_curve"]
        == (found.is_adversarial[found.attacks.index("Square")] & ~found.reported).sum()
    )
    assert table["robust_accuracy"].min() >= table.loc["all together", "robust_accuracy"]


def lazy(model: nn.Module, images: Tensor, labels: Tensor, eps: float, **_: object) -> Attacked:
    return Attacked(images, torch.zeros(len(images), dtype=torch.bool), torch.zeros(len(images)))


def cheating(model: nn.Module, images: Tensor, labels: Tensor, eps: float, **_: object) -> Attacked:
    return Attacked(images + 3 * eps, torch.ones(len(images), dtype=torch.bool), torch.zeros(len(images)))


def jumping(model: Planted, images: Tensor, labels: Tensor, eps: float, **_: object) -> Attacked:
    return lazy(model, model.centre.expand_as(images), labels, eps)


def test_the_self_test_needs_an_attack_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [Attack(), Attack(norm="l2"), Attack(loss="dlr"), Attack(name="fgsm"), Attack(name="apgd", steps=20)]
    every += [Attack(loss="margin", targeted=True), Attack(name="square", loss="margin")]
    for settings in every:
        assert find_planted_example([settings], seed=0).verdict == PASS, settings
    assert find_planted_example([Attack(name="square", norm="l2")], seed=0).verdict == SKIPPED
    assert find_planted_example([Attack(steps=1, rel_step_size=0.1, random_start=False)], seed=0).verdict == FAIL
    monkeypatch.setattr(self_test, "attack", lazy)
    assert find_planted_example([Attack()], seed=0).figure == "missed"
    monkeypatch.setattr(self_test, "attack", jumping)
    assert find_planted_example([Attack()], seed=0).figure == "too near"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_planted_example_is_where_it_should_be(norm: str) -> None:
    network, image, distance = self_test.plant(norm)
    direction = (network.centre - image).sign()
    unit = direction if norm == "linf" else direction / direction.norm()
    for factor, expected in ((0.999, 0), (1.001, 1)):
        assert network(image + factor * distance * unit).argmax(1).item() == expected
    # No other direction of the same length gets there: 200 random ones.
    others = torch.randn(200, *image.shape[1:], generator=torch.Generator().manual_seed(0))
    others = others.sign() if norm == "linf" else others / others.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert (network(image + distance * others).argmax(1) == 0).all()


def test_leaving_the_ball_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_module, "attack", cheating)
    assert verdicts(card(linear()))["inside the ball and [0, 1]"] == FAIL


def test_an_accuracy_that_rises_with_eps_fails() -> None:
    curve = torch.tensor([[True] * 3 + [False] * 9, [True] * 5 + [False] * 7])
    assert monotone([0.1, 0.2], curve).verdict == PASS
    assert monotone([0.1, 0.2], curve.flip(0)).verdict == FAIL  # two of twelve come back
    crossing = torch.tensor([[True, False] * 6, [False, True] * 6])  # as many broken, but others
    assert monotone([0.1, 0.2], crossing).verdict == PASS
    assert "6 broken at one ε survive a larger one" in monotone([0.1, 0.2], crossing).sentence
    given = card(linear(), afresh=([0.1, 0.2], curve.flip(0)))
    assert verdicts(given)["monotone in ε"] == FAIL


@pytest.mark.parametrize(
    ("count", "n", "points", "verdict"),
    [
        # Wilson's lower ends, by scipy, in per cent: 4 of 1000 0.16, 5 of 1000 0.21, 2 of 100 0.55, 3 of 100 1.03.
        *[(0, 10, 0, PASS), (1, 1000, 0.2, PASS), (2, 1000, 0.2, PASS), (4, 1000, 0.2, WARN), (5, 1000, 0.2, FAIL)],
        *[(-5, 10, 0, PASS), (1, 100, 1, PASS), (2, 100, 1, WARN), (3, 100, 1, FAIL), (1, 10, 0, WARN)],
        *[(1, 100, 0.2, WARN), (2, 100, 0, FAIL), (1, 64, 1, PASS), (2, 64, 1, WARN), (3, 64, 1, FAIL)],
    ],
)
def test_more_than_chance_fails_and_one_image_only_warns(count: int, n: int, points: float, verdict: str) -> None:
    assert at_most(count, n, points=points) == verdict


def test_words_of_a_check() -> None:
    assert in_points(-2, 200) == "-1.0 points (-2 of 200 images)"
    assert worst([Check("a", PASS, "", ""), Check("b", WARN, "", ""), Check("c", SKIPPED, "", "")]) == WARN


def test_finding_what_was_missed_warns_even_when_weaker() -> None:
    """Another attack that breaks fewer, but others: the two together are stronger than the curve."""
    reported = torch.tensor([True] * 60 + [False] * 40)
    other = torch.tensor([False] * 20 + [True] * 45 + [False] * 35)
    seen = type("Evaluation", (), {"reported": reported, "survivors": ~reported})()
    found = strength.not_beaten(seen, "other", other)  # type: ignore[arg-type]
    assert (found.verdict, found.figure) == (WARN, "+15.0 points")
    assert "breaks 5 that the curve's attack missed" in found.sentence


SHARP = nn.Sequential(SharpenedSDP2d(3, 2, 2), BcosConv2d(2, 2, 1), nn.Flatten(), nn.Linear(2, 3)).eval()


@pytest.mark.parametrize("name", strength.ADAPTIVE)
def test_adaptive_networks_answer_as_the_original(name: str) -> None:
    images = IMAGES.clone().requires_grad_()
    with evaluating(SHARP):
        other = strength.ADAPTIVE[name](SHARP)
        answer = other(images)
        assert torch.equal(answer, SHARP(images))
        (changed,) = torch.autograd.grad(answer[:, 0].sum(), images)
        (plain,) = torch.autograd.grad(SHARP(images)[:, 0].sum(), images)
    assert changed.abs().sum() > 0
    assert not torch.allclose(changed, plain, rtol=1e-2)


def test_gradients_of_the_adaptive_networks_by_hand() -> None:
    """y = sign(u)|u|^p of one layer: with p → 1 the gradient is w, detached w |u|^(p-1), plainly p w |u|^(p-1)."""
    layer = SharpenedSDP2d(3, 1, 2, p=3.0, eps=1e-12).double()
    network = nn.Sequential(layer, nn.Flatten()).requires_grad_(False)
    images = IMAGES.double().requires_grad_()
    u = (images * layer.weight).sum((1, 2, 3)).detach()
    expected = {"straight_through": 1 + 0 * u, "unsharpened_gradient": 1 + 0 * u, "detached_gradient": u.abs() ** 2}
    for name, factor in expected.items():
        (found,) = torch.autograd.grad(getattr(adaptive, name)(network)(images).sum(), images)
        torch.testing.assert_close(
            found, factor.view(-1, 1, 1, 1) * layer.weight.expand_as(images), rtol=1e-6, atol=1e-9
        )


def test_straight_through_keeps_the_true_activations() -> None:
    """Two layers: the second one's kernel is met by the first one's true answer, not by one with p = 1."""
    first, second = SharpenedSDP2d(3, 2, 1, p=2.0, eps=0.0).double(), nn.Conv2d(2, 1, 2, bias=False).double()
    head = nn.Sequential(first, nn.Tanh(), second, nn.Flatten()).requires_grad_(False)
    images = IMAGES.double().requires_grad_()
    (found,) = torch.autograd.grad(adaptive.straight_through(head)(images).sum(), images)
    slope = (1 - torch.tanh(first(images)) ** 2) * second.weight  # tanh' at the true activation
    expected = nn.functional.conv_transpose2d(slope, first.weight)
    torch.testing.assert_close(found, expected.detach())


def test_what_counts_as_sharpened() -> None:
    assert adaptive.is_sharpened(SHARP)
    assert not adaptive.is_sharpened(adaptive.flattened(SHARP))
    assert not adaptive.is_sharpened(nn.Sequential(SharpenedSDP2d(3, 1, 1, p=1.0), BcosConv2d(3, 1, 1, b=1)))
    with explanation_mode():
        pass
    assert not any(module._forward_hooks for module in SHARP.modules())


def test_the_size_of_a_batch_does_not_change_it() -> None:
    one, other = (card(linear(), twin=linear(), batch_size=size) for size in (7, 512))
    assert one.table().to_csv() == other.table().to_csv()
    np.testing.assert_array_equal(one.is_adversarial, other.is_adversarial)


def test_the_model_is_left_alone() -> None:
    model = nn.Sequential(SharpenedSDP2d(3, 2, 2), nn.Flatten(), nn.Linear(2, 3)).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random = torch.get_rng_state()
    scorecard(model, IMAGES, LABELS, eps=EPS)
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_saved_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    HONEST.save(tmp_path)
    again = load_result(tmp_path)
    pd.testing.assert_frame_equal(again.table(), HONEST.table())


def test_an_unknown_preset() -> None:
    with pytest.raises(InputError, match="expected preset as one of fast, full"):
        card(linear(), preset="slow")


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_picture_has_every_verdict_in_words(count: int) -> None:
    figure = draw_scorecard([HONEST] * count)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum(text.startswith(PASS) for text in texts) == count * HONEST.counts()[PASS]
    assert {check.name for check in HONEST.lines} <= set(texts)
    assert cut_words(figure) == []


def test_long_names_above_narrow_cells_are_whole() -> None:
    cards = [replace(HONEST, label=f"architecture_with_a_long_name_{i}") for i in range(12)]
    figure = draw_scorecard(cards)
    assert cut_words(figure) == []
    assert {card.label for card in cards} <= {text.get_text() for text in figure.axes[0].texts}
