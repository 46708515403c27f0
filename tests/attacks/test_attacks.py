"""Attacks against torchattacks, captum and closed forms; their bounds; and that nothing but the image matters."""

import sys
from contextlib import contextmanager
from dataclasses import replace

import captum.robust
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchattacks
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch import nn

from scs_eval.analyses.attacks import apgd, square
from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.config import Attack, parse_attack, parse_attacks
from scs_eval.analyses.attacks.fab import to_hyperplane
from scs_eval.analyses.attacks.losses import cross_entropy, dlr, likely_wrong, margin
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.attacks.sweep import check_attacks
from scs_eval.analyses.attacks.targets import target_order
from scs_eval.analyses.core.statistics import wilson
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model

EPS = 0.01


def small(seed=0, classes=5):
    """A network with convolution, pooling and steep logits for images of 8 pixels."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, classes))
    with torch.no_grad():
        net[-1].weight *= 20
    return net


def pictures(n, seed=0):
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_one_image_at_a_time_finds_as_much_in_smaller_passes():
    """The last bit, and with it the sign of a gradient near 0, may be another: so the loss is near, not the same."""
    net, counts = small(), []
    labels = net(pictures(3)).argmax(1)
    net.register_forward_pre_hook(lambda module, inputs: counts.append(len(inputs[0])))
    together = attack(net, pictures(3), labels, EPS, settings=Attack())
    assert set(counts) == {1, 32}, "one image tells how many classes there are"
    counts.clear()
    alone = attack(net, pictures(3), labels, EPS, settings=Attack(), at_once=1)
    assert set(counts) == {1}
    torch.testing.assert_close(alone.loss, together.loss, rtol=0.05, atol=0.01)


@pytest.fixture(scope="module")
def sample():
    return load_data("sample", n=32)


@pytest.fixture(scope="module")
def precise(sample):
    """Three images and labels for comparisons in double precision, where signs of gradients are the same.

    In single precision the last bit of an image decides the sign of a gradient near zero, and with it a whole step.
    Noise takes away the ties of a plain background, where the last bit decides which pixel a pooling selects.
    """
    noise = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return 0.9 * sample.images[:3].double() + 0.1 * noise, sample.labels[:3]


def last_points(model, images, labels, eps, **options):
    """Where the attack ends, rather than its best point."""
    ends = {}
    attack(model, images, labels, eps, stop_early=False, callback=lambda *seen: ends.update(x=seen[2]), **options)
    return ends["x"]


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_conv"])
@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("kind", ["pgd", "pgd-l2", "fgsm"])
def test_same_images_as_torchattacks(precise, name, targeted, kind):
    model, (images, labels) = load_model(name).double(), precise
    eps = 0.5 if kind == "pgd-l2" else EPS
    peers = {
        "pgd": lambda: torchattacks.PGD(model, eps=eps, alpha=0.25 * eps, steps=5, random_start=False),
        "pgd-l2": lambda: torchattacks.PGDL2(model, eps=eps, alpha=0.25 * eps, steps=5, random_start=False),
        "fgsm": lambda: torchattacks.FGSM(model, eps=eps),
    }
    peer = peers[kind]()
    second = model(images).scatter(1, labels[:, None], -torch.inf).argmax(1)
    if targeted:
        peer.set_mode_targeted_by_label(quiet=True)
    wanted = peer(images, second if targeted else labels)
    chosen = parse_attack(kind + ("-targeted" if targeted else ""))
    found = last_points(model, images, labels, eps, settings=replace(chosen, steps=5, random_start=False))
    assert (found - wanted).abs().max() < 1e-6
    assert (wanted - images).abs().max() > 0.5 * EPS  # it moved at all


def test_same_images_as_torchattacks_from_the_same_random_start(precise):
    model, (images, labels) = load_model("rohrer100k_scs").double(), precise
    peer = torchattacks.PGD(model, eps=EPS, alpha=EPS / 5, steps=7, random_start=True)
    torch.manual_seed(3)
    start = (images + torch.empty_like(images).uniform_(-EPS, EPS)).clamp(0, 1)
    torch.manual_seed(3)
    wanted = peer(images, labels)
    found = last_points(model, images, labels, EPS, settings=Attack(steps=7, rel_step_size=0.2), start=start)
    assert (found - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_conv"])
@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients")
def test_same_images_as_captum(precise, name):
    model, (images, labels) = load_model(name).double(), precise
    peer = captum.robust.PGD(model, nn.CrossEntropyLoss(reduction="none"), lower_bound=0, upper_bound=1)
    peer.fgsm.zero_thresh = 0  # captum does not step where a gradient is below 1e-6
    wanted = peer.perturb(images, radius=EPS, step_size=EPS / 4, step_num=5, target=labels)
    found = last_points(model, images, labels, EPS, settings=Attack(steps=5, random_start=False))
    assert (found - wanted).abs().max() < 1e-6


def peer_losses(model, points, labels):
    logits = model(points).detach()
    return cross_entropy(logits, labels, None), margin(logits, labels, None), logits.argmax(1) == labels


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_conv"])
@pytest.mark.parametrize(
    ("kind", "eps", "peer"),
    [
        ("apgd-ce-10", 0.006, lambda model, eps: torchattacks.APGD(model, eps=eps, steps=10)),
        ("fab-20", 0.006, lambda model, eps: torchattacks.FAB(model, eps=eps, steps=20, n_classes=10)),
        ("apgd-dlr-10", 0.006, lambda model, eps: torchattacks.APGD(model, eps=eps, steps=10, loss="dlr")),
        ("apgd-ce-10-l2", 0.2, lambda model, eps: torchattacks.APGD(model, "L2", eps=eps, steps=10)),
        ("square-60", 0.025, lambda model, eps: torchattacks.Square(model, eps=eps, n_queries=60)),
        ("square-60-l2", 1.6, lambda model, eps: torchattacks.Square(model, "L2", eps=eps, n_queries=60)),
    ],
)
def test_at_least_as_strong_as_torchattacks(sample, name, kind, eps, peer):
    model, images, labels = load_model(name), sample.images, sample.labels
    theirs = (model(peer(model, eps)(images, labels)).argmax(1) == labels).sum().item()
    ours = (~attack(model, images, labels, eps, settings=parse_attack(kind)).is_adversarial).sum().item()
    clean = (model(images).argmax(1) == labels).sum().item()
    assert ours / len(images) <= wilson(theirs, len(images)).high
    # Two random searches of equal strength differ by chance: by less than two standard deviations of the difference of
    # two binomial counts.
    share = (clean - theirs) / clean
    assert clean - ours >= clean - theirs - 2 * (2 * clean * share * (1 - share)) ** 0.5
    assert clean - ours >= 5  # it breaks some at all


def test_apgd_reaches_a_higher_loss_than_pgd(sample):
    model, images, labels = load_model("rohrer100k_scs"), sample.images[:20], sample.labels[:20]
    losses = [
        attack(model, images, labels, 0.01, settings=Attack(name=name, steps=20), stop_early=False).loss.mean()
        for name in ("pgd", "apgd")
    ]
    assert losses[1] > losses[0] - 0.02 * losses[0].abs()


def test_apgd_checkpoints_are_the_papers():
    assert apgd.checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert apgd.checkpoints(1) == [1]


def test_apgd_halves_its_step_where_the_loss_goes_up_and_down():
    class Valley(nn.Module):
        """The loss falls with the distance of each pixel from 0.53, so a step of 2 ε jumps over the top."""

        def forward(self, x):
            height = -(x - 0.53).abs().sum((1, 2, 3))
            return torch.stack([torch.zeros_like(height), height - 1], 1)

    images, labels = torch.full((2, 3, 4, 4), 0.5), torch.zeros(2, dtype=torch.long)
    found = attack(Valley(), images, labels, 0.1, settings=Attack(name="apgd", loss="margin", steps=50))
    plain = attack(Valley(), images, labels, 0.1, settings=Attack(loss="margin", steps=50))
    assert not found.is_adversarial.any()
    distance, constant = ((each.images - 0.53).abs().mean() for each in (found, plain))
    assert distance < 0.3 * constant  # PGD's steps of 0.025 always jump over the top


def test_cross_entropy_is_softplus_of_the_loss_and_has_its_direction():
    logits = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(50) % 7
    for targets, sign in ((None, 1), ((labels + 3) % 7, -1)):
        loss = cross_entropy(logits, labels, targets)
        wanted = F.cross_entropy(logits, labels if targets is None else targets, reduction="none")
        torch.testing.assert_close(F.softplus(sign * loss), wanted)
        ours, theirs = (torch.autograd.grad(each.sum(), logits)[0] for each in (loss, sign * wanted))
        torch.testing.assert_close(F.normalize(ours), F.normalize(theirs))


def test_cross_entropy_gradient_does_not_vanish_at_confident_images():
    logits = torch.tensor([[150.0, 1.0, 0.0]], requires_grad=True)
    label = torch.tensor([0])
    assert torch.autograd.grad(F.cross_entropy(logits, label), logits)[0].abs().max() == 0
    slope = torch.autograd.grad(cross_entropy(logits, label, None).sum(), logits)[0]
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 0.7311, 0.2689]]), atol=1e-4, rtol=0)  # softmax of 1, 0


def test_margin_and_dlr_by_hand():
    logits, labels = torch.tensor([[5.0, 3.0, 1.0, 0.0], [2.0, 4.0, 8.0, 1.0]]), torch.tensor([0, 1])
    assert margin(logits, labels, None).tolist() == [-2, 4]
    np.testing.assert_allclose(dlr(logits, labels, None), [-2 / 4, 4 / 6], rtol=1e-6)  # float32
    targets = torch.tensor([2, 0])
    assert margin(logits, labels, targets).tolist() == [-4, -2]
    np.testing.assert_allclose(dlr(logits, labels, targets), [-4 / 4.5, -2 / 6.5], rtol=1e-6)  # float32
    torch.testing.assert_close(dlr(3 * logits + 7, labels, None), dlr(logits, labels, None))
    assert likely_wrong(logits, labels).tolist() == [[1, 2, 3], [2, 0, 3]]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 4),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    eps=st.floats(0, 2),
    steps=st.integers(1, 6),
    rel_step_size=st.floats(0.01, 3),
    kind=st.sampled_from(["pgd", "fgsm", "apgd", "fab", "square"]),
    norm=st.sampled_from(["linf", "l2"]),
    edge=st.booleans(),
    seed=st.integers(0, 99),
)
def test_images_stay_inside_ball_and_range(n, height, width, eps, steps, rel_step_size, kind, norm, edge, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * height * width, 4))
    images, labels = torch.rand(n, 3, height, width), torch.randint(0, 4, (n,))
    images = images.round() if edge else images
    chosen = Attack(name=kind, norm=norm, steps=steps, rel_step_size=rel_step_size, restarts=2)
    found = attack(model, images, labels, eps, settings=chosen, seed=seed, stop_early=False).images
    assert found.min() >= 0
    assert found.max() <= 1
    change = found.double() - images.double()  # exact: no rounding hides a violation
    assert (change.abs().max() if norm == "linf" else change.flatten(1).norm(dim=1).max()) <= eps
    rounded = (found - images).flatten(1)
    assert (rounded.abs().max() if norm == "linf" else rounded.norm(dim=1).max()) <= torch.tensor(eps).float()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("value", [0.3, -0.7])
def test_the_projection_onto_a_hyperplane_is_the_one_of_a_solver(norm, value):
    """Against scipy, near the edges of [0, 1], where the closed form without bounds is wrong."""
    random = np.random.default_rng(0)
    point, slope = random.random((3, 2, 2)) ** 4, random.standard_normal((3, 2, 2))
    tensors = [torch.from_numpy(array)[None] for array in (point, slope)]
    change = to_hyperplane(*tensors, torch.tensor([value], dtype=torch.float64), norm)[0].numpy()
    np.testing.assert_allclose((slope * change).sum(), value, rtol=1e-9)
    assert ((point + change >= 0) & (point + change <= 1)).all()
    bounds = [*zip(-point.ravel(), 1 - point.ravel(), strict=True)]
    if norm == "linf":  # minimise t with |δ| ≤ t
        ones, eye = np.ones((12, 1)), np.eye(12)
        inequalities = {"A_ub": np.block([[eye, -ones], [-eye, -ones]]), "b_ub": np.zeros(24)}
        equality = {"A_eq": [[*slope.ravel(), 0]], "b_eq": [value]}
        best = linprog([*[0] * 12, 1], **inequalities, **equality, bounds=[*bounds, (0, None)]).fun
        np.testing.assert_allclose(np.abs(change).max(), best, rtol=1e-6)  # what linprog's tolerance allows
    else:
        best = minimize(
            lambda delta: (delta**2).sum(), np.zeros(12), jac=lambda delta: 2 * delta, method="SLSQP", tol=1e-12,
            bounds=bounds, constraints={"type": "eq", "fun": lambda delta: slope.ravel() @ delta - value},
        ).fun  # fmt: skip
        np.testing.assert_allclose((change**2).sum(), best, rtol=1e-5)  # what SLSQP's tolerance allows


def test_autoattack_is_four_attacks_the_cheapest_first():
    attacks = check_attacks(parse_attacks("autoattack-l2"))
    assert [each.label for each in attacks] == [
        "apgd-ce-l2", "apgd-dlr-l2-targeted", "fab-l2-targeted", "square-l2-5000",
    ]  # fmt: skip
    assert [each.malt for each in parse_attacks("autoattack-malt")] == [False, True, True, False]
    assert [each.restarts for each in attacks] == [1, 9, 9, 1]
    assert parse_attacks("pgd-40") == (parse_attack("pgd-40"),)
    with pytest.raises(InputError, match="as published"):
        parse_attacks("autoattack-20")


def test_every_image_has_its_own_ball():
    eps = torch.tensor([0.0, 0.003, 0.1], dtype=torch.float64)
    images, labels = pictures(3).clamp(0.2, 0.8), torch.tensor([0, 1, 2])
    found = attack(small(), images, labels, eps, settings=Attack(), stop_early=False).images
    np.testing.assert_allclose((found - images).abs().amax((1, 2, 3)), eps, rtol=1e-4, atol=0)


@pytest.mark.parametrize(("norm", "nearest"), [("linf", 0.08), ("l2", 0.5)])
@pytest.mark.parametrize("kind", ["pgd", "pgd-margin", "apgd", "apgd-margin", "fab"])
def test_finds_a_planted_example_and_nothing_nearer(norm, nearest, kind):
    """Class 1 is a ball of radius r around a point; the image is outside, and the way to the ball is known."""
    point = torch.full((3, 8, 8), 0.5)
    point[:, ::2] += 0.2
    image, labels = torch.full((1, 3, 8, 8), 0.5), torch.tensor([0])
    towards = (point - image[0]).norm()
    # L∞: half of the pixels are 0.2 away, and after ε each of them is 0.2 − ε away.
    radius = (0.2 - nearest) * (3 * 8 * 4) ** 0.5 if norm == "linf" else towards - nearest

    class Planted(nn.Module):
        def forward(self, x):
            inside = radius - (x - point).flatten(1).norm(dim=1)
            return torch.stack([torch.zeros_like(inside), inside], 1)

    chosen = replace(parse_attack(kind), norm=norm, steps=60, rel_step_size=0.1)
    assert attack(Planted(), image, labels, 1.02 * nearest, settings=chosen).is_adversarial.all()
    assert not attack(Planted(), image, labels, 0.999 * nearest, settings=chosen).is_adversarial.any()


class Rounded(nn.Module):
    """A gradient that is zero everywhere, unless the gradient goes around the rounding."""

    def __init__(self):
        super().__init__()
        self.inner, self.straight = small(), False

    def forward(self, x):
        rounded = (x * 50).round() / 50
        return self.inner(x + (rounded - x).detach() if self.straight else rounded + 0 * x)

    @contextmanager
    def around(self):
        self.straight = True
        yield
        self.straight = False


def test_square_needs_no_gradient_and_backward_replaces_it():
    model, images = Rounded(), pictures(32)
    labels = model(images).argmax(1)
    masked = attack(model, images, labels, 0.02, settings=Attack(random_start=False)).is_adversarial
    assert not masked.any()
    assert attack(model, images, labels, 0.02, settings=parse_attack("square-200")).is_adversarial.float().mean() > 0.2
    adapted = attack(model, images, labels, 0.02, settings=Attack(), backward=model.around)
    assert adapted.is_adversarial.float().mean() > 0.4
    assert torch.equal(model(adapted.images).argmax(1) != labels, adapted.is_adversarial)  # judged by the plain model


def test_square_by_its_formulas():
    ball = Ball.around(torch.full((2, 3, 32, 32), 0.5), torch.tensor([0.1, 0.3]), "linf")
    sides = [square.side_at(part, ball) for part in (0.0005, 0.01, 0.3, 1.0)]
    assert sides == [round((0.8 / 2**k * 1024) ** 0.5) for k in (0, 2, 5, 8)]
    numbers = torch.tensor([[0.0, 0.99, 0.0, 0.0, 0.0, 0.1, 0.9, 0.1], [0.5, 0.5, 0.0, 0.0, 0.0, 0.9, 0.9, 0.1]])
    change = square.repaint_linf(ball, ball.centre, 4, numbers) - 0.5
    assert (change != 0).sum((2, 3)).tolist() == [[16] * 3] * 2
    torch.testing.assert_close(change[0, :, :4, 28:].amax((1, 2)), torch.tensor([-0.1, 0.1, -0.1]))
    ball = Ball.around(torch.full((2, 3, 32, 32), 0.5), torch.tensor([0.5, 0.9]), "l2")
    points = ball.random([np.random.default_rng(seed) for seed in (1, 2)])
    numbers = torch.rand(2, 8, generator=torch.Generator().manual_seed(0)).double()
    moved = square.repaint_l2(ball, points, 9, numbers)
    np.testing.assert_allclose((moved - 0.5).flatten(1).norm(dim=1), [0.5, 0.9], rtol=1e-5)  # all of ε is used
    differs = (moved != points).any(1).sum((1, 2))
    assert ((differs > 81) & (differs <= 2 * 81)).all()  # two squares and nothing else


def test_best_point_is_kept_and_broken_images_leave():
    model, images = small(), pictures(24)
    labels = model(images).argmax(1)
    seen = []
    best = attack(
        model,
        images,
        labels,
        0.02,
        settings=Attack(steps=6),
        stop_early=False,
        callback=lambda *each: seen.append(each),
    )
    assert [each[0] for each in seen] == list(range(7))
    losses = torch.stack([each[3] for each in seen])
    wrong = torch.stack([model(each[2]).argmax(1) != labels for each in seen])
    assert 0 < best.is_adversarial.sum() < 24  # both kinds are there
    assert torch.equal(best.is_adversarial, wrong.any(0))
    allowed = torch.where(wrong.any(0) & ~wrong, -torch.inf, losses)
    torch.testing.assert_close(best.loss.float(), allowed.amax(0))
    torch.testing.assert_close(
        best.images, torch.stack([each[2] for each in seen])[allowed.argmax(0), torch.arange(24)]
    )
    seen.clear()
    early = attack(model, images, labels, 0.02, settings=Attack(steps=6), callback=lambda *each: seen.append(each))
    assert torch.equal(early.is_adversarial, best.is_adversarial)
    left = set(range(24))
    for step, rows, points, _ in seen:
        assert set(rows.tolist()) == left, step
        left -= set(rows[model(points).argmax(1) != labels[rows]].tolist())


def test_restarts_keep_the_worst_of_each_image():
    model, images = small(), pictures(48)
    labels = model(images).argmax(1)
    one = attack(model, images, labels, 0.01, settings=Attack(steps=2, rel_step_size=0.5))
    five = attack(model, images, labels, 0.01, settings=Attack(steps=2, rel_step_size=0.5, restarts=5))
    assert (five.is_adversarial | ~one.is_adversarial).all()
    assert five.is_adversarial.sum() > one.is_adversarial.sum()
    assert (five.loss >= one.loss)[~five.is_adversarial].all()


def test_restarts_head_for_one_wrong_class_after_the_other():
    class Stubborn(nn.Module):
        """The likeliest wrong class, 1, is out of reach; class 2 is near."""

        def forward(self, x):
            bright = x.mean((1, 2, 3))
            return torch.stack([bright * 0 + 1, bright * 0 + 0.9, 2 * bright - 0.3, bright - 9], 1)

    images, labels = torch.full((2, 3, 4, 4), 0.5), torch.zeros(2, dtype=torch.long)
    one, two = (attack(Stubborn(), images, labels, 0.2, settings=Attack(targeted=True, restarts=n)) for n in (1, 2))
    assert not one.is_adversarial.any()
    assert two.is_adversarial.all()
    nearest = attack(Stubborn(), images, labels, 0.2, settings=Attack(targeted=True, malt=True))
    assert nearest.is_adversarial.all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_malt_heads_for_the_class_that_a_linear_model_has_nearest(norm):
    """Against the closed form (z_y − z_t) / ‖w_y − w_t‖ in the dual norm."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 7)).double()
    images = torch.rand(20, 3, 2, 2, dtype=torch.float64)
    weight, logits = model[1].weight.detach().numpy(), model(images).detach().numpy()
    labels = logits.argmax(1)
    reach = np.linalg.norm(weight[labels][:, None] - weight[None], 1 if norm == "linf" else 2, axis=2)
    with np.errstate(invalid="ignore"):
        distances = np.nan_to_num((logits.max(1)[:, None] - logits) / reach, nan=np.inf)  # 0 / 0: the label itself
    objective = Objective(model, 7, dlr, torch.from_numpy(labels))
    found = target_order(objective, images, norm=norm, malt=True).numpy()
    np.testing.assert_array_equal(found, distances.argsort(1)[:, :-1])
    assert (found != target_order(objective, images, norm=norm, malt=False).numpy()).any()


