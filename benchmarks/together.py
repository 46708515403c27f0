"""A comparison, and a study, against their analyses run one by one, each by its own command: what is shared is saved.

Whole commands, as they are typed, with the sizes that a comparison or a study has by itself: programs start, networks
are loaded, tables and figures are written, the page of all included.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from scs_eval.analyses.catalogue import compared
from scs_eval.analyses.compare import compare
from scs_eval.analyses.study.plan import read_plan
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest, grow
from scs_eval.data import load_data

SUITE = "together"
MODELS = ("rohrer100k_scs", "rohrer100k_conv")
POOL = 1000  # images of a comparison, from which its analyses take theirs
EPS = "0.5/255:8/255:16"  # of a comparison
STUDY = "scs-paper"
ROUNDS = 1  # it takes minutes
GROWING = ("rohrer25k_conv", "rohrer25k_scs", "rohrer47k_conv", "rohrer47k_scs")
COMMAND = (sys.executable, "-m", "scs_eval")


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """A comparison of two networks, and a quick study of all that its plan names."""
    why = "by the catalogue's costs nearly all of it is attacks and noise of one network, of no use to another"
    yield _against(("compare", *MODELS), alone(), settings, why)
    why = "its parts share the maps of the networks that are in two of them; the attacks are each network's own"
    yield _against(("study", STUDY, "--quick"), studied_alone(), settings, why)


def _against(words: tuple[str, ...], apart: Sequence[tuple[str, ...]], settings: Settings, why: str) -> Target:
    """One command against several."""
    with tempfile.TemporaryDirectory() as folder:
        outs = (Path(folder) / f"{number}" / "results" for number in count())

        def run_apart() -> None:
            for others in apart:
                _run(*others, out=next(outs), threads=settings.threads)

        seconds = contest(
            {"ours": lambda: _run(*words, out=next(outs), threads=settings.threads), "theirs": run_apart},
            rounds=min(ROUNDS, settings.rounds), warmup=0,
        )  # fmt: skip
    return Target(
        suite=SUITE, what=" ".join(words), against="its analyses run alone, in sum", goal=0.8, faster=False,
        ours=seconds["ours"], theirs=seconds["theirs"], why=why,
    )  # fmt: skip


def alone() -> list[tuple[str, ...]]:
    """The words of a command for each analysis of a comparison; what has none of its own is compared alone."""
    commands: list[tuple[str, ...]] = []
    for name, entry in compared().items():
        if not entry.command:
            commands.append(("compare", *MODELS, "--analyses", name))
            continue
        options = ("--eps", EPS) if name == "pgd" else ("--method", "wx") if "method" in entry.needs else ()
        commands.append((name, *MODELS, *options, *(("-n", str(entry.size)) if entry.size else ())))
    return commands


def studied_alone() -> list[tuple[str, ...]]:
    """The words of a command for each analysis of each part of the quick study."""
    plan = read_plan(STUDY).quickened()
    commands: list[tuple[str, ...]] = []
    for part in plan.parts:
        for name, size in part.sizes.items():
            attacks = ("--eps", plan.eps, *(() if part.needs_twins else ("--no-scorecard",))) if name == "pgd" else ()
            for models, weights in ((part.models, ()), (part.untrained, ("--weights", "none"))):
                if models:
                    commands.append((name, *models, *attacks, *weights, "-n", str(size)))
    return commands


def _run(*words: str, out: Path, threads: int) -> None:
    _finish([*COMMAND, *words, "--out", str(out)], threads)


def _finish(words: Sequence[str], threads: int) -> None:
    done = subprocess.run(words, capture_output=True, text=True, env=_environment(threads))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"{' '.join(words[3:5])}: {lines[-1]}")


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads)}


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How a comparison grows with the networks, and how a command shrinks with the processes that share it."""
    data = load_data("sample", n=100)
    work = {
        number: partial(compare, {name: name for name in GROWING[:number]}, data, analyses=["accuracy", "saliency"])
        for number in (1, 2, 4)
    }
    rounds = max(1, settings.rounds // 3)
    yield grow(SUITE, f"compare, accuracy and saliency of {len(data)} images", "models", work, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        outs = (Path(folder) / f"{number}" / "results" for number in count())

        def shared(processes: int) -> None:
            launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes))
            words = ("pgd", MODELS[0], "--eps", "0.001:0.03", "--no-scorecard", "--out", str(next(outs)))
            _finish([*launcher, "-m", "scs_eval", *words], 1)

        numbers = range(1, settings.threads + 1)
        sharing = {number: partial(shared, number) for number in numbers}
        if len(sharing) > 1:
            yield grow(SUITE, f"{MODELS[0]}: pgd of 500 images, a thread each", "processes", sharing, rounds=1)
