"""Our layers against their peers: training step, forward pass and memory of the zoo's networks."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median

import torch
from torch import nn

from scs_eval.benchmarks.contest import Contender, Growth, Say, Settings, Target, contest, grow
from scs_eval.benchmarks.memory import analysis_peak, can_measure, step_peak
from scs_eval.benchmarks.peers import plain_twin, published_cnn9, published_resnet20
from scs_eval.benchmarks.rohrer_layer import ChannelSumSCS, published_rohrer
from scs_eval.benchmarks.work import batch, forward, laid_out, step
from scs_eval.models.architectures.bcos_cnn import gamma
from scs_eval.models.zoo.registry import create_model

SUITE = "layers"
ROHRER = {"rohrer100k": ((32, 64, 128), 2048), "rohrer583k": ((80, 160, 320), 5120)}
TASKS: dict[str, Callable[..., None]] = {"training step": step, "forward": forward}
AS_PUBLISHED = "published"
# What stands in the way, by contender, where a row is missed.
WHY = {
    AS_PUBLISHED: "at this size convolution is most of both",
    "port": "convolution itself would not reach it: multiply with the row against the twin",
    "conv": "of a layer without pooling every response has a logarithm and a power, both ways",
    "twin": "every response is multiplied by its cosine before it is pooled, both ways",
}
TWICE = "it has twice the kernels"
Goals = Mapping[str, tuple[float, bool, str]]  # contender -> what to reach, whether we should be faster, its full name


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """All lines of the table, one at a time."""
    for size, shape in ROHRER.items():
        yield from _sharpened(size, *shape, settings)
    yield from _scs_resnet(settings)
    yield from _compiled_resnet(settings, say)
    yield from _bcos_rohrer(settings)
    yield from _bcos(settings, say)
    yield from _memory(settings, say)


def _sharpened(size: str, channels: tuple[int, int, int], features: int, settings: Settings) -> Iterator[Target]:
    models = {
        AS_PUBLISHED: published_rohrer(channels, features),
        "port": published_rohrer(channels, features, ChannelSumSCS),
        "ours": create_model(f"{size}_scs"),
        "conv": create_model(f"{size}_conv"),
    }
    for task, published, port in (("training step", 4.0, 3.6), ("forward", 4.5, 2.3)):
        goals = {
            AS_PUBLISHED: (published, True, "Rohrer's layer as published"),
            "port": (port, True, "port with the channels' sum"),
            "conv": (1.2, False, "conv twin"),
        }
        yield from _compare(f"{size}_scs", task, models, goals, settings)


def _scs_resnet(settings: Settings) -> Iterator[Target]:
    models = {"ours": create_model("resnet20_scs_relu"), "conv": create_model("resnet20_conv")}
    yield from _compare("resnet20_scs_relu", "training step", models, {"conv": (1.4, False, "conv twin")}, settings)


def _compiled_resnet(settings: Settings, say: Say) -> Iterator[Target]:
    models = {"ours": create_model("resnet20_scs_relu"), "conv": create_model("resnet20_conv")}
    for model in models.values():
        model.compile()
    goals = {"conv": (1.4, False, "conv twin, compiled too")}
    try:
        yield from _compare("resnet20_scs_relu, compiled", "training step", models, goals, settings)
    except Exception as error:  # inductor raises its own kinds where there is no C++ compiler
        if "compile" not in f"{type(error).__module__} {error}".lower() and "inductor" not in str(error).lower():
            raise
        say("torch.compile does not work here (it needs a C++ compiler): its row is left out")


def _bcos_rohrer(settings: Settings) -> Iterator[Target]:
    ours = create_model("rohrer100k_bcos")
    goals = {"twin": (1.25, False, "plain convolution, same kernels")}
    models = {"ours": ours, "twin": plain_twin(ours)}
    yield from _compare("rohrer100k_bcos", "training step", models, goals, settings)


def _bcos(settings: Settings, say: Say) -> Iterator[Target]:
    published: dict[str, Callable[[], nn.Module]] = {
        "bcos_cnn9": partial(published_cnn9, gamma(2.0)),
        "resnet20_bcos": published_resnet20,
    }
    for name, peer in published.items():
        ours = create_model(name)
        models = {"ours": ours, "twin": plain_twin(ours)}
        goals = {"twin": (1.25, False, "plain convolution, same kernels")}
        if name == "resnet20_bcos":
            models["conv"] = create_model("resnet20_conv")
            goals["conv"] = (1.25, False, "resnet20_conv: half the kernels")
        try:
            models = {AS_PUBLISHED: peer(), **models}
            goals = {AS_PUBLISHED: (1.2, True, "package bcos"), **goals}
        except ModuleNotFoundError:
            say(f"the package bcos is not installed: {name} is compared without it (pip install bcos)")
        for task in TASKS:
            yield from _compare(name, task, models, goals, settings)


def _compare(
    name: str, task: str, models: Mapping[str, nn.Module], goals: Goals, settings: Settings
) -> Iterator[Target]:
    """A contest and a line for each model that ours has a goal against.

    Two at a time: a slow third one would empty the cache for whoever comes after it.
    """
    x, y = batch(settings.batch)
    contenders: dict[str, Contender] = {}
    for label, model in models.items():
        # Published as it is; everything else in the layout it is trained in.
        placed, images = laid_out(model, x, channels_last=label != AS_PUBLISHED)
        contenders[label] = partial(TASKS[task], placed.train(task == "training step"), images, y)
    for label, (goal, faster, against) in goals.items():
        seconds = contest({name: contenders[name] for name in ("ours", label)}, rounds=settings.rounds)
        yield Target(
            suite=SUITE,
            what=f"{name}: {task}",
            against=against,
            goal=goal,
            faster=faster,
            ours=seconds["ours"],
            theirs=seconds[label],
            why=TWICE if "half the kernels" in against else WHY.get(label, ""),
        )


def _memory(settings: Settings, say: Say) -> Iterator[Target]:
    if not can_measure():
        say("peak memory can only be measured on Linux: its rows are left out")
        return
    for ours, theirs in (("rohrer100k_scs", "rohrer100k_conv"), ("resnet20_scs_relu", "resnet20_conv")):
        peaks = {
            name: tuple(step_peak(name, images=settings.batch, threads=settings.threads) for _ in range(3))
            for name in (ours, theirs)
        }
        yield Target(
            suite=SUITE,
            what=f"{ours}: peak memory of a training step",
            against="conv twin",
            goal=1.6,
            faster=False,
            ours=peaks[ours],
            theirs=peaks[theirs],
            unit="MB",
        )


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How a forward pass grows with the images and with their size, and how memory does not with the images."""
    with torch.no_grad():
        yield grow(
            SUITE,
            "rohrer100k_scs: forward",
            "images",
            {n: _forward("rohrer100k_scs", n, 32) for n in (64, 128, 256, 512, 1024)},
            rounds=settings.rounds,
        )
        yield grow(
            SUITE,
            "resnet20_scs_relu: forward, 16 images",
            "pixels on a side",
            {side: _forward("resnet20_scs_relu", 16, side) for side in (32, 48, 64, 96, 128)},
            rounds=settings.rounds,
        )
    if can_measure():
        yield _memory_growth(settings)


def _forward(name: str, images: int, side: int) -> Contender:
    model, x = laid_out(create_model(name).eval(), batch(images, side)[0])
    return lambda: model(x)


def _memory_growth(settings: Settings) -> Growth:
    counts = [n for n in (500, 1000, 2000, 5000, 10_000) if n <= settings.most_images]
    return Growth(
        suite=SUITE,
        what="rohrer100k_scs: memory of accuracy, besides the images",
        counted="images",
        sizes=tuple(map(float, counts)),
        cost=tuple(
            median(analysis_peak("rohrer100k_scs", n=n, threads=settings.threads) for _ in range(3)) for n in counts
        ),
        unit="MB",
    )
