"""A small result to save, load and write."""

import numpy as np

from scs_eval.analyses.accuracy import AccuracyResult


def make(label: str = "rohrer100k_scs", *, hits: int = 3) -> AccuracyResult:
    labels = np.array([0, 0, 1, 1])
    predictions = np.where(np.arange(4) < hits, labels, 1 - labels)
    return AccuracyResult(
        label=label,
        settings={"seed": 0, "sizes": (32, 32), "device": "cpu"},
        classes=("cat", "dog"),
        labels=labels,
        predictions=predictions,
        margins=np.array([0.5, 1, 2, -1], dtype=np.float32),
        parameters=12,
        seconds=0.25,
        known={"paper_accuracy": 0.818, "paper_table": 6},
    )
