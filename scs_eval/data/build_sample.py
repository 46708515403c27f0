"""Build the bundled sample: `python -m scs_eval.data.build_sample --data-dir DIR`.

The choice is seeded, so building again gives the same arrays (and the same bytes from the same version of Pillow).
"""

import io
from pathlib import Path

import click
import numpy as np
from PIL import Image

from scs_eval.data.choice import choose
from scs_eval.data.cifar10 import CLASSES, read_cifar10
from scs_eval.data.sample import FILE

COUNT, SEED = 1000, 0
ORIGIN = f"""\
{COUNT} images of the CIFAR-10 test set, {COUNT // len(CLASSES)} of each class, without loss.
Source: Alex Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009,
https://www.cs.toronto.edu/~kriz/cifar.html
Chosen at random (seed {SEED}) by `python -m scs_eval.data.build_sample`; `indices` are positions in the test set.
"""


def build_sample(data_dir: str | Path | None, out: Path) -> None:
    """Write the sample to `out` and its note of origin beside it, as .txt.

    The images are one PNG strip, (1000 · 32, 32, 3): its prediction filters save a quarter of what deflate alone needs.
    """
    images, labels = read_cifar10(data_dir, train=False)
    indices = choose(labels, n=COUNT, seed=SEED)
    strip = images[indices].transpose(0, 2, 3, 1).reshape(-1, 32, 3)
    png = io.BytesIO()
    Image.fromarray(strip).save(png, "PNG", optimize=True)
    np.savez(
        out,
        png=np.frombuffer(png.getvalue(), dtype=np.uint8),
        labels=labels[indices].astype(np.uint8),
        indices=indices.astype(np.int16),
        classes=np.array(CLASSES),
        origin=np.array(ORIGIN),
    )
    out.with_suffix(".txt").write_text(ORIGIN)


@click.command()
@click.option("--data-dir", type=click.Path(), help="Folder that holds CIFAR-10.")
@click.option("--out", type=click.Path(path_type=Path), default=Path(__file__).with_name(FILE), help="File to write.")
def main(data_dir: str | None, out: Path) -> None:
    """Build the bundled sample of the CIFAR-10 test set."""
    build_sample(data_dir, out)
    click.echo(f"{out} ({out.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
