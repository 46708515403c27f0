"""`scs-eval zoo collect`: put the weights of finished runs, with their index, where `load_model` finds them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from scs_eval.errors import InputError
from scs_eval.training.records import write_atomically

SCS_EPOCHS, SCS_RESNET_EPOCHS, BCOS_EPOCHS = 800, 200, 100  # of CIFAR-10, in the two papers
BCOS_NETWORKS = "resnet20", "resnet32", "resnet44", "resnet56", "bcos_cnn9"


@click.command("collect")
@click.argument("runs", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), help="Folder of the weights.  [default: ours]"
)
def command(runs: Path, into: Path | None) -> None:
    """Copy the finished models below RUNS into the package's weights and enter them in the index.

    A model that is there already is replaced; others stay. The index says of each file what its own metadata says, its
    sha256, a 95 % interval of the accuracy, and the SCS paper's figure for the same network.
    """
    from scs_eval.models.checkpoints import WEIGHTS

    target = into or WEIGHTS
    found = sorted(runs.glob("*/*.safetensors"))
    if not found:
        raise InputError(f"no finished run below {runs}: expected RUN/NAME.safetensors in it")
    entries = {file.stem: entry(file) for file in found}  # all of them are checked before anything is written
    if len(entries) < len(found):
        raise InputError(f"two runs below {runs} trained the same model; remove one")
    target.mkdir(parents=True, exist_ok=True)
    for file in found:
        write_atomically(target / file.name, file.read_bytes())
    index_file = target / "index.json"
    index = {**(json.loads(index_file.read_text()) if index_file.exists() else {}), **entries}
    write_atomically(index_file, (json.dumps(dict(sorted(index.items())), indent=1) + "\n").encode())
    click.echo(f"{len(found)} models collected, {len(index)} in all: {index_file}")


def entry(file: Path) -> dict[str, Any]:
    """What the index says of one file of weights."""
    from safetensors import safe_open

    from scs_eval.analyses.statistics import wilson
    from scs_eval.models.checkpoints import load_model
    from scs_eval.models.parameters import parameter_count
    from scs_eval.report.paper import paper_rows

    load_model(file)  # or an error that says what is wrong with the file
    with safe_open(file, framework="np") as opened:
        said = opened.metadata()
    if said["name"] != file.stem or "test_correct" not in said:
        raise InputError(f"{file} is not the outcome of `scs-eval train`: its name or its test accuracy is not in it")
    interval = wilson(int(said["test_correct"]), int(said["test_images"]))
    paper = paper_rows().get(said["name"], [])
    return {
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "parameters": parameter_count(said["name"]),
        "accuracy": float(said["test_accuracy"]),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "correct": int(said["test_correct"]),
        "n": int(said["test_images"]),
        "data": said["data"],
        "epochs": int(said["epochs"]),
        "paper_epochs": paper_epochs(said["name"], in_scs_paper=bool(paper)),
        "paper_accuracy": paper[0].accuracy if paper else None,
        "seed": int(said["seed"]),
        "recipe": json.loads(said["recipe"]),
        "train_seconds_per_epoch": float(said["train_seconds_per_epoch"]),
        "eval_seconds_per_epoch": float(said["eval_seconds_per_epoch"]),
        "torch": said["torch"],
    }


def paper_epochs(name: str, *, in_scs_paper: bool) -> int | None:
    """For how many epochs a paper trained this network; None if none did."""
    if in_scs_paper:
        return SCS_RESNET_EPOCHS if name.startswith("resnet18") else SCS_EPOCHS
    return BCOS_EPOCHS if "bcos" in name and name.startswith(BCOS_NETWORKS) else None
