"""The parts of the trainer, each against an independent version of itself."""

import io
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR, SequentialLR
from torchvision.transforms.v2 import functional as TF

from scs_eval.devices import choose_device
from scs_eval.errors import InputError
from scs_eval.files import write_atomically
from scs_eval.models.layers import SCS2d
from scs_eval.models.zoo.registry import create_model
from scs_eval.progress import progress
from scs_eval.training.augmentation import attacked, crop_flip, derive_seed, make_mixing, to_unit
from scs_eval.training.loop import Reporter
from scs_eval.training.metrics import DivergenceMonitor, count_correct, evaluate, evaluation_loss, training_loss
from scs_eval.training.optimisation import clip_adaptively, decay_per_update, make_optimizer, make_schedule
from scs_eval.training.processes import World, stop_on_signal
from scs_eval.training.recipe import RECIPES, Recipe, default_recipe, make_recipe
from scs_eval.training.records import CsvTable, find_layers, parameter_rows
from scs_eval.training.sources import ArraySource
from scs_eval.training.trainer import Trainer
from scs_eval.training.weights import initialise_from

CPU = torch.device("cpu")


def world(rank=0, size=1):
    return World(rank=rank, size=size, device=CPU)


def source(recipe, *, rank=0, size=1, train=40, test=10, seed=3, pixels=None):
    rng = np.random.default_rng(0)
    parts = [
        (rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, n).astype(np.int64))
        for n in (train, test)
    ]
    return ArraySource(*parts, num_classes=10, recipe=recipe, seed=seed, world=world(rank, size), size=pixels)


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 10))


# --- recipes


def test_the_recipes_are_the_papers():
    scs, cifar, long = RECIPES["scs"], RECIPES["bcos-cifar"], RECIPES["bcos-imagenet-long"]
    assert (scs.optimizer, scs.schedule, scs.lr, scs.weight_decay, scs.loss) == ("adam", "onecycle", 0.01, 0, "ce")
    assert (cifar.lr, cifar.batch_size, cifar.schedule, cifar.loss, cifar.epochs) == (1e-3, 64, "cosine", "bce", 100)
    assert (long.epochs, long.batch_size, long.ema_decay, long.ema_every) == (600, 1024, 0.99998, 32)
    assert (long.mixup, long.cutmix, long.repeats, long.erasing, long.augment) == (0.2, 1.0, 4, 0.1, "trivial")
    imagenet, vit = RECIPES["bcos-imagenet"], RECIPES["bcos-vit"]
    assert (imagenet.epochs, imagenet.batch_size, imagenet.warmup_epochs, imagenet.agc) == (90, 256, 5, 0.01)
    assert (imagenet.soft_negatives, imagenet.final_lr) == (True, 0)
    assert (vit.epochs, vit.batch_size, vit.mixup, vit.augment, vit.agc) == (90, 1024, 0.2, "rand", 0.01)
    assert default_recipe("resnet20_bcos") == "bcos-cifar"
    assert default_recipe("rohrer100k_ssdp") == "scs"
    for name in ("resnet18_scs", "resnet18_224_conv", "resnet20_conv"):  # Tables 2, 7 and 8
        assert make_recipe(default_recipe(name), {}) == replace(scs, epochs=200)


def test_a_recipe_takes_overrides_and_refuses_nonsense():
    assert make_recipe("scs", {"epochs": 5}) == replace(RECIPES["scs"], epochs=5)
    with pytest.raises(InputError, match="batch_size: expected more than 0, got 0"):
        make_recipe("scs", {"batch_size": 0})
    with pytest.raises(InputError, match="no recipe 'sgs'"):
        make_recipe("sgs", {})
    with pytest.raises(InputError, match="a recipe has no epoch;"):
        make_recipe("scs", {"epoch": 5})
    with pytest.raises(InputError, match="warmup_epochs: expected less than epochs"):
        make_recipe("bcos-imagenet", {"epochs": 5})
    with pytest.raises(InputError, match="belong to schedule=cosine"):
        make_recipe("scs", {"final_lr": 1e-5})
    with pytest.raises(InputError, match="belongs to loss=bce"):
        make_recipe("scs", {"soft_negatives": True})


