"""Progress as a user sees it: a bar on a terminal, a line now and then in a log."""

import io
import subprocess
import sys
import time

import pytest

from scs_eval import progress as module
from scs_eval.progress import CostProgress, log_lines, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """No fixture: pytest sets stderr anew between a fixture and its test."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    return screen


def test_a_bar_shows_label_count_and_item(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress("pgd [bold]x", 10) as advance:
        advance(4, "rohrer100k_scs\x1b[31m")
        advance(6)
    shown = terminal.getvalue()
    assert "pgd [bold]x" in shown  # a name is no markup
    assert "10/10" in shown
    assert "\x1b[31m" not in shown
    assert "rohrer100k_scs" in shown


def test_a_resumed_bar_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress("grids", 10) as advance:
        advance(1)
        advance.resume(4)
        advance(2)
    assert "7/10" in terminal.getvalue()


def test_a_short_log_has_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("pgd", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_a_long_log_has_a_line_even_while_one_step_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FIRST_LINE", 0.01)
    monkeypatch.setattr(module, "EVERY_LINE", 0.01)
    with progress("pgd", 2000) as advance:
        advance.resume(1000)
        advance(500)
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert lines[0].startswith("pgd: 1,500 of 2,000, about 0 s left")  # 500 more in as long as the 500 since took


def test_a_command_has_lines_before_and_after_it_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FIRST_LINE", 0.01)
    monkeypatch.setattr(module, "EVERY_LINE", 0.01)
    with log_lines("pgd"):
        time.sleep(0.1)
        with progress("sweep", 8):
            time.sleep(0.1)
        time.sleep(0.1)
    kinds = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before] == [
        "pgd",
        "sweep",
        "pgd",
    ]


def test_of_several_processes_the_first_talks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FIRST_LINE", 0.01)
    monkeypatch.setenv("RANK", "1")
    with log_lines("pgd"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_closed_log_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_LINE", 0.01)
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress("pgd", 2) as advance:
        log.close()
        time.sleep(0.05)
        advance(1)


def test_costs_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with CostProgress("compare, %") as bar:
        bar.begin(cost=0.3, finished=0)
        for _ in range(3):
            bar.advance(0.1, "saliency")
    assert "100/100" in terminal.getvalue()


def test_the_first_line_does_not_wait_for_torch() -> None:
    """On a busy machine its import takes longer than a reader waits, and to ask what a file holds imports it."""
    code = (
        "import sys; from scs_eval.cli import request; from scs_eval.cli.main import main\n"
        "def log_lines(label): sys.exit(' '.join([label, *sorted({'torch', 'numpy'}.intersection(sys.modules))]))\n"
        "request.log_lines = log_lines; main()"
    )
    model = ["torchvision:resnet18", "--weights", "none", "--normalize", "imagenet"]
    words = [sys.executable, "-c", code, "accuracy", *model]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stderr == "accuracy\n"
