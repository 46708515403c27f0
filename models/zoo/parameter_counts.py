"""How many trainable numbers each network has. The counts of the listed ones are kept, so that listing needs no torch.

`python -m scs_eval.models.zoo.parameter_counts` counts them anew; a test compares.
"""

import json
from functools import cache
from pathlib import Path

from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.registry import create_model, list_models

COUNTS = Path(__file__).parent / "parameter_counts.json"


def parameter_count(name: str) -> int:
    """Trainable parameters of a model with its default number of classes: ten, or a thousand for ImageNet's."""
    known = _kept().get(split_seed(name)[0])
    return count(name) if known is None else known


def count(name: str) -> int:
    """The same, by building the model without memory for its numbers."""
    import torch

    with torch.device("meta"):
        return sum(p.numel() for p in create_model(name).parameters())


@cache
def _kept() -> dict[str, int]:
    counts: dict[str, int] = json.loads(COUNTS.read_text())
    return counts


if __name__ == "__main__":
    COUNTS.write_text(json.dumps({name: count(name) for name in list_models()}, indent=0) + "\n")
