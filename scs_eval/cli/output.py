"""Where an analysis runs and where its result goes: the options --out and --device, and what happens at the end."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from scs_eval.analyses.result import Result
    from scs_eval.data import ImageData

Function = TypeVar("Function", bound=Callable[..., Any])

out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Where the result goes.  [default: results/<analysis>/<model>]"
)
device_option = click.option(
    "--device", default="auto", show_default=True, help="Where to compute: cpu, cuda, cuda:1, mps; auto takes a GPU."
)


def output_options(function: Function) -> Function:
    """Add --out and --device; the command receives out and device."""
    return device_option(out_option(function))


@contextmanager
def shared_work() -> Iterator[None]:
    """Inside, the analyses share their work with torchrun's other processes, of which only the first talks."""
    from scs_eval.analyses.shards import leads, sharing

    with sharing():
        if leads():
            yield
            return
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            yield


def choose_device(name: str) -> str:
    """The device, if this machine has it; for auto a GPU, else the CPU. From here on the command shares its work.

    Of several processes on a machine, auto and cuda give each a GPU of its own as far as there are any.
    """
    import torch

    from scs_eval.errors import InputError

    if (context := click.get_current_context(silent=True)) is not None:
        context.with_resource(shared_work())
    mps = torch.backends.mps.is_available()
    if name in ("auto", "cuda") and torch.cuda.is_available():
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}" if several else "cuda"
    if name == "auto":
        return "mps" if mps else "cpu"
    there = ["cpu", *(["mps"] if mps else []), *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if name not in there:
        raise InputError(f"expected a device of this machine ({', '.join(there)}), got {name!r}")
    return name


def choose_out(out: Path | None, *, analysis: str, names: Sequence[str]) -> Path:
    """The directory for the result, checked before the work: --out, or results/<analysis>/<what was asked for>."""
    from scs_eval.report.write import check_target

    chosen = out or Path("results", analysis, folder_name(names))
    check_target(chosen)
    return chosen


def folder_name(names: Sequence[str]) -> str:
    """What was asked for as the name of a folder: a path's or pattern's special characters become dashes."""
    parts = (re.sub(r"[^\w.=]+", "-", name).strip("-.") for name in names)
    return "+".join(part for part in parts if part)[:120] or "all"


def data_settings(data: "ImageData", *, seed: int) -> dict[str, Any]:
    """What a result depends on in its images: where from, how many, which, and the seed that chose them."""
    from scs_eval.report.provenance import fingerprint

    return {"data": data.source, "n": len(data), "indices_sha256": fingerprint(data.indices), "seed": seed}


def finish(result: "Result", out: Path) -> None:
    """Write the result; print its summary and, last, where it is."""
    from scs_eval.analyses.shards import wait_for_all
    from scs_eval.report.markdown import markdown
    from scs_eval.report.write import write

    path = write(result, out, command=["scs-eval", *sys.argv[1:]])
    click.echo(markdown(result.summary()))
    click.echo(path)
    wait_for_all()  # what is written now makes unfinished work superfluous
