"""Peak memory of a piece of work, measured from outside: a process of its own for each, so that none inherits."""

import subprocess
import sys
from pathlib import Path

RESET = Path("/proc/self/clear_refs")

_MEASURE = """
import ctypes, gc, json, sys
from pathlib import Path
from scs_eval.memory import keep_freed_memory
keep_freed_memory()  # as every command does
libc = ctypes.CDLL(None)
def resident(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024
def peak_of(work):
    gc.collect()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # or the work finds room in what was freed before, and seems to need nothing
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    work()
    print(json.dumps(resident("VmHWM") - before))
"""

_STEP = """
import torch
from scs_eval.benchmarks.work import batch, laid_out, step
from scs_eval.models.zoo.registry import create_model
torch.set_num_threads({threads})
images, labels = batch({images})
model, images = laid_out(create_model({name!r}, seed=0), images)
small, few = images[:2].clone(memory_format=torch.channels_last), labels[:2]
step(model, small, few)  # what torch sets up once
peak_of(lambda: [step(model, images, labels) for _ in range(3)])
"""

_ANALYSIS = """
import torch
from scs_eval import load_data, load_model
from scs_eval.analyses.accuracy import accuracy
torch.set_num_threads({threads})
data, model = load_data("sample"), load_model({name!r})
images = data.images.repeat(-(-{n} // len(data)), 1, 1, 1)[:{n}].clone()
labels = data.labels.repeat(-(-{n} // len(data)))[:{n}].clone()
accuracy(model, images[:250], labels[:250], classes=data.classes, label="warm")
peak_of(lambda: accuracy(model, images, labels, classes=data.classes, label="all"))
"""


def can_measure() -> bool:
    """Only Linux tells the peak of a part of a process's life."""
    return RESET.exists()


def step_peak(name: str, *, images: int, threads: int) -> float:
    """Megabytes that three training steps of a model of the zoo need on top of the model itself."""
    return _peak(_STEP.format(name=name, images=images, threads=threads))


def analysis_peak(name: str, *, n: int, threads: int) -> float:
    """Megabytes that the accuracy on n images needs on top of model and images."""
    return _peak(_ANALYSIS.format(name=name, n=n, threads=threads))


def _peak(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", _MEASURE + code], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]  # a killed process says nothing
        raise RuntimeError(f"memory could not be measured: {lines[-1]}")
    return float(done.stdout.split()[-1])
