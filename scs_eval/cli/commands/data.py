"""`scs-eval data`: which images are there, where they are looked for, what a source holds."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.data_request import DataRequest
from scs_eval.cli.params import SEED, complete_source, options_from
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.data import ImageData

SIZE_HELP = "Scale the images to SIZE × SIZE pixels.  [default: as they are]"


@click.command()
@click.argument("source", required=False, shell_complete=complete_source)
@options_from(DataRequest, into="request", without=("source",), helps={"size": SIZE_HELP})
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of every random choice.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of tables.")
def command(
    source: str | None,
    request: DataRequest,
    seed: int,
    as_json: bool,
) -> None:
    """Show which images are there and where they are looked for.

    With a SOURCE (a name below, an image, a folder of images or of class folders, an .npz file), read all of it and
    show what it holds: the way to check a folder before a long run.

    \b
    Examples:
      scs-eval data
      scs-eval data cifar10 --data-dir ~/datasets
      scs-eval data my_photos --size 224 --skip-bad
    """
    if source is not None:
        shown = _contents(replace(request, source=source).read(n=request.n, seed=seed))
    elif request != DataRequest(data_dir=request.data_dir):
        raise click.UsageError("-n, --size and --skip-bad need a SOURCE: scs-eval data SOURCE -n 10")
    else:
        shown = _overview(request.data_dir)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    elif source is not None:
        _show_contents(shown)
    else:
        _show_overview(shown)


def _contents(data: "ImageData") -> dict[str, Any]:
    """What a source holds, every image of it read once: one that is damaged raises."""
    from scs_eval.images import FEW, read_batches

    parts = [slice(start, start + FEW) for start in range(0, len(data), FEW)]
    with progress("reading", len(data)) as advance:
        for batch in read_batches(data.images, parts):
            advance(len(batch))
    counts = data.labels[data.labels >= 0].bincount(minlength=len(data.classes)).tolist()
    return {
        "source": data.source,
        "images": len(data),
        "size": list(data.images.shape[-2:]),
        "classes": dict(zip(data.classes, counts, strict=True)),
    }


def _overview(data_dir: str | None) -> dict[str, Any]:
    from scs_eval.data.cifar10 import CLASSES, find_cifar10
    from scs_eval.data.own import OWN_DATA
    from scs_eval.data.places import places
    from scs_eval.data.sample import read_sample, sample_classes, sample_origin

    images = read_sample()[0]
    searched = places(data_dir)
    files = {split: find_cifar10(searched, train=split == "train") for split in ("test", "train")}
    return {
        "sample": {
            "images": len(images),
            "size": list(images.shape[-2:]),
            "classes": list(sample_classes()),
            "origin": sample_origin(),
        },
        "cifar10": {
            "found": {split: path and str(path) for split, path in files.items()},
            "classes": list(CLASSES),
            "looked_in": [{"named_by": folder.named_by, "path": str(folder.path)} for folder in searched],
        },
        "from_plugins": {name: function.__module__ for name, function in OWN_DATA.items()},
    }


def _show_overview(shown: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    sample, cifar10 = shown["sample"], shown["cifar10"]
    table = Table("Source", "Images", "Size", "Classes", "Where")
    classes = str(len(sample["classes"]))
    table.add_row("sample", f"{sample['images']:,}", "32×32", classes, "bundled with scs-eval")
    for split, count in (("test", "10,000"), ("train", "50,000")):
        where = cifar10["found"][split] or "not found; downloaded on first use"
        table.add_row(f"cifar10 ({split})", count, "32×32", classes, Text(where, overflow="fold"))
    table.add_row(
        "cifar100, mnist, fashion-mnist, cifar10-c:fog", "", "", "", "their official files, in the same places"
    )
    for name, module in shown["from_plugins"].items():
        table.add_row(Text(name), "", "", "", Text(f"from the plugin {module}"))
    table.add_row("FILE", "", "", "", "an image; or an .npz file of images and labels")
    table.add_row("FOLDER", "", "", "", "class folders (cat/1.png dog/1.jpg …) or images without labels")
    Console(highlight=False).print(table)
    click.echo("cifar10 is looked for in, first to last:")
    for folder in cifar10["looked_in"]:
        click.echo(f"  {folder['path']}  ({folder['named_by']})")
    click.echo("Name another folder with --data-dir or $SCS_EVAL_DATA.")


def _show_contents(shown: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("Class", "Images")
    for name, count in shown["classes"].items():
        table.add_row(Text(name), Text(f"{count:,}", justify="right"))
    Console(highlight=False).print(table)
    height, width = shown["size"]
    click.echo(f"{shown['images']:,} images of {width}×{height} from {shown['source']}")
