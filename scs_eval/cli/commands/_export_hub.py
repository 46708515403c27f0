"""`scs-eval zoo export-hub`: the trained networks as folders in the format of the Hugging Face Hub. Nothing is sent."""

import json
import re
from pathlib import Path
from typing import Any

import click

from scs_eval.errors import InputError
from scs_eval.files import write_atomically

DATASETS = {"cifar10": "CIFAR-10"}


@click.command("export-hub")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", "pattern", default="*@*", show_default=True, help="A trained model, or a pattern of names.")
def command(folder: Path, pattern: str) -> None:
    """Write DIR/NAME with model.safetensors, config.json and README.md, a model card, for every trained network.

    All of it comes from the index of weights; what the card says of accuracy was measured when the network was trained.
    """
    from scs_eval.models.loading.sources import parse_sources

    sources = [asked.source for asked in parse_sources([pattern])]
    targets = {name: folder / folder_name(name) for name in sources}
    if taken := [path for path in targets.values() if path.exists()]:
        raise InputError(f"{taken[0]} exists already; choose another folder")
    for name, target in targets.items():
        export(name, target)
    click.echo(f"{len(targets)} models in {folder}")


def folder_name(name: str) -> str:
    """A model's name as the Hub allows it: letters, digits, dots and dashes."""
    return re.sub(r"[^\w.]+", "-", name)


def export(name: str, target: Path) -> None:
    """Write one network's folder."""
    from scs_eval.models.loading.load import WEIGHTS, weights_index

    entry = weights_index().get(name)
    if entry is None:
        raise InputError(f"no trained weights for {name!r}; `scs-eval models --trained` lists them")
    target.mkdir(parents=True)
    write_atomically(target / "model.safetensors", (WEIGHTS / entry["file"]).read_bytes())
    write_atomically(target / "config.json", (json.dumps(config(name, entry), indent=1) + "\n").encode())
    write_atomically(target / "README.md", card(name, entry).encode())


def config(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What builds the network, and how it was trained."""
    from scs_eval import __version__
    from scs_eval.models.zoo.names import split_seed
    from scs_eval.models.zoo.registry import input_size

    network, seed = split_seed(name)
    kept: tuple[str, ...] = ("parameters", "data", "epochs", "recipe", "torch")
    known = {key: entry[key] for key in kept if key in entry}
    return {
        "library_name": "scs-eval", "scs_eval_version": __version__, "architecture": network, "seed": seed,
        "num_classes": 10, "input_size": input_size(network), "input_range": [0, 1], **known,
    }  # fmt: skip


def card(name: str, entry: dict[str, Any]) -> str:
    """The model card: facts for the Hub in front, and for a reader behind them."""
    low, high = entry["interval"]
    data = DATASETS.get(entry["data"], entry["data"])
    return f"""---
library_name: scs-eval
pipeline_tag: image-classification
license: mit
tags: [image-classification, interpretability, robustness]
datasets: [{entry["data"]}]
metrics: [accuracy]
model-index:
- name: {json.dumps(name)}
  results:
  - task:
      type: image-classification
    dataset:
      name: {json.dumps(data)}
      type: {json.dumps(entry["data"])}
      split: test
    metrics:
    - type: accuracy
      value: {entry["accuracy"]}
---
# {name}

{entry["parameters"]:,} parameters, {entry["epochs"]} epochs of {data}, seed {entry["seed"]}.
It is right on {entry["correct"]:,} of {entry["n"]:,} test images: {entry["accuracy"]:.2%}, 95 % interval
{low:.2%} to {high:.2%}.

```python
import scs_eval

model = scs_eval.load_model("model.safetensors")  # takes RGB in [0, 1]
```

The recipe is in config.json. sha256 of the weights: `{entry["sha256"]}`.
"""
