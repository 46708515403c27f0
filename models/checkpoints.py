"""A trained model from wherever it is: the zoo, a file, torchvision, a factory. A checkpoint is data, and never run."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.registry import canonical_name, create_model, default_classes, list_models, resolve

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from scs_eval.models.foreign import Statistics
    from scs_eval.models.state_files import StateFile

WEIGHTS = Path(__file__).parent / "weights"
UNTRAINED = "none"  # in place of a file of weights
UNTRAINED_NOTE = "untrained, with random weights: what it shows is its architecture's, not anything learnt"


@dataclass(frozen=True)
class Loaded:
    """A model in evaluation mode, the architecture it has, and in words what was done to load it."""

    model: "nn.Module"
    architecture: str
    notes: tuple[str, ...] = ()
    num_classes: int | None = None  # of a zoo network


@cache
def weights_index() -> dict[str, dict[str, Any]]:
    """The shipped weights: canonical model name to file, sha256, accuracy, recipe and what else training recorded."""
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
        or of Rohrer's scripts; `torchvision:NAME`; `package.module:factory` or `file.py:factory`, which is called.
    arch: what a file holds that does not say so itself; any source but a file.
    weights: a file to fill a zoo name, torchvision's network or a factory's with; "none" leaves it untrained.
    normalize: a foreign model's statistics, put inside it: `imagenet`, `cifar10`, `mean,std` or six numbers.
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
    """The same as `load_model`, with what was found out and done on the way.

    num_classes: of an untrained network; None takes as many as it has by default.
    """
    from scs_eval.models.foreign import is_factory

    text = str(source)
    if is_file(source):
        if weights is not None:
            raise InputError(
                f"expected weights for a name or a factory; {Path(source).name} is a file of weights itself"
            )
        loaded = _from_file(Path(source), arch)
    elif text.startswith("torchvision:"):
        loaded = _from_torchvision(text.removeprefix("torchvision:"), weights, normalize, num_classes)
    elif is_factory(text):
        loaded = _from_factory(text, weights)
    else:
        loaded = _from_zoo(text, weights, num_classes)
    return replace(loaded, model=_with_statistics(loaded.model, normalize).to(device).eval())


def is_file(source: str | Path) -> bool:
    """Whether the source is meant as a file of weights."""
    path = Path(source)
    return path.suffix in (".safetensors", ".pt", ".pth", ".ckpt", ".bin") or path.is_file()


def _with_statistics(model: "nn.Module", normalize: "str | Statistics | None") -> "nn.Module":
    from scs_eval.models.foreign import normalised, parse_statistics

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
    entry = weights_index().get(name)
    if entry is None:
        trained = ", ".join(sorted(weights_index())) or "none yet"
        raise InputError(f"no trained weights for {name!r} (trained: {trained}); `--weights none` takes it untrained")
    file = WEIGHTS / entry["file"]
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry["sha256"]:
        raise InputError(f"the weights of {name!r} are damaged: {file.name} does not match its sha256; reinstall")
    return _from_file(file, None)


def _from_torchvision(
    name: str, weights: str | Path | None, normalize: "str | Statistics | None", num_classes: int | None
) -> Loaded:
    from scs_eval.models.foreign import normalised, torchvision_network

    model, statistics = torchvision_network(
        name, trained=weights is None, num_classes=num_classes if weights == UNTRAINED else None
    )
    architecture = f"torchvision:{name}"
    if weights is not None:
        return _filled(model, architecture, weights)
    if statistics is None or normalize is not None:  # the user's word counts more
        return Loaded(model, architecture)
    return Loaded(normalised(model, statistics), architecture, ("put torchvision's normalisation inside",))


def _from_factory(source: str, weights: str | Path | None) -> Loaded:
    from scs_eval.models.foreign import factory_network

    model = factory_network(source)
    return Loaded(model, source) if weights is None else _filled(model, source, weights)


def _filled(model: "nn.Module", architecture: str, weights: str | Path) -> Loaded:
    """A foreign network with the weights of a file, which must fit."""
    if weights == UNTRAINED:
        return Loaded(model, architecture, (UNTRAINED_NOTE,))
    from scs_eval.models.state_files import read_state

    file = read_state(Path(weights))
    _load(model, file.state, file=Path(weights).name, name=architecture)
    return Loaded(model, architecture, file.undone)


def _from_file(path: Path, arch: str | None) -> Loaded:
    """A file's weights in the network that it names, that the user names, or that they fit alone."""
    from scs_eval.models.foreign import is_factory
    from scs_eval.models.state_files import read_state

    file = read_state(path)
    if (description := file.metadata.get("converted")) is not None:
        from scs_eval.models.converted_files import build_converted

        model, name = build_converted(description, arch=arch)
        _load(model, file.state, file=path.name, name=name)
        return Loaded(model, name, file.undone)
    if arch is not None and (arch.startswith("torchvision:") or is_factory(arch)):
        loaded = open_source(arch, weights=UNTRAINED if arch.startswith("torchvision:") else None)
        _load(loaded.model, file.state, file=path.name, name=arch)
        return Loaded(loaded.model, arch, file.undone)
    return _zoo_network(path.name, file, arch)


