"""What a figure is drawn for: with its caption or without, and how large. Figures ask when they are drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from scs_eval.errors import InputError

SMALLEST, LARGEST = 0.5, 200.0  # inches of a side


@dataclass(frozen=True)
class Page:
    """caption: whether the sentences below a figure are drawn. size: width and height in inches, if not its own."""

    caption: bool = True
    size: tuple[float, float] | None = None


PLAIN = Page()
_PAGE: ContextVar[Page] = ContextVar("page", default=PLAIN)


def current_page() -> Page:
    """What is drawn for now."""
    return _PAGE.get()


@contextmanager
def page(*, caption: bool = True, size: tuple[float, float] | None = None) -> Iterator[None]:
    """Figures drawn inside are for this page; one inside another that says nothing leaves it as it is.

    >>> import scs_eval
    >>> result = scs_eval.accuracy("rohrer25k_scs", scs_eval.load_data("sample", n=10))
    >>> with scs_eval.page(caption=False, size=(3.3, 2.2)):
    ...     figures = result.figures()
    >>> figures["figure"].get_size_inches().tolist()
    [3.3, 2.2]
    """
    outer = _PAGE.get()
    token = _PAGE.set(Page(caption=caption and outer.caption, size=_checked(size) or outer.size))
    try:
        yield
    finally:
        _PAGE.reset(token)


def _checked(size: tuple[float, float] | None) -> tuple[float, float] | None:
    if size is None:
        return None
    try:
        width, height = (float(side) for side in size)
    except (TypeError, ValueError):
        raise InputError(f"expected size as (width, height) in inches, got {size!r:.60}") from None
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise InputError(f"expected size from {SMALLEST:g} to {LARGEST:g} inches, got {width:g} × {height:g}")
    return width, height
