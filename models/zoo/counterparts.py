"""The convolution twins of a network, and the network that it is compared with."""

from collections.abc import Mapping
from dataclasses import replace

from scs_eval.models.zoo.names import spell, split_seed, with_seed
from scs_eval.models.zoo.registry import resolve


def twins(model: str) -> list[str]:
    """Names of a zoo network's convolution twin, nearest first: with the same options, then with a convolution's own.

    `rohrer100k_scs` has no activation and MaxAbsPool, so its nearest twin is `rohrer100k_conv_linear_maxabspool`; the
    other is `rohrer100k_conv`. An option that a convolution network cannot have is left out. Those of the model's own
    seed come first. A convolution network, or one that is not of the zoo, has none.
    """
    resolved = resolve(model, missing_ok=True)
    if resolved is None or resolved[1].layer == "conv" or "conv" not in resolved[0].defaults:
        return []
    family, variant = resolved
    default = replace(family.defaults["conv"], architecture=variant.architecture)
    possible = family.choices["conv"]
    words = {option: getattr(variant, option) for option in ("activation", "pooling", "norm", "training")}
    same = replace(default, **{option: word for option, word in words.items() if word in possible.get(option, ())})
    usual = replace(default, training=variant.training)
    names = dict.fromkeys([spell(same, default), spell(usual, default)])
    seed = split_seed(model)[1]
    return list(dict.fromkeys([with_seed(name, seed) for name in names] + list(names)))


def reference_of(model: str) -> str | None:
    """What a zoo network is compared with: its architecture's convolution network with default activation and pooling.

    The rule names one network, whichever others are there: `rohrer100k_conv` for `rohrer100k_scs`, of the same seed;
    a hardened network has the hardened one.
    None for that network itself, and for one that is not of the zoo or has no such convolution network.
    """
    resolved = resolve(model, missing_ok=True)
    if resolved is None or "conv" not in resolved[0].defaults:
        return None
    family, variant = resolved
    default = replace(family.defaults["conv"], architecture=variant.architecture)
    usual = replace(default, training=variant.training)
    return None if variant == usual else with_seed(spell(usual, default), split_seed(model)[1])


def references_of(networks: Mapping[str, str], *, asked: str | None = None) -> dict[str, str]:
    """What each model is compared with: label → label, nothing for a reference itself.

    networks: label → the model's name in the zoo, or whatever it is. asked: the reference of all models, of the same
    seed where that is there. Without it a network of the zoo has that of `reference_of`, also if that is not among the
    models (then there is no test, rather than another reference); a model under a name of one's own has it if it is
    there, else the first model named.
    """
    first = next(iter(networks), "")
    labels = {network: label for label, network in reversed(list(networks.items()))}
    references = {}
    for label, network in networks.items():
        by_rule = reference_of(network)
        sibling = with_seed(split_seed(asked)[0], split_seed(network)[1]) if asked else ""
        name = sibling if sibling in networks else asked or labels.get(by_rule or "", by_rule)
        if name not in networks and (label != network or resolve(network, missing_ok=True) is None):
            name = first
        if name is not None and name != label:
            references[label] = name
    return references
