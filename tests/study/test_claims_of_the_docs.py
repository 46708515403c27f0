"""What README and docs/findings.md say of the papers' claims is what the committed rows of the studies say."""

import re
from pathlib import Path

import pandas as pd
import pytest

from scs_eval.analyses.study.plan import read_plan
from scs_eval.report.findings import claim_list, marks, number

ROOT = Path(__file__).parents[2]
PLANS = "scs-paper", "bcos-paper"
ROWS = {plan: pd.read_csv(ROOT / "docs" / f"claims-{plan}.csv") for plan in PLANS}
NUMBER = r"(?:sparseness|class_correlation|robust_area|accuracy|localisation) [+−][\d.]+ \[[−\d., ]+\]"


@pytest.mark.parametrize("plan", PLANS)
def test_findings_are_those_of_the_rows(plan: str) -> None:
    first, last = marks(plan)
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert text.partition(first)[2].partition(last)[0] == f"\n\n{claim_list(ROWS[plan])}\n"


@pytest.mark.parametrize("plan", PLANS)
def test_the_rows_are_of_the_plan_as_it_is(plan: str) -> None:
    main = ROWS[plan][ROWS[plan]["main"]]
    assert main["claim"].unique().tolist() == [claim.text for claim in read_plan(plan).claims]


def test_a_claim_over_methods_is_shown_by_both() -> None:
    rows = ROWS["bcos-paper"]
    grad_cam = rows[rows["claim"].str.contains("Grad-CAM")]
    assert grad_cam["command"].str.endswith(" --method wx --method gradcam").tolist() == [True, True]


def test_numbers_of_the_readme_are_numbers_of_decided_rows_or_said_to_be_undecided() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    shown = re.findall(NUMBER, readme)
    known = [table[table["main"] & table["effect"].notna()] for table in ROWS.values()]
    rows = {number(row): row for table in known for _, row in table.iterrows()}
    assert len(shown) == 8
    for text in shown:
        assert text in rows, f"{text} is of no study's claims"
        undecided = "leaves undecided" in readme.partition(text)[0][-60:]
        assert (rows[text]["verdict"] == "undecided") == undecided
