"""The ε-sweep against a closed form and against attacks afresh; its search, its file, and what must not matter."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scs_eval.analyses.attacks import eps_search as search_module
from scs_eval.analyses.attacks.attack import Attacked
from scs_eval.analyses.attacks.config import Attack, parse_attack
from scs_eval.analyses.attacks.sweep import Sweep, sweep
from scs_eval.analyses.core.statistics import wilson
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model

N = 70  # three blocks of 32, the last one not full
IMAGES = torch.rand(N, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.3
GRID = [0.004 * k for k in range(1, 31)]


def linear(classes: int = 2) -> nn.Sequential:
    random = torch.Generator().manual_seed(classes)
    layer = nn.Linear(48, classes)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, 48, generator=random))
        layer.bias.copy_(-0.5 * layer.weight.sum(1))
    return nn.Sequential(nn.Flatten(), layer)


def answers(model: nn.Module) -> Tensor:
    return model(IMAGES).argmax(1)


def distances(model: nn.Sequential, norm: str) -> np.ndarray:
    """(N,) min over the other classes j of (z_y − z_j) / ‖w_y − w_j‖, in the dual norm; no pixel is near 0 or 1."""
    weight, logits = model[1].weight.detach().double(), model.double()(IMAGES.double()).detach()
    model.float()
    labels = logits.argmax(1)
    gaps = logits.gather(1, labels[:, None]) - logits
    reach = torch.linalg.vector_norm(weight[labels][:, None] - weight[None], 1 if norm == "linf" else 2, dim=2)
    found: np.ndarray = (gaps / reach).nan_to_num(torch.inf).amin(1).numpy()
    return found


def places(values: np.ndarray, grid: list[float]) -> np.ndarray:
    """Position of the first ε that is large enough."""
    return np.searchsorted(np.array(grid), values)


@pytest.mark.parametrize(("norm", "classes", "off"), [("linf", 2, 0), ("l2", 2, 1), ("linf", 6, 1), ("l2", 6, 1)])
def test_a_linear_models_min_eps_is_the_closed_form(norm: str, classes: int, off: int) -> None:
    """L∞ and two classes: exactly the first ε of the grid that is large enough; else at most one place later.

    In L2 ten steps do not quite turn a random start into the gradient's direction, and with six classes a random start
    may lead to one that is further off. (Cross-entropy, which pulls towards all of them, is two places late at times.)
    """
    model = linear(classes)
    grid = GRID if norm == "linf" else [5 * eps for eps in GRID]
    found = sweep(model, IMAGES, answers(model), grid, attacks=[Attack(norm=norm, loss="margin")], polished=False)
    wanted = places(distances(model, norm), grid)
    got = places(found.min_eps, grid)
    assert len(np.unique(wanted)) > 6
    assert ((got >= wanted) & (got <= wanted + off)).all()
    assert (got == wanted).mean() > 0.9


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("classes", [2, 6])
def test_polished_a_linear_models_min_eps_is_the_distance_itself(norm: str, classes: int) -> None:
    """Off the grid, whose steps are up to all of it: never nearer than the closed form, and within 2 % of it.

    A polish ends where a step gains less than 1 %; with six classes it may stay with one that is a little further off.
    """
    model = linear(classes)
    grid = GRID if norm == "linf" else [5 * eps for eps in GRID]
    found = sweep(model, IMAGES, answers(model), grid, attacks=[Attack(norm=norm, loss="margin")])
    inside = np.isfinite(found.min_eps)
    ratio = found.min_eps[inside] / distances(model, norm)[inside]
    assert inside.sum() > 40
    assert (ratio >= 1 - 1e-4).all()  # margins at ε = 2e-4 are so small that float32 logits round by 7e-5 of them
    assert (ratio < 1.02).mean() > (0.99 if classes == 2 else 0.85)
    assert np.median(found.min_eps_after[-1][inside] / found.min_eps[inside]) > 1.02


def test_what_is_wrong_when_clean_has_a_min_eps_of_zero_and_a_far_image_none() -> None:
    model = linear()
    labels = answers(model)
    labels[:5] = 1 - labels[:5]
    found = sweep(model, IMAGES, labels, [0.001, 0.002], attacks=[Attack()])
    assert (found.min_eps[:5] == 0).all()
    assert found.is_adversarial[:5].all()
    assert np.array_equal(np.isinf(found.min_eps[5:]), distances(model, "linf")[5:] > 0.002)
    assert torch.equal(found.images[:5], IMAGES[:5])
    np.testing.assert_allclose(found.robust_accuracy, [(found.min_eps > eps).mean() for eps in (0.001, 0.002)])


class Oracle:
    """In place of an attack: an image breaks from its own position of the grid on."""

    def __init__(self, thresholds: list[int]) -> None:
        self.thresholds, self.calls = np.array(thresholds), 0

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, eps: Tensor, **given: Any) -> Attacked:
        is_adversarial = torch.from_numpy(given["draw"].numpy() >= self.thresholds[given["ids"].numpy()])
        self.calls += 1
        return Attacked(images, is_adversarial, torch.zeros(len(images)))


@settings(max_examples=60, deadline=None)
@given(thresholds=st.lists(st.integers(0, 30), min_size=N, max_size=N), scale=st.floats(0.01, 10))
def test_the_search_finds_every_threshold_from_every_guess(thresholds: list[int], scale: float) -> None:
    """A finer or coarser grid makes the guess too low or too high; 30 stands for an image that nothing breaks."""
    model, oracle = linear(), Oracle(thresholds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "attack", oracle)
        grid = [scale * eps for eps in GRID]
        found = sweep(model, IMAGES, answers(model), grid, attacks=[Attack()], polished=False)
    assert np.array_equal(places(found.min_eps, found.eps.tolist()), np.array(thresholds))
    # Galloping takes at most 2 log2(30) tries, a bracket cut at a quarter log(30)/log(4/3) more; thirty attacks are 30.
    assert found.attempts.max() <= 18
    assert found.attempts.mean() < 12


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, Tensor, Tensor]:
    data = load_data("sample", n=40)
    return load_model("rohrer100k_scs"), data.images, data.labels


@pytest.fixture(scope="module")
def found(trained: tuple[nn.Module, Tensor, Tensor]) -> Sweep:
    return sweep(*trained, [0.002 * k for k in range(1, 9)], attacks=[Attack()])


def test_not_weaker_than_attacking_every_eps_afresh(trained: tuple[nn.Module, Tensor, Tensor], found: Sweep) -> None:
    afresh = sweep(*trained, found.eps.tolist(), attacks=[Attack()], independent=True)
    assert (afresh.attempts[afresh.min_eps > 0] == 8).all()
    assert found.attempts.sum() < 0.6 * afresh.attempts.sum()
    right = (~afresh.is_adversarial).sum(0)
    assert (found.robust_accuracy <= wilson(right, 40).high).all()
    # The interval of 40 images is wide. Paired, image by image, the search loses no more than it gains.
    lost, gained = (
        (one.is_adversarial & ~other.is_adversarial).sum() for one, other in ((afresh, found), (found, afresh))
    )
    assert lost <= gained + 3  # of 8 × 40 answers
    assert 0.2 < found.robust_accuracy[0] < 0.9  # neither all nor nothing
    assert found.robust_accuracy[-1] < 0.2


def test_found_images_are_proof(trained: tuple[nn.Module, Tensor, Tensor], found: Sweep) -> None:
    model, images, labels = trained
    is_adversarial = torch.from_numpy((found.min_eps > 0) & np.isfinite(found.min_eps))
    with torch.no_grad():
        # Shown in the batch of 32 that attacks use: some images are wrong by the last bit.
        seen = torch.cat([model(part).argmax(1) for part in found.images[:32].split(32)])
    assert (seen != labels[:32])[is_adversarial[:32]].all()
    size = (found.images.double() - images.double()).abs().amax((1, 2, 3)).numpy()
    assert (size[is_adversarial] <= found.min_eps[is_adversarial]).all()
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    assert torch.equal(found.images[~is_adversarial], images[~is_adversarial])


def same(one: Sweep, other: Sweep) -> bool:
    arrays = ("min_eps", "min_eps_after", "is_adversarial", "attempts")
    return torch.equal(one.images, other.images) and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in arrays
    )


@pytest.mark.parametrize("kind", ["pgd", "pgd-l2", "square-20", "torchattacks:PGD"])
def test_neither_batch_size_nor_repetition_matters(kind: str) -> None:
    model = linear(6)
    labels, attacks = answers(model), [parse_attack(kind)]
    grid = [5 * eps for eps in GRID[::4]] if kind.endswith("l2") else GRID[::4]
    one, again, small = (sweep(model, IMAGES, labels, grid, attacks=attacks, batch_size=b) for b in (512, 512, 20))
    assert same(one, again)
    assert same(one, small)
    assert len(np.unique(one.min_eps)) > 2
    if kind != "torchattacks:PGD":  # on a linear model its random start leaves no trace; nor after a polish
        runs = [sweep(model, IMAGES, labels, grid, attacks=attacks, seed=s, polished=False) for s in (0, 1)]
        assert not torch.equal(runs[0].images, runs[1].images)


def test_on_a_trained_network_neighbours_do_not_matter(trained: tuple[nn.Module, Tensor, Tensor], found: Sweep) -> None:
    model, images, labels = trained
    few = torch.arange(33, 40)  # alone they are filled up to a block of their own
    alone = sweep(model, images[few], labels[few], found.eps.tolist(), attacks=[Attack()], ids=few, batch_size=1)
    np.testing.assert_array_equal(alone.min_eps, found.min_eps[33:])
    assert torch.equal(alone.images, found.images[33:])


class Turned(nn.Module):
    """The image, with a gradient of the wrong sign."""

    def forward(self, images: Tensor) -> Tensor:
        return 2 * images.detach() - images


def test_of_several_attacks_the_worst_counts() -> None:
    model = linear(6)
    labels, weak = answers(model), Attack(steps=1, rel_step_size=0.3, random_start=False)
    attacks = [parse_attack("apgd-dlr-20"), weak]
    both = sweep(model, IMAGES, labels, GRID, attacks=attacks, polished=False)
    assert [each.name for each in both.attacks] == ["pgd", "apgd"]  # the cheapest first
    alone = sweep(model, IMAGES, labels, GRID, attacks=[weak], polished=False)
    np.testing.assert_array_equal(both.min_eps_after[0], alone.min_eps_after[0])
    assert (both.min_eps_after[1] <= both.min_eps_after[0]).all()
    assert (both.min_eps_after[1] < both.min_eps_after[0]).mean() > 0.5
    for attack in (weak, Attack(), Attack(name="fgsm")):
        polished = sweep(model, IMAGES, labels, GRID, attacks=[attack, parse_attack("apgd-dlr-20")])
        assert (polished.min_eps <= both.min_eps).all(), attack


def test_where_the_polish_gains_nothing_the_grid_is_searched() -> None:
    """A gradient of the wrong sign helps neither attack nor polish: what is left is the luck of random starts.

    Other starts, other luck: a tenth of the images, at most, are better off.
    """
    turned = nn.Sequential(Turned(), *linear())
    labels, grid = answers(linear()), [0.05 * step for step in range(1, 9)]
    polished, plain = (sweep(turned, IMAGES, labels, grid, attacks=[Attack()], polished=p) for p in (True, False))
    assert 0.2 < plain.robust_accuracy.mean() < 0.95
    assert polished.robust_accuracy.mean() < plain.robust_accuracy.mean() + 0.1
    assert polished.attempts.mean() > 2  # not only the one that succeeded


class Interrupt:
    """Somebody presses Ctrl-C while the second batch is under way."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, decided: int) -> None:
        self.left -= decided
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = linear(6), tmp_path / "deep" / "part.npz"
    arguments = (model, IMAGES, answers(model), GRID)
    options: dict[str, Any] = {"attacks": [Attack()], "batch_size": 32}
    whole = sweep(*arguments, **options)
    with pytest.raises(KeyboardInterrupt):
        sweep(*arguments, **options, checkpoint=path, progress=Interrupt(32))
    assert path.exists()
    attacked: list[int] = []
    real = search_module.attack

    def spy(*given: Any, **named: Any) -> Attacked:
        attacked.extend(named["ids"].tolist())
        return real(*given, **named)

    monkeypatch.setattr(search_module, "attack", spy)
    told: list[int] = []
    resumed = sweep(*arguments, **options, checkpoint=path, progress=told.append)
    assert same(whole, resumed)
    assert set(attacked) <= set(range(32, N))  # the first batch was not attacked again
    assert told[0] == 32
    assert sum(told) == N
    assert [each.name for each in path.parent.iterdir()] == ["part.npz"]


