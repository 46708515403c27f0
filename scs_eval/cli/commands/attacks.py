"""`scs-eval attacks`: the attacks, what they do, their norms, budget and cost."""

from typing import Any

from scs_eval.analyses.attacks.kinds import ATTACKS, AttackKind, find_attack
from scs_eval.cli.listing import list_command, show_json, show_table


@list_command("attacks", ATTACKS, find_attack)
def command(chosen: list[AttackKind], as_json: bool) -> None:
    """List the attacks: source, what they do, their norms, their usual budget, which options they heed.

    NAMES are some of them; without any, all. `pgd --attack` takes options behind hyphens (apgd-dlr-targeted,
    pgd-l2-40; targeted-malt begins with the class that a linear model has nearest), `autoattack` and `autoattack-malt`
    for the four of that name, and classes of other packages: torchattacks:NAME, foolbox:NAME.
    """
    if as_json:
        show_json([_row(kind) for kind in chosen])
        return
    show_table(
        ("name", "source", "does", "norms", "budget", "heeds"),
        [
            (kind.name, kind.source, kind.does, ", ".join(kind.norms), _budget(kind), ", ".join(kind.reads) or "–")
            for kind in chosen
        ],
    )


def _budget(kind: AttackKind) -> str:
    return f"{kind.steps:,} {kind.unit}"


def _row(kind: AttackKind) -> dict[str, Any]:
    return {
        "name": kind.name, "source": kind.source, "does": kind.does, "norms": list(kind.norms), "steps": kind.steps,
        "unit": kind.unit, "cost": kind.cost * kind.steps, "heeds": list(kind.reads),
    }  # fmt: skip
