"""What can be chosen about the grid pointing game. No torch here: the command line makes its options of these."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.errors import InputError, check_positive
from scs_eval.progress import Progress

SIDE, COUNT = 3, 500
BCOS_V2 = "bcos-v2"

Setting = Literal["grid", "difull", "dipart"]
Protocol = Literal["paper", "bcos-v2"]
Look = Literal["auto", "whole", "windows"]
Order = Literal["random", "confident"]


@dataclass(frozen=True)
class LocalisationOptions:
    """How mosaics are seen and scored; the text of each annotation is the help of the option of that name.

    checkpoint: file that an interrupted run goes on from. progress: called with how many more mosaics are done; if it
    has a method `resume(count)`, that one is told what an interrupted run had done.

    >>> import scs_eval
    >>> scs_eval.LocalisationOptions(smooth=5).protocol
    'paper'
    """

    setting: Annotated[
        Setting,
        "The pointing game, or one where a class's logit cannot depend on other cells (at all; but at the edges).",
    ] = "grid"
    protocol: Annotated[
        Protocol,
        "bcos-v2: grids, order of cells and arithmetic of the B-cos authors' code; every model has its own grids.",
    ] = "paper"
    smooth: Annotated[
        int | None,
        "Side of the smoothing kernel.  [default: 3 at 32 pixels, 15 at 224; 1 for gradcam, normgrad and rollout, "
        "and in difull and dipart]",
    ] = None
    top: Annotated[float | None, "Also score only the N strongest pixels, or a share of them such as 0.025."] = None
    look: Annotated[
        Look,
        "At the whole grid, or through windows of the model's own size; auto: whole if the model can and has no "
        "attention.",
    ] = "auto"
    stride: Annotated[int | None, "Step of the windows.  [default: half their side, where that is whole]"] = None
    square: Annotated[int | None, "Side of occlusion's square.  [default: a sixth of an image's side]"] = None
    channels: Annotated[
        Literal[3, 6] | None,
        "6: gradients and hidden parts of what enters a network that encodes [x, 1−x], as for the published B-cos "
        "networks.  [default: 3; 6 with --protocol bcos-v2]",
    ] = None
    batch_size: Annotated[int | None, "Grids at once.  [default: what fits into memory]"] = None
    checkpoint: str | Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse what no model could be asked."""
        check_fields(self)
        if self.smooth is not None:
            check_smooth(self.smooth)
        if self.top is not None:
            check_positive(top=self.top)
        check_at_least(1, stride=self.stride, square=self.square, batch_size=self.batch_size)


@dataclass(frozen=True)
class MosaicOptions:
    """Which images make which mosaic.

    >>> import scs_eval
    >>> scs_eval.MosaicOptions(side=2, count=4).protocol
    'paper'
    """

    side: Annotated[int | None, "Cells per side.  [default: 3, or as replayed]"] = None
    count: Annotated[int | None, "Mosaics to make, as far as there are images.  [default: 500, or as replayed]"] = None
    replay: Annotated[Path | None, "Replay grids.csv of a result (with a count its first)."] = None
    own: Annotated[bool, "Let each model have mosaics of its own, of what it has right itself."] = False
    protocol: Annotated[Protocol, "bcos-v2: as the B-cos authors' code chooses; every model has its own."] = "paper"
    order: Annotated[
        Order,
        "Images drawn at random from those that every model has right, or the most confident first, as published "
        "(whose first grids are the easiest).",
    ] = "random"

    def __post_init__(self) -> None:
        """Refuse what no images could make."""
        check_fields(self)
        if self.side not in (None, 2, 3):
            raise InputError(f"expected grids of 2 × 2 or 3 × 3, got {self.side} × {self.side}")
        check_at_least(1, count=self.count)

    @property
    def each_its_own(self) -> bool:
        """Whether models have different mosaics."""
        return self.own or self.protocol == BCOS_V2


def check_smooth(smooth: int) -> None:
    """Raise unless a kernel of that side has a middle."""
    if smooth < 1 or smooth % 2 == 0:
        raise InputError(f"expected an odd kernel of at least 1 pixel to smooth with, got {smooth}")