KINDS = ["pgd", "pgd-l2", "apgd-dlr-8", "fgsm", "square-20", "square-20-l2", "pgd-margin-targeted"]


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_do_not_matter(sample, kind):
    model, images, labels = load_model("rohrer100k_scs"), sample.images, sample.labels
    eps = 0.3 if kind.endswith("l2") else 0.008
    together = attack(model, images, labels, eps, settings=parse_attack(kind))
    ids = torch.tensor([30, 3, 17])
    apart = attack(model, images[ids], labels[ids], eps, settings=parse_attack(kind), ids=ids)
    for mixed, alone in zip(together, apart, strict=True):
        assert torch.equal(mixed[ids], alone)  # to the bit


def test_random_numbers_follow_from_seed_id_and_draw():
    model, images = small(), pictures(1).expand(4, -1, -1, -1)
    labels, options = model(images).argmax(1), {"settings": Attack(steps=1), "stop_early": False}
    first = attack(model, images, labels, EPS, **options).images
    assert torch.equal(first, attack(model, images, labels, EPS, **options).images)
    assert len({image.numpy().tobytes() for image in first}) == 4  # the same image under four ids
    for other in ({"seed": 1}, {"draw": 1}, {"ids": torch.arange(4, 8)}):
        assert not torch.equal(first, attack(model, images, labels, EPS, **options, **other).images)


