"""Peak memory of commands on a folder of large images, and accuracy's time beside a plain DataLoader loop.

`python -m scs_eval.benchmarks.streaming FOLDER`: the folder has class folders with ImageNet's names. Every command is a
process of its own, and each of its processes is watched by itself. The network of `accuracy` is torchvision's ResNet-18
without weights; the others need images that are right, and get one whose head was fitted to a few of them.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import torch
from torch import Tensor, nn

MODEL = "torchvision:resnet18"
SMALL = "scs_eval.benchmarks.streaming:SmallNetwork"
BATCH = 45  # what accuracy takes of such images by itself
PLAIN = """
import sys
import torch
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, models, transforms
folder, count, batch, workers = sys.argv[1], *map(int, sys.argv[2:])
prepare = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
images = datasets.ImageFolder(folder, prepare)
network, right = models.resnet18(weights=None).eval(), 0
with torch.inference_mode():
    for pictures, labels in DataLoader(Subset(images, range(count)), batch, num_workers=workers):
        right += int((network(pictures).argmax(1) == labels).sum())
"""


class Watched(NamedTuple):
    """Seconds until the end, of all processors, until the first word on stderr, and the longest without one after it.

    peak: GB of the largest process.
    """

    seconds: float
    cpu_seconds: float
    first: float
    silence: float
    peak: float


def watch(words: list[str]) -> Watched:
    """Run a program, and look at its processes and its stderr five times a second."""
    start, used, peak, heard = time.perf_counter(), _children(), 0.0, [0.0]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        size = 0
        while process.poll() is None:
            peak = max([peak, *(_peak(pid) for pid in _family(process.pid))])
            if (now := os.fstat(errors.fileno()).st_size) > size:
                size, heard = now, [*heard, time.perf_counter() - start]
            time.sleep(0.2)
        seconds = time.perf_counter() - start
        if process.returncode:
            errors.seek(0)
            raise click.ClickException(errors.read().decode()[-2000:])
    first = heard[1] if len(heard) > 1 else float("nan")
    silence = float(np.diff([*heard[1:], seconds]).max()) if len(heard) > 1 else seconds
    return Watched(seconds, _children() - used, first, silence, peak)


def _children() -> float:
    """Processor seconds of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in threads for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(descendant for child in children for descendant in _family(child))]


def _peak(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 2**20 for line in lines if line.startswith("VmHWM")), 0.0)


class SmallNetwork(nn.Module):
    """One convolution of large patches: it costs less than decoding an image, and has as many classes as ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Conv2d(3, 64, 16, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
        self.features, self.fc = nn.Sequential(*layers), nn.Linear(1024, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, 1000)."""
        return self.fc(self.features(images))


@torch.no_grad()
def fit_head(network: nn.Module, folder: str, path: Path, *, count: int = 1000, batch: int = 40) -> str:
    """A file of weights: random but for norms, at these images' statistics, and the last layer, by least squares.

    So it has all of ImageNet's classes, and is right often enough for attacks and grids to have work to do.
    """
    from scs_eval.data import load_data
    from scs_eval.images import StreamedImages
    from scs_eval.models.loading.external import STATISTICS, Statistics, normalised

    data = load_data(folder, n=count, size=224, resize=256, num_classes=1000)
    assert isinstance(data.images, StreamedImages)
    head, network.fc = network.fc, nn.Identity()
    assert isinstance(head, nn.Linear)
    whole = normalised(network, Statistics(*STATISTICS["imagenet"]))
    batches = [range(start, min(start + batch, count)) for start in range(0, count, batch)]
    for images in data.images.batches(batches[::5]):
        whole.train()(images)
    features = torch.cat([whole.eval()(images) for images in data.images.batches(batches)]).double()
    features = torch.cat([features, torch.ones(count, 1)], 1)
    wanted = 10 * nn.functional.one_hot(data.labels, 1000).double()
    penalty = features.var(0).mean() * torch.eye(features.shape[1]) * count / 100
    solution = torch.linalg.solve(features.T @ features + penalty, features.T @ wanted).T
    head.weight.copy_(solution[:, :-1])
    head.bias.copy_(solution[:, -1])
    network.fc = head
    torch.save(network.state_dict(), path)
    return str(path)


class Medians(NamedTuple):
    """Of some rounds: the medians of two contenders' times, and of their ratio with its range."""

    ours: float
    plain: float
    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: list[float], plain: list[float]) -> "Medians":
        """Of the times of each round."""
        ratios = np.divide(ours, plain)
        return cls(*map(float, (np.median(ours), np.median(plain), np.median(ratios), ratios.min(), ratios.max())))


