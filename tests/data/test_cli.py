import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from PIL import Image

from scs_eval.cli.main import main


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run `scs-eval data …` with an empty cache and no network: exit code, stdout, stderr."""

    def no_network(*args, **kwargs):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCS_EVAL_DATA", raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", no_network)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["scs-eval", "data", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def photos(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (30, 20)).save(tmp_path / "photos" / name / "0.png")
    (tmp_path / "photos" / "dog" / "1.png").write_text("no image")
    return tmp_path / "photos"


def test_overview(run, tmp_path):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "sample" in out
    assert "1,000" in out
    assert "not found" in out
    assert f"{tmp_path / 'cache' / 'scs-eval'}  (user cache)" in out


def test_overview_as_json(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SCS_EVAL_DATA", str(tmp_path / "variable"))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").touch()
    code, out, _ = run("--json", "--data-dir", tmp_path)
    found = json.loads(out)
    assert code == 0
    assert found["sample"]["images"] == 1000
    assert found["sample"]["size"] == [32, 32]
    assert len(found["sample"]["classes"]) == 10
    assert found["cifar10"]["found"] == {"test": str(tmp_path / "cifar-10-batches-bin"), "train": None}
    assert found["cifar10"]["looked_in"] == [
        {"named_by": "--data-dir", "path": str(tmp_path)},
        {"named_by": "$SCS_EVAL_DATA", "path": str(tmp_path / "variable")},
        {"named_by": "user cache", "path": str(tmp_path / "cache" / "scs-eval")},
    ]


def test_contents(run):
    code, out, err = run("sample", "-n", 20, "--size", 8)
    assert (code, err) == (0, "")
    assert "airplane" in out
    assert out.endswith("20 images of 8×8 from sample\n")


def test_skip_bad_says_how_many(run, photos):
    code, out, err = run(photos, "--size", 8, "--skip-bad", "--json")
    assert code == 0
    assert json.loads(out) == {"source": str(photos), "images": 2, "size": [8, 8], "classes": {"cat": 1, "dog": 1}}
    assert err == f"Warning: skipped 1 unreadable image, the first {photos / 'dog' / '1.png'}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sampel"], "did you mean sample?"),
        (["/no/such/folder"], "there is no such folder"),
        (["sample", "-n", 1001], "expected n of at most 1000"),
        (["sample", "-n", 0], "at least 1, got 0"),
        (["cifar10"], "no network in tests"),
        (["cifar10", "--data-dir", "/no/such/folder"], "expected a folder as --data-dir"),
        (["-n", 5], "need a SOURCE"),
        (["sample", "--sede", 1], "No such option"),
    ],
)
def test_wrong_requests_exit_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_wrong_folder_exits_2(run, photos):
    for arguments, message in (
        ([photos, "--size", 8], "1.png (none of BMP"),
        ([photos, "--size", 8, "-n", 3, "--skip-bad"], "at most 2, "),
        ([photos, "--skip-bad"], "got 30×20"),
        ([photos / "cat"], "got 30×20"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("Error: expected ")
        assert err.count("\n") == 1
        assert message in err


def test_wrong_file_size_exits_2(run, tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 3073)
    code, _, err = run("cifar10", "--data-dir", tmp_path)
    assert code == 2
    assert "expected 30730000 bytes" in err
    assert "got 3073" in err


def test_the_overview_does_not_import_torch():
    script = (
        "import sys; sys.argv = ['scs-eval', 'data', '--json']\n"
        "from scs_eval.cli.main import main; main()\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sample"]["images"] == 1000
