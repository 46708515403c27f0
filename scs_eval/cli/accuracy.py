"""`scs-eval accuracy`: how often each model is right, beside the paper."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.cli.options import data_options, load_images
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.sources import asked_for, choose_models, input_size_of, load_all, source_of, source_options

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.accuracy import AccuracyResult, Known
    from scs_eval.analyses.result import Result
    from scs_eval.data import ImageData


@click.command()
@click.argument("models", nargs=-1, type=MODEL, metavar="[MODEL]...")
@source_options
@data_options()
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

    MODEL is a name of the zoo, a pattern such as 'rohrer100k*' (trained models only), a checkpoint, torchvision:NAME or
    module:factory; LABEL=MODEL names it in the table. Without any, all trained models are measured. The table also has
    the parameters, the seconds of an epoch in training, and the row of the SCS paper with the same settings; of
    Rohrer100K the paper has two (Tables 6 and 1: other initial weights), and both are shown.

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
    with progress("accuracy", len(names)) as advance:
        for name in names:
            advance(0, name)
            found = images(input_size_of(name))
            result = measure(networks[name].to(device), found, label=name, batch_size=batch_size)
            results.append(result.with_settings(data_settings(found, seed=seed)))
            advance(1)
    finish(together(results, label=out.name), out)


def measure(network: "nn.Module", data: "ImageData", *, label: str, batch_size: int) -> "AccuracyResult":
    """The accuracy with what is known of the model from elsewhere."""
    from scs_eval.analyses.accuracy import accuracy

    known = known_of(source_of(label), data=data.source)
    return accuracy(
        network, data.images, data.labels, classes=data.classes, label=label, batch_size=batch_size, known=known
    )


def known_of(name: str, *, data: str) -> "Known":
    """What the index of weights and the paper say of a model; of two rows of the paper the later comes first.

    All of it is about CIFAR-10, so beside other data there is nothing to know.
    """
    from scs_eval.analyses.accuracy import Known
    from scs_eval.data.load import NAMES
    from scs_eval.models.checkpoints import weights_index
    from scs_eval.report.paper import paper_rows

    if data.partition(":")[0] not in NAMES:  # a source also says which part it is: cifar10:test
        return Known()
    entry = weights_index().get(name, {}) if asked_for()["weights"] is None else {}  # else they are other weights
    paper, earlier = (*paper_rows().get(name, ()), None, None)[:2]
    facts = {
        "epochs": entry.get("epochs"),
        "paper_epochs": entry.get("paper_epochs"),
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
