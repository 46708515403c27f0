"""A result on disk: tables, figures, arrays and how they were made, replaced whole or not at all."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scs_eval.analyses.result import Result
from scs_eval.analyses.shards import leads
from scs_eval.errors import InputError
from scs_eval.report.markdown import markdown
from scs_eval.report.provenance import provenance

RUN = "run.json"


def write(
    result: Result,
    out: str | Path,
    *,
    command: Sequence[str] = (),
    beside: Callable[[Path, dict[str, Any]], None] | None = None,
) -> Path:
    """Write a result into the directory `out` and return it.

    table.csv (and what else `tables` has), table.md (the summary), figure.png and .pdf (and what else `figures` has),
    arrays.npz and result.json (from which `load_result` makes the result again), run.json (how it was made).
    beside: writes further files into the directory that it is given, with what run.json will say.
    A result that is there already is replaced whole, once the new one is complete; anything else is left alone.
    """
    if not leads():
        return Path(out)
    target = check_target(out)
    with _replacing(target) as directory:
        result.save(directory)
        for name, frame in result.tables().items():
            frame.to_csv(directory / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
        (directory / "table.md").write_text(markdown(result.summary()), encoding="utf-8")
        _write_figures(result, directory)
        run = provenance(result.settings, command=command)
        if beside is not None:
            beside(directory, run)
        run["files"] = sorted([RUN, *(path.name for path in directory.iterdir())])
        (directory / RUN).write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Path(out)


def check_target(out: str | Path) -> Path:
    """The directory, absolute, if a result may and can be written there; worth asking before the work is done."""
    target = Path(out).expanduser().resolve()
    try:
        if target.exists() and not target.is_dir():
            raise InputError(f"expected a directory to write to, {out} is a file; choose another --out")
        if foreign := _foreign(target):
            raise InputError(f"{out} holds {foreign}, which is not part of a result; choose another --out")
        above = next(parent for parent in target.parents if parent.exists())
        probe = above / f".{target.name}.{os.getpid()}.probe"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
    return target


def _foreign(target: Path) -> str | None:
    """A name in the directory that no earlier result wrote."""
    if not target.is_dir():
        return None
    try:
        known = set(json.loads((target / RUN).read_text(encoding="utf-8"))["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        known = set()
    return next((path.name for path in sorted(target.iterdir()) if path.name not in known), None)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new directory beside the target that takes its place on leaving, and vanishes after an exception."""
    new, old = (target.with_name(f".{target.name}.{os.getpid()}.{role}") for role in ("new", "old"))
    new.mkdir(parents=True)
    try:
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)  # only now that the new one is in place


def _write_figures(result: Result, directory: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"pdf.fonttype": 42}):  # TrueType: text in the PDF stays text, as publishers ask
        for name, figure in result.figures().items():
            figure.savefig(directory / f"{name}.png", dpi=200)
            # Without the date, the same result gives the same file.
            figure.savefig(directory / f"{name}.pdf", metadata={"CreationDate": None})
