"""`scs-eval accuracy`: how often each model is right, beside the paper."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.cli.options import data_options, load_images
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.accuracy import AccuracyResult, Known
    from scs_eval.analyses.result import Result
    from scs_eval.data import ImageData


@click.command()
@click.argument("models", nargs=-1, type=MODEL, metavar="[MODEL]...")
@data_options
@click.option("--batch-size", type=click.IntRange(min=1), default=250, show_default=True, help="Images at once.")
@output_options
def command(
    models: tuple[str, ...],
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    batch_size: int,
    out: Path | None,
    device: str,
) -> None:
    """Measure how often each MODEL is right, overall and for each class.

    MODEL is a name of the zoo, a pattern such as 'rohrer100k*' (trained models only), or a checkpoint. Without any, all
    trained models are measured. The table also has the parameters, the seconds of an epoch in training, and the row of
    the SCS paper with the same settings; of Rohrer100K the paper has two (Tables 6 and 1: other initial weights), and
    both are shown.

    \b
    Examples:
      scs-eval accuracy rohrer100k_scs
      scs-eval accuracy 'rohrer100k*' --data cifar10
    """
    names = choose_models(models)
    out = choose_out(out, analysis="accuracy", names=models)
    device = choose_device(device)
    networks = load_all(names)  # all of them first: a misspelt name should not cost the work before it

    @cache
    def images(size: int | None) -> "ImageData":
        return load_images(data, data_dir=data_dir, n=n, seed=seed, skip_bad=skip_bad, size=size)

    results = []
    with progress(list(networks)) as bar:
        for name in bar:
            found = images(input_size_of(name))
            result = measure(networks[name].to(device), found, label=name, batch_size=batch_size)
            results.append(result.with_settings(data_settings(found, seed=seed)))
    finish(together(results, label=out.name), out)


def trained_models() -> list[str]:
    """Names of the models that weights are shipped for, in the order of the zoo."""
    from scs_eval.models.checkpoints import weights_index
    from scs_eval.models.registry import list_models

    index = weights_index()
    listed = [name for name in list_models() if name in index]
    return listed + [name for name in index if name not in listed]


def choose_models(asked: Sequence[str]) -> list[str]:
    """What was asked for, each once: names as they are, patterns as the trained models that match, nothing as all."""
    chosen = (_matching(each) if any(sign in each for sign in "*?[") else [_canonical(each)] for each in asked or "*")
    return list(dict.fromkeys(name for names in chosen for name in names))


def _matching(pattern: str) -> list[str]:
    found = [name for name in trained_models() if fnmatchcase(name, pattern)]
    if not found:
        raise InputError(f"no trained model matches {pattern!r}; `scs-eval models` shows which are trained")
    return found


def _canonical(name: str) -> str:
    """A zoo name in its one spelling; a path as it is."""
    from scs_eval.models.registry import canonical_name

    try:
        return canonical_name(name)
    except InputError:
        return name


def load_all(names: Sequence[str]) -> "dict[str, nn.Module]":
    """The trained models, by name."""
    from scs_eval.models.checkpoints import load_model

    return {name: load_model(name) for name in names}


def progress(names: list[str]) -> AbstractContextManager[Iterable[str]]:
    """The names with a bar on stderr, if somebody is watching."""
    if not sys.stderr.isatty():
        return nullcontext(names)
    return click.progressbar(names, label="accuracy", file=sys.stderr, item_show_func=lambda name: name)


def input_size_of(name: str) -> int | None:
    """The size a model of the zoo was made for; None takes the images as they are."""
    from scs_eval.models.registry import input_size

    try:
        return input_size(name)
    except InputError:
        return None


def measure(network: "nn.Module", data: "ImageData", *, label: str, batch_size: int) -> "AccuracyResult":
    """The accuracy with what is known of the model from elsewhere."""
    from scs_eval.analyses.accuracy import accuracy

    known = known_of(label)
    return accuracy(
        network, data.images, data.labels, classes=data.classes, label=label, batch_size=batch_size, known=known
    )


def known_of(name: str) -> "Known":
    """What the index of weights and the paper say of a model; of two rows of the paper the later comes first."""
    from scs_eval.analyses.accuracy import Known
    from scs_eval.models.checkpoints import weights_index
    from scs_eval.report.paper import paper_rows

    entry, (paper, earlier) = weights_index().get(name, {}), (*paper_rows().get(name, ()), None, None)[:2]
    facts = {
        "epochs": entry.get("epochs"),
        "train_seconds_per_epoch": entry.get("train_seconds_per_epoch"),
        "eval_seconds_per_epoch": entry.get("eval_seconds_per_epoch"),
        "recorded_accuracy": entry.get("accuracy"),
        "paper_table": paper and paper.table,
        "paper_accuracy": paper and paper.accuracy,
        "paper_train_seconds_per_epoch": paper and paper.train_seconds,
        "paper_eval_seconds_per_epoch": paper and paper.eval_seconds,
        "earlier_paper_table": earlier and earlier.table,
        "earlier_paper_accuracy": earlier and earlier.accuracy,
    }
    return Known(**{key: value for key, value in facts.items() if value is not None})  # type: ignore[typeddict-item]


def together(results: "Sequence[AccuracyResult]", *, label: str) -> "Result":
    """One result as it is, several as a comparison."""
    from scs_eval.analyses.accuracy import AccuracyComparison

    return results[0] if len(results) == 1 else AccuracyComparison.of(results, label=label)