def test_the_command_line_has_an_option_for_every_number_without_importing_torch():
    code = (
        "import sys, json; from scs_eval.cli.commands.train import command;"
        "from scs_eval.cli.commands.zoo import command as zoo;"
        "print(json.dumps([sorted(p.name for p in c.params) for c in (command, zoo.commands['train'])]));"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for names in json.loads(done.stdout):
        assert {field.name for field in fields(Recipe)} <= set(names)


# --- data


@settings(max_examples=20, deadline=None)
@given(padding=st.integers(0, 4), size=st.sampled_from([(8, 8), (6, 9)]), seed=st.integers(0, 10_000))
def test_a_batch_is_cropped_and_flipped_as_torchvision_does_each_image(padding, size, seed):
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (5, 3, *size), dtype=torch.uint8, generator=draw)
    offsets = torch.randint(2 * padding + 1, (5, 2), generator=draw)
    flips = torch.rand(5, generator=draw) < 0.5
    expected = []
    for image, (top, left), flip in zip(images, offsets.tolist(), flips.tolist(), strict=True):
        crop = TF.crop(TF.pad(image, [padding]), top, left, *size)
        expected.append(TF.horizontal_flip(crop) if flip else crop)
    assert torch.equal(crop_flip(images, padding=padding, offsets=offsets, flips=flips), torch.stack(expected))


def test_bytes_become_floats_between_0_and_1_laid_out_channels_last():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1).expand(2, 3, 4, 4)
    floats = to_unit(images)
    assert floats[0, :, 0, 0].tolist() == pytest.approx([0, 0.2, 1])
    assert floats.is_contiguous(memory_format=torch.channels_last)


def test_an_epoch_shows_each_image_once_and_draws_all_crops_and_flips():
    recipe = Recipe(batch_size=50)
    data = source(recipe, train=2000)
    order, offsets, flips = data._draws(1)
    assert sorted(order.tolist()) == list(range(2000))
    # 81 crops are equally likely: a chi-squared test at 99.9 %, whose bound for 80 degrees of freedom is 124.8.
    counts = torch.bincount(offsets[:, 0] * 9 + offsets[:, 1], minlength=81)
    assert ((counts - 2000 / 81) ** 2 / (2000 / 81)).sum() < 124.8
    assert 0.45 < flips.float().mean() < 0.55  # four and a half standard deviations
    assert not torch.equal(order, data._draws(2)[0])
    assert not source(Recipe(batch_size=50, flip=False), train=2000)._draws(1)[2].any()


def test_batches_depend_on_neither_the_start_nor_the_number_of_processes():
    recipe = Recipe(batch_size=8)
    whole = list(source(recipe).train_batches(2, start=0))
    assert len(whole) == 5
    late = list(source(recipe).train_batches(2, start=3))
    assert all(torch.equal(a, b) for a, b in zip(whole[3], late[0], strict=True))
    shares = [list(source(recipe, rank=rank, size=2).train_batches(2, start=0)) for rank in (0, 1)]
    for (images, labels), first, second in zip(whole, *shares, strict=True):
        assert torch.equal(images[::2], first[0])
        assert torch.equal(images[1::2], second[0])
        assert torch.equal(labels[1::2], second[1])
    tests = [sum(len(labels) for _, labels in source(recipe, rank=r, size=3).test_batches()) for r in range(3)]
    assert sum(tests) == 10


def test_a_network_for_larger_images_gets_them_enlarged():
    recipe = Recipe(batch_size=8)
    small, large = source(recipe), source(recipe, pixels=64)
    for one, other in zip(small.train_batches(1, start=0), large.train_batches(1, start=0), strict=True):
        expected = TF.resize(one[0], [64, 64], antialias=True)
        torch.testing.assert_close(other[0], expected, atol=1e-6, rtol=0)  # other kernels for other layouts
        assert torch.equal(one[1], other[1])
    assert next(large.test_batches())[0].shape == (10, 3, 64, 64)


