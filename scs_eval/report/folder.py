"""The folder of a result: which files in it are ours, whether a result may be written there, and how it is replaced.

Ours is what the manifest in run.json names, and nothing else: all files, those of folders inside too.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scs_eval.errors import InputError
from scs_eval.files import PENDING, exchange, remove_leftovers, remove_tree, sync, temporary_path

RUN = "run.json"
FILES = "files"
LEAST = 1_000_000  # bytes: what the tables, arrays and figures of a small result take


def check_target(out: str | Path) -> Path:
    """The directory, absolute, if a result may and can be written there; worth asking before the work is done."""
    try:
        target = Path(out).expanduser().resolve()
        if target.exists() and not target.is_dir():
            raise InputError(f"expected a directory to write to, {out} is a file; choose another --out")
        if target.is_dir():
            remove_leftovers(target)
            _move_up(target)
        if foreign := foreign_file(target):
            raise InputError(f"{out} holds {foreign}, which is not part of a result; choose another --out")
        _staging(target, next(parent for parent in target.parents if parent.exists())).rmdir()
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
    except (RuntimeError, ValueError) as error:  # a link that leads to itself, no such user, a null byte
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot write to {out}: {error}; choose another --out") from error
    return target


def check_space(target: Path) -> None:
    """Raise if the disk is so full that no result fits; worth asking before the work is done."""
    above = next(path for path in (target, *target.parents) if path.exists())
    disk = shutil.disk_usage(above)
    if disk.total and disk.free < LEAST:  # some network drives say 0 of both
        raise InputError(
            f"{target} has room for {disk.free / 1000:,.0f} kB, expected {LEAST / 1000:,.0f} kB at least; "
            "make room or choose another --out"
        )


def available_target(out: Path) -> Path:
    """`out`, or a name beside it if somebody put files there since it was checked: finished work is never lost."""
    numbered = (out.with_name(f"{out.name}-{number}") for number in range(2, 1000))
    for target in (out, *numbered):
        with suppress(InputError):
            check_target(target)
            return target
    return out


def list_files(directory: Path) -> set[str]:
    """Everything in a directory that is no directory, and every empty directory, as paths with /."""
    names = set()
    for path in directory.rglob("*"):
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            names.add(path.relative_to(directory).as_posix())
    return names


def owned_files(directory: Path) -> set[str]:
    """What the manifest names. Version 0.1 named folders; then the folder's own manifest says what is in it."""
    if not (named := _named(directory / RUN)):
        return set()
    folders = {path.name for path in directory.iterdir() if path.name in named and (path / RUN).exists()}
    return named | {f"{folder}/{name}" for folder in folders for name in owned_files(directory / folder)}


def _named(manifest: Path) -> set[str]:
    try:
        return set(map(str, json.loads(manifest.read_text(encoding="utf-8"))[FILES]))
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def foreign_file(directory: Path) -> str | None:
    """A file in the directory that no earlier result wrote."""
    if not directory.is_dir():
        return None
    return min(list_files(directory) - owned_files(directory), default=None)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new directory that takes the place of the target on leaving, and vanishes after an exception.

    There is an earlier or the new result under the target's name at every moment, whatever kills the process.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    new = _staging(target, target.parent)
    try:
        yield new
        for path in (*new.rglob("*"), new):
            sync(path)
        _take_place(new, target)
        sync(target.parent)
    finally:
        remove_tree(new)


def _staging(target: Path, above: Path) -> Path:
    """An empty directory beside the target; inside it if nothing can be made there (the target is a mounted volume)."""
    beside = above / temporary_path(target).name
    try:
        beside.mkdir()
    except OSError:
        if not target.is_dir():
            raise
        beside = temporary_path(target / "inside")
        beside.mkdir()
    return beside


def _take_place(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    owned = owned_files(target)
    if exchange(new, target):  # now `new` is the old one
        _remove(new, owned)
        _bring_back(new, target)
    else:
        _replace_files(new, target)


def _replace_files(new: Path, target: Path) -> None:
    """File by file, where two names cannot be swapped: a mounted volume, some file systems.

    The whole result is inside the target under one name before the first file is replaced. What a kill leaves then is
    finished by the next one who writes there, and `newest` reads it until then.
    """
    _move_up(target)
    try:
        new.rename(target / PENDING)
    except OSError:  # of another file system
        inside = temporary_path(target / "inside")
        try:
            _copy(new, inside)
            inside.rename(target / PENDING)
        finally:
            remove_tree(inside)
    sync(target)
    _move_up(target)


def _copy(new: Path, inside: Path) -> None:
    for path in filter(Path.is_file, new.rglob("*")):
        copy = inside / path.relative_to(new)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        sync(copy)


def _move_up(target: Path) -> None:
    """Let the files in PENDING take their places, the manifest last: it is there as long as something is to be done."""
    pending = target / PENDING
    if not pending.is_dir():
        return
    if (pending / RUN).exists():
        wanted = _named(pending / RUN)
        for name in sorted((wanted & list_files(pending)) - {RUN}):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process writes there too, and was quicker
                (pending / name).replace(target / name)
        _remove(target, owned_files(target) - wanted)
        with suppress(FileNotFoundError):
            (pending / RUN).replace(target / RUN)
    _remove_empty(pending)


def _remove_empty(directory: Path) -> None:
    """Remove a folder and those inside, unless somebody's file is in it."""
    for folder in sorted((path for path in directory.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        directory.rmdir()


def _remove(directory: Path, names: set[str]) -> None:
    """Remove files, and the folders that are empty then."""
    for name in names & list_files(directory):
        with suppress(OSError):
            (directory / name).rmdir() if (directory / name).is_dir() else (directory / name).unlink()
    folders = {parent for name in names for parent in Path(name).parents if parent != Path()}
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):  # somebody's file is in it
            (directory / folder).rmdir()


def _bring_back(old: Path, target: Path) -> None:
    """What somebody put into the old folder at the last moment."""
    for name in list_files(old):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (old / name).rename(path if not path.exists() else path.with_name(f"{path.name}.old"))
