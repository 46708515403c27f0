"""From the first epoch to the last: records, checkpoints, the way out when a signal or a diverged loss ends it."""

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scs_eval.models.conversion.bcosify import described_as
from scs_eval.progress import Advance, progress
from scs_eval.training.job import Job
from scs_eval.training.metrics import DivergedError, ModelEvaluation, evaluate
from scs_eval.training.processes import StopRequest, stop_on_signal
from scs_eval.training.records import RunRecords
from scs_eval.training.run_directory import CHECKPOINT, StateCheckpoint, epoch_file, write_json
from scs_eval.training.trainer import Trainer
from scs_eval.training.weights import describe_job, write_weights

AfterEpoch = Callable[[int, ModelEvaluation], None]  # told the epoch and its evaluation; what it raises ends the run
REFRESH_SECONDS = 0.5  # reading the loss makes a GPU wait for its queue, so not at every batch
GPU_CHECK_EVERY = 20  # batches between two looks at the loss: each makes a GPU wait for its queue


@dataclass(frozen=True)
class TrainingOutcome:
    """How a run ended: with weights and their evaluation, or stopped by a signal."""

    weights: Path | None
    evaluation: ModelEvaluation | None
    stopped_by: int = 0


class Reporter:
    """Tells of batches and epochs as they are done: through a bar where there is one, and a line for each epoch."""

    def __init__(self, advance: Advance | None, *, batch_size: int) -> None:
        self.advance, self.batch_size = advance, batch_size
        self.time, self.batches = time.monotonic(), 0

    def resume(self, step: int) -> None:
        """So many batches were done by an earlier run."""
        if self.advance is not None and step:
            self.advance.resume(step)

    def batch(self, epoch: int, read: Callable[[], tuple[float, float]]) -> None:
        """One more is done; `read` fetches the epoch's loss and accuracy so far, now and then."""
        if self.advance is None:
            return
        self.advance(1)
        self.batches += 1
        passed = time.monotonic() - self.time
        if passed < REFRESH_SECONDS:
            return
        loss, accuracy = read()
        speed = self.batches * self.batch_size / passed
        self.advance(0, f"epoch {epoch}  loss {loss:.3f}  accuracy {accuracy:.1%}  {speed:,.0f} images/s")
        self.time, self.batches = time.monotonic(), 0

    def epoch(self, line: str) -> None:
        """Print the line at once, so that it can be followed; the evaluation does not count as training time."""
        if self.advance is not None:
            print(line, flush=True)
        self.time, self.batches = time.monotonic(), 0