def _zoo_network(file: str, read: "StateFile", arch: str | None) -> Loaded:
    from scs_eval.models.gallery_files import from_gallery, widen_limits

    renamed = from_gallery(read.state)
    state, notes = (read.state, read.undone) if renamed is None else (renamed, (*read.undone, "Rohrer's names"))
    name, classes = _network_of(file, read.metadata, state, arch)
    model = create_model(name, num_classes=classes)
    _load(model, state, file=file, name=name)
    if renamed is not None and widen_limits(model):
        notes = (*notes, "weights beyond ±1 kept")
    return Loaded(model, name, notes, classes)


def _network_of(file: str, metadata: dict[str, str], state: "dict[str, Tensor]", arch: str | None) -> tuple[str, int]:
    """Name and number of classes: the user's word, else the file's, else the only network that fits."""
    said, classes = metadata.get("name", ""), metadata.get("num_classes", "10")
    if arch is None and _known(said) and classes.isdigit():
        return said, int(classes)
    from scs_eval.models.recognition import fit, recognise

    if arch is not None:
        name = canonical_name(arch)
        return name, fit(state, name).num_classes
    found = recognise(state)
    if len(found) == 1 and found[0].exact:
        return found[0].name, found[0].num_classes
    raise InputError(f"{file} does not say which network it holds{_guess(found)}")


def _known(name: str) -> bool:
    return name in list_models() or bool(name and resolve(name, missing_ok=True))


def _guess(found: list[Any]) -> str:
    """What to try, from the networks that fit or come nearest."""
    if found[0].exact:
        names = [match.name for match in found]
        return f"; its tensors fit {len(names)} of the zoo ({', '.join(names[:4])}…): say which with --arch"
    return f", and no network of the zoo fits; nearest is {found[0].name}: `scs-eval doctor` says what differs"


def _load(model: "nn.Module", state: "dict[str, Tensor]", *, file: str, name: str) -> None:
    """Fill the network strictly, or say in one line what does not fit."""
    try:
        found = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        first = next((line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise InputError(f"the weights in {file} do not fit {name}: {first}") from error
    if found.missing_keys or found.unexpected_keys:
        missing, unexpected = _few(found.missing_keys), _few(found.unexpected_keys)
        raise InputError(f"the weights in {file} do not fit {name}: missing {missing}; unexpected {unexpected}")
    if not all(value.isfinite().all() for value in state.values()):
        raise InputError(f"the weights in {file} hold NaN or infinity; the model may not have been trained to the end")


def _few(keys: list[str], *, most: int = 3) -> str:
    return (", ".join(keys[:most]) or "nothing") + (f" and {len(keys) - most} more" if len(keys) > most else "")
