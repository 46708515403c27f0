"""When a long attack gives an image up: what is missing would not come, were the rest of the budget as good as of late.

An attack whose loss is concave in the number of steps, as near convergence, gives up nothing that it would reach. One
that stalls just short of success and then goes on is not given up either: `CLOSE`.
"""

import torch
from torch import Tensor

from scs_eval.analyses.core.precision import widest

PARTS = 20  # of the budget; after each, from the second on, it is asked
LEAST = 50  # steps of a budget that is worth it
CLOSE = 0.25  # of what was gained since the first look: an image with less than this missing is not given up


class Prospects:
    """Of n images whose attack succeeds where a value reaches 0: who will not reach it.

    >>> import torch
    >>> prospects = Prospects(2, steps=100, device=torch.device("cpu"))
    >>> [prospects.hopeless(step, torch.tensor(best)).tolist() for step, best in ((0, [-4., -4.]), (5, [-3., -2.]))]
    [[False, False], [False, False]]
    >>> prospects.hopeless(10, torch.tensor([-2.9, -1.5])).tolist()  # 18 times 0.1 is less than 2.9 is missing
    [True, False]
    """

    def __init__(self, n: int, *, steps: int, device: torch.device) -> None:
        self.steps, self.every = steps, steps // PARTS if steps >= LEAST else 0
        self.first = torch.full((n,), -torch.inf, dtype=widest(device), device=device)
        self.before = self.first

    def hopeless(self, step: int, best: Tensor) -> Tensor:
        """(n,) whom to give up after so many steps, with the best values so far (n,)."""
        if not self.every or step % self.every:
            return torch.zeros_like(best, dtype=torch.bool)
        gain = (best - self.before) / self.every * (self.steps - step)
        self.first = torch.where(self.first.isfinite(), self.first, best)
        self.before = best
        missing = -best
        given_up = (missing > gain) & (missing > CLOSE * (best - self.first))
        return given_up & (step >= 2 * self.every)

    def keep(self, rows: Tensor) -> None:
        """Forget all images but these."""
        self.first, self.before = self.first[rows], self.before[rows]
