"""Does the explanation move with the image? One image shifted along its diagonal (B-cos v2, Fig. 8, bottom).

    python -m scs_eval.analyses.contributions.shifts resnet20_bcos rohrer100k_bcos --index 12 --out shifts.png

An image is shifted with its edge mirrored, and every copy explained for the class that the network sees in the image
itself. Beside the pictures stands the correlation of each map, shifted back, with that of the image.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scs_eval.analyses.contributions import ContributionsResult, contributions
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 4  # pixels, as in the paper


def shifted(image: Tensor, by: int) -> Tensor:
    """The image (3, H, W) moved down and to the right by so many pixels, with its edge mirrored."""
    height, width = image.shape[1:]
    wide = F.pad(image[None], (abs(by),) * 4, mode="reflect")[0]
    start = abs(by) - by
    return wide[:, start : start + height, start : start + width]


def explain_shifts(model: nn.Module, image: Tensor, *, label: str, most: int = MOST) -> ContributionsResult:
    """The contributions of the copies shifted by -most … most pixels, to the class seen in the image itself."""
    if not 1 <= most < min(image.shape[1:]) // 2:
        raise InputError(f"expected shifts from 1 to less than half of the image, got {most}")
    with torch.no_grad():
        target = model.eval()(image[None]).argmax(1)
    copies = torch.stack([shifted(image, by) for by in range(-most, most + 1)])
    return contributions(model, copies, target.expand(len(copies)), indices=np.arange(-most, most + 1), label=label)


def stability(maps: np.ndarray) -> np.ndarray:
    """The correlation of each map (2 · most + 1, H, W), shifted back, with the middle one, where both are inside."""
    most = len(maps) // 2
    middle = maps[most, most:-most, most:-most].ravel()
    inside = [
        np.roll(values, (-by, -by), (0, 1))[most:-most, most:-most].ravel()
        for by, values in zip(range(-most, most + 1), maps, strict=True)
    ]
    return np.array([np.corrcoef(middle, values)[0, 1] for values in inside])


def shift_figure(results: Mapping[str, ContributionsResult]) -> "Figure":
    """A row of images and a row for each network: the picture of W(x), or the signed map where it has no colours."""
    from matplotlib import pyplot as plt

    from scs_eval.analyses.plotting import colour, style

    first = next(iter(results.values()))
    shape = len(results) + 1, len(first.indices)
    with style.paper_style():
        figure, rows = plt.subplots(*shape, figsize=(0.72 * shape[1] + 0.6, 0.9 * shape[0] + 0.2), layout="constrained")
        pictures = {"image": np.moveaxis(first.images, 1, -1)}
        captions = {"image": [f"{by:+d}" if by else "0" for by in first.indices]}
        for name, result in results.items():
            pictures[name] = colour.on_white(result.rgba())
            captions[name] = [f"r = {value:.2f}" for value in stability(result.maps)]
        for axes, name in zip(rows, pictures, strict=True):
            axes[0].set_ylabel(name.replace("_", "\n"), fontsize=style.points(7))
            for ax, picture, caption in zip(axes, pictures[name], captions[name], strict=True):
                ax.imshow(picture.clip(0, 1), interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                ax.set_xlabel(caption, fontsize=style.points(6.5))
    return figure


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--index", type=int, default=12, show_default=True, help="The image of the bundled sample.")
@click.option("--most", type=int, default=MOST, show_default=True, help="The largest shift in pixels.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The figure to write.")
def main(models: tuple[str, ...], index: int, most: int, out: Path) -> None:
    """Draw the bottom of Figure 8 of the B-cos paper."""
    import scs_eval  # the script is a user of the package; the room itself knows no data

    image = scs_eval.load_data("sample").images[index]
    results = {name: explain_shifts(scs_eval.load_model(name), image, label=name, most=most) for name in models}
    shift_figure(results).savefig(out, dpi=200)
    for name, result in results.items():
        others = np.delete(stability(result.maps), most)
        click.echo(f"{name}: mean correlation with the unshifted map {others.mean():.2f}")


if __name__ == "__main__":
    main()
