"""Which convolution network is another network's twin."""

from dataclasses import replace

from scs_eval.models.names import spell
from scs_eval.models.registry import resolve


def twins(model: str) -> list[str]:
    """Names of a zoo network's convolution twin, nearest first: with the same options, then with a convolution's own.

    `rohrer100k_scs` has no activation and MaxAbsPool, so its nearest twin is `rohrer100k_conv_linear_maxabspool`; the
    other is `rohrer100k_conv`. A convolution network, or one that is not of the zoo, has none.
    """
    found = resolve(model, missing_ok=True)
    if found is None or found[1].layer == "conv" or "conv" not in found[0].defaults:
        return []
    family, variant = found
    default = replace(family.defaults["conv"], architecture=variant.architecture)
    same = replace(default, activation=variant.activation, pooling=variant.pooling, norm=variant.norm)
    return list(dict.fromkeys([spell(same, default), spell(default, default)]))