def test_gradients_that_are_not_numbers_do_no_harm():
    class Root(nn.Module):
        """The square root's gradient is infinite at 0, and times 0 it is NaN."""

        def forward(self, x):
            first = x[:, 0].flatten(1)
            nothing = (first * 0).sqrt().sum(1)
            return torch.stack([first.sum(1) * 0 + 1, x[:, 1].flatten(1).mean(1) + nothing], 1)

    images, labels = torch.rand(3, 3, 4, 4).clamp(max=0.9), torch.zeros(3, dtype=torch.long)
    for norm in ("linf", "l2"):
        chosen = Attack(norm=norm, random_start=False)
        points = last_points(Root(), images, labels, 0.01, settings=chosen)
        assert points.isfinite().all()
        assert ((points - images)[:, 1] > 0).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", ["pgd", "apgd", "apgd-dlr-targeted"])
def test_a_gradient_of_zero_moves_no_image(norm, kind):
    class Constant(nn.Module):
        def forward(self, x):
            return torch.arange(4.0) + 0 * x.flatten(1)[:, :4]

    images = pictures(3)
    chosen = replace(parse_attack(kind), norm=norm, random_start=False, steps=3)
    points = last_points(Constant(), images, torch.full((3,), 3), 0.1, settings=chosen)
    torch.testing.assert_close(points, images)


