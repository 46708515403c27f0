"""An attack: shift all pixels of a channel together, by ±ε, in the best of eight ways.

scs-eval pgd --model rohrer100k_scs --attack tint --plugin examples/attack.py
"""

from itertools import product

import torch

import scs_eval


@scs_eval.register_attack("tint", source="an example", norms=("linf",), steps=8, unit="queries", cost=1 / 3)
def tint(model, images, labels, eps):
    """Every channel lighter or darker by ε, as makes the class least likely."""
    shifts = [eps * torch.tensor(signs).to(images).view(3, 1, 1) for signs in product((-1.0, 1.0), repeat=3)]
    with torch.no_grad():
        chances = [model((images + shift).clamp(0, 1)).softmax(1).gather(1, labels[:, None]) for shift in shifts]
    best = torch.cat(chances, 1).argmin(1)
    return images + torch.stack(shifts)[best]
