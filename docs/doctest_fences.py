"""Examples in docstrings as code: to Markdown, `>>>` is a quotation in a quotation in a quotation."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?:>>> .*(?:\n(?!\s*$).*)*\n?)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences around examples: from `>>>` to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Whatever has a docstring."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
