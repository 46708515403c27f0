"""What is checked: a model on some images at one ε, and the attacks tried on it."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.losses import loss_named
from scs_eval.analyses.core.batching import CHUNK, images_at_once
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.parallel import share_size, shared_map
from scs_eval.images import Images

ROUNDING = 1e-6  # of pixels: what float32 may add to a distance


@dataclass(eq=False, kw_only=True)
class CheckContext:
    """A model in evaluation mode, m images (m, 3, H, W) with labels (m,), and what the curve says of them at `eps`.

    The images may be read when they are used: every check goes through them in batches, and keeps numbers.
    attack: the curve's first attack. reported: (m,) whether the curve counts an image as wrong at eps.
    logits: (m, K) of the clean images. ids: (m,) what an image's random numbers depend on, besides the seed.
    is_adversarial: attack → (m,), which images it made adversarial at eps; every trial at eps adds itself.
    excess: how far any attacked image was outside its ball or outside [0, 1].
    """

    model: nn.Module
    images: Images
    labels: Tensor
    eps: float
    attack: Attack
    logits: Tensor
    ids: Tensor
    seed: int = 0
    batch_size: int = 512
    reported: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    is_adversarial: dict[str, Tensor] = field(default_factory=dict)
    excess: float = 0.0

    @property
    def right(self) -> Tensor:
        """(m,) whether the model is right on the clean image."""
        return self.logits.argmax(1) == self.labels

    @property
    def survivors(self) -> Tensor:
        """(m,) whether the curve counts an image as right at eps."""
        return ~self.reported

    @property
    def pgd(self) -> Attack:
        """Plain PGD with the norm and loss of the curve's attack, and its steps if it takes any."""
        if self.attack.name in ("pgd", "apgd"):
            return replace(self.attack, name="pgd")
        return Attack(norm=self.attack.norm, loss=self.attack.loss)

    def attacked(self, settings: Attack, *, which: Tensor, **options: Any) -> Tensor:
        """The model's logits (m, K) of attacked versions of the images `which` (m,); the clean ones of the others.

        model: whose gradients are followed, if not the model's own. eps: if not the context's. options: as `attack`
        takes them. An attacked image is forgotten once the model has answered.
        """
        logits = self.logits.clone()
        parts = self._parts(which, settings)
        for part, (answer, excess) in zip(
            parts, shared_map(lambda part: self._attack(part, settings, **options), parts), strict=True
        ):
            logits[part], self.excess = answer, max(self.excess, excess)
        return logits

    def trial(self, name: str, logits: Tensor, *, on_top: bool = False) -> Tensor:
        """(m,) which of the images, attacked at eps, the model gets wrong: by its own logits (m, K), and no other's.

        An image that is wrong when clean counts, whatever an attack made of it. on_top: the attack was tried on the
        survivors alone, so what the curve's attack broke counts as well.
        """
        wrong = (logits.argmax(1) != self.labels) | ~self.right
        self.is_adversarial[name] = wrong | self.reported if on_top else wrong
        return self.is_adversarial[name]

    def answer(self, images: Images) -> Tensor:
        """The model's logits (m, K), on the CPU."""
        return predict_logits(self.model, images, classes=self.logits.shape[1])

    def losses(self, settings: Attack, *, which: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, as `attacked`, and the highest loss up to each step (steps + 1, m'): of the m' images `which`."""
        logits, traces = self.logits.clone(), []

        def run_gradient_attack(part: Tensor) -> tuple[Tensor, float, Tensor]:
            trace = torch.full((settings.steps + 1, len(part)), -torch.inf, dtype=torch.float64)

            def callback(step: int, positions: Tensor, _points: Tensor, loss: Tensor) -> None:
                trace[step, positions.cpu()] = loss.cpu().double()

            return *self._attack(part, settings, stop_early=False, callback=callback), trace

        parts = self._parts(which, settings)
        for part, (answer, excess, trace) in zip(parts, shared_map(run_gradient_attack, parts), strict=True):
            logits[part], self.excess = answer, max(self.excess, excess)
            traces.append(trace.cummax(0).values)
        return logits, torch.cat(traces, 1) if traces else torch.zeros(settings.steps + 1, 0, dtype=torch.float64)

    def _attack(
        self,
        part: Tensor,
        settings: Attack,
        *,
        model: nn.Module | None = None,
        eps: float | None = None,
        **options: Any,
    ) -> tuple[Tensor, float]:
        """What the model says of some images when attacked, and how far any was outside its ball or outside [0, 1]."""
        clean, radius = self.images[part], self.eps if eps is None else eps
        moved = attack(
            model or self.model, clean, self.labels[part], radius, settings=settings, seed=self.seed,
            ids=self.ids[part], **options,
        ).images  # fmt: skip
        difference = (moved - clean).flatten(1)
        size = difference.abs().amax(1) if settings.norm == "linf" else difference.norm(dim=1)
        outside = torch.stack([size.max() - radius, moved.max() - 1, -moved.min()])
        return self.answer(moved), float(outside.max())

    def _parts(self, which: Tensor, settings: Attack) -> list[Tensor]:
        """The positions of the images `which` (m,), in the batches in which they are attacked."""
        rows = which.nonzero()[:, 0]
        most = images_at_once(self.images, self.batch_size)
        size = most if settings.is_external else share_size(len(rows), most, multiple=CHUNK)
        return list(rows.split(size)) if len(rows) else []


def full_range(settings: Attack, images: Images) -> float:
    """The ε of a ball that holds every image: 1 in L∞, √d in L2."""
    return 1.0 if settings.norm == "linf" else images.shape[1:].numel() ** 0.5


def loss_of(logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """(b,) the loss of that name, untargeted: what an attack makes large."""
    return loss_named(kind, targeted=False, classes=logits.shape[1])(logits, labels, None)
