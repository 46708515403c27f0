"""A metric: how far from the middle of the image a map's mass lies.

scs-eval faithfulness --model rohrer100k_scs --metric eccentricity --plugin examples/metric.py
"""

import torch

import scs_eval


@scs_eval.register_metric("eccentricity", source="an example", words=("more central", "as central", "less central"))
def eccentricity(model, images, targets, maps):
    """Mean distance of |map| from the middle, in half sides of the image."""
    mass = maps.abs().sum(1)
    rows, columns = (torch.linspace(-1, 1, length).to(maps) for length in mass.shape[1:])
    distance = (rows[:, None] ** 2 + columns**2).sqrt()
    return (mass * distance).sum((1, 2)) / mass.sum((1, 2))
