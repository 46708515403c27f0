"""Which wrong class a targeted attack heads for first."""

from dataclasses import replace

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import dual_norm
from scs_eval.analyses.attacks.losses import likely_wrong, margin
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.core.precision import wide

MOST = 100  # classes whose distance is estimated: the likeliest


def target_order(objective: Objective, images: Tensor, *, norm: str, malt: bool) -> Tensor:
    """(n, K − 1) the wrong classes of each image, the most promising first: the likeliest, or by MALT the nearest."""
    likely = likely_wrong(objective.logits(images), objective.labels)
    return _nearest_first(objective, images, likely, norm) if malt else likely


def _nearest_first(objective: Objective, images: Tensor, classes: Tensor, norm: str) -> Tensor:
    """The first MOST classes of each row by (z_y − z_t) / ‖∇(z_y − z_t)‖, where a linear model would reach them.

    MALT: Melamed, Yehudai and Shamir (2024); the norm is the dual of the ball's. One gradient per class.
    """
    margins = replace(objective, loss=margin, backward=None)
    columns = []
    for rank in range(min(MOST, classes.shape[1])):
        evaluation = margins.towards(classes[:, rank]).evaluate(images, gradient=True)
        assert evaluation.gradient is not None
        columns.append(-wide(evaluation.loss) / dual_norm(evaluation.gradient, norm))
    distances = torch.stack(columns, dim=1).nan_to_num(nan=torch.inf)
    order = distances.argsort(dim=1, stable=True)
    return torch.cat([classes.gather(1, order), classes[:, len(columns) :]], dim=1)