def test_data_in_memory_refuses_what_only_folders_can_do():
    with pytest.raises(InputError, match="erasing needs a folder"):
        source(Recipe(erasing=0.1))
    with pytest.raises(InputError, match="expected at most the 40 images, got 41"):
        source(Recipe(batch_size=41))


# --- what is minimised, and how


def test_losses_are_their_formulas():
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    chance = logits.softmax(1)[range(6), labels]
    assert training_loss(Recipe(), logits, labels).item() == pytest.approx(-chance.log().mean().item())
    assert evaluation_loss(Recipe(), logits, labels).item() == pytest.approx(-chance.log().sum().item())

    def bce(wanted):
        s = logits.sigmoid()
        return -(wanted * s.log() + (1 - wanted) * (1 - s).log())

    hot = torch.eye(4, dtype=torch.float64)[labels]
    plain = Recipe(loss="bce")
    soft = replace(plain, soft_negatives=True)
    assert training_loss(plain, logits, labels).item() == pytest.approx(bce(hot).mean().item())
    assert training_loss(soft, logits, labels).item() == pytest.approx(bce(hot.clamp(min=0.25)).mean().item())
    assert evaluation_loss(soft, logits, labels).item() == pytest.approx(bce(hot).mean(1).sum().item())
    assert count_correct(logits, labels).item() == sum(a == b for a, b in zip(logits.argmax(1), labels, strict=True))


def test_mixing_keeps_class_shares_and_trains_on_them():
    assert make_mixing(Recipe(), num_classes=10) is None
    mix = make_mixing(Recipe(mixup=0.2, cutmix=1.0), num_classes=10)
    torch.manual_seed(0)
    images, labels = torch.rand(8, 3, 6, 6), torch.arange(8)
    mixed, shares = mix(images, labels)
    assert shares.shape == (8, 10)
    assert torch.allclose(shares.sum(1), torch.ones(8))
    assert not torch.equal(mixed, images)
    logits = torch.randn(8, 10)
    assert training_loss(Recipe(), logits, shares) == F.cross_entropy(logits, shares)


def rates(recipe, steps):
    optimizer = make_optimizer(recipe, small_net())
    schedule = make_schedule(recipe, optimizer, steps_per_epoch=steps)
    found = []
    for _ in range(recipe.epochs * steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def reference_rates(recipe, total, make):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.lr)
    schedule = make(optimizer)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_the_learning_rate_is_torchs_warm_up_and_cosine():
    recipe = Recipe(epochs=10, schedule="cosine", lr=0.1, final_lr=0.01, warmup_epochs=2)

    def make(optimizer):
        warmup = LinearLR(optimizer, start_factor=0.01, total_iters=14)
        return SequentialLR(optimizer, [warmup, CosineAnnealingLR(optimizer, 56, eta_min=0.01)], milestones=[14])

    # torch computes the cosine recursively, which accumulates rounding; 1e-9 is far above it and far below a step.
    assert rates(recipe, 7) == pytest.approx(reference_rates(recipe, 70, make), abs=1e-9)


def test_the_learning_rate_is_torchs_one_cycle():
    recipe = Recipe(epochs=3, lr=0.02)
    expected = reference_rates(recipe, 21, lambda optimizer: OneCycleLR(optimizer, max_lr=0.02, total_steps=21))
    assert rates(recipe, 7) == expected
    assert max(expected) == pytest.approx(0.02, rel=0.01)  # the peak may lie between two steps


