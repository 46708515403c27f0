"""A comparison as a folder: its own tables and figures, a folder for each analysis, and report.html."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.analyses.compare.result import CompareResult
from scs_eval.files import write_text
from scs_eval.report.html.page import comparison_page
from scs_eval.report.model_card import model_card
from scs_eval.report.write import FigureError, join_errors, write_result

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.models.loading.sources import NamedModel

PAGE = "report.html"


def write_comparison(
    result: CompareResult,
    out: str | Path,
    *,
    models: "Mapping[str, nn.Module | NamedModel] | None" = None,
    gates: Sequence[tuple[str, bool]] = (),
    command: Sequence[str] = (),
    failures: list[FigureError] | None = None,
    progress: Callable[[int, str], None] | None = None,
) -> Path:
    """Write a comparison into the directory `out` and return where its page is.

    models: by label; the page has a card for each, which knows more of one that `ModelSource.open` loaded.
    gates: conditions, and whether each is met. command: the words of the command line, for run.json.
    failures: takes an error for each figure that cannot be drawn, as in `write_result`. progress: called after each
    analysis with 1 and its name. What is in `out` is replaced as `write_result` does.

    >>> import scs_eval, tempfile
    >>> models = {name: scs_eval.load_model(name) for name in ("rohrer25k_scs", "rohrer25k_conv")}
    >>> result = scs_eval.compare(models, scs_eval.load_data("sample", n=20), analyses=["accuracy"])
    >>> scs_eval.write_comparison(result, tempfile.mkdtemp() + "/both", models=models).name
    'report.html'
    """
    failed = [] if failures is None else failures
    cards = {label: model_card(label, model, result) for label, model in (models or {}).items()}

    def beside(folder: Path, run: dict[str, Any]) -> None:
        for name, part in result.parts.items():
            write_result(part, folder / name, command=command, failures=failed)
            if progress is not None:
                progress(1, name)
        text = comparison_page(result, folder=folder, cards=cards, run=run, images=result.image_indices, gates=gates)
        write_text(folder / PAGE, text)

    written = write_result(result, out, command=command, beside=beside, failures=failed)
    if failed and failures is None:
        raise join_errors(failed, out)
    return written / PAGE
