"""The convolution twins of a network, and the network that it is compared with."""

from dataclasses import replace

from scs_eval.models.zoo.names import spell, split_seed, with_seed
from scs_eval.models.zoo.registry import resolve


def twins(model: str) -> list[str]:
    """Names of a zoo network's convolution twin, nearest first: with the same options, then with a convolution's own.

    `rohrer100k_scs` has no activation and MaxAbsPool, so its nearest twin is `rohrer100k_conv_linear_maxabspool`; the
    other is `rohrer100k_conv`. Those of the model's own seed come first. A convolution
    network, or one that is not of the zoo, has none.
    """
    resolved = resolve(model, missing_ok=True)
    if resolved is None or resolved[1].layer == "conv" or "conv" not in resolved[0].defaults:
        return []
    family, variant = resolved
    default = replace(family.defaults["conv"], architecture=variant.architecture)
    same = replace(default, activation=variant.activation, pooling=variant.pooling, norm=variant.norm)
    names = dict.fromkeys([spell(same, default), spell(default, default)])
    seed = split_seed(model)[1]
    return list(dict.fromkeys([with_seed(name, seed) for name in names] + list(names)))


def reference_of(model: str) -> str | None:
    """What a zoo network is compared with: its architecture's convolution network with default activation and pooling.

    The rule names one network, whichever others are there: `rohrer100k_conv` for `rohrer100k_scs`, of the same seed.
    None for that network itself, and for one that is not of the zoo or has no such convolution network.
    """
    resolved = resolve(model, missing_ok=True)
    if resolved is None or "conv" not in resolved[0].defaults:
        return None
    family, variant = resolved
    default = replace(family.defaults["conv"], architecture=variant.architecture)
    return None if variant == default else with_seed(spell(default, default), split_seed(model)[1])
