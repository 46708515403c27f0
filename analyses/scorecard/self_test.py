"""Does the attack find what is there? A network with an adversarial example at a known distance.

The planted network calls an image class 1 inside a ball of radius r about x* and class 0 outside: its logits are 0,
r² − ‖x − x*‖², and −5 for classes that no image has (some losses need four). The image is x, and x* = x + δ s with
signs s, one per channel. In d dimensions the nearest image of class 1 is at L∞ distance δ − r/√d, and at L2 distance
δ√d − r: step in the direction s and stop at the ball.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.scorecard.check import FAIL, PASS, Check, skipped

NAME = "attack self-test"
SIDE, OFFSET, DISTANCE = 4, 0.1, 0.05  # pixels; δ; δ − r/√d
COPIES = 4  # one image, several random starts
SLACK, BLACK_BOX_SLACK = 1.05, 1.4  # how much farther an attack may look; Square has to guess every sign
QUERIES = 500


class Planted(nn.Module):
    """Class 1 inside the ball about `centre` (3, H, W), class 0 outside."""

    centre: Tensor

    def __init__(self, centre: Tensor, radius: float) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.radius = radius

    def forward(self, images: Tensor) -> Tensor:
        """(N, 4) logits."""
        inside = self.radius**2 - (images - self.centre).square().sum((1, 2, 3))
        nothing = torch.zeros_like(inside)
        return torch.stack([nothing, inside, nothing - 5, nothing - 5], 1)


def plant(norm: str) -> tuple[Planted, Tensor, float]:
    """The network, the image (1, 3, H, W) of class 0, and how far it is from class 1."""
    image = torch.full((1, 3, SIDE, SIDE), 0.5)
    root = image.numel() ** 0.5
    signs = torch.tensor([1.0, -1.0, 1.0])[:, None, None]
    network = Planted(image[0] + OFFSET * signs, (OFFSET - DISTANCE) * root)
    return network, image, DISTANCE if norm == "linf" else DISTANCE * root


def find_planted_example(attacks: Sequence[Attack], *, seed: int) -> Check:
    """Each attack must find the example just beyond its distance, and cannot find one just before it.

    Square in L2 is left out: its bumps seldom add up to an even change of all pixels, however many there are.
    """
    tested = [settings for settings in attacks if (settings.name, settings.norm) != ("square", "l2")]
    if not tested:
        return skipped(NAME, "Square in L2 has no planted example that it should find.")
    verdicts = {settings.label: _finds(settings, seed) for settings in tested}
    if missed := [name for name, (finds, _) in verdicts.items() if not finds]:
        return Check(NAME, FAIL, "missed", f"{missed[0]} does not find an example planted at a known distance.")
    if early := [name for name, (_, early) in verdicts.items() if early]:
        return Check(NAME, FAIL, "too near", f"{early[0]} claims an example nearer than there is one.")
    return Check(NAME, PASS, "found", "Finds an example planted at a known distance, and none nearer than that.")


def _finds(settings: Attack, seed: int) -> tuple[bool, bool]:
    """Whether every copy is fooled just beyond the distance, and whether any is just before it."""
    network, image, distance = plant(settings.norm)
    black_box = settings.name == "square"
    settings = replace(settings, steps=max(settings.steps, QUERIES)) if black_box else settings
    images, labels = image.expand(COPIES, -1, -1, -1).clone(), torch.zeros(COPIES, dtype=torch.long)
    beyond, before = (
        attack(network, images, labels, factor * distance, settings=settings, seed=seed).images
        for factor in (BLACK_BOX_SLACK if black_box else SLACK, 2 - SLACK)
    )
    return bool((network(beyond).argmax(1) == 1).all()), bool((network(before).argmax(1) == 1).any())