class TrainingLoop:
    """A trainer and the directory that its work goes to; only the main process writes."""

    def __init__(
        self, job: Job, trainer: Trainer, *, about: Mapping[str, Any], after_epoch: AfterEpoch | None = None
    ) -> None:
        self.job, self.trainer, self.about, self.after_epoch = job, trainer, about, after_epoch
        self.world, self.source = trainer.world, trainer.source
        self.records = RunRecords(job.out, trainer, norms_per_batch=job.norms_per_batch)
        self.checkpoint = StateCheckpoint(job.out / CHECKPOINT, job.label, own=True)
        self.saved = "none"
        self.mark = time.monotonic()

    def complete(self, state: dict[str, Any] | None) -> TrainingOutcome:
        """Train to the end, from the beginning or from the state of a checkpoint."""
        if state is not None:
            self.trainer.load_state_dict(state)
        self._begin()
        recipe, steps = self.job.recipe, self.source.steps
        with (
            progress(self.job.label, recipe.epochs * steps) if self.world.is_main else nullcontext() as advance,
            stop_on_signal() as stop,
        ):
            reporter = Reporter(advance, batch_size=recipe.batch_size)
            reporter.resume(self.trainer.step)
            return self._epochs(reporter, stop)

    def _epochs(self, reporter: Reporter, stop: StopRequest) -> TrainingOutcome:
        test = None
        while self.trainer.epoch <= self.job.recipe.epochs:
            if self._train_epoch(reporter, stop):
                # Another process may have had the signal; what torchrun passes on is SIGTERM.
                return TrainingOutcome(None, None, stopped_by=stop.signal_number or signal.SIGTERM)
            test = self._end_epoch(reporter)
        test = test or evaluate(self.trainer.best_guess, self.source, recipe=self.job.recipe, world=self.world)
        if self.world.is_main:
            self._finish(test)
        return TrainingOutcome(self.job.weights, test)

    def _train_epoch(self, reporter: Reporter, stop: StopRequest) -> bool:
        """Train what is left of the epoch; True if a signal ended it early."""
        trainer = self.trainer
        self.mark = time.monotonic()
        for images, labels in self.source.train_batches(trainer.epoch, start=trainer.batch):
            trainer.train_step(images, labels)
            self.records.note_norms()
            reporter.batch(trainer.epoch, trainer.metrics.read)
            save_due = bool(self.job.checkpoint_every) and trainer.batch % self.job.checkpoint_every == 0
            stopping = (save_due or self._look_due()) and self._must_stop(stop)
            if stopping or save_due:
                self._count_seconds()
                self._save()
            if stopping:
                return True
        self._count_seconds()
        self._save()  # an evaluation can be long, and the end of a job's time does not wait for it
        return False

    def _look_due(self) -> bool:
        every = 1 if self.world.device.type == "cpu" else GPU_CHECK_EVERY
        return self.trainer.batch % every == 0 or self.trainer.batch == self.source.steps

    def _must_stop(self, stop: StopRequest) -> bool:
        """Whether a signal came to any process; raises if the loss diverged in any."""
        trainer = self.trainer
        if self.world.any(trainer.divergence.has_diverged()):
            raise self._diverged()
        return self.world.any(stop.signal_number > 0)

    def _diverged(self) -> DivergedError:
        """What to raise; run.json says it too, so that nobody takes the run for an interrupted one."""
        trainer = self.trainer
        layer, _, parameter = trainer.divergence.first_diverged_parameter().rpartition(".")
        when = f"in epoch {trainer.epoch}, batch {trainer.batch}"
        where = f"{when}: the gradient of layer {layer} ({parameter}) diverged first"
        if self.world.is_main:
            write_json(self.job.out / "run.json", {**self.about, "finished": False, "diverged": where})
        return DivergedError(
            f"{self.job.label} diverged {where}; last good checkpoint: {self.saved}; "
            "begin again with --overwrite and a smaller --lr"
        )

    def _end_epoch(self, reporter: Reporter) -> ModelEvaluation:
        """Evaluate, record, and save the state at the beginning of the next epoch."""
        trainer = self.trainer
        loss, accuracy = trainer.metrics.total(self.world)
        start = time.monotonic()
        self.world.copy_from_main(trainer.best_guess.buffers())  # each process has seen other batches
        test = evaluate(trainer.best_guess, self.source, recipe=self.job.recipe, world=self.world)
        seconds = time.monotonic() - start
        if self.world.is_main:
            self.records.write_epoch(loss=loss, accuracy=accuracy, test=test, eval_seconds=seconds)
        reporter.epoch(
            f"{self.job.label} epoch {trainer.epoch}/{self.job.recipe.epochs}  train {loss:.4f} {accuracy:.2%}  "
            f"test {test.loss:.4f} {test.accuracy:.2%}  {trainer.metrics.seconds:.1f} s + {seconds:.1f} s"
        )
        done = trainer.epoch
        if self.world.is_main and done in self.job.kept_epochs:
            self._write_weights(self.job.out / epoch_file(self.job.weights.name, done), test)
        trainer.start_next_epoch()
        self._save()
        if self.after_epoch is not None:
            self.after_epoch(done, test)
        return test

    def _begin(self) -> None:
        if self.world.is_main:
            write_json(self.job.out / "run.json", {**self.about, "finished": False})
            self.records.begin()
        self._save()

    def _save(self) -> None:
        """Write the checkpoint; in the main process alone, but all of them have a part in it."""
        self.saved = f"{self.checkpoint.path} (epoch {self.trainer.epoch}, batch {self.trainer.batch})"
        state = self.trainer.state_dict()
        if self.world.is_main:
            self.records.flush()
            self.checkpoint.save(state)

    def _count_seconds(self) -> None:
        now = time.monotonic()
        self.trainer.metrics.seconds += now - self.mark
        self.mark = now

    def _finish(self, test: ModelEvaluation) -> None:
        """The weights come last: where they are, the run is finished."""
        results = self._results(test)
        write_json(self.job.out / "run.json", {**self.about, **results, "finished": True})
        self._write_weights(self.job.weights, test)
        self.checkpoint.remove()

    def _write_weights(self, path: Path, test: ModelEvaluation) -> None:
        model = self.trainer.best_guess
        metadata = describe_job(self.job, num_classes=self.source.num_classes)
        if "converted" in metadata:
            metadata["converted"] = described_as(str(metadata["converted"]), model)
        write_weights(path, model, {**metadata, **self._results(test)})

    def _results(self, test: ModelEvaluation) -> dict[str, float]:
        train_seconds, eval_seconds = self.records.median_seconds()
        return {
            "test_accuracy": test.accuracy,
            "test_correct": test.correct,
            "test_images": test.images,
            "test_loss": test.loss,
            "train_seconds_per_epoch": train_seconds,
            "eval_seconds_per_epoch": eval_seconds,
        }
