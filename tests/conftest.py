"""Two processes test at once on a small machine: one thread each."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # tests import these by their names
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _registries_as_before() -> Iterator[None]:
    """What a test registers or passes along is gone after it."""
    from scs_eval.analyses.attacks import kinds
    from scs_eval.analyses.attribution import methods, metric_records
    from scs_eval.data.own import OWN_DATA
    from scs_eval.models.zoo import registry

    kept = [methods.METHODS, kinds.ATTACKS, registry.OWN, OWN_DATA, metric_records.METRICS]
    before = [record.known() for record in kept]
    yield
    for record, known in zip(kept, before, strict=True):
        for name in record.known().keys() - known.keys():
            del record[name]
    methods.PASSED.clear()
    kinds.PASSED.clear()
    metric_records.PASSED.clear()
