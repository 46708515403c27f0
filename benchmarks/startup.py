"""How long the command line takes to answer at all."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest

SUITE = "startup"


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """`scs-eval --help` against importing the two libraries that it cannot do without."""
    run = partial(subprocess.run, check=True, capture_output=True)
    seconds = contest(
        {
            "ours": partial(run, [sys.executable, "-m", "scs_eval", "--help"]),
            "theirs": partial(run, [sys.executable, "-c", "import click, rich"]),
        },
        rounds=max(settings.rounds, 15),
    )
    yield Target(
        suite=SUITE,
        what="scs-eval --help",
        against='python -c "import click, rich"',
        goal=1.5,
        faster=False,
        ours=seconds["ours"],
        theirs=seconds["theirs"],
    )


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """Nothing here grows."""
    return iter(())
