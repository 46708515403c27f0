"""What the fast recipe is made of: Muon, groups of parameters, smoothed labels, alternating flips, held-out images."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scs_eval.errors import InputError
from scs_eval.models.zoo.registry import create_model
from scs_eval.training.metrics import training_loss
from scs_eval.training.optimisation import MuonAdam, make_optimizer, make_schedule, orthogonal_update, orthogonalise
from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe, make_recipe
from scs_eval.training.sources import ArraySource, divide

HERE = World(rank=0, size=1, device=torch.device("cpu"))


def images(count, seed=0):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8), np.arange(count) % 10


# --- Muon


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (8, 8)])
def test_orthogonalising_keeps_the_singular_vectors_and_evens_out_the_values(shape):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    in_their_basis = u.T @ orthogonalise(matrix, iterations=5) @ vh.T
    assert in_their_basis.sub(in_their_basis.diagonal().diag()).abs().max() < 1e-9  # rounding of float64
    # Jordan's coefficients do not converge to 1 but wander between 0.68 and 1.13, from 0.01 of the norm upwards.
    assert (s / matrix.norm()).min() > 0.01
    assert in_their_basis.diagonal().min() > 0.65
    assert in_their_basis.diagonal().max() < 1.25


def test_muon_agrees_with_torchs_on_a_matrix():
    start = torch.randn(12, 30, generator=torch.Generator().manual_seed(2))
    theirs, ours = nn.Parameter(start.clone()), nn.Parameter(start.clone().reshape(12, 30, 1, 1))
    torchs = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.2, momentum=0.95, ns_steps=3)
    muon = MuonAdam([{"params": [ours], "lr": 0.1, "orthogonal": True}], momentum=0.95, weight_decay=0.2)
    for step in range(4):
        gradient = torch.randn(12, 30, generator=torch.Generator().manual_seed(10 + step))
        theirs.grad, ours.grad = gradient.clone(), gradient.clone().reshape_as(ours)
        torchs.step()
        muon.step()
    moved = (theirs - start).abs().mean()
    # torch iterates in bfloat16, whose rounding is 2^-8 a product.
    assert (ours.reshape(12, 30) - theirs).abs().mean() < 0.03 * moved


def test_kernels_without_common_inputs_are_only_given_length_one():
    depthwise = torch.randn(5, 1, 3, 3, generator=torch.Generator().manual_seed(3))
    update = orthogonal_update(depthwise)
    assert torch.allclose(update, F.normalize(depthwise.flatten(1)).reshape(5, 1, 3, 3), atol=1e-6)  # float32


def test_what_is_no_kernel_is_trained_by_torchs_adam():
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(4))
    theirs, ours = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    adam, both = torch.optim.Adam([theirs], lr=0.1), MuonAdam([{"params": [ours], "lr": 0.1}], momentum=0.9)
    for step in range(5):
        gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(20 + step))
        theirs.grad, ours.grad = gradient, gradient.clone()
        adam.step()
        both.step()
    assert torch.allclose(ours, theirs, atol=1e-6)  # float32, other order of the products


def test_one_wild_gradient_does_not_take_over_the_momentum():
    draw = torch.Generator().manual_seed(6)
    gradients = [torch.randn(4, 3, 3, 3, generator=draw) for _ in range(60)]
    wild = [1e5 * gradient if step == 30 else gradient for step, gradient in enumerate(gradients)]
    kernels = [nn.Parameter(torch.zeros(4, 3, 3, 3)) for _ in range(2)]
    for kernel, some in zip(kernels, (gradients, wild), strict=True):
        muon = MuonAdam([{"params": [kernel], "lr": 0.1, "orthogonal": True}], momentum=0.95)
        for step, gradient in enumerate(some):
            kernel.grad = gradient.clone()
            muon.step()
            if step == 29:
                before = kernel.detach().clone()
    usual, disturbed = ((kernel.detach() - before).flatten() for kernel in kernels)
    # Four times as long as the others it still turns the path; 1e5 times as long it would be the path.
    assert F.cosine_similarity(usual, disturbed, dim=0) > 0.7


def test_gradients_of_usual_length_are_left_alone():
    parameter = nn.Parameter(torch.zeros(3, 4))
    both = MuonAdam([{"params": [parameter], "lr": 0.1}], momentum=0.9)
    for step in range(20):
        gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
        parameter.grad = gradient.clone()
        both.step()
        assert torch.allclose(parameter.grad, gradient, rtol=1e-6)  # a product with 1, rounded


def test_each_group_has_the_rate_that_the_recipe_gives_it():
    model = create_model("rohrer25k_scs")
    recipe = Recipe(optimizer="muon", lr=0.01, kernel_lr=0.5, exponent_lr=3, weight_decay=0.1)
    groups = make_optimizer(recipe, model).param_groups
    assert {(group["orthogonal"], group["weight_decay"]) for group in groups} == {(True, 0.1), (False, 0.0)}
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        expected = 0.5 if parameter.ndim == 4 and leaf == "weight" else 0.03 if leaf in ("p", "log_q") else 0.01
        assert rates[id(parameter)] == pytest.approx(expected), name
    assert len(rates) == len(list(model.parameters()))


def test_the_papers_optimisers_have_one_group_as_before():
    assert len(make_optimizer(Recipe(), create_model("rohrer25k_scs")).param_groups) == 1


def test_each_group_goes_through_the_cycle_from_its_own_rate():
    recipe = Recipe(optimizer="muon", lr=0.01, kernel_lr=0.5, epochs=2)
    optimizer = make_optimizer(recipe, create_model("rohrer25k_conv"))
    schedule = make_schedule(recipe, optimizer, steps_per_epoch=10)
    highest = [0.0] * len(optimizer.param_groups)
    for _ in range(19):
        optimizer.step()
        schedule.step()
        highest = [max(pair) for pair in zip(highest, schedule.get_last_lr(), strict=True)]
    assert highest == pytest.approx([0.01, 0.5], rel=0.05)  # 20 steps do not hit the peak exactly


def test_a_constant_schedule_stays():
    recipe = Recipe(schedule="constant", lr=0.3, epochs=1)
    optimizer = make_optimizer(recipe, nn.Linear(2, 2))
    schedule = make_schedule(recipe, optimizer, steps_per_epoch=5)
    for _ in range(5):
        optimizer.step()
        schedule.step()
        assert schedule.get_last_lr() == [0.3]


@pytest.mark.parametrize("numbers", [{"kernel_lr": 0.1}, {"momentum": 0.5}, {"flip": False, "alternating_flip": True}])
def test_numbers_that_would_do_nothing_are_refused(numbers):
    with pytest.raises(InputError, match=r"belongs to|needs"):
        make_recipe("scs", numbers)


# --- labels and images


def test_smoothed_labels_are_spread_over_all_classes():
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(5))
    labels = torch.tensor([0, 3, 3, 9])
    wanted = 0.8 * F.one_hot(labels, 10) + 0.02
    by_hand = -(wanted * logits.log_softmax(1)).sum(1).mean()
    assert training_loss(Recipe(label_smoothing=0.2), logits, labels).item() == pytest.approx(by_hand.item(), rel=1e-5)
    binary = F.binary_cross_entropy_with_logits(logits, wanted)
    smoothed = training_loss(Recipe(loss="bce", label_smoothing=0.2), logits, labels)
    assert smoothed.item() == pytest.approx(binary.item(), rel=1e-5)


def test_two_epochs_of_alternating_flips_show_every_image_both_ways():
    data = ArraySource(
        images(200), images(10), num_classes=10, recipe=Recipe(batch_size=10, alternating_flip=True), seed=1, world=HERE
    )
    flips = [data._draws(epoch)[2] for epoch in (1, 2, 3)]
    assert torch.equal(flips[0], ~flips[1])
    assert torch.equal(flips[0], flips[2])
    assert 60 < flips[0].sum() < 140  # of 200; 100 on average, with a standard deviation of 7


def test_held_out_images_are_evaluated_and_not_trained_on():
    train, test = images(100), images(20, seed=1)
    kept, held_out = divide(train, test, validation=30, train_images=0)
    rows = lambda part: {image.tobytes() for image in part[0]}  # noqa: E731
    assert len(kept[1]) == 70
    assert rows(kept) | rows(held_out) == rows(train)
    assert not rows(kept) & rows(held_out)
    fewer, same = divide(train, test, validation=30, train_images=20)
    assert rows(fewer) < rows(kept)
    assert rows(same) == rows(held_out)
    assert divide(train, test, validation=0, train_images=40)[1] is test
    with pytest.raises(InputError, match="at most the 100 training images"):
        divide(train, test, validation=90, train_images=20)
