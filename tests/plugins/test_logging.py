"""What the library has to say goes through `logging`, and nobody hears it who did not ask."""

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = (
    "import scs_eval\n\n@scs_eval.register_method('quiet')\ndef quiet(model, images, targets):\n    return images\n"
)
WORK = """
import logging, sys
{setup}
import scs_eval
scs_eval.load_plugin(sys.argv[1])
data = scs_eval.load_data("sample", n=2)
scs_eval.saliency("rohrer25k_scs", data, method="quiet", options=scs_eval.SaliencyOptions(samples=0))
assert not logging.getLogger("scs_eval").handlers
assert logging.getLogger("scs_eval").level == logging.NOTSET
"""


@pytest.mark.parametrize(("setup", "heard"), [("", False), ("logging.basicConfig(level=logging.INFO)", True)])
def test_silent_by_default_and_heard_by_who_asks(setup: str, heard: bool, tmp_path: Path) -> None:
    plugin = tmp_path / "quiet_plugin.py"
    plugin.write_text(PLUGIN)
    run = [sys.executable, "-c", WORK.format(setup=setup), str(plugin)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == ""
    assert done.stderr == (f"INFO:scs_eval.plugins:plugin {plugin} loaded\n" if heard else "")
