"""What the name of a zoo network says, as columns: for tables that compare layers, activations and poolings."""

from typing import TYPE_CHECKING

from scs_eval.errors import InputError
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.registry import resolve

if TYPE_CHECKING:
    import pandas as pd

FACTORS = "layer", "activation", "pooling"


def with_factors(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with columns layer, activation, pooling and seed behind the others, if its models are of the zoo.

    A table that has such a column already, or none called `model`, stays as it is.
    """
    if "model" not in table or set(table) & {*FACTORS, "seed"}:
        return table
    named = {name: factors_of(str(name)) for name in table["model"].unique()}
    if not any(named.values()):
        return table
    columns = {key: table["model"].map(lambda name, key=key: named[name].get(key)) for key in (*FACTORS, "seed")}
    return table.assign(**columns)


def factors_of(name: str) -> dict[str, str | int | None]:
    """Layer, activation, pooling and seed of a zoo network; nothing of any other."""
    try:
        resolved = resolve(name, missing_ok=True)
    except InputError:  # a zoo network with an option that it does not have
        resolved = None
    if resolved is None:
        return {}
    return {**{key: getattr(resolved[1], key) for key in FACTORS}, "seed": split_seed(name)[1]}
