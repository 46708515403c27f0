"""A trained model from wherever it is: the zoo, a file, a package, a factory. A checkpoint is data, and never run."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.registry import OWN, canonical_name, create_model, default_classes, list_models, resolve

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from scs_eval.models.loading.external import Statistics
    from scs_eval.models.loading.state_dict import StateFile

WEIGHTS = Path(__file__).parent.parent / "weights"
DOCTOR_HINT = ": `scs-eval doctor` says what differs"
DIGITS = re.compile("[0-9]{1,9}")  # of a number of classes
UNTRAINED = "none"  # in place of a file of weights
UNTRAINED_NOTE = "untrained, with random weights: what it shows is its architecture's, not anything learnt"


@dataclass(frozen=True)
class Loaded:
    """A model in evaluation mode, the architecture it has, and in words what was done to load it.

    num_classes: of a zoo network. input_size: the side of the images that a package's network says it takes.
    """

    model: "nn.Module"
    architecture: str
    notes: tuple[str, ...] = ()
    num_classes: int | None = None
    input_size: int | None = None


@cache
def weights_index() -> dict[str, dict[str, Any]]:
    """The shipped weights by canonical name (`NAME@3`): file, sha256, accuracy, recipe, what else training recorded."""
    index: dict[str, dict[str, Any]] = json.loads((WEIGHTS / "index.json").read_text())
    return index


def load_model(
    source: str | Path,
    *,
    arch: str | None = None,
    weights: str | Path | None = None,
    normalize: "str | Statistics | None" = None,
    device: "torch.device | str" = "cpu",
) -> "nn.Module":
    """A network in evaluation mode that takes RGB in [0, 1].

    source: a zoo name; a file (safetensors, or a torch checkpoint of tensors) of a zoo network, of the package `bcos`
        or of Rohrer's scripts; `torchvision:NAME`, `timm:NAME`; `package.module:factory` or `file.py:factory`, which is
        called.
    arch: what a file holds that does not say so itself; any source but a file.
    weights: a file to fill a zoo name, torchvision's network or a factory's with; "none" leaves it untrained.
    normalize: an external model's statistics, put inside it: `imagenet`, `cifar10`, `mean,std` or six numbers.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=2)
    >>> scs_eval.load_model("rohrer25k_scs")(data.images).shape
    torch.Size([2, 10])
    """
    return open_source(source, arch=arch, weights=weights, normalize=normalize, device=device).model


def open_source(
    source: str | Path,
    *,
    arch: str | None = None,
    weights: str | Path | None = None,
    normalize: "str | Statistics | None" = None,
    num_classes: int | None = None,
    device: "torch.device | str" = "cpu",
) -> Loaded:
    """The same as `load_model`, with what was recognised and done on the way.

    num_classes: of an untrained network; None takes as many as it has by default.
    """
    from scs_eval.models.loading.external import is_factory, package_of

    text = str(source)
    if is_file(source):
        if weights is not None:
            raise InputError(
                f"expected weights for a name or a factory; {Path(source).name} is a file of weights itself"
            )
        loaded = _from_file(Path(source), arch, normalize)
    elif package_of(text):
        loaded = _from_package(text, weights, normalize, num_classes)
    elif is_factory(text):
        loaded = _from_factory(text, weights, normalize)
    else:
        loaded = _from_zoo(text, weights, num_classes)
    return replace(loaded, model=_with_statistics(loaded.model, normalize).to(device).eval())


def count_numbers(source: str, num_classes: int | None) -> int:
    """The parameters of an untrained network, which is built without memory for them."""
    import torch

    with torch.device("meta"):
        model = open_source(source, weights=UNTRAINED, num_classes=num_classes, device="meta").model
    return sum(parameter.numel() for parameter in model.parameters())


def is_file(source: str | Path) -> bool:
    """Whether the source is meant as a file of weights."""
    path = Path(source)
    try:
        return path.suffix in (".safetensors", ".pt", ".pth", ".ckpt", ".bin") or path.is_file()
    except OSError:  # a name too long to be a file's
        return False


def _with_statistics(model: "nn.Module", normalize: "str | Statistics | None") -> "nn.Module":
    from scs_eval.models.loading.external import normalised, parse_statistics

    if normalize is None:
        return model
    return normalised(model, parse_statistics(normalize) if isinstance(normalize, str) else normalize)


def _from_zoo(source: str, weights: str | Path | None, num_classes: int | None) -> Loaded:
    name = canonical_name(source)
    if weights == UNTRAINED:
        classes = num_classes or default_classes(name)
        return Loaded(create_model(name, num_classes=classes), name, (UNTRAINED_NOTE,), classes)
    if weights is not None:
        return _from_file(Path(weights), name)
    if name in OWN and OWN[name].trained:
        return Loaded(create_model(name), name)
    entry = weights_index().get(name)
    if entry is None:
        raise InputError(f"no trained weights for {name!r} ({_trained(name)}); `--weights none` takes it untrained")
    file = WEIGHTS / entry["file"]
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry["sha256"]:
        raise InputError(f"the weights of {name!r} are damaged: {file.name} does not match its sha256; reinstall")
    return _from_file(file, None)


def _trained(name: str) -> str:
    """Which seeds of a network are trained, or else which networks."""
    seeds = trained_seeds(name)
    if seeds:
        return f"trained with seed {', '.join(map(str, seeds))}"
    networks = dict.fromkeys(split_seed(trained)[0] for trained in sorted(weights_index()))
    return f"trained: {', '.join(networks) or 'none yet'}"


def trained_seeds(name: str) -> list[int]:
    """The seeds that a network comes trained with, whatever the seed in `name`."""
    network = split_seed(name)[0]
    return sorted(seed for base, seed in map(split_seed, weights_index()) if base == network)


def _from_package(
    source: str, weights: str | Path | None, normalize: "str | Statistics | None", num_classes: int | None
) -> Loaded:
    """A network of torchvision or timm; unless it is untrained, the package's normalisation is put inside.

    The user's word counts more, and so does our own file, whose network was trained on images as they are.
    """
    from scs_eval.models.loading.external import PACKAGES, normalised

    package, _, name = source.partition(":")
    network = PACKAGES[package](name, trained=weights is None, num_classes=None if weights is None else num_classes)
    loaded = Loaded(network.model, source)
    if weights is not None:
        loaded = _filled(network.model, source, weights)
    loaded = replace(loaded, input_size=network.input_size)
    if weights == UNTRAINED or normalize is not None or _is_ours(weights):
        return loaded
    note = f"put {package}'s normalisation ({network.statistics.text}) inside"
    return replace(loaded, model=normalised(network.model, network.statistics), notes=(*loaded.notes, note))


def _is_ours(weights: str | Path | None) -> bool:
    """Whether `train` or `convert` wrote the file."""
    from scs_eval.models.loading.state_dict import metadata_of

    return weights is not None and not metadata_of(Path(weights)).keys().isdisjoint(("name", "converted"))


def _from_factory(source: str, weights: str | Path | None, normalize: "str | Statistics | None") -> Loaded:
    """What the user's function makes. Of timm's networks the input size is known, and what should be inside."""
    from scs_eval.models.loading.external import factory_network, timm_settings

    if weights == UNTRAINED:
        raise InputError(f"expected a file of weights for {source}, or none given: a factory's network has its own")
    model = factory_network(source)
    loaded = Loaded(model, source) if weights is None else _filled(model, source, weights)
    if (settings := timm_settings(model)) is None:
        return loaded
    statistics, size = settings
    note = (f"timm says of this network: --normalize {statistics.text}",) if normalize is None else ()
    return replace(loaded, notes=(*loaded.notes, *note), input_size=size)


def _filled(model: "nn.Module", architecture: str, weights: str | Path) -> Loaded:
    """An external network with the weights of a file, which must fit."""
    if weights == UNTRAINED:
        return Loaded(model, architecture, (UNTRAINED_NOTE,))
    from scs_eval.models.loading.fill import fill
    from scs_eval.models.loading.state_dict import read_state

    file = read_state(Path(weights))
    fill(model, file.state, file=Path(weights).name, name=architecture)
    return Loaded(model, architecture, file.undone)


def _from_file(path: Path, arch: str | None, normalize: "str | Statistics | None" = None) -> Loaded:
    """A file's weights in the network that it names, that the user names, or that they fit alone."""
    from scs_eval.models.loading.external import is_factory, package_of
    from scs_eval.models.loading.fill import fill, refuse_size
    from scs_eval.models.loading.state_dict import read_state

    file = read_state(path)
    if (description := file.metadata.get("converted")) is not None:
        from scs_eval.models.conversion.files import build_converted

        model, name = build_converted(description, file.state, file=path.name, arch=arch)
        fill(model, file.state, file=path.name, name=name)
        return Loaded(model, name, file.undone)
    text = file.metadata.get("num_classes", "")
    classes = int(text) if DIGITS.fullmatch(text) else None
    if arch is None and package_of(file.metadata.get("name", "")):
        arch = file.metadata["name"]
        refuse_size(count_numbers(arch, classes), file.state, file=path.name, name=arch)
        loaded = open_source(arch, weights=UNTRAINED, num_classes=classes)
        fill(loaded.model, file.state, file=path.name, name=arch)
        return replace(loaded, notes=file.undone)
    if arch is not None and package_of(arch):
        return _from_package(arch, path, normalize, classes)
    if arch is not None and is_factory(arch):
        return _from_factory(arch, path, normalize)
    return _zoo_network(path.name, file, arch)


