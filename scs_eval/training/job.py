"""One training run as data: what to train and how, as it is recorded, resumed or sent to a cluster. No torch here."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from scs_eval.errors import InputError
from scs_eval.models.registry import canonical_name
from scs_eval.training.recipe import Recipe, default_recipe, make_recipe
from scs_eval.training.workspace import Workspace, read_run

SETTINGS = "amp", "compile", "workers", "norms_per_batch", "checkpoint_every"


@dataclass(frozen=True)
class Job:
    """Everything a run depends on. The command line makes an option of every annotated field."""

    model: str
    out: Path
    recipe: Recipe
    data: Annotated[str, "cifar10, or a folder with class folders in train and val.  [default: cifar10]"] = "cifar10"
    data_dir: Annotated[Path | None, "Where CIFAR-10 lies.  [default: $SCS_EVAL_DATA]"] = None
    seed: Annotated[int, "Initial weights, order and augmentation follow from it.  [default: 0]"] = 0
    init_from: Annotated[Path | None, "Weights of a convolution network to start its SCS or B-cos twin from."] = None
    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps …  [default: auto]"] = "auto"
    amp: Annotated[bool, "Compute in bfloat16 where that is safe; CUDA only."] = False
    compile: Annotated[bool, "Compile the model with torch.compile."] = False
    workers: Annotated[int, "Folders: processes that read and augment images.  [default: 4]"] = 4
    norms_per_batch: Annotated[bool, "Record every layer's weight norm after every batch."] = False
    checkpoint_every: Annotated[int, "Save every so many batches, and not only after every epoch."] = 0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("seed", "workers", "checkpoint_every"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: expected 0 or more, got {getattr(self, name)}")

    @property
    def weights(self) -> Path:
        """Where the final weights go."""
        return self.out / f"{self.model}.safetensors"

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with the run it continues."""
        names = "model", "data", "seed"
        same = {name: getattr(self, name) for name in names}
        return {**same, "init_from": str(self.init_from or ""), "recipe": asdict(self.recipe)}

    def settings(self) -> dict[str, Any]:
        """What a resumed run takes over from the run it continues unless it is told otherwise."""
        same = {name: getattr(self, name) for name in SETTINGS}
        return {**same, "data_dir": str(self.data_dir) if self.data_dir else None}

    def difference(self, recorded: dict[str, Any]) -> str:
        """In what the run recorded in the output directory is another one; empty if in nothing."""
        for name, was, wanted in _differences(recorded, self.identity()):
            return f"{name}={was}, not {wanted}"
        return ""

    def refuse_unless_same(self, recorded: dict[str, Any]) -> None:
        """Raise if the run recorded in the output directory is another one."""
        if other := self.difference(recorded):
            raise InputError(f"{self.out} was begun with {other}: leave that out, or begin again with --overwrite")


def plan_job(
    *,
    model: str | None,
    out: Path | None,
    recipe_name: str | None,
    settings: dict[str, Any],
    overrides: dict[str, Any],
    resume: bool,
) -> Job:
    """The job that was asked for: what was given, else what the run to resume recorded, else defaults.

    `train` refuses a change that would make it another run.
    """
    if model is None and not (resume and out):
        raise InputError("which model? give --model NAME, or --resume --out DIR")
    out = out or Path("results", "train", canonical_name(str(model)))
    recorded = read_run(out) if resume and Workspace(out).begun else {}
    name = model or recorded.get("model")
    if name is None:
        raise InputError(f"{out} holds no run to resume; give --model NAME to begin one")
    name = canonical_name(name)
    if recorded and recipe_name is None:
        recipe = replace(Recipe(**recorded["recipe"]), **overrides)
    else:
        recipe = make_recipe(recipe_name or default_recipe(name), overrides)
    return Job(model=name, out=out, recipe=recipe, **{**_recorded_settings(recorded), **settings})


def _recorded_settings(recorded: dict[str, Any]) -> dict[str, Any]:
    paths = {name: Path(recorded[name]) for name in ("data_dir", "init_from") if recorded.get(name)}
    return {**paths, **{name: recorded[name] for name in ("data", "seed", *SETTINGS) if name in recorded}}


def _differences(recorded: dict[str, Any], wanted: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, value in wanted.items():
        if isinstance(value, dict):
            yield from _differences(recorded.get(name, {}), value)
        elif recorded.get(name) != value:
            yield name, recorded.get(name), value
