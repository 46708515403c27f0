"""What can be chosen about the sweep over ε. No torch here: the command line makes its options of these."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.progress import Progress

Card = Literal["fast", "full"]  # how thorough a scorecard is, as `scs_eval.scorecard` takes it


@dataclass(frozen=True, kw_only=True)
class PgdOptions:
    """How the sweep is made, and what is kept of it; the text of each annotation is the help of that option.

    scorecard: how thorough, None for none. shown: how many images the figure shows. kept: of how many images, from the
    first, the result keeps what the attack added. twin: the convolution network for the scorecard's transfer attack,
    after its name. checkpoint: a file from which an interrupted sweep goes on. progress: is told how many more of
    `runner.count_steps` are done: one for an image, the rest for the scorecard.

    >>> import scs_eval
    >>> scs_eval.PgdOptions(independent=True, kept=10).batch_size
    256
    """

    independent: Annotated[bool, "Attack every ε afresh instead of searching each image's smallest."] = False
    checkpoint_every: Annotated[
        int, "Keep what is done after so many batches; the same command goes on from there."
    ] = 1
    batch_size: Annotated[int, "Images at once."] = 256
    shown: int = 6
    kept: int = 0
    scorecard: Card | None = "fast"
    twin: tuple[str, Any] | None = None
    checkpoint: str | Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse what no sweep could do."""
        check_fields(self)
        check_at_least(1, checkpoint_every=self.checkpoint_every, batch_size=self.batch_size)
        check_at_least(0, shown=self.shown, kept=self.kept)
