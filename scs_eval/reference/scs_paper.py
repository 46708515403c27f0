"""The 78 rows of the SCS paper's accuracy tables (arXiv 2307.13855, Tables 1-8), by the zoo's names."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

_LAYERS = {"Conv2d": "conv", "SCS": "scs", "SharpenedSDP": "ssdp"}
# The zoo leaves out of a name what is good practice for the layer.
_USUAL = {"conv": ("ReLU", "MaxPool2d"), "scs": ("None", "MaxAbsPool2d"), "ssdp": ("None", "MaxAbsPool2d")}


@dataclass(frozen=True)
class PaperRow:
    """One network of the paper: the table, its accuracy on CIFAR-10's test set, and seconds per epoch on their GPUs.

    What stands in the text alone has no table and no seconds.
    """

    table: int | None
    accuracy: float
    train_seconds: float | None = None
    eval_seconds: float | None = None


# Section 4.2, p fixed to 1; "the maximum accuracy", without a word on the pooling.
COSINE = {"rohrer100k_cos": PaperRow(None, 0.5658), "rohrer100k_cos_relu": PaperRow(None, 0.7604)}


def paper_figures() -> dict[str, list[PaperRow]]:
    """Zoo name → what the paper says of its accuracy: the rows of the tables, and the cosine networks of the text."""
    return {**paper_rows(), **{name: [row] for name, row in COSINE.items()}}


def paper_tables() -> dict[str, dict[str, dict[str, float]]]:
    """Table → zoo name → accuracy and seconds of an epoch, in the order of the paper."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for name, rows in paper_rows().items():
        for row in rows:
            timed = {"train_seconds": row.train_seconds, "eval_seconds": row.eval_seconds}
            numbers = {"accuracy": row.accuracy, **{key: value for key, value in timed.items() if value is not None}}
            tables.setdefault(str(row.table), {})[name] = numbers
    return dict(sorted(tables.items()))


def paper_rows() -> dict[str, list[PaperRow]]:
    """Zoo name → the paper's rows with the same settings, the latest table first.

    Rohrer100K stands in Table 1 and, trained again from "a new set of initial weights" and timed like the other sizes,
    in Table 6: six networks have both rows, Table 6 first.
    """
    rows: dict[str, list[PaperRow]] = {}
    with (files("scs_eval.reference") / "scs_paper_tables.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault(_zoo_name(row), []).insert(0, _paper_row(row))
    return rows


def _paper_row(row: Mapping[str, str]) -> PaperRow:
    seconds = (float(row[f"{phase}_seconds_per_epoch"]) for phase in ("train", "eval"))
    return PaperRow(int(row["table"]), float(row["val_accuracy"]), *seconds)


def _zoo_name(row: Mapping[str, str]) -> str:
    """`<architecture>_<layer>` and what differs from the layer's usual activation, pooling and normalisation."""
    layer = _LAYERS[row["layer"]]
    activation, pooling = _USUAL[layer]
    parts = [row["architecture"].lower()]
    parts += ["224"] if row["image_size"] == "224x224" else []
    parts += [layer]
    parts += [{"ReLU": "relu", "None": "linear"}[row["activation"]]] if row["activation"] != activation else []
    parts += [row["pooling"].removesuffix("2d").lower()] if row["pooling"] != pooling else []
    # Only ResNet-18 has normalisation to leave out.
    parts += ["nobn"] if row["architecture"] == "ResNet18" and row["normalization"] == "None" else []
    return "_".join(parts)