def _zoo_network(file: str, read: "StateFile", arch: str | None) -> Loaded:
    from scs_eval.models.loading.fill import fill
    from scs_eval.models.loading.rohrer_checkpoints import from_gallery, widen_limits

    renamed = from_gallery(read.state)
    state, notes = (read.state, read.undone) if renamed is None else (renamed, (*read.undone, "Rohrer's names"))
    name, classes = _network_of(file, read.metadata, state, arch)
    model = create_model(name, num_classes=classes)
    fill(model, state, file=file, name=name)
    if renamed is not None and widen_limits(model):
        notes = (*notes, "weights beyond ±1 kept")
    return Loaded(model, name, notes, classes)


def _network_of(file: str, metadata: dict[str, str], state: "dict[str, Tensor]", arch: str | None) -> tuple[str, int]:
    """Name and number of classes: the user's word, else the file's, else the only network that fits."""
    from scs_eval.models.loading.fill import refuse_larger
    from scs_eval.models.loading.identify import fit, recognise

    named, classes = metadata.get("name", ""), metadata.get("num_classes", "10")
    if arch is None and _known(named) and DIGITS.fullmatch(classes):
        refuse_larger(named, int(classes), state, file=file)
        return named, int(classes)
    if arch is not None:
        name = canonical_name(arch)
        return name, fit(state, name).num_classes
    matches = recognise(state)
    if len(matches) == 1 and matches[0].exact:
        return matches[0].name, matches[0].num_classes
    raise InputError(f"{file} does not say which network it holds{_guess(matches)}")


def _known(name: str) -> bool:
    return name in list_models() or bool(name and resolve(name, missing_ok=True))


def _guess(matches: list[Any]) -> str:
    """What to try, from the networks that fit or come nearest."""
    if matches[0].exact:
        names = [match.name for match in matches]
        return f"; its tensors fit {len(names)} of the zoo ({', '.join(names[:4])}…): say which with --arch"
    return f", and no network of the zoo fits; nearest is {matches[0].name}{DOCTOR_HINT}"
