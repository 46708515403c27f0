"""Which images a command is asked for, and how they are read; the options of every command are made from it."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import click

from scs_eval.cli.output import say
from scs_eval.cli.params import COUNT, complete_source
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from scs_eval.data import ImageData

EVALUATED = {224: 256}  # pixels of the network: to what the B-cos paper (C.1.2) and torchvision scale the shorter side
ALL_IMAGES = "Take this many images, evenly over the classes.  [default: all]"


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Which images, and how they are read; the options of the command line are made from it."""

    source: Annotated[
        str,
        "Images: sample (bundled), cifar10, cifar100, mnist, fashion-mnist, cifar10-c:CORRUPTION, an image, a folder "
        "of images or of class folders, or an .npz file.",
        {"flag": "--data", "shell_complete": complete_source},
    ] = "sample"
    data_dir: Annotated[
        str | None,
        "Folder to look for cifar10 and the like in, before $SCS_EVAL_DATA and the user cache.",
        {"type": click.Path()},
    ] = None
    n: Annotated[int | None, ALL_IMAGES, {"flag": "-n", "type": COUNT}] = None
    indices: Annotated[
        tuple[int, ...] | None,
        "Only these images, by their index in the original set: 3,10 or a file of numbers.",
    ] = None
    exclude: Annotated[
        tuple[int, ...] | None,
        "None of these images, such as those that a model was trained on: 3,10 or a file of numbers.",
    ] = None
    skip_bad: Annotated[bool, "Leave out unreadable images of a folder and say how many."] = False
    size: Annotated[
        int | None,
        "Scale images to SIZE × SIZE pixels.  [default: what the model was made for, else as they are]",
        {"type": COUNT},
    ] = None
    resize: Annotated[
        int | None,
        "Of a folder: shorter side before the centre is cut out.  [default: 256 for 224 pixels]",
        {"type": COUNT},
    ] = None

    def read(self, *, n: int | None, seed: int, size: int | None = None, num_classes: int | None = None) -> "ImageData":
        """n images in the order of the source; a warning becomes one line on stderr.

        size: of a model's images, which --size overrules. num_classes: of the models, which only a folder asks.
        """
        from scs_eval.data import load_data
        from scs_eval.data.sources import NAMES

        side = self.size or size
        folder: dict[str, Any] = {}
        if self.source not in NAMES:
            folder = {"resize": self.resize or EVALUATED.get(side or 0), "num_classes": num_classes}
        with warnings.catch_warnings():  # restores showwarning, too
            warnings.showwarning = lambda message, *_: say(f"Warning: {message}", err=True)
            return load_data(
                self.source, data_dir=self.data_dir, n=n, seed=seed, skip_bad=self.skip_bad, size=side,
                indices=self.indices, exclude=self.exclude, **folder,
            )  # fmt: skip

    def read_some(self, *, default_n: int, **options: Any) -> "ImageData":
        """n images, or `default_n`; without n all of a source that has fewer."""
        try:
            return self.read(n=self.n or default_n, **options)
        except InputError:
            if self.n is not None:
                raise
            return self.read(n=None, **options)


def data_settings(data: "ImageData", *, seed: int) -> dict[str, Any]:
    """What a result depends on in its images: where from, how many, which, and the seed that chose them."""
    from scs_eval.images import indices_digest

    which = {"data": data.source, "n": len(data), "indices_sha256": indices_digest(data.indices)}
    return {**which, "data_seed": seed, "seed": seed}


def targets_of(data: "ImageData", target: str) -> Any:
    """The class to explain for each image, by name or the label; None for the predicted one."""
    import torch

    from scs_eval.analyses.core.validation import class_position

    if target == "predicted":
        return None
    if target == "label" and not data.labelled:
        raise InputError("--target label needs the images' classes, and they have none; explain the predicted class")
    return data.labels if target == "label" else torch.full_like(data.labels, class_position(target, data.classes))
