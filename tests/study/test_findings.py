"""Sentences of a page from a study's claims: as strong as their rows, and the same as the rows beside them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scs_eval import InputError
from scs_eval.report.findings import claim_list, marks, write_findings

PAGE = "Head\n{}\nold\n{}\nTail\n"
ROW: dict[str, Any] = {
    "number": 1, "source": "s", "claim": "SCS is sparser.", "verdict": "supported", "observed": "as claimed",
    "part": "all", "main": True, "metric": "sparseness", "effect": 0.027, "low": -0.01, "high": 0.037, "p_value": 0.001,
    "p_holm": 0.004, "standardised": 1.0, "seeds_for_half": 3, "n": 100, "trainings": 5, "scope": "5 trainings",
    "test": "t", "command": "scs-eval saliency x",
}  # fmt: skip


def test_sentences_are_as_strong_as_their_rows(tmp_path: Path) -> None:
    alone = {**ROW, "claim": "One.", "verdict": "undecided", "scope": "this network only", "trainings": 1}
    none = {
        **ROW,
        "claim": "None.",
        "verdict": "undecided",
        "effect": np.nan,
        "observed": "no such pair",
        "p_holm": np.nan,
    }
    by_part = {**ROW, "claim": "Part.", "main": False}
    text = claim_list(pd.DataFrame([none, alone, ROW, by_part])).splitlines()
    number, rest = "sparseness +0.027 [−0.010, 0.037]", "p = 0.004 after Holm's correction. `scs-eval saliency x`"
    assert text == [
        f"- SCS is sparser. **Supported**: {number}, 5 pairs of networks, n = 100, {rest}",
        "- None. **Undecided**: no such pair. `scs-eval saliency x`",
        f"- One. **Undecided** (as claimed in this network): {number}, 1 pair of networks, n = 100, {rest}",
    ]


def test_a_page_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "findings.md"
    page.write_text(PAGE.format(*marks("mine")))
    rows = write_findings(pd.DataFrame([ROW]), "mine", page)
    first, last = marks("mine")
    assert page.read_text() == f"Head\n{first}\n\n{claim_list(pd.read_csv(rows))}\n{last}\nTail\n"
    again = page.read_text()
    write_findings(pd.DataFrame([ROW]), "mine", page)
    assert page.read_text() == again
    with pytest.raises(InputError, match="claims of other"):
        write_findings(pd.DataFrame([ROW]), "other", page)
