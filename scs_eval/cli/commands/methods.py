"""`scs-eval methods`: the attribution methods, what they measure, need and cost, and where they fail."""

from typing import Any

from scs_eval.analyses.attribution.methods import METHODS, Method, find_method
from scs_eval.cli.listing import list_command, show_json, show_table


@list_command("methods", METHODS, find_method)
def command(chosen: list[Method], as_json: bool) -> None:
    """List the attribution methods: source, what a map measures, its cost, what it needs, where it fails.

    NAMES are some of them; without any, all. captum:NAME is a class of captum.attr (such as captum:GuidedGradCam),
    normgrad:LAYER is NormGrad at that module of the network.
    """
    if as_json:
        show_json([_row(method) for method in chosen])
    else:
        _show(chosen)


def _row(method: Method) -> dict[str, Any]:
    return {
        "name": method.name, "label": method.label, "source": method.source, "measures": method.measures,
        "quantity": method.quantity, "resolution": method.resolution, "explains": method.on,
        "class_specific": method.class_specific, "adds_up_to": method.adds_up_to, "passes": method.passes,
        "cost": method.cost, "needs": list(method.needs), "fails": method.fails,
    }  # fmt: skip


def _show(methods: list[Method]) -> None:
    show_table(
        ("name", "source", "measures", "cost", "needs", "fails"),
        [
            (method.name, method.source, _measures(method), method.cost, ", ".join(method.needs) or "–", method.fails)
            for method in methods
        ],
    )


def _measures(method: Method) -> str:
    """With the traits by which methods differ."""
    traits = [method.quantity, *([] if method.resolution == "pixel" else ["coarse"])]
    traits += [] if method.on == "logit" else ["of the probability"]
    traits += [] if method.class_specific else ["the same for every class"]
    traits += [f"adds up to the {method.adds_up_to}"] if method.adds_up_to else []
    return f"{method.measures} ({', '.join(traits)})"
