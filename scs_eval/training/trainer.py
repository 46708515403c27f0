"""The training of one model: steps, epochs, and the state from which they can be continued."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scs_eval.errors import InputError
from scs_eval.models.layers import constrain_
from scs_eval.training.augmentation import attacked, derive_seed, make_mixing
from scs_eval.training.metrics import DivergenceMonitor, EpochMetrics, count_correct, norms, training_loss
from scs_eval.training.optimisation import WeightAverage, clip_adaptively, make_optimizer, make_schedule
from scs_eval.training.processes import World
from scs_eval.training.ramp import Ramp
from scs_eval.training.recipe import Recipe
from scs_eval.training.sources import Source


class Trainer:
    """A model, its optimiser, and how far they have come.

    `epoch` is the one under way, counted from 1, and `batch` the number of its batches that are done.
    """

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        *,
        recipe: Recipe,
        seed: int,
        world: World,
        amp: bool = False,
        compiled: bool = False,
    ) -> None:
        self.model = model.to(world.device).to(memory_format=torch.channels_last)
        self.source, self.recipe, self.seed, self.world, self.amp = source, recipe, seed, world, amp
        self.optimizer = make_optimizer(recipe, model)
        self.schedule = make_schedule(recipe, self.optimizer, steps_per_epoch=source.steps)
        self.average = WeightAverage(self.model, recipe) if recipe.ema_decay else None
        self.mix = make_mixing(recipe, num_classes=source.num_classes)
        self.forward = self._wrap(compiled)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.divergence = DivergenceMonitor(list(self.parameters), device=world.device)
        self.metrics = EpochMetrics(len(self.parameters), device=world.device)
        self.ramp = self._make_ramp() if recipe.ramp_epochs else None
        self.epoch, self.batch = 1, 0

    @property
    def step(self) -> int:
        """Batches done since the beginning of the run."""
        return (self.epoch - 1) * self.source.steps + self.batch

    @property
    def best_guess(self) -> nn.Module:
        """The model to evaluate and to keep: the averaged one as soon as the recipe has an average."""
        return self.average.module if self.average and self.average.begun else self.model

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        """One update from this process's share of a batch."""
        torch.manual_seed(derive_seed(self.seed, self.epoch, self.batch + 1, self.world.rank))  # 0: the epoch's order
        images, targets = (images, labels) if self.mix is None else self.mix(images, labels)
        if self.recipe.pgd_eps:
            images = self._attacked(images, targets)
        logits = self._logits(images)
        loss = training_loss(self.recipe, logits, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self._observe(loss.detach(), logits.detach(), targets)
        if self.recipe.agc:
            clip_adaptively(self.model, share=self.recipe.agc)
        self._update()

    def start_next_epoch(self) -> None:
        """Count on, with empty sums."""
        self.epoch, self.batch = self.epoch + 1, 0
        self.metrics = EpochMetrics(len(self.parameters), device=self.world.device)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on; its random numbers depend on seed, epoch and batch alone.

        All processes must ask for it together.
        """
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": None if self.average is None else self.average.averaged.state_dict(),
            "metrics": self.metrics.state_dict(self.world),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken; one that is not of such a run raises."""
        try:
            self._load(state)
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"the checkpoint does not fit this run ({reason}); --overwrite begins again") from error

    def _load(self, state: dict[str, Any]) -> None:
        self.epoch, self.batch = operator.index(state["epoch"]), operator.index(state["batch"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.averaged.load_state_dict(state["average"])
        self.metrics.load_state_dict(state["metrics"])
        if self.ramp is not None:
            self.ramp.resume(self.step)

    def _logits(self, images: Tensor) -> Tensor:
        with torch.autocast(self.world.device.type, dtype=torch.bfloat16, enabled=self.amp):
            return self.forward(images).float()

    def _attacked(self, images: Tensor, targets: Tensor) -> Tensor:
        def loss(perturbed: Tensor) -> Tensor:
            return training_loss(self.recipe, self._logits(perturbed), targets)

        return attacked(images, loss, eps=self.recipe.pgd_eps, steps=self.recipe.pgd_steps)

    def _observe(self, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        none = torch.zeros((), device=self.world.device)
        lengths = norms([none if p.grad is None else p.grad for p in self.parameters.values()])
        self.divergence.observe(loss, lengths)
        rate = self.optimizer.param_groups[0]["lr"]
        self.metrics.add(loss, count_correct(logits, targets), lengths, images=len(targets), lr=rate)

    def _update(self) -> None:
        self.optimizer.step()
        self.schedule.step()
        constrain_(self.model)
        self.batch += 1
        if self.ramp is not None:
            self.ramp.advance(self.step)
        if self.average is not None:
            self.average.update(self.model, epoch=self.epoch, step=self.step)

    def _make_ramp(self) -> Ramp:
        """With the first images of the main process, so that all processes go the same way."""
        images = [next(iter(self.source.train_batches(1, start=0)))[0]]
        self.world.copy_from_main(images)
        return Ramp(self.model, self.recipe, images[0], steps_per_epoch=self.source.steps)

    def _wrap(self, compiled: bool) -> Callable[[Tensor], Tensor]:
        module = self.model if self.world.size == 1 else DistributedDataParallel(self.model)
        return torch.compile(module) if compiled else module
