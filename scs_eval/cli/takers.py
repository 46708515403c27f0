"""Which of several models --arch, --weights and --normalize are for: those that cannot do without."""

from collections.abc import Sequence
from pathlib import Path

from scs_eval.errors import InputError

NONE = "none"  # --weights none: every network untrained


def takers_of_arch(sources: Sequence[str]) -> set[str]:
    """Files; of several, those that do not say themselves what they hold."""
    files = {source for source in sources if _is_file(source)}
    return files if len(files) == 1 else {source for source in files if not _says(source)}


def takers_of_weights(sources: Sequence[str], weights: str) -> set[str]:
    """Whatever is no file itself; a file of weights is for one of them, and if there are several for the untrained."""
    from scs_eval.models.checkpoints import weights_index

    others = {source for source in sources if not _is_file(source)}
    if weights == NONE:
        return others
    if len(others) > 1:
        others = {source for source in others if source not in weights_index()}
    if len(others) != 1:
        found = f"got {len(others)} ({', '.join(sorted(others))})" if others else "got none"
        raise InputError(f"expected one model that the file of --weights is for, {found}; give files by themselves")
    return others


def takers_of_normalize(sources: Sequence[str], filled: set[str]) -> set[str]:
    """Networks from elsewhere, and zoo networks `filled` with a file: ours have their normalisation inside."""
    found = {
        source for source in sources if source in filled or (not _says(source) if _is_file(source) else ":" in source)
    }
    if not found:
        raise InputError("--normalize is for networks from elsewhere; those asked for have theirs inside")
    return found


def _is_file(source: str) -> bool:
    from scs_eval.models.checkpoints import is_file

    return is_file(source)


def _says(source: str) -> bool:
    """Whether a file says which network it holds."""
    from scs_eval.models.state_files import metadata_of

    return not metadata_of(Path(source)).keys().isdisjoint(("name", "converted"))
