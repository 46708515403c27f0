"""Peak memory of commands on a folder of large images, and accuracy's time beside a plain DataLoader loop.

`python -m scs_eval.benchmarks.streaming FOLDER [--accuracy N] [--others N]`: each in a process of its own, the two of
accuracy one after the other. The folder has class folders with ImageNet's names; the network is torchvision's ResNet-18
without weights.
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

MODEL = "torchvision:resnet18"
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
    """Seconds until the end, of all processors, until the first word on stderr; the largest peak of a process in GB."""

    seconds: float
    cpu_seconds: float
    first: float
    peak: float


def watch(words: list[str]) -> Watched:
    """Run a program, and look at its processes five times a second."""
    start, used, peak, first = time.perf_counter(), _children(), 0.0, float("nan")
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            peak = max([peak, *(_peak(pid) for pid in _family(process.pid))])
            if first != first and os.fstat(errors.fileno()).st_size:
                first = time.perf_counter() - start
            time.sleep(0.2)
        if process.returncode:
            errors.seek(0)
            raise click.ClickException(errors.read().decode()[-2000:])
    return Watched(time.perf_counter() - start, _children() - used, first, peak)


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


def write_grids(folder: str, count: int, path: Path, *, grids: int = 10) -> str:
    """A list of grids of four images of different classes, among those that localisation chooses from."""
    from scs_eval.analyses.localisation.mosaics import mosaic_table
    from scs_eval.data import load_data

    data = load_data(folder, n=count, size=224, num_classes=1000)
    cells = torch.arange(len(data))[:: len(data) // (4 * grids)][: 4 * grids].view(grids, 4)
    names = np.array(data.classes)[data.labels[cells].numpy()]
    mosaic_table(2, data.indices[cells].numpy(), names).to_csv(path, index=False)
    return str(path)


@click.command()
@click.argument("folder", type=click.Path(exists=True))
@click.option("--accuracy", "many", type=int, default=50_000, show_default=True, help="Images of accuracy.")
@click.option("--others", "fewer", type=int, default=5_000, show_default=True, help="Images of the other analyses.")
@click.option("--only", multiple=True, help="Of accuracy, pgd, contributions, localisation.  [default: all]")
def main(folder: str, many: int, fewer: int, only: tuple[str, ...]) -> None:
    """Measure and print a line for each."""
    from scs_eval.images import useful_workers

    common = ["--model", MODEL, "--weights", "none", "--data", folder, "--size", "224"]
    commands = {
        "accuracy": ["-n", str(many), "--batch-size", "45"],
        "pgd": ["-n", str(fewer), "--eps", "1/255,4/255", "--steps", "1", "--no-scorecard"],
        "contributions": ["-n", str(fewer)],
        "localisation": ["--images", str(fewer), "--method", "ixg"],
    }
    for name in only or commands:
        with tempfile.TemporaryDirectory() as out:
            if name == "localisation":  # an untrained network is right too seldom to choose grids by
                commands[name] += ["--grids", write_grids(folder, fewer, Path(out) / "grids.csv")]
            words = [sys.executable, "-m", "scs_eval", name, *common, *commands[name], "--out", f"{out}/result"]
            ours = watch(words)
        click.echo(
            f"{name}: {ours.peak:.2f} GB in its largest process, {ours.seconds:.0f} s ({ours.cpu_seconds:.0f} s of "
            f"processors), first word after {ours.first:.1f} s"
        )
        if name == "accuracy":
            plain = watch([sys.executable, "-c", PLAIN, folder, str(many), "45", str(useful_workers(many))])
            times, shares = ours.seconds / plain.seconds, ours.cpu_seconds / plain.cpu_seconds
            click.echo(
                f"a plain loop: {plain.peak:.2f} GB, {plain.seconds:.0f} s ({plain.cpu_seconds:.0f} s of processors); "
                f"accuracy takes {times:.2f} times as long, and {shares:.2f} times the processors"
            )


if __name__ == "__main__":
    main()