def test_checkpoint_every_so_many_batches(tmp_path: Any) -> None:
    model, path = linear(), tmp_path / "part.npz"
    with pytest.raises(KeyboardInterrupt):
        sweep(
            model, IMAGES, answers(model), GRID, attacks=[Attack()], batch_size=32, checkpoint=path,
            checkpoint_every=2, progress=Interrupt(32),
        )  # fmt: skip
    assert not path.exists()


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Any) -> None:
    model, path = linear(), tmp_path / "part.npz"
    labels = answers(model)
    sweep(model, IMAGES, labels, GRID, attacks=[Attack()], checkpoint=path)
    other = linear()
    with torch.no_grad():
        other[1].weight[0, 0] += 1
    for changed, images, seed in ((other, IMAGES, 0), (model, IMAGES.flip(3), 0), (model, IMAGES, 1)):
        with pytest.raises(InputError, match="another model, other images or settings"):
            sweep(changed, images, labels, GRID, attacks=[Attack()], checkpoint=path, seed=seed)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="damaged"):
        sweep(model, IMAGES, labels, GRID, attacks=[Attack()], checkpoint=path)


def test_the_model_comes_out_untouched() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), *linear()).train()
    model[3].weight.requires_grad_(False)
    model[3].bias.grad = torch.ones(2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state, labels = torch.random.get_rng_state(), torch.arange(N) % 2
    sweep(model, IMAGES, labels, GRID[::6], attacks=[Attack(), parse_attack("square-5")])
    with pytest.raises(KeyboardInterrupt):
        sweep(model, IMAGES, labels, GRID[::6], attacks=[Attack()], progress=Interrupt(0))
    assert all(module.training for module in model.modules())
    assert not model[3].weight.requires_grad
    assert model[3].bias.requires_grad
    assert torch.equal(model[3].bias.grad, torch.ones(2))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


class NotANumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 2), torch.nan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": []}, "at least one ε, got none"),
        ({"eps": [-0.1, 0.1]}, "at least 0, got -0.1"),
        ({"eps": [0.03, 0.001]}, "put the smallest first"),
        ({"eps": [0.1, float("inf")]}, "finite"),
        ({"images": IMAGES * 3}, r"images in \[0, 1\]"),
        ({"labels": torch.full((N,), 2)}, "labels from 0 to 1"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(48, 1))}, "at least two logits"),
        ({"model": NotANumber()}, "finite logits"),
        ({"attacks": []}, "got none"),
        ({"attacks": [Attack(), Attack(norm="l2")]}, "one norm in a sweep, got l2 and linf"),
        ({"batch_size": 0}, "batches of at least 1"),
    ],
)
def test_bad_input_is_one_line(change: dict[str, Any], message: str) -> None:
    model = linear()
    options = {"model": model, "images": IMAGES, "labels": answers(model), "eps": GRID, "attacks": [Attack()]}
    with pytest.raises(InputError, match=message) as caught:
        sweep(**{**options, **change})
    assert "\n" not in str(caught.value)