def test_a_trainer_does_what_a_plain_loop_does():
    recipe = Recipe(epochs=2, batch_size=8, weight_decay=1e-3)
    trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=3, world=world())
    net = small_net()
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3, foreach=False)
    cycle = OneCycleLR(adam, max_lr=0.01, total_steps=10)
    for epoch in (1, 2):
        for images, labels in source(recipe).train_batches(epoch, start=0):
            trainer.train_step(images, labels)
            adam.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            adam.step()
            cycle.step()
        trainer.start_next_epoch()
    for ours, plain in zip(trainer.model.parameters(), net.parameters(), strict=True):
        # The fused kernel and the memory layout round otherwise, and Adam divides by small roots: 1e-5 of weights ~0.1.
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_compiled_or_mixed_precision_run_goes_through_torch(monkeypatch):
    """That torch is asked for it: compilers and bfloat16 are not everywhere."""
    asked = []

    def compiled(module):
        asked.append(("compile", type(module).__name__))
        return module

    class Autocast(nullcontext):
        def __init__(self, device, *, dtype, enabled):
            super().__init__()
            asked.append((device, dtype, enabled))

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch, "autocast", Autocast)
    recipe = Recipe(epochs=1, batch_size=8)
    trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=3, world=world(), amp=True, compiled=True)
    trainer.train_step(*next(trainer.source.train_batches(1, start=0)))
    assert asked == [("compile", "Sequential"), ("cpu", torch.bfloat16, True)]
    assert trainer.model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_scs_weights_are_put_back_within_their_limits_after_every_step():
    recipe = Recipe(epochs=1, batch_size=8, lr=5.0, schedule="cosine")
    net = nn.Sequential(SCS2d(3, 4, 5, stride=4), nn.Flatten(), nn.Linear(4 * 49, 10))
    trainer = Trainer(net, source(recipe), recipe=recipe, seed=0, world=world())
    trainer.train_step(*next(trainer.source.train_batches(1, start=0)))
    assert net[0].weight.abs().max() == 1
    assert net[0].p.min() >= 0.1


def test_attacked_images_stay_in_the_ball_and_raise_the_loss():
    model = small_net()
    torch.manual_seed(1)
    images, labels = torch.rand(6, 3, 32, 32), torch.arange(6)
    found = attacked(images, lambda x: F.cross_entropy(model(x), labels), eps=0.03, steps=3)
    assert (found - images).abs().max() <= 0.03 + 1e-6  # rounding of float32
    assert found.min() >= 0
    assert found.max() <= 1
    assert F.cross_entropy(model(found), labels) > F.cross_entropy(model(images), labels)
    assert all(p.grad is None for p in model.parameters())
    assert not found.requires_grad


def test_a_recipe_with_an_attack_trains_on_attacked_images():
    seen = []
    recipe = Recipe(batch_size=8, epochs=1, pgd_eps=0.1, pgd_steps=2)
    trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=3, world=world())
    images, labels = next(trainer.source.train_batches(1, start=0))
    forward = trainer.forward
    trainer.forward = lambda x: seen.append(x.detach().clone()) or forward(x)
    trainer.train_step(images, labels)
    assert len(seen) == 3  # two steps of the attack, then the training
    assert 0.05 < (seen[-1] - images).abs().max() <= 0.1 + 1e-6  # rounding of float32
    with pytest.raises(InputError, match="needs pgd_eps"):
        Recipe(pgd_steps=2)


def test_adaptive_clipping_is_its_formula():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5))
    torch.manual_seed(0)
    for weight in net.parameters():
        weight.grad = torch.randn_like(weight) * torch.logspace(-4, 1, len(weight)).reshape(
            -1, *[1] * (weight.ndim - 1)
        )
    nn.init.zeros_(net[1].weight[0])
    expected = []
    for weight in net.parameters():
        rows = [weight] if weight.ndim == 1 else weight
        grads = [weight.grad] if weight.ndim == 1 else weight.grad
        clipped = []
        for w, g in zip(rows, grads, strict=True):
            longest, length = 0.01 * max(w.norm().item(), 1e-3), g.norm().item()
            clipped.append(g * (longest / length) if length > longest else g)
        expected.append(torch.stack(clipped).reshape(weight.shape))
    untouched = net[0].weight.grad[0].clone()
    clip_adaptively(net, share=0.01)
    for weight, wanted in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-5, atol=0)  # float32 norms in another order
    assert torch.equal(net[0].weight.grad[0], untouched)  # the test has both kinds of unit
    assert net[0].weight.grad[2].norm() < 0.011 * net[0].weight[2].norm()


