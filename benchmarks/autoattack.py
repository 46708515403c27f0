"""`--attack autoattack` at a fixed ε against torchattacks' AutoAttack: robust accuracy and CPU time, in turns."""

import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import AUTOATTACK, parse_attacks
from scs_eval.analyses.attacks.sweep import sweep
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model

SUITE = "autoattack"
MODELS = ("rohrer100k_conv", "rohrer100k_scs")
EPS = (4, 2, 1)  # 255ths, the quickest first
IMAGES = 200
FASTER, POINTS = 3.0, 0.5  # goals


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """Both attack the same images of the sample, wrong ones included."""
    try:
        import torchattacks
    except ModuleNotFoundError:
        say("torchattacks is not installed: autoattack is compared with nothing (pip install 'scs-eval[attacks]')")
        return
    data = load_data("sample", n=IMAGES)
    for name in MODELS:
        model = load_model(name).eval()
        for eps in EPS:
            yield from _against(torchattacks, model, data.images[:], data.labels, eps / 255, f"{name}, ε = {eps}/255")


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """None: it is asked at single ε."""
    return iter(())


def _against(
    torchattacks: Any, model: nn.Module, images: Tensor, labels: Tensor, eps: float, what: str
) -> Iterator[Target]:
    start = time.process_time()
    swept = sweep(model, images, labels, [eps], attacks=parse_attacks(AUTOATTACK))
    middle = time.process_time()
    theirs = _still_right(torchattacks, model, images, labels, eps)
    end = time.process_time()
    ours = torch.from_numpy(~swept.is_adversarial[:, 0])
    what = f"{what}, {len(images)} images"
    common: Any = {"suite": SUITE, "against": "torchattacks.AutoAttack"}
    yield Target(
        **common, what=f"{what}: CPU time", goal=FASTER, faster=True, ours=(middle - start,), theirs=(end - middle,),
        why="both ask the network as often: Square 5,000 times for every image that is left, which is most of it",
    )  # fmt: skip
    shares = [100 * float(right.float().mean()) for right in (ours, theirs)]
    yield _points(
        f"{what}: robust accuracy {shares[0]:.1f} %, theirs {shares[1]:.1f} %: apart by", abs(shares[0] - shares[1]),
        why="ours breaks images that theirs leaves" if shares[0] < shares[1] else "",
    )  # fmt: skip
    yield _points(f"{what}: broken by theirs and not by ours", 100 * float((ours & ~theirs).float().mean()))


def _points(what: str, points: float, *, why: str = "") -> Target:
    return Target(
        suite=SUITE, what=what, against="torchattacks.AutoAttack", goal=POINTS, faster=False, ours=(points,),
        theirs=(1.0,), unit="points", why=why,
    )  # fmt: skip


def _still_right(torchattacks: Any, model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """(n,) which images are right and stay so."""
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    with redirect_stdout(StringIO()), torch.enable_grad():  # it reports every restart
        attacker = torchattacks.AutoAttack(model, norm="Linf", eps=eps, version="standard", n_classes=10, seed=0)
        attacked = attacker(images[right], labels[right])
    with torch.no_grad():
        right[right.clone()] = model(attacked).argmax(1) == labels[right]
    return right
