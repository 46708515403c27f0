"""Files that are there whole or not at all, also after a kill or a crash of the machine, and a lock. No torch here."""

import errno
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from scs_eval.errors import InputError

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:40] or "host"
_TEMPORARY = re.compile(rf"\.scs-eval-[0-9a-f]{{12}}\.{re.escape(_HOST)}\.(\d+)-(\d+)\.\d+")
_COUNTER = count()
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room on the disk, for this user, or in a file
PENDING = ".scs-eval-new"  # in a folder that is being replaced file by file: what has not been moved up yet


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving it takes the place of `path`, after an exception it vanishes."""
    remove_leftovers(path.parent)
    beside = temporary_path(path)
    try:
        yield beside
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: a reader sees the old one or the new one, also after a crash of the machine."""
    with replacing_file(path) as beside:
        beside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """UTF-8; what a path that is not UTF-8 brought in is spelled out (`\\udcff`), as JSON does."""
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def temporary_path(path: Path) -> Path:
    """A hidden path beside `path` that says which process it belongs to; short, however long the name is."""
    import hashlib  # here, as ctypes below: `scs-eval --help` starts without them

    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]
    process = os.getpid()
    return path.with_name(f".scs-eval-{digest}.{_HOST}.{process}-{_start_of(process)}.{next(_COUNTER)}")


def real_path(path: Path) -> Path:
    """The path without symbolic links; of links that run in a circle, some path that cannot be opened."""
    return Path(os.path.realpath(path))


def remove_leftovers(directory: Path) -> None:
    """Remove what processes of this machine left in a directory when they were killed."""
    for path in directory.iterdir():
        if (match := _TEMPORARY.fullmatch(path.name)) and not _is_running(int(match[1]), int(match[2])):
            remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a file or a directory with all that is in it, if it can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def newest(directory: Path, name: str) -> Path:
    """Where a file of a result is, also if a kill interrupted the replacement of the folder file by file."""
    pending = directory / PENDING / name
    return pending if pending.exists() else directory / name


def sync(path: Path) -> None:
    """Have what a file or directory holds on the disk, not only in memory, before going on."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no directories
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exchange(first: Path, other: Path) -> bool:
    """Swap two paths in a single step, if the system can (Linux, on most file systems); whether it did."""
    try:
        import ctypes

        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return swap(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


@contextmanager
def locked(directory: Path, *, busy: str) -> Iterator[None]:
    """Hold the directory's lock, which ends with the process; `busy` is what to say if another process holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / ".scs-eval.lock", blocking=False)
    held = True
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(busy) from error
    except OSError:  # a file system without locks
        held = False
    try:
        yield
    finally:
        if held:
            Path(lock.lock_file).unlink(missing_ok=True)  # while it is ours, so that nobody's lock is removed
            lock.release()


def _is_running(process: int, start: int) -> bool:
    """Whether the process that began then is there; its number alone may be another's now."""
    if os.name == "nt":
        return True  # signal 0 would end it there
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return _start_of(process) in (start, 0)


def _start_of(process: int) -> int:
    """When a process began, in Linux's clock ticks; 0 if that cannot be known."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
