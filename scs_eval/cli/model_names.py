"""Model names on the command line, with tab completion that needs no torch."""

import click
from click.shell_completion import CompletionItem


class ModelName(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic only in newer click
    """The name of a zoo model, or a shell-style pattern of names."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that start with what was typed."""
        from scs_eval.models.registry import list_models

        return [CompletionItem(name) for name in list_models() if name.startswith(incomplete)]


MODEL = ModelName()