def test_a_recipe_with_clipping_moves_no_unit_further_than_its_share():
    moved = {}
    for share in (0.0, 1e-3):
        recipe = Recipe(epochs=1, batch_size=8, optimizer="sgd", lr=1.0, schedule="cosine", agc=share)
        trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=0, world=world())
        before = trainer.model[3].weight.detach().clone()
        trainer.train_step(*next(trainer.source.train_batches(1, start=0)))
        moved[share] = ((trainer.model[3].weight - before).norm(dim=1) / before.norm(dim=1)).max().item()
    assert moved[0.0] > 0.01
    assert moved[1e-3] == pytest.approx(1.9e-3, rel=1e-3)  # Nesterov's first step is 1 + 0.9 gradients long


def averaged(**numbers):
    """The weights after every step, the trainer at the end, and the kept weights after every epoch."""
    recipe = Recipe(batch_size=8, ema_decay=0.99, ema_every=2, schedule="cosine", **numbers)
    trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=0, world=world())
    seen, kept = [], []
    for epoch in range(1, recipe.epochs + 1):
        for images, labels in trainer.source.train_batches(epoch, start=0):
            trainer.train_step(images, labels)
            seen.append(trainer.model[0].weight.detach().clone())
        kept.append(trainer.best_guess[0].weight.detach().clone())
        trainer.start_next_epoch()
    return seen, kept


def test_the_moving_average_is_its_formula():
    seen, kept = averaged(epochs=1)
    share = 0.01 * 8 * 2 / 1  # of the newest weights: (1 - decay) · batch size · steps between updates / epochs
    torch.testing.assert_close(kept[0], (1 - share) * seen[1] + share * seen[3])
    assert not torch.equal(kept[0], seen[-1])


def test_the_moving_average_forgets_the_warm_up():
    seen, kept = averaged(epochs=2, warmup_epochs=1)  # five batches in an epoch, updates after steps 2, 4, 6, 8, 10
    share = 0.01 * 8 * 2 / 2
    assert torch.equal(kept[0], seen[4])  # no average yet, so the weights themselves
    later = (1 - share) * seen[5] + share * seen[7]
    torch.testing.assert_close(kept[1], (1 - share) * later + share * seen[9])


def test_the_published_decay_is_that_of_the_bcos_package():
    # 1 - 2e-5 · 1024 · 32 / 600: what its trainer makes of 0.99998 (bcos.training.trainer, as torchvision's references)
    assert decay_per_update(RECIPES["bcos-imagenet-long"]) == pytest.approx(0.998907733, abs=1e-9)
    assert decay_per_update(Recipe(epochs=1, ema_decay=0.9)) == 0  # never negative


def test_evaluation_is_in_eval_mode_and_leaves_training_mode():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 49, 10))
    recipe = Recipe(batch_size=8)
    data = source(recipe, test=600)  # more than one batch
    found = evaluate(net, data, recipe=recipe, world=world())
    assert net.training
    images, labels = data.test_images / 255, data.test_labels
    logits = net.eval()(images)
    assert (found.correct, found.images) == ((logits.argmax(1) == labels).sum().item(), 600)
    assert found.loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)  # float32 sums


# --- what is written


def test_layers_are_described_by_norm_p_and_q():
    net = nn.Sequential(SCS2d(3, 2, 3), nn.BatchNorm2d(2), SCS2d(2, 2, 1, p=2.0), nn.Linear(3, 4))
    rows = {(layer, quantity, index): value for layer, quantity, index, value in parameter_rows(find_layers(net))}
    assert rows["0", "weight_norm", ""] == pytest.approx(net[0].weight.square().sum().sqrt().item())
    assert rows["0", "q", ""] == pytest.approx(1e-3)
    assert [rows["0", "p", str(k)] for k in range(2)] == pytest.approx(net[0].p.flatten().tolist())
    assert ("2", "p", "0") not in rows  # it is fixed
    assert {layer for layer, _, _ in rows} == {"0", "2", "3"}  # not the BatchNorm


