"""What README and docs/findings.md say of the SCS paper's claims is what the committed rows of the study say."""

import re
from pathlib import Path

import pandas as pd

from scs_eval.analyses.study.plan import read_plan
from scs_eval.report.findings import claim_list, marks, number

ROOT = Path(__file__).parents[2]
ROWS = pd.read_csv(ROOT / "docs" / "claims-scs-paper.csv")
NUMBER = r"(?:sparseness|class_correlation|robust_area|accuracy) [+−][\d.]+ \[[−\d., ]+\]"


def test_findings_are_those_of_the_rows() -> None:
    first, last = marks("scs-paper")
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert text.partition(first)[2].partition(last)[0] == f"\n\n{claim_list(ROWS)}\n"


def test_the_rows_are_of_the_plan_as_it_is() -> None:
    main = ROWS[ROWS["main"]]
    assert main["claim"].unique().tolist() == [claim.text for claim in read_plan("scs-paper").claims]


def test_numbers_of_the_readme_are_numbers_of_decided_rows_or_said_to_be_undecided() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    shown = re.findall(NUMBER, readme)
    rows = {number(row): row for _, row in ROWS[ROWS["main"] & ROWS["effect"].notna()].iterrows()}
    assert len(shown) == 6
    for text in shown:
        assert text in rows, f"{text} is not of claims-scs-paper.csv"
        undecided = "leaves undecided" in readme.partition(text)[0][-60:]
        assert (rows[text]["verdict"] == "undecided") == undecided