def take_turns(words: list[str], plain: list[str], *, rounds: int) -> tuple[Medians, Medians]:
    """Both programs in turn, who begins changing: seconds, and seconds of all processors."""
    watched: dict[bool, list[Watched]] = {True: [], False: []}
    for number in range(rounds):
        for first in (number % 2 == 0, number % 2 == 1):
            watched[first].append(watch(words if first else plain))
    mine, theirs = watched[True], watched[False]
    seconds = Medians.of([run.seconds for run in mine], [run.seconds for run in theirs])
    return seconds, Medians.of([run.cpu_seconds for run in mine], [run.cpu_seconds for run in theirs])


OTHERS = {
    "pgd": ["--eps", "1/255,4/255", "--steps", "1", "--no-scorecard"],
    "contributions": [],
    "localisation": ["--images", "{count}", "--grid", "2", "--method", "ixg", "-n", "100"],
    "faithfulness": ["--method", "grad", "--steps", "2"],
}


@click.command()
@click.argument("folder", type=click.Path(exists=True))
@click.option("--accuracy", "many", type=int, default=50_000, show_default=True, help="Images of accuracy.")
@click.option("--others", "fewer", type=int, default=5_000, show_default=True, help="Images of the other analyses.")
@click.option("--timed", type=int, default=2_000, show_default=True, help="Images of each round against a plain loop.")
@click.option("--rounds", type=int, default=5, show_default=True)
@click.option("--small", is_flag=True, help="A network that costs next to nothing instead of ResNet-18.")
@click.option("--only", multiple=True, help=f"Of accuracy, time, {', '.join(OTHERS)}.  [default: all]")
def main(folder: str, many: int, fewer: int, timed: int, rounds: int, small: bool, only: tuple[str, ...]) -> None:
    """Measure and print a line for each."""
    wanted = only or ("accuracy", "time", *OTHERS)
    with tempfile.TemporaryDirectory() as out:
        if "time" in wanted:
            _say_times(folder, out, timed, rounds)
        if "accuracy" in wanted and not small:
            print_row("accuracy", watch(_words("accuracy", folder, out, many, model=MODEL)))
        names = [name for name in OTHERS if name in wanted] + ["accuracy"] * (small and "accuracy" in wanted)
        weights = _fitted(folder, Path(out) / "weights.pt", small=small) if names else ""
        for name in names:
            count = many if name == "accuracy" else fewer
            more = [word.format(count=count) for word in OTHERS.get(name, ())]
            model = SMALL if small else MODEL
            print_row(name, watch(_words(name, folder, out, count, *more, model=model, weights=weights)))


def _fitted(folder: str, path: Path, *, small: bool) -> str:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    return fit_head(SmallNetwork() if small else resnet18(weights=None), folder, path)


def _words(name: str, folder: str, out: str, count: int, *more: str, model: str, weights: str = "none") -> list[str]:
    images = [] if name == "localisation" else ["-n", str(count)]  # whose -n are grids
    network = ["--model", model, "--weights", weights, "--normalize", "imagenet"]
    common = ["--data", folder, "--size", "224", "--out", f"{out}/{name}"]
    return [sys.executable, "-m", "scs_eval", name, *network, *common, *images, *more]


def print_row(name: str, ours: Watched) -> None:
    """A line about one command."""
    click.echo(
        f"{name}: {ours.peak:.2f} GB in its largest process, {ours.seconds:.0f} s ({ours.cpu_seconds:.0f} s of "
        f"processors), first word after {ours.first:.1f} s, longest silence {ours.silence:.0f} s"
    )


def _say_times(folder: str, out: str, count: int, rounds: int) -> None:
    from scs_eval.images import useful_workers

    words = _words("accuracy", folder, out, count, "--batch-size", str(BATCH), model=MODEL)
    plain = [sys.executable, "-c", PLAIN, folder, str(count), str(BATCH), str(useful_workers(count))]
    for what, times in zip(("s", "s of processors"), take_turns(words, plain, rounds=rounds), strict=True):
        click.echo(
            f"{count} images, median of {rounds} rounds: accuracy {times.ours:.1f} {what}, a plain loop "
            f"{times.plain:.1f}, ratio {times.ratio:.2f} ({times.low:.2f} to {times.high:.2f})"
        )


if __name__ == "__main__":
    main()
