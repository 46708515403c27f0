"""Random numbers of other packages, which draw from the global generators."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(numbers: Sequence[int]) -> Iterator[None]:
    """All global random numbers from these; Python's and numpy's are put back (`evaluating` puts back torch's)."""
    seed = int(np.random.SeedSequence(list(numbers)).generate_state(1)[0])
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - what other packages draw from
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
