"""What is checked: a model on some images at one ε, and the attacks tried on it."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.losses import loss_named
from scs_eval.analyses.core.batching import CHUNK
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.parallel import share_size, shared_map

ROUNDING = 1e-6  # of pixels: what float32 may add to a distance


@dataclass(eq=False, kw_only=True)
class CheckContext:
    """A model in evaluation mode, m images (m, 3, H, W) with labels (m,), and what the curve says of them at `eps`.

    attack: the curve's first attack. reported: (m,) whether the curve counts an image as wrong at eps.
    logits: (m, K) of the clean images. ids: (m,) what an image's random numbers depend on, besides the seed.
    is_adversarial: attack → (m,), which images it made adversarial at eps; every trial at eps adds itself.
    excess: how far any attacked image was outside its ball or outside [0, 1].
    """

    model: nn.Module
    images: Tensor
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

    def attacked(self, settings: Attack, *, which: Tensor, model: nn.Module | None = None, **options: Any) -> Tensor:
        """Attacked versions (m, 3, H, W) of the images `which` (m,); the others as they are.

        model: whose gradients are followed, if not the model's own. options: as `attack` takes them.
        """
        eps = options.pop("eps", self.eps)
        result = self.images.clone()

        def attack_some(part: Tensor) -> Tensor:
            return attack(
                model or self.model, self.images[part], self.labels[part], eps, settings=settings, seed=self.seed,
                ids=self.ids[part], **options,
            ).images  # fmt: skip

        parts = self._parts(which, settings)
        for part, images in zip(parts, shared_map(attack_some, parts), strict=True):
            result[part] = images.to(result)
        self._measure_excess(result, eps, settings.norm)
        return result

    def trial(self, name: str, images: Tensor, *, on_top: bool = False) -> Tensor:
        """(m,) which of the images (m, 3, H, W), attacked at eps, the model gets wrong: its own answer, and no other's.

        An image that is wrong when clean counts, whatever an attack made of it. on_top: the attack was tried on the
        survivors alone, so what the curve's attack broke counts as well.
        """
        wrong = (self.answer(images).argmax(1) != self.labels) | ~self.right
        self.is_adversarial[name] = wrong | self.reported if on_top else wrong
        return self.is_adversarial[name]

    def answer(self, images: Tensor) -> Tensor:
        """The model's logits (m, K), on the CPU."""
        return predict_logits(self.model, images, classes=self.logits.shape[1])

    def loss(self, images: Tensor) -> Tensor:
        """(m,) what the curve's attack makes large, on images (m, 3, H, W)."""
        return loss_of(self.answer(images), self.labels, self.attack.loss)

    def losses(self, settings: Attack, *, which: Tensor) -> tuple[Tensor, Tensor]:
        """The attacked images, and the highest loss up to each step (steps + 1, m'): of the m' images `which`."""
        result, traces = self.images.clone(), []

        def run_gradient_attack(part: Tensor) -> tuple[Tensor, Tensor]:
            trace = torch.full((settings.steps + 1, len(part)), -torch.inf, dtype=torch.float64)

            def callback(step: int, positions: Tensor, _points: Tensor, loss: Tensor) -> None:
                trace[step, positions.cpu()] = loss.double().cpu()

            here = torch.zeros_like(which).index_fill(0, part, True)
            return self.attacked(settings, which=here, stop_early=False, callback=callback)[part], trace

        parts = self._parts(which, settings)
        for part, (images, trace) in zip(parts, shared_map(run_gradient_attack, parts), strict=True):
            result[part] = images
            traces.append(trace.cummax(0).values)
        return result, torch.cat(traces, 1) if traces else torch.zeros(settings.steps + 1, 0, dtype=torch.float64)

    def _parts(self, which: Tensor, settings: Attack) -> list[Tensor]:
        """The positions of the images `which` (m,), in the batches in which they are attacked."""
        rows = which.nonzero()[:, 0]
        size = self.batch_size if settings.is_external else share_size(len(rows), self.batch_size, multiple=CHUNK)
        return list(rows.split(size)) if len(rows) else []

    def _measure_excess(self, images: Tensor, eps: float, norm: str) -> None:
        difference = (images - self.images).flatten(1)
        size = difference.abs().amax(1) if norm == "linf" else difference.norm(dim=1)
        outside = torch.stack([size.max() - eps, images.max() - 1, -images.min()])
        self.excess = max(self.excess, float(outside.max()))


def full_range(settings: Attack, images: Tensor) -> float:
    """The ε of a ball that holds every image: 1 in L∞, √d in L2."""
    return 1.0 if settings.norm == "linf" else images[0].numel() ** 0.5


def loss_of(logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """(b,) the loss of that name, untargeted: what an attack makes large."""
    return loss_named(kind, targeted=False, classes=logits.shape[1])(logits, labels, None)
