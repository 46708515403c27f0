"""Models as they are asked for: names, patterns, files, torchvision, factories, each with a label. No torch here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError, check_name
from scs_eval.models.loading import load as loading
from scs_eval.models.zoo.names import split_seed

if TYPE_CHECKING:
    import torch
    from torch import nn

    from scs_eval.models.loading.load import Loaded

UNTRAINED = "none"  # --weights none: every network untrained


@dataclass(frozen=True)
class ModelSource:
    """A model that is not loaded yet: what it is called, where it comes from, and how it is to be loaded.

    arch: what a file holds. weights: a file for a network, or "none". normalize: statistics to put inside.
    """

    label: str
    source: str
    arch: str | None = None
    weights: str | None = None
    normalize: str | None = None

    def open(self, *, num_classes: int | None = None, device: "torch.device | str" = "cpu") -> "NamedModel":
        """Load it. num_classes: of an untrained network, where that is not as it is by default."""
        untrained = num_classes if self.weights == UNTRAINED else None
        loaded = loading.open_source(
            self.source, arch=self.arch, weights=self.weights, normalize=self.normalize, num_classes=untrained,
            device=device,
        )  # fmt: skip
        return NamedModel(self, loaded)

    def shipped(self) -> dict[str, Any]:
        """What the index of shipped weights says of it; nothing if it has other weights."""
        return loading.weights_index().get(self.source, {}) if self.weights is None else {}

    @property
    def accuracy(self) -> float | None:
        """How often it was right when it was trained: of shipped weights by the index, of a file by its own word."""
        if self.weights is None and (known := self.shipped().get("accuracy")) is not None:
            return float(known)
        file = self.weights or self.source
        if file == UNTRAINED or not loading.is_file(file):
            return None
        from scs_eval.models.loading.state_dict import metadata_of

        return _share(metadata_of(Path(file)).get("test_accuracy"))


def _share(text: Any) -> float | None:
    """A share from 0 to 1 that a file states; None for anything else."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 <= value <= 1 else None


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A loaded model and where it comes from."""

    origin: ModelSource
    loaded: "Loaded"

    @property
    def label(self) -> str:
        """What tables and figures call it."""
        return self.origin.label

    @property
    def model(self) -> "nn.Module":
        """The network itself, in evaluation mode."""
        return self.loaded.model

    @property
    def architecture(self) -> str:
        """What it was found to be."""
        return self.loaded.architecture

    @property
    def num_classes(self) -> int | None:
        """How many classes it tells apart, if that can be known without running it."""
        from scs_eval.models.loading.outputs import count_outputs

        return self.loaded.num_classes or count_outputs(self.model)

    @property
    def input_size(self) -> int | None:
        """The side of the images it was made for, if that is known."""
        return self.loaded.input_size or input_size_of(self.architecture)


def input_size_of(architecture: str) -> int | None:
    """The side of the images an architecture was made for; None where that is not known."""
    from scs_eval.models.loading.external import package_input_size, package_of
    from scs_eval.models.zoo.registry import input_size

    name = architecture.partition(" as ")[0]  # what a converted network was
    try:
        return package_input_size(name) if package_of(name) else input_size(name)
    except InputError:
        return None


def parse_sources(
    texts: Sequence[str], *, arch: str | None = None, weights: str | None = None, normalize: str | None = None
) -> tuple[ModelSource, ...]:
    """What was asked for, each once: names and files as they are, patterns as the trained models that match.

    Nothing means all trained models. `LABEL=SOURCE` is known by its label. arch, weights and normalize go to those
    models that cannot do without.
    """
    sources: dict[str, ModelSource] = {}
    for text in texts or ["*"]:
        for asked in _expand(text, untrained=weights == UNTRAINED):
            if sources.setdefault(asked.label, asked) != asked:
                raise InputError(f"two models are called {asked.label!r}; label them as A={asked.source}")
    return tuple(_with_options(list(sources.values()), arch=arch, weights=weights, normalize=normalize))


def _expand(text: str, *, untrained: bool) -> list[ModelSource]:
    label, source = split_label(text)
    if not is_pattern(source):
        name = _canonical(source)
        own = label or (f"{name} (untrained)" if untrained else name)
        check_name(own, what="label")
        return [ModelSource(own, name)]
    if label:
        raise InputError(f"expected one model for the label {label!r}, got the pattern {source!r}")
    return [ModelSource(name, name) for name in _matching(source)]


def is_pattern(source: str) -> bool:
    """Whether the text is a shell-style pattern of names, and no file is called so."""
    return any(sign in source for sign in "*?[") and not _is_there(source)


def _is_there(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def split_label(text: str) -> tuple[str | None, str]:
    """`LABEL=SOURCE` in two; a zoo name (`…_b=1.5`) or a file with an equals sign in it stays whole."""
    label, equals, source = text.partition("=")
    if not equals or not label or not source or _is_there(text) or _is_zoo(text):
        return None, text
    return label, source


def _is_zoo(name: str) -> bool:
    from scs_eval.models.zoo.registry import list_models, resolve

    try:
        return name in list_models() or resolve(name, missing_ok=True) is not None
    except InputError:  # a network of the zoo with an option it does not have: the loader says so
        return True


def _canonical(name: str) -> str:
    """A zoo name in its one spelling; anything else as it is."""
    from scs_eval.models.zoo.registry import canonical_name

    try:
        return canonical_name(name)
    except InputError:
        return name


def _matching(pattern: str) -> list[str]:
    """Trained models by name; a pattern with an @ in it also chooses seeds, any other means seed 0.

    `rohrer100k_*` asks for layers; another training, as of the hardened networks, is asked for by its word.
    """
    with_seeds = "@" in pattern
    spelled = {name: split_seed(name) for name in trained_models() if "hardened" in pattern or "hardened" not in name}
    names = [
        name
        for name, (network, seed) in spelled.items()
        if fnmatchcase(f"{network}@{seed}" if with_seeds else name, pattern) and (with_seeds or seed == 0)
    ]
    if not names:
        raise InputError(f"no trained model matches {pattern!r}; `scs-eval models` shows which are trained")
    return names


def trained_models() -> list[str]:
    """Names of the models that weights are shipped for, in the order of the zoo and of their seeds."""
    from scs_eval.models.zoo.registry import list_models

    order = {name: rank for rank, name in enumerate(list_models())}
    split = [(*split_seed(name), name) for name in loading.weights_index()]
    return [name for *_, name in sorted(split, key=lambda parts: (order.get(parts[0], len(order)), *parts))]


def trained_twin(architecture: str, *, device: "torch.device | str" = "cpu") -> "tuple[str, nn.Module | None]":
    """The nearest convolution twin that weights are shipped for, and its name."""
    from scs_eval.models.zoo.counterparts import twins

    name = next((twin for twin in twins(architecture) if twin in loading.weights_index()), None)
    return ("", None) if name is None else (name, loading.load_model(name, device=device))


def trained_reference(
    architecture: str, *, seed: int | None = None, device: "torch.device | str" = "cpu"
) -> "tuple[str, nn.Module | None]":
    """The convolution network that the zoo compares a network with, if weights are shipped for it, and its name.

    seed: of the network's training, where its name does not have it. Without weights of that seed, those of seed 0.
    """
    from scs_eval.models.zoo.counterparts import reference_of
    from scs_eval.models.zoo.names import split_seed, with_seed

    wanted = reference_of(with_seed(architecture, seed) if seed else architecture)
    names = [] if wanted is None else [wanted, split_seed(wanted)[0]]
    name = next((name for name in names if name in loading.weights_index()), None)
    return ("", None) if name is None else (name, loading.load_model(name, device=device))


def _with_options(
    sources: list[ModelSource], *, arch: str | None, weights: str | None, normalize: str | None
) -> Iterator[ModelSource]:
    """Each option for the models that need it; one that no model needs raises."""
    texts = [asked.source for asked in sources]
    named = _needing_arch(texts) if arch else set()
    if arch and not any(loading.is_file(text) for text in texts):
        raise InputError(f"--arch {arch} says what a file holds, and no model here is a file; leave it out")
    filled = _needing_weights(texts, weights) if weights else set()
    external = _needing_statistics(texts, filled) if normalize else set()
    for asked in sources:
        yield replace(
            asked,
            arch=arch if asked.source in named else None,
            weights=weights if asked.source in filled else None,
            normalize=normalize if asked.source in external else None,
        )


def _needing_arch(sources: Sequence[str]) -> set[str]:
    """Files; of several, those that do not say themselves what they hold."""
    files = {source for source in sources if loading.is_file(source)}
    return files if len(files) == 1 else {source for source in files if not _says_network(source)}


def _needing_weights(sources: Sequence[str], weights: str) -> set[str]:
    """Whatever is no file itself; a file of weights is for one of them, and if there are several for the untrained."""
    networks = {source for source in sources if not loading.is_file(source)}
    if weights == UNTRAINED:
        from scs_eval.models.loading.external import is_factory

        if not (ours := {source for source in networks if not is_factory(source)}) and networks:
            raise InputError("--weights none is for names: the network that a factory makes has the weights it made")
        return ours
    if len(networks) > 1:
        networks = {source for source in networks if source not in loading.weights_index()}
    if len(networks) != 1:
        got = f"got {len(networks)} ({', '.join(sorted(networks))})" if networks else "got none"
        raise InputError(f"expected one model that the file of --weights is for, {got}; give files by themselves")
    return networks


def _needing_statistics(sources: Sequence[str], filled: set[str]) -> set[str]:
    """Networks from elsewhere, and zoo networks `filled` with a file: ours have their normalisation inside."""
    external = {
        source
        for source in sources
        if source in filled or (not _says_network(source) if loading.is_file(source) else ":" in source)
    }
    if not external:
        raise InputError("--normalize is for networks from elsewhere; those asked for have theirs inside")
    return external


def _says_network(source: str) -> bool:
    """Whether a file says which network it holds."""
    from scs_eval.models.loading.state_dict import metadata_of

    return not metadata_of(Path(source)).keys().isdisjoint(("name", "converted"))
