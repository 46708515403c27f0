"""What is known of a model without running it: from its name, from its training, and from the SCS paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.models.loading.load import is_file
from scs_eval.models.loading.sources import ModelSource
from scs_eval.models.zoo.names import split_seed
from scs_eval.report.factors import FACTORS, factors_of

if TYPE_CHECKING:
    from scs_eval.analyses.accuracy import Known
    from scs_eval.reference.scs_paper import PaperRow

CIFAR10 = ("sample", "cifar10")  # sources of its images; one also says which part it is: cifar10:test


def known_facts(model: ModelSource, architecture: str, *, data: str) -> "Known":
    """Further columns of the table of accuracy; of two rows of the paper the later comes first.

    Training and paper are about CIFAR-10, so beside other data only the name tells something.
    """
    from scs_eval.analyses.accuracy import Known
    from scs_eval.reference.epochs import paper_epochs
    from scs_eval.reference.scs_paper import paper_figures

    network = split_seed(architecture)[0]
    factors = factors_of(network)
    facts: dict[str, Any] = {"network": network, **{key: factors[key] for key in FACTORS}} if factors else {}
    if data.partition(":")[0] in CIFAR10:
        facts |= {"paper_epochs": paper_epochs(network)}
        facts |= _beside_paper(training_of(model), (*paper_figures().get(network, ()), None, None)[:2])
    return Known(**{key: value for key, value in facts.items() if value is not None})  # type: ignore[typeddict-item]


def training_of(model: ModelSource) -> dict[str, Any]:
    """How the weights came about: as the index of the zoo says, or the file itself if `scs-eval train` wrote it."""
    if not is_file(model.source):
        return model.shipped()
    metadata = metadata_of_file(model.source)
    if metadata.get("data") != "cifar10" or "test_accuracy" not in metadata:
        return {}
    numbers: dict[str, Any] = {
        key: float(metadata[key]) for key in ("train_seconds_per_epoch", "eval_seconds_per_epoch") if key in metadata
    }
    on_test = {"accuracy": float(metadata["test_accuracy"])} if metadata.get("validation", "0") == "0" else {}
    return {"epochs": int(metadata["epochs"]), "seed": int(metadata["seed"]), **numbers, **on_test}


def metadata_of_file(source: str) -> dict[str, str]:
    """What a file of weights says of itself; nothing if there is no such file."""
    from scs_eval.models.loading.state_dict import metadata_of

    return metadata_of(Path(source)) if Path(source).is_file() else {}


def _beside_paper(entry: dict[str, Any], rows: "Sequence[PaperRow | None]") -> dict[str, Any]:
    paper, earlier = rows
    return {
        "seed": entry.get("seed"),
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
