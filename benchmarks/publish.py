"""`python -m scs_eval.benchmarks.publish`: measure, and write what the repository and its site show of it.

The tables benchmarks/bench.csv, growth.csv and conditions.csv, and the figure docs/speed.png. Leave the machine alone
meanwhile. The suites strength and autoattack have tables of their own.
"""

from pathlib import Path

from scs_eval.benchmarks.contest import Settings
from scs_eval.benchmarks.result import BenchResult
from scs_eval.benchmarks.run import SUITES, bench
from scs_eval.memory import keep_freed_memory

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = ("strength", "autoattack")
PUBLISHED = tuple(suite for suite in SUITES if suite not in ELSEWHERE)


def publish(result: BenchResult, root: Path = ROOT) -> None:
    """Write tables and figure of a run of all suites."""
    for name, table in result.tables().items():
        path = root / "benchmarks" / f"{ {'table': 'bench'}.get(name, name) }.csv"
        path.write_text(table.to_csv(index=False, float_format="%.6g"), encoding="utf-8")
    result.figure().savefig(root / "docs" / "speed.png", dpi=150)


if __name__ == "__main__":
    keep_freed_memory()  # as every command does
    publish(bench(PUBLISHED, settings=Settings(), tell=print))
