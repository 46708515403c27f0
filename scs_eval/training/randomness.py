"""Every random number of a run is a function of (seed, epoch, batch), so a resumed run needs no generator's state."""

import numpy as np
import torch


def derive_seed(*numbers: int) -> int:
    """One 63-bit seed from a run's seed and counters such as epoch, batch and rank."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(*numbers: int) -> torch.Generator:
    """A CPU generator at the start of the stream that belongs to these numbers."""
    return torch.Generator().manual_seed(derive_seed(*numbers))
