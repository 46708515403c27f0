"""One analysis of one model, as a room's `run` is given it by `compare` or by a command made from the catalogue."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from scs_eval.images import Images


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """The model and everything that an analysis of it may need; `catalogue.Need` says what each analysis uses.

    images: (n, 3, H, W) in [0, 1], perhaps read when used; labels, indices: (n,). method: an attribution. metrics: of
    maps, besides ours. eps: of a sweep by these attacks; shown_eps: those that the summary shows. grids: what
    `shared_mosaics` chose for all models. twin: a convolution twin and its name.
    facts: what is known of the model from elsewhere. options: of this analysis, by name.
    checkpoint: where unfinished work is kept, if anywhere.
    progress: called with the share of this task that is done more.
    """

    model: nn.Module
    label: str
    images: Images
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    seed: int = 0
    method: str = "wx"
    metrics: tuple[Any, ...] = ()
    attacks: tuple[Any, ...] = ("pgd",)
    eps: tuple[float, ...] = ()
    shown_eps: tuple[float, ...] = ()
    grids: Any = None
    twin: tuple[str, nn.Module | None] = ("", None)
    facts: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None
    progress: Callable[[float], None] = lambda share: None

    def named(self) -> dict[str, Any]:
        """What every analysis calls the same."""
        return {"classes": self.classes, "label": self.label}
