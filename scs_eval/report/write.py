"""A result on disk: tables, figures, arrays and how they were made, replaced whole or not at all."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scs_eval.analyses.core.parallel import is_main_process
from scs_eval.analyses.core.result import Result
from scs_eval.errors import InputError
from scs_eval.files import FULL, write_text
from scs_eval.report.factors import with_factors
from scs_eval.report.folder import FILES, RUN, check_target, list_files, replacing
from scs_eval.report.markdown import markdown
from scs_eval.report.provenance import provenance, with_provenance


class FigureError(RuntimeError):
    """A figure could not be drawn; everything else is written."""


class NoSpaceError(FigureError, InputError):
    """There was no room for a figure; everything else is written."""


def join_errors(failures: Sequence[FigureError], out: str | Path) -> FigureError:
    """One error for all figures that are missing in a folder."""
    kind = NoSpaceError if any(isinstance(error, NoSpaceError) for error in failures) else FigureError
    return kind(f"{'; '.join(map(str, failures))}; everything else is in {out}")


def write_result(
    result: Result,
    out: str | Path,
    *,
    command: Sequence[str] = (),
    beside: Callable[[Path, dict[str, Any]], None] | None = None,
    failures: list[FigureError] | None = None,
) -> Path:
    """Write a result into the directory `out` and return it.

    table.csv (and what else `tables` has; with layer, activation and pooling of zoo networks, and where the images
    came from), table.md (the summary), figure.png and .pdf, of a chart .svg as well (and what else `figures` has),
    arrays.npz and result.json (from which `load_result` makes the result again), run.json (how it was made).
    beside: writes further files into the directory that it is given, with what run.json will say.
    failures: takes the error of a figure that cannot be drawn; without it that raises once all else is written.
    A result that is there already is replaced whole, once the new one is complete; anything else is left alone.

    >>> import scs_eval, tempfile
    >>> result = scs_eval.accuracy("rohrer25k_scs", scs_eval.load_data("sample", n=10))
    >>> folder = scs_eval.write_result(result, tempfile.mkdtemp() + "/accuracy")
    >>> {"table.csv", "table.md", "figure.png", "result.json", "run.json"} <= {path.name for path in folder.iterdir()}
    True
    """
    if not is_main_process():
        return Path(out)
    target, failed = check_target(out), [] if failures is None else failures
    with replacing(target) as directory:
        result.save(directory)
        for name, frame in result.tables().items():
            table = with_provenance(with_factors(frame), result.settings)
            write_text(directory / f"{name}.csv", table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
        write_text(directory / "table.md", markdown(result.summary()))
        run = provenance(result.settings, command=command) | {"seconds": result.seconds_taken()}
        _write_figures(result, directory, failed)
        if beside is not None:
            beside(directory, run)
        run[FILES] = sorted({RUN, *list_files(directory)})
        write_text(directory / RUN, json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    if failed and failures is None:
        raise join_errors(failed, out)
    return Path(out)


def _write_figures(result: Result, directory: Path, failures: list[FigureError]) -> None:
    """PNG and PDF of every figure, of charts SVG as well; what cannot be drawn is no reason to lose the tables."""
    import matplotlib

    from scs_eval.report.html.figures import is_chart, write_svg

    try:
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # TrueType: text in the PDF stays text, as publishers ask
            for name, figure in result.figures().items():
                with _whole(directory / f"{name}.png") as path:
                    figure.savefig(path, dpi=200)
                # Without the date, the same result gives the same file.
                with _whole(directory / f"{name}.pdf") as path:
                    figure.savefig(path, metadata={"CreationDate": None})
                with _whole(directory / f"{name}.svg") as path:
                    if is_chart(figure):
                        write_svg(figure, path)
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in FULL
        why = "no room; make some or choose another --out" if full else f"{type(error).__name__}: {error}"
        line = f"a figure of {result.name} could not be drawn ({' '.join(why.split())[:200]})"
        failures.append(NoSpaceError(line) if full else FigureError(line))


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """The path, to write to; after an exception there is no half of a file."""
    try:
        yield path
    except Exception:
        path.unlink(missing_ok=True)
        raise
