"""The kinds of results and their arrays, as docs/results.md lists them: `python -m scs_eval.analyses.core.schema`."""

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.core.storage import KINDS

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result


def result_kinds() -> "dict[str, type[Result]]":
    """Every kind of result of our own analyses, by name."""
    for entry in ENTRIES.values():
        import_module(entry.kinds_module)
    ours = {kind: cls for kind, cls in KINDS.items() if cls.name in ENTRIES}
    return dict(sorted(ours.items()))


def kinds_table() -> str:
    """Markdown: one row per kind, with the axes of its arrays and the names of its other fields."""
    lines = ["| kind | arrays (axes) | other fields |", "|---|---|---|"]
    for kind, cls in result_kinds().items():
        names = [item.name for item in fields(cls)]
        arrays = ", ".join(f"`{name}` ({', '.join(cls.axes[name])})" for name in names if name in cls.axes)
        others = ", ".join(f"`{name}`" for name in names if name not in cls.axes)
        lines.append(f"| `{kind}` | {arrays or 'none'} | {others} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(kinds_table(), end="")
