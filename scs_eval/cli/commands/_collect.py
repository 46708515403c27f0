"""`scs-eval zoo collect`: put the weights of finished runs, with their index, where `load_model` finds them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from scs_eval.errors import InputError
from scs_eval.files import write_atomically


@click.command("collect")
@click.argument("runs", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Folder of weights to copy them into.")
def command(runs: Path, into: Path | None) -> None:
    """List the finished models below RUNS; with --into, copy them there and enter them in its index.

    A model is known by its name and seed. One that is in the folder already is replaced; others stay. The index says
    of each file what its own metadata says, its sha256, a 95 % interval of the accuracy, and of CIFAR-10 the SCS
    paper's figure for the same network. The weights of the package itself lie in models/weights.
    """
    files = sorted(runs.glob("*/*.safetensors"))
    if not files:
        raise InputError(f"no finished run below {runs}: expected RUN/NAME.safetensors in it")
    entries = {file.stem: entry(file) for file in files}  # all of them are checked before anything is written
    if len(entries) < len(files):
        raise InputError(f"two runs below {runs} trained the same model; remove one")
    for name, facts in sorted(entries.items()):
        paper = f", paper {facts['paper_accuracy']:.1%}" if facts["paper_accuracy"] else ""
        click.echo(f"{name}: {facts['accuracy']:.2%} of {facts['n']:,} after {facts['epochs']} epochs{paper}")
    if into is None:
        click.echo(f"{len(files)} models; --into FOLDER copies them", err=True)
    else:
        _copy(files, entries, into)


def _copy(files: list[Path], entries: dict[str, dict[str, Any]], into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for file in files:
        write_atomically(into / file.name, file.read_bytes())
    index_file = into / "index.json"
    index = {**(json.loads(index_file.read_text()) if index_file.exists() else {}), **entries}
    write_atomically(index_file, (json.dumps(dict(sorted(index.items())), indent=1) + "\n").encode())
    click.echo(f"{len(files)} models collected, {len(index)} in all: {index_file}")


def entry(file: Path) -> dict[str, Any]:
    """What the index says of one file of weights."""
    from safetensors import safe_open

    from scs_eval.analyses.core.statistics import wilson
    from scs_eval.models.loading.load import load_model
    from scs_eval.models.zoo.names import with_seed
    from scs_eval.models.zoo.parameter_counts import parameter_count
    from scs_eval.reference.epochs import paper_epochs
    from scs_eval.reference.scs_paper import paper_figures

    load_model(file)  # or an error that says what is wrong with the file
    with safe_open(file, framework="np") as opened:
        metadata = opened.metadata()
    if "test_correct" not in metadata or with_seed(metadata["name"], int(metadata["seed"])) != file.stem:
        raise InputError(f"{file} is not the outcome of `scs-eval train`: its name or its test accuracy is not in it")
    if metadata.get("validation", "0") != "0":
        raise InputError(f"{file} was evaluated on held-out training images; train it without --validation")
    interval = wilson(int(metadata["test_correct"]), int(metadata["test_images"]))
    paper = paper_figures().get(metadata["name"], []) if metadata["data"] == "cifar10" else []
    return {
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "parameters": parameter_count(metadata["name"]),
        "accuracy": float(metadata["test_accuracy"]),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "correct": int(metadata["test_correct"]),
        "n": int(metadata["test_images"]),
        "data": metadata["data"],
        "epochs": int(metadata["epochs"]),
        "paper_epochs": paper_epochs(metadata["name"]) if metadata["data"] == "cifar10" else None,
        "paper_accuracy": paper[0].accuracy if paper else None,
        "seed": int(metadata["seed"]),
        "recipe": json.loads(metadata["recipe"]),
        "train_seconds_per_epoch": float(metadata["train_seconds_per_epoch"]),
        "eval_seconds_per_epoch": float(metadata["eval_seconds_per_epoch"]),
        "torch": metadata["torch"],
    }
