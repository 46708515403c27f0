"""One training run as data: what to train and how, as it is recorded, resumed or sent to a cluster. No torch here."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from scs_eval.errors import InputError
from scs_eval.models.zoo.names import split_seed, with_seed
from scs_eval.training.network import model_folder_name, model_name
from scs_eval.training.recipe import Recipe, default_recipe, implied_numbers, make_recipe
from scs_eval.training.run_directory import RunDirectory, read_run

SUBSETS = "validation", "train_images"
CHOSEN = "indices", "exclude"  # training images by their numbers
Numbers = tuple[int, ...] | None
SETTINGS = "amp", "compile", "workers", "norms_per_batch", "checkpoint_every", "weights_every"


@dataclass(frozen=True)
class Job:
    """Everything a run depends on. The command line makes an option of every annotated field."""

    model: str
    out: Path
    recipe: Recipe
    data: Annotated[str, "cifar10, or a folder with class folders in train and val.  [default: cifar10]"] = "cifar10"
    data_dir: Annotated[Path | None, "Where CIFAR-10 lies.  [default: $SCS_EVAL_DATA]"] = None
    validation: Annotated[int, "Hold out so many training images and evaluate on them, not on the test set."] = 0
    train_images: Annotated[int, "Train on so many images only; 0 is all.  [default: 0]"] = 0
    indices: Annotated[Numbers, "Train on these images only, by their index in the set: 3,10 or a file."] = None
    exclude: Annotated[Numbers, "Train on none of these images, which are held out: 3,10 or a file."] = None
    seed: Annotated[int, "Initial weights, order and augmentation follow from it.  [default: 0]"] = 0
    init_from: Annotated[Path | None, "File or zoo name of a convolution network to start its twin from."] = None
    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps …  [default: auto]"] = "auto"
    amp: Annotated[bool, "Compute in bfloat16 where that is safe; CUDA only."] = False
    compile: Annotated[bool, "Compile the model with torch.compile."] = False
    workers: Annotated[int, "Folders: processes that read and augment images.  [default: 4]"] = 4
    norms_per_batch: Annotated[bool, "Record every layer's weight norm after every batch."] = False
    checkpoint_every: Annotated[int, "Save every so many batches, and not only after every epoch."] = 0
    weights_every: Annotated[int, "Also keep the weights after every so many epochs, as NAME-epoch4.safetensors."] = 0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("seed", "workers", "checkpoint_every", "weights_every", "validation", "train_images"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: expected 0 or more, got {getattr(self, name)}")

    @property
    def label(self) -> str:
        """The model with its seed: NAME@3."""
        return with_seed(model_folder_name(self.model), self.seed)

    @property
    def weights(self) -> Path:
        """Where the final weights go."""
        return self.out / f"{self.label}.safetensors"

    @property
    def kept_epochs(self) -> range:
        """Those before the last whose weights are kept."""
        return range(self.weights_every, self.recipe.epochs, self.weights_every) if self.weights_every else range(0)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with the run it continues."""
        names = "model", "data", "seed", *SUBSETS
        same = {name: getattr(self, name) for name in names}
        for name in CHOSEN:
            same[name] = None if getattr(self, name) is None else list(getattr(self, name))
        return {**same, "init_from": str(self.init_from or ""), "recipe": asdict(self.recipe)}

    def settings(self) -> dict[str, Any]:
        """What a resumed run takes over from the run it continues unless it is told otherwise."""
        same = {name: getattr(self, name) for name in SETTINGS}
        return {**same, "data_dir": str(self.data_dir) if self.data_dir else None}

    def difference(self, recorded: dict[str, Any]) -> str:
        """In what the run recorded in the output directory is another one; empty if in nothing."""
        for name, was, wanted in _differences(_completed(recorded), self.identity()):
            return f"{name}={_short(was)}, not {_short(wanted)}"
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

    `NAME@3` is the model NAME with seed 3. `train` refuses a change that would make it another run.
    """
    if model is None and not (resume and out):
        raise InputError("which model? give --model NAME, or --resume --out DIR")
    if model is not None:
        model, settings = _with_named_seed(model_name(model), settings)
    out = out or Path("results", "train", with_seed(model_folder_name(str(model)), settings.get("seed", 0)))
    recorded = read_run(out) if resume and RunDirectory(out).begun else {}
    name = model or recorded.get("model")
    if name is None:
        raise InputError(f"{out} holds no run to resume; give --model NAME to begin one")
    name = model_name(name)
    if recorded and recipe_name is None:
        recipe = replace(Recipe(**recorded["recipe"]), **overrides)
    else:
        recipe = make_recipe(recipe_name or default_recipe(name), {**implied_numbers(name), **overrides})
    return Job(model=name, out=out, recipe=recipe, **{**_recorded_settings(recorded), **settings})


def _with_named_seed(name: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    network, seed = split_seed(name)
    if not seed:
        return network, settings
    if settings.get("seed", seed) != seed:
        raise InputError(f"{name} has seed {seed}, --seed says {settings['seed']}; give one of them")
    return network, {**settings, "seed": seed}


def _recorded_settings(recorded: dict[str, Any]) -> dict[str, Any]:
    paths = {name: Path(recorded[name]) for name in ("data_dir", "init_from") if recorded.get(name)}
    chosen = {name: tuple(recorded[name]) for name in CHOSEN if recorded.get(name) is not None}
    same = {name: recorded[name] for name in ("data", "seed", *SUBSETS, *SETTINGS) if name in recorded}
    return {**paths, **chosen, **same}


def _completed(recorded: dict[str, Any]) -> dict[str, Any]:
    """A record with what an older version did not know of: it did what the defaults do."""
    recipe = {**asdict(Recipe()), **recorded.get("recipe", {})}
    return {**dict.fromkeys(SUBSETS, 0), **recorded, "recipe": recipe}


def _short(value: Any) -> str:
    """A value for a message: a list of images would fill pages."""
    return f"{len(value):,} images" if isinstance(value, list) else str(value)


def _differences(recorded: dict[str, Any], wanted: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, value in wanted.items():
        if isinstance(value, dict):
            yield from _differences(recorded.get(name, {}), value)
        elif recorded.get(name) != value:
            yield name, recorded.get(name), value
