"""`scs-eval doctor`: what a checkpoint is, and whether the analyses can work with it."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.cli.data_request import DataRequest
from scs_eval.cli.params import one_model, options_from, source_options
from scs_eval.cli.system_facts import system_facts
from scs_eval.errors import InputError, printable
from scs_eval.models.loading.load import DOCTOR_HINT
from scs_eval.models.loading.sources import ModelSource

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.data import ImageData
    from scs_eval.models.loading.load import Loaded
    from scs_eval.models.loading.sources import NamedModel

SHOWN = 4  # names in a line
IMAGES, LARGE_IMAGES, SMALL = 1000, 40, 64  # images that are looked at; of more pixels than SMALL
EXAMPLES, LARGE_EXAMPLES = 16, 4  # images whose logits are taken apart; of ImageNet's size
Facts = dict[str, str]


@click.command()
@one_model(required=False)
@source_options
@options_from(
    DataRequest, into="data", helps={"n": f"Take this many images.  [default: {IMAGES}, or {LARGE_IMAGES} large ones]"}
)
@click.option("--system", is_flag=True, help="Tell what this installation computes with, not what a model is.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def command(
    context: click.Context,
    model: str | None,
    arch: str | None,
    weights: str | None,
    normalize: str | None,
    data: DataRequest,
    system: bool,
    as_json: bool,
) -> None:
    """Tell what MODEL is: a file of weights, a zoo name, torchvision:NAME, timm:NAME or module:factory.

    For a file: its wrappings, the network its tensors fit, and what is missing. If it can be loaded: classes, input
    size, accuracy on labelled images (--data; by default the bundled sample), whether the usual normalisations would
    make it right more often, one that is missing or one that is doubled, and whether its logits can be taken apart into
    W(x)·x + b(x). If it cannot be loaded, the exit code is 1.

    \b
    Examples:
      scs-eval doctor my_checkpoint.pt
      scs-eval doctor my_checkpoint.pt --arch resnet20_bcos
      scs-eval doctor my_checkpoint.pt --arch my_network.py:MyNetwork
      scs-eval doctor my_network.py:build --data photographs
      scs-eval doctor --system
    """
    from scs_eval.models.loading.load import is_file

    if system == (model is not None):
        raise click.UsageError("Expected MODEL or --system" + (", got both." if system else "."))
    if model is None:
        show(system_facts(), as_json=as_json)
        return

    asked = ModelSource(model, model, arch=arch, weights=weights, normalize=normalize)
    facts: Facts = {
        "source": model,
        **(file_facts(Path(model), arch) if is_file(model) else {}),
        **model_facts(asked, data),
    }
    show({what: printable(value) for what, value in facts.items()}, as_json=as_json)
    context.exit(0 if facts["loads"].startswith("yes") else 1)


def show(facts: Facts, *, as_json: bool) -> None:
    """One fact a line, or JSON."""
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    width = max(map(len, facts))
    for what, value in facts.items():
        click.echo(f"{what:<{width}}  {value}")


def file_facts(path: Path, arch: str | None) -> Facts:
    """What can be known without a network: contents, wrappings, and which networks the tensors fit."""
    from scs_eval.models.loading.rohrer_checkpoints import from_gallery
    from scs_eval.models.loading.state_dict import read_state

    file = read_state(path)
    numbers = sum(value.numel() for value in file.state.values())
    kinds = ", ".join(sorted({str(value.dtype).removeprefix("torch.") for value in file.state.values()}))
    renamed = from_gallery(file.state)
    return {
        "file": f"{path.stat().st_size:,} bytes, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}",
        "holds": f"{len(file.state)} tensors, {numbers:,} numbers, {kinds}",
        "undone": "; ".join([*file.undone, *(["Rohrer's names"] if renamed else [])]) or "nothing",
        "says": ", ".join(f"{key} {value}" for key, value in file.metadata.items() if len(value) < 80) or "nothing",
        **_fit_facts(file.state if renamed is None else renamed, arch),
    }


def _fit_facts(state: "dict[str, Tensor]", arch: str | None) -> Facts:
    """The networks of the zoo that the tensors fit, or what keeps them from the one asked for or the nearest."""
    from scs_eval.models.loading.identify import fit, recognise
    from scs_eval.models.zoo.registry import canonical_name

    if arch is not None and ":" in arch:
        return {}
    matches = [fit(state, canonical_name(arch))] if arch else recognise(state)
    if matches[0].exact:
        return {"fits": _few([match.name for match in matches])}
    parts = {key: _few(list(getattr(matches[0], key))) for key in ("missing", "unexpected", "other_shape")}
    nearest = {"nearest": matches[0].name} if arch is None else {"asked for": matches[0].name}
    return nearest | {key.replace("_", " "): value for key, value in parts.items()}


def model_facts(asked: ModelSource, request: DataRequest) -> Facts:
    """What the loaded network is and does, or why it cannot be loaded and what to try."""
    try:
        named = asked.open()
    except InputError as error:
        return {"loads": f"no: {str(error).replace(DOCTOR_HINT, '')}", "try": _advice(asked)}
    facts = {"loads": f"yes, as {named.architecture}", **_network_facts(named.loaded)}
    size = request.size or named.input_size
    facts |= {"input size": f"{size} pixels" if size else "not known"}
    if named.loaded.notes:
        facts["notes"] = "; ".join(named.loaded.notes)
    for what, value in _prediction_facts(named, request, size).items():
        facts[what] = f"{facts[what]}; {value}" if what in facts else value
    return facts


def _advice(asked: ModelSource) -> str:
    from scs_eval.models.loading.load import is_file

    if not is_file(asked.source):
        return "a name of `scs-eval models`, torchvision:NAME, or module:factory"
    return (
        "--arch with the name of a network of the zoo, or --arch file.py:Class with a class (or function) of your own "
        "that makes the network without arguments"
    )


def _network_facts(loaded: "Loaded") -> Facts:
    from scs_eval.models.layers import AddInverse, Normalize

    modules = list(loaded.model.modules())
    inside = next((repr(module) for module in modules if isinstance(module, Normalize)), None)
    six = "[x, 1-x]" if any(isinstance(module, AddInverse) for module in modules) else None
    numbers = sum(parameter.numel() for parameter in loaded.model.parameters())
    none = "none inside" if ":" in loaded.architecture else "none"
    return {"parameters": f"{numbers:,}", "normalisation": inside or six or none}


def _prediction_facts(named: "NamedModel", request: DataRequest, size: int | None) -> Facts:
    """Number of classes, accuracy, normalisation and completeness, as far as the images can tell."""
    import torch

    few = LARGE_IMAGES if size and size > SMALL else IMAGES
    data = request.read_some(default_n=few, seed=0, size=named.input_size, num_classes=named.num_classes)
    images, model = data.images[:], named.model
    try:
        with torch.no_grad():
            logits = torch.cat([model(part) for part in images.split(100)])
    except (RuntimeError, AssertionError) as error:  # timm asserts its size
        return {"predicts": f"nothing for images of {images.shape[-1]} pixels: {str(error).splitlines()[0]}"}
    if logits.ndim != 2 or not logits.isfinite().all():
        return {"predicts": f"no finite logits: shape {tuple(logits.shape)}"}
    return {
        "classes": str(logits.shape[1]), **_accuracy(logits, data), **_normalisation(named, logits, data),
        **_completeness(model, images),
    }  # fmt: skip


def _accuracy(logits: "Tensor", data: "ImageData") -> Facts:
    from scs_eval.analyses.core.statistics import wilson

    if why := _unlabelled(logits, data):
        return {"accuracy": f"not measured: {why}"}
    right, n = int((logits.argmax(1) == data.labels).sum()), len(data)
    share = wilson(right, n)
    return {"accuracy": f"{right / n:.1%} [{share.low:.1%}, {share.high:.1%}] of {n} images of {data.source}"}


def _unlabelled(logits: "Tensor", data: "ImageData") -> str:
    """Why nobody knows which answers are right; empty if that is known."""
    if not data.labelled:
        return f"the images of {data.source} have no classes"
    if logits.shape[1] != len(data.classes):
        return f"{data.source} has {len(data.classes)} classes; --data takes a folder of the model's own"
    return ""


def _normalisation(named: "NamedModel", logits: "Tensor", data: "ImageData") -> Facts:
    """Of a network from elsewhere: ours have what they need inside."""
    from scs_eval.cli.commands._normalisation import check_normalisation

    if named.loaded.num_classes is not None and named.origin.normalize is None:
        return {}
    if why := _unlabelled(logits, data):
        return {"normalisation": f"not tried: {why}"}
    return {"normalisation": check_normalisation(named.model, data.images[:], data.labels)}


def _completeness(model: "nn.Module", images: "Tensor") -> Facts:
    """Whether the logits are W(x)·x + b(x), and how much of them is bias."""
    from scs_eval.models.explain.decomposition import decompose

    images = images[: EXAMPLES if images.shape[-1] <= SMALL else LARGE_EXAMPLES]
    try:
        parts = decompose(model, images, model(images).argmax(1))
    except (InputError, RuntimeError) as error:
        return {"dynamic-linear": f"no: {str(error).splitlines()[0]}"}
    scale = (parts.contributions.flatten(1).abs().sum(1) + parts.bias.abs()).clamp(min=1e-12)
    gap = (parts.residual.abs() / scale).max().item()
    bias = (parts.bias.abs() / scale).median().item()  # as `contributions` counts it
    verdict = (
        f"{'yes' if gap <= 1e-3 else 'no'}: W(x)·x + b(x) misses the logit by {gap:.1e} of what is added up, at most"
    )
    return {"dynamic-linear": f"{verdict}; the bias is {bias:.2%} of that (median)"}


def _few(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "nothing") + more
