"""Run commands one after another, each in a folder of its own, and note how much of their work this process did.

`torchrun --nproc-per-node 2 tests/run_commands.py COMMANDS.json OUT` is how test_shards.py does it with two processes.
"""

import json
import os
import sys
from pathlib import Path

from scs_eval.analyses.core import parallel as shards
from scs_eval.cli.main import cli
from scs_eval.report import write


def run(commands: dict[str, list[str]], out: Path) -> dict[str, int]:
    """Name to how many pieces of shared work were done here; nothing is shared by a single process."""
    done = dict.fromkeys(commands, 0)
    own_part, figures = shards._own_part, write._write_figures

    def counted(*work):
        found = own_part(*work)
        done[name] += len(found)
        return found

    shards._own_part, write._write_figures = counted, lambda *_: None  # figures are drawn from what is compared
    try:
        for name, words in commands.items():
            cli.main([*words, "--device", "cpu", "--out", str(out / name)], standalone_mode=False)
    finally:
        shards._own_part, write._write_figures = own_part, figures
    return done


if __name__ == "__main__":
    asked, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    with shards.sharing():  # once for all: the commands join what is there
        counts = run(asked, folder)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(counts))