def test_a_table_drops_half_a_row_and_rows_of_lost_work(tmp_path):
    table = CsvTable(tmp_path / "t.csv", ["epoch", "x"])
    table.begin(keep_until=0)
    table.append([(1, 0.5), (2, 1e-9), (3, "")])
    assert table.path.read_text() == "epoch,x\n1,0.5\n2,1e-09\n3,\n"
    with table.path.open("a") as file:
        file.write("2,0.")
    table.begin(keep_until=2)
    assert table.path.read_text() == "epoch,x\n1,0.5\n2,1e-09\n"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda number: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_terminal_gets_a_bar_and_a_file_gets_lines(capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def show():
        with progress("net", 10) as advance:
            reporter = Reporter(advance, batch_size=8)
            reporter.resume(2)
            reporter.batch(1, lambda: (1.5, 0.25))
            reporter.epoch("epoch 1/2")

    show()
    assert capsys.readouterr() == ("epoch 1/2\n", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setattr("scs_eval.training.loop.REFRESH_SECONDS", 0)
    show()
    assert capsys.readouterr().out == "epoch 1/2\n"  # a pipe gets it as it is, though there is a bar
    monkeypatch.setattr(sys, "stdout", Terminal())
    show()
    shown = screen.getvalue()
    assert "epoch 1/2" in shown  # above the bar
    assert "loss 1.500  accuracy 25.0%" in shown
    assert "images/s" in shown
    assert "3/10" in shown
    assert "\u2501" in shown or "\u2578" in shown  # the bar itself


def test_processes_but_the_main_one_say_nothing(capsys):
    reporter = Reporter(None, batch_size=8)
    reporter.resume(2)
    reporter.batch(1, lambda: pytest.fail("it read from the device"))
    reporter.epoch("epoch 1/2")
    assert capsys.readouterr() == ("", "")


# --- what can go wrong


def test_the_parameter_whose_gradient_diverged_first_is_named():
    def watch(*steps):
        monitor = DivergenceMonitor(["a", "b", "c"], device=CPU)
        for loss, gradients in steps:
            monitor.observe(torch.tensor(loss), torch.tensor(gradients))
        return monitor

    calm = (2.0, [1.0, 1.0, 1.0])
    assert not watch(calm, (2.4, [5.0, 5.0, 5.0])).has_diverged()
    broken = watch(calm, (2.0, [math.nan, math.inf, 1.0]), (math.nan, [math.nan] * 3))
    assert broken.has_diverged()
    assert broken.first_diverged_parameter() == "b"  # nearest to the output of those of that step
    huge = watch(calm, (2.0, [1.0, 1e4, 1.0]), (1e5, [1e9, 1e9, 1e9]))
    assert huge.has_diverged()
    assert huge.first_diverged_parameter() == "b"
    assert watch((math.inf, [1.0] * 3)).has_diverged()
    creeping = watch(*[(2.0 * 1.5**k, [1.2**k, 1.5**k, 1.0]) for k in range(25)])
    assert creeping.has_diverged()  # by its loss: no gradient was ever far above its mean
    assert creeping.first_diverged_parameter() == "b"


def test_signals_are_noted_once_and_handlers_restored():
    before = signal.getsignal(signal.SIGTERM)
    original = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_on_signal() as stop:
        assert stop.signal_number == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before
    with stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal_number == 0  # it was ignored before
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(RuntimeError), stop_on_signal():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, original)


def test_an_unusable_device_is_named():
    assert choose_device("cpu") == "cpu"
    for request in ("gpu", "cuda:99"):
        with pytest.raises(InputError, match=f"expected a device of this machine .cpu.*, got '{request}'"):
            choose_device(request)


def test_seeds_differ_between_epochs_batches_and_ranks():
    # (seed, epoch) orders the images and (seed, epoch, batch + 1, rank) mixes a batch: numpy's SeedSequence fills up
    # with zeros, so a batch 0 of rank 0 would draw what the order was drawn from.
    numbers = [(0, 1), (1, 0), (0, 1, 1, 0), (0, 1, 1, 1), (0, 1, 2, 0), (1, 1, 1, 0)]
    seeds = {derive_seed(*each) for each in numbers}
    assert len(seeds) == len(numbers)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_batch_does_not_draw_what_ordered_the_epoch(monkeypatch):
    drawn = []
    monkeypatch.setattr(torch, "manual_seed", drawn.append)
    recipe = Recipe(epochs=1, batch_size=8)
    trainer = Trainer(small_net(), source(recipe), recipe=recipe, seed=3, world=world())
    drawn.clear()
    trainer.train_step(*next(trainer.source.train_batches(1, start=0)))
    assert drawn == [derive_seed(3, 1, 1, 0)]
    assert derive_seed(3, 1) not in drawn


# --- weights of a twin


@pytest.mark.parametrize("twin", ["rohrer68k_scs", "rohrer68k_bcos", "resnet20_scs"])
def test_the_weights_of_a_convolution_network_are_carried_into_its_twin(tmp_path, twin):
    from safetensors.torch import save_file

    conv = create_model(twin.rsplit("_", 1)[0] + "_conv", seed=5)
    save_file({name: value.contiguous() for name, value in conv.state_dict().items()}, tmp_path / "conv.safetensors")
    model = create_model(twin, seed=0)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    initialisation = initialise_from(model, tmp_path / "conv.safetensors")
    theirs, ours = conv.state_dict(), model.state_dict()
    for name, value in theirs.items():
        if name in ours and ours[name].shape == value.shape:
            assert torch.equal(ours[name], value), name
            assert name in initialisation.carried
    assert sorted([*initialisation.carried, *initialisation.kept]) == sorted(ours)
    assert all(torch.equal(initial[name], ours[name]) for name in initialisation.kept)
    assert "carried" in str(initialisation)
    if twin.endswith("bcos"):  # [w, -w] on [x, 1 - x] answers as w does on x, up to a constant and the scale
        stem, kernel = ours["stages.0.layer.weight"], theirs["stages.0.layer.weight"]
        factor = (stem[:, :3] / kernel).median()
        torch.testing.assert_close(stem, factor * torch.cat([kernel, -kernel], 1))
        assert factor > 0


def test_a_transformers_patches_may_differ_from_its_twins(tmp_path):
    from safetensors.torch import save_file

    twin = create_model("vit_ti_conv", num_classes=10)
    save_file({name: value.contiguous() for name, value in twin.state_dict().items()}, tmp_path / "twin.safetensors")
    initialisation = initialise_from(create_model("vit_ti_bcos", num_classes=10), tmp_path / "twin.safetensors")
    assert any("attn" in name or "attention" in name for name in initialisation.carried)


def test_weights_of_another_network_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"some.weight": torch.zeros(2, 2)}, tmp_path / "other.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"nonsense")
    model = create_model("rohrer68k_scs")
    for other in ("rohrer100k_conv", "rohrer25k_conv"):
        weights = {name: value.contiguous() for name, value in create_model(other).state_dict().items()}
        save_file(weights, tmp_path / f"{other}.safetensors")
    for name in ("other", "rohrer100k_conv", "rohrer25k_conv"):  # the last two have a bias in common with it
        with pytest.raises(InputError, match=r"no weight that fits \d of the 4 kernels"):
            initialise_from(model, tmp_path / f"{name}.safetensors")
    for name, message in {"broken": "not a whole safetensors file", "missing": "no such file"}.items():
        with pytest.raises(InputError, match=message):
            initialise_from(model, tmp_path / f"{name}.safetensors")


def test_weights_come_from_torch_files_too(tmp_path):
    theirs = create_model("rohrer25k_conv", seed=4).state_dict()
    torch.save({"state_dict": {f"module.{name}": value for name, value in theirs.items()}}, tmp_path / "conv.pt")
    model = create_model("rohrer25k_scs")
    initialise_from(model, tmp_path / "conv.pt")
    assert torch.equal(model.state_dict()["head.weight"], theirs["head.weight"])
    assert torch.equal(model.state_dict()["stages.2.layer.weight"], theirs["stages.2.layer.weight"])


def test_a_bcos_resnet_starts_from_the_bundled_convolution_network():
    model = create_model("resnet20_bcos")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    done = initialise_from(model, Path("resnet20_conv"))
    # The convolution network's shortcuts have no kernels.
    assert {name.rpartition(".downsample.")[0] for name in done.kept if name.endswith("weight")} == {
        "layer2.0",
        "layer3.0",
    }
    assert not torch.equal(model.state_dict()["layer3.2.conv2.weight"], before["layer3.2.conv2.weight"])


def test_a_recipe_survives_json():
    for recipe in RECIPES.values():
        assert Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe
