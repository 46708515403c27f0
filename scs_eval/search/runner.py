"""A search for p by Optuna: short trainings with a fixed p that all layers share (the SCS paper's appendix C.2).

Trials are kept in an SQLite file, which several processes may share and from which an interrupted search goes on; each
has a run directory of its own, so that an interrupted training goes on as well.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.zoo.registry import canonical_name
from scs_eval.training.job import Job
from scs_eval.training.metrics import DivergedError
from scs_eval.training.run_directory import read_run

if TYPE_CHECKING:
    from optuna import Study, Trial

    from scs_eval.training.metrics import ModelEvaluation


STORAGE = "trials.db"
WARMUP_TRIALS, WARMUP_EPOCHS = 4, 1  # before any trial is pruned; before an epoch counts for that
HEARTBEAT = 60  # seconds; a trial whose process has been silent for twice as long is begun anew by another
Span = tuple[float, float]


class StoppedError(Exception):
    """A signal ended a training; the trial is taken up by a later run. args: the signal's number."""


@dataclass(frozen=True)
class SearchPlan:
    """What is searched for: p, and the learning rate if `lr` is given. job: how every trial is trained, but for these.

    trials: how many in all, those of other processes and of earlier runs included.
    """

    job: Job
    p: Span
    lr: Span | None
    trials: int

    def __post_init__(self) -> None:
        """Refuse what cannot be searched."""
        for name, span in (("p", self.p), ("lr", self.lr or (1, 2))):
            if not 0 < span[0] < span[1]:
                raise InputError(f"expected --{name} as LO:HI with 0 < LO < HI, got {span[0]:g}:{span[1]:g}")
        if self.trials < 1:
            raise InputError(f"expected at least one trial, got {self.trials}")
        canonical_name(f"{self.job.model}_p={self.p[0]:g}")  # raises where a network has no p

    def job_of(self, p: float, lr: float | None) -> Job:
        """The training of one trial. With muon, kernel_lr keeps its ratio to lr."""
        model, recipe = canonical_name(f"{self.job.model}_p={p:g}"), self.job.recipe
        if lr is not None:
            factor = lr / recipe.lr
            kernel_lr = recipe.kernel_lr * (factor if recipe.optimizer == "muon" else 1)
            recipe = replace(recipe, lr=lr, kernel_lr=kernel_lr)
        name = f"p={p:g}" if lr is None else f"p={p:g}_lr={lr:g}"
        return replace(self.job, model=model, recipe=recipe, out=self.job.out / "trials" / name)


@dataclass(frozen=True)
class Finished:
    """A trial that counts: its parameters, its accuracy after so many epochs, and whether it was pruned there."""

    values: tuple[float, ...]
    accuracy: float
    epochs: int
    pruned: bool


def run_search(plan: SearchPlan, *, report: Callable[[str], None] = lambda line: None) -> list[Finished]:
    """Train what is left of the trials, and return all that are finished, in the order in which they were begun."""
    optuna = _optuna()
    study = _open(plan, optuna)
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    _enqueue_interrupted(study, optuna)
    if len(study.get_trials(states=states)) < plan.trials:
        enough = optuna.study.MaxTrialsCallback(plan.trials, states=states)
        study.optimize(lambda trial: _objective(trial, plan, report, optuna), callbacks=[enough])
    return [_finished(trial, optuna) for trial in study.get_trials(states=states)]


def _enqueue_interrupted(study: "Study", optuna: Any) -> None:
    """Trials that a signal or an error ended come once more, unless they did already; their training goes on."""
    failed = optuna.trial.TrialState.FAIL
    others = [trial.params or trial.system_attrs.get("fixed_params") for trial in study.trials if trial.state != failed]
    for trial in study.get_trials(states=(failed,)):
        if trial.params and trial.params not in others:
            study.enqueue_trial(trial.params)
            others.append(trial.params)


def _sampler(study: "Study", seed: int, optuna: Any) -> Any:
    """Follows from the seed and the trials that there are; beside another process it must not propose the same."""
    alone = not study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
    return optuna.samplers.TPESampler(seed=seed + 1000 * len(study.trials) if alone else None)


def _open(plan: SearchPlan, optuna: Any) -> "Study":
    """The study in the run's folder; one that searched for something else raises."""
    plan.job.out.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of the heartbeat
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{(plan.job.out / STORAGE).resolve()}",
            engine_kwargs={"connect_args": {"timeout": 60}},
            heartbeat_interval=HEARTBEAT,
        )
    study: Study = optuna.create_study(
        storage=storage,
        study_name="search",
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=WARMUP_TRIALS, n_warmup_steps=WARMUP_EPOCHS),
        load_if_exists=True,
    )
    asked = {"p": list(plan.p), "lr": plan.lr and list(plan.lr), "job": _described(plan.job)}
    before = study.user_attrs
    if before and {key: before.get(key) for key in asked} != asked:
        other = next(key for key in asked if before.get(key) != asked[key])
        raise InputError(f"{plan.job.out} holds a search with another {other}; choose another --out")
    for key, value in asked.items():
        study.set_user_attr(key, value)
    study.sampler = _sampler(study, plan.job.seed, optuna)
    return study


def _described(job: Job) -> dict[str, Any]:
    """What was not asked for is left out: a search of before there was such an option goes on."""
    asked = {key: value for key, value in job.identity().items() if value is not None}
    return {key: str(value) if isinstance(value, Path) else value for key, value in asked.items()}


def _objective(trial: "Trial", plan: SearchPlan, report: Callable[[str], None], optuna: Any) -> float:
    """The accuracy of one training on held-out images; raises TrialPruned where it falls behind."""
    from scs_eval.training.run import train

    p = float(f"{trial.suggest_float('p', *plan.p):.4g}")
    lr = float(f"{trial.suggest_float('lr', *plan.lr, log=True):.4g}") if plan.lr else None
    trial.set_user_attr("values", [p] if lr is None else [p, lr])

    def after_epoch(epoch: int, evaluation: "ModelEvaluation") -> None:
        trial.report(evaluation.accuracy, epoch)
        trial.set_user_attr("accuracy", evaluation.accuracy)
        trial.set_user_attr("epochs", epoch)
        if epoch < plan.job.recipe.epochs and trial.should_prune():
            raise optuna.TrialPruned

    job = plan.job_of(p, lr)
    try:
        outcome = train(job, resume=True, after_epoch=after_epoch)
    except DivergedError as error:
        trial.set_user_attr("accuracy", 0.0)
        report(f"trial {trial.number}, {job.out.name}: {error}")
        raise optuna.TrialPruned from error
    if outcome.stopped_by:
        raise StoppedError(outcome.stopped_by)
    accuracy = float(read_run(job.out)["test_accuracy"])
    trial.set_user_attr("accuracy", accuracy)
    trial.set_user_attr("epochs", plan.job.recipe.epochs)
    report(f"trial {trial.number}, {job.out.name}: {accuracy:.2%}")
    return accuracy


def _finished(trial: Any, optuna: Any) -> Finished:
    values = trial.user_attrs
    pruned = trial.state == optuna.trial.TrialState.PRUNED
    return Finished(tuple(values["values"]), values.get("accuracy", 0.0), values.get("epochs", 0), pruned)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError("scs-eval search needs Optuna: pip install 'scs-eval[search]'") from error
    return optuna