def test_model_comes_out_untouched():
    model, images = small().train(), pictures(4)
    model[0].weight.requires_grad_(False)
    model[-1].weight.grad = torch.ones_like(model[-1].weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    labels, state = torch.zeros(4, dtype=torch.long), torch.random.get_rng_state()
    legacy = np.random.get_state()[1].copy()  # noqa: NPY002
    for kind in ("pgd", "apgd-5", "square-5", "torchattacks:PGD", "torchattacks:APGD"):
        attack(model, images, labels, EPS, settings=parse_attack(kind))
    with pytest.raises(RuntimeError, match="stop"):
        attack(model, images, labels, EPS, settings=Attack(), callback=stop)
    assert model.training
    assert model[0].training
    assert not model[0].weight.requires_grad
    assert model[-1].weight.requires_grad
    assert model[-1].weight.grad is not None
    assert (model[-1].weight.grad == 1).all()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert (legacy == np.random.get_state()[1]).all()  # noqa: NPY002


def stop(*_):
    raise RuntimeError("stop")


def test_any_attack_of_torchattacks():
    model, images = small(), pictures(40)
    labels = model(images).argmax(1)
    wanted = torchattacks.PGD(model, eps=0.02, alpha=0.005, steps=10, random_start=False)(images, labels)
    chosen = Attack(name="torchattacks:PGD", random_start=False)
    found = attack(model, images, labels, 0.02, settings=chosen)
    torch.testing.assert_close(
        found.images, wanted, atol=1e-6, rtol=0
    )  # cut to the exact ball: the last bit may differ
    assert torch.equal(found.is_adversarial, model(wanted).argmax(1) != labels)
    assert found.is_adversarial.sum() > 0
    for name, options in {"DeepFool": "-3-l2", "PGDL2": "-l2", "Square": "-20", "APGD": ""}.items():
        points = attack(model, images, labels, 0.1, settings=parse_attack(f"torchattacks:{name}{options}")).images
        norm = float("inf") if "l2" not in options else 2
        assert torch.linalg.vector_norm((points - images).flatten(1), norm, dim=1).max() <= 0.1


def test_without_torchattacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    with pytest.raises(InputError, match=r"pip install 'scs-eval\[attacks\]'"):
        attack(small(), pictures(1), torch.tensor([0]), EPS, settings=Attack(name="torchattacks:PGD"))


def test_names_of_attacks():
    assert parse_attack("pgd") == Attack()
    assert parse_attack("apgd-dlr") == Attack(name="apgd", loss="dlr", steps=100)
    assert parse_attack("pgd-l2-40-margin-targeted") == Attack(norm="l2", steps=40, loss="margin", targeted=True)
    assert parse_attack("fgsm") == Attack(name="fgsm", steps=1, rel_step_size=1.0, random_start=False)
    assert parse_attack("square") == Attack(name="square", loss="margin", steps=1000)
    assert parse_attack("torchattacks:PGDL2-l2").is_external
    names = ["pgd", "apgd-ce", "apgd-dlr-l2-targeted", "apgd-dlr-targeted-malt", "fgsm", "square", "square-l2"]
    for name in [*names, "torchattacks:PGD"]:
        assert parse_attack(name).label == name
        assert parse_attack(parse_attack(name).label) == parse_attack(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "unknown attack 'abc'; did you mean fab"),
        ("pgd-l3", "got 'l3' in 'pgd-l3'"),
        ("", "unknown attack ''; choose from pgd, fgsm, apgd, fab, square, torchattacks:NAME, foolbox:NAME"),
        ("torchattacks:", "unknown attack 'torchattacks:'"),
        ("pgd-0", "expected steps as a whole number of at least 1, got 0"),
    ],
)
def test_bad_names(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_attack(text)
    assert "\n" not in str(caught.value)


class Broken(nn.Module):
    def forward(self, x):
        return torch.full((len(x), 5), torch.nan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": -0.1}, "at least 0, got -0.1"),
        ({"eps": float("nan")}, "every ε finite"),
        ({"eps": torch.ones(3)}, "one for each of 2 images"),
        ({"images": pictures(2) * 2}, r"images in \[0, 1\]"),
        ({"labels": torch.tensor([0, 5])}, "labels from 0 to 4, got 0 to 5"),
        ({"labels": torch.tensor([0])}, "2 labels"),
        ({"model": small(classes=1)}, "at least two"),
        ({"model": Broken()}, "finite logits"),
        (
            {"model": small(classes=2), "labels": torch.tensor([0, 1]), "settings": Attack(loss="dlr")},
            "at least 3 classes",
        ),
        ({"settings": Attack(name="torchattacks:Nothing")}, "has no attack 'Nothing'"),
        ({"settings": Attack(name="torchattacks:MultiAttack")}, "cannot attack"),
        ({"seed": -1}, "at least 0"),
        ({"start": pictures(3)}, "start"),
        ({"ids": torch.arange(3)}, "ids"),
    ],
)
def test_bad_input_is_one_line(change, message):
    options = {
        "model": small(),
        "images": pictures(2),
        "labels": torch.tensor([0, 1]),
        "eps": EPS,
        "settings": Attack(),
    }
    options |= change
    with pytest.raises(InputError, match=message) as caught:
        attack(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        {"norm": "l1"},
        {"loss": "mse"},
        {"steps": 0},
        {"steps": 2.5},
        {"rel_step_size": 0},
        {"rel_step_size": np.nan},
        {"restarts": 0},
    ],
)
def test_bad_settings(option):
    with pytest.raises(InputError, match=str(next(iter(option.values())))):
        Attack(**option)
