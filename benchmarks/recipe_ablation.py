"""What each part of the fast recipe does for each layer: short trainings without it, judged on held-out images.

    python -m scs_eval.benchmarks.recipe_ablation --data-dir DIR --out results/ablation

Every row of the table is the mean over seeds of the accuracy on 5,000 training images that were held out; the test set
is never touched. A run that is there already is not trained again, so the command can be given again after a stop.
"""

import argparse
import csv
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scs_eval.training.job import Job
from scs_eval.training.recipe import RECIPES, Recipe
from scs_eval.training.run import train_all
from scs_eval.training.run_directory import RunDirectory, read_run

FAST = RECIPES["fast"]
NETWORKS = "rohrer100k_conv", "rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_cos", "rohrer100k_bcos"
OPTIMISER = "optimizer", "lr", "kernel_lr", "momentum", "weight_decay"
TABLE = "recipe_ablation.csv"
# Each part switched off, or on where the recipe does without it.
CHANGES: dict[str, dict[str, Any]] = {
    "fast": {},
    "adam with the paper's lr": {name: getattr(Recipe, name) for name in OPTIMISER},
    "no label smoothing": {"label_smoothing": 0.0},
    "random flip": {"alternating_flip": False},
    "no weight decay": {"weight_decay": 0.0},
    "p and q 5 times faster": {"exponent_lr": 5.0},
    "moving average": {"ema_decay": 0.999, "ema_every": 1},
}


def jobs(out: Path, *, data_dir: Path | None, epochs: int, images: int, seeds: int) -> Iterator[tuple[str, Job]]:
    """Every change with every network and seed."""
    for change, numbers in CHANGES.items():
        for seed in range(seeds):
            for network in NETWORKS:
                folder = out / change.replace(" ", "_").replace(",", "") / f"{network}@{seed}"
                recipe = replace(FAST, epochs=epochs, **numbers)
                yield (
                    change,
                    Job(network, folder, recipe, data_dir=data_dir, seed=seed, validation=5000, train_images=images),
                )


def outcome(job: Job) -> float | None:
    """The accuracy on the held-out images; NaN if the training diverged, None if it is not there or not finished."""
    run = read_run(job.out) if RunDirectory(job.out).begun else {}
    return float("nan") if "diverged" in run else run.get("test_accuracy")


def table(planned: list[tuple[str, Job]]) -> list[dict[str, Any]]:
    """One row per change and network: mean, least and largest accuracy over the seeds, and what the change costs.

    NaN where a training diverged; what is not finished is left out.
    """
    by_change: dict[tuple[str, str], list[float]] = {}
    for change, job in planned:
        if (accuracy := outcome(job)) is not None:
            by_change.setdefault((change, job.model), []).append(accuracy)
    rows = []
    for (change, network), accuracies in by_change.items():
        mean, usual = statistics.mean(accuracies), statistics.mean(by_change["fast", network])
        numbers = {"accuracy": mean, "lowest": min(accuracies), "highest": max(accuracies), "minus_fast": mean - usual}
        rounded = {name: round(value, 4) for name, value in numbers.items()}
        rows.append({"change": change, "network": network, "seeds": len(accuracies), **rounded})
    return rows


def main() -> None:
    """Train what is missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=8_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only-table", action="store_true", help="of what is trained already")
    asked = parser.parse_args()
    planned = list(
        jobs(asked.out, data_dir=asked.data_dir, epochs=asked.epochs, images=asked.images, seeds=asked.seeds)
    )
    for result in train_all([] if asked.only_table else [job for _, job in planned if outcome(job) is None]):
        print(f"{result.job.out}: {result.status}", flush=True)
    rows = table(planned)
    conditions = {"epochs": asked.epochs, "train_images": asked.images, "validation_images": 5000}
    with (asked.out / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *conditions], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **conditions} for row in rows)
    print(asked.out / TABLE)


if __name__ == "__main__":
    main()
