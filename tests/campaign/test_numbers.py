"""Numbers and words on the command line that mean nothing: exit 2 and one line, before any work."""

from pathlib import Path

import pytest
from hostile import assert_refused, command, few_images

from scs_eval.data import cifar10

MODEL = "rohrer25k_conv"


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network a failed download would pass for a refusal."""
    monkeypatch.setattr(cifar10, "read_cifar10", few_images)


EPS = [
    "", ":", "::", "0.1:", ":0.1", "0.1:0.2:", "0.1:0.2:0", "0.1:0.2:-3", "0.1:0.2:1.5", "0.1:0.2:1000000000000",
    "0.2:0.1", "-0.1:0.1", "nan", "inf", "0.1:inf", "8/0", "8/255/2", "1/²", "a", "0.1,,0.2", "0.1;0.2", "9" * 5000,
    "1e-400:1e-300:x", "0.1:0.2:3:4", "8／255",
]  # fmt: skip


@pytest.mark.parametrize("eps", EPS, ids=lambda eps: ascii(eps)[:30])
def test_eps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eps: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(command("pgd", "--model", MODEL, "-n", "10", "--eps", eps))
    assert not list(tmp_path.iterdir())


OPTIONS = {
    "pgd": ["-n", "--seed", "--steps", "--batch-size"],
    "saliency": ["-n", "--seed"],
    "localisation": ["-n", "--seed", "--grid"],
    "faithfulness": ["-n", "--seed", "--steps"],
    "contributions": ["-n", "--seed"],
    "accuracy": ["-n", "--seed", "--batch-size"],
}
SOME = ["-1", "1.5", "nan", "²", "", "9" * 5000, "a"]
CASES = [(name, option, number) for name, options in OPTIONS.items() for option in options for number in SOME]


@pytest.mark.parametrize(("name", "option", "number"), CASES, ids=lambda value: ascii(value)[:20])
def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str, number: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(command(name, "--model", MODEL, option, number))
    assert not list(tmp_path.iterdir())


TRAINING = [
    ("--lr", "inf"), ("--lr", "nan"), ("--lr", "0"), ("--lr", "-1"), ("--lr", "²"),
    ("--epochs", "0"), ("--epochs", "-3"),
    ("--epochs", "1.5"), ("--epochs", "9" * 5000), ("--batch-size", "0"), ("--weight-decay", "-1"),
    ("--weight-decay", "inf"), ("--label-smoothing", "2"), ("--optimizer", "nothing"), ("--seed", "-1"),
    ("--seed", str(2**70)), ("--recipe", "nothing"), ("--validation", "-5"), ("--validation", "60000"),
    ("--train-images", "-1"), ("--train-images", "60000"),
    ("--data", "nothing"), ("--init-from", "nothing.pt"), ("--schedule", "nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), TRAINING, ids=lambda value: ascii(value)[:20])
def test_training(tmp_path: Path, option: str, value: str) -> None:
    words = [
        "train",
        "--model",
        MODEL,
        "--out",
        str(tmp_path / "run"),
        "--epochs",
        "1",
        "--batch-size",
        "20",
        option,
        value,
    ]
    assert_refused(command(*words))
    assert not (tmp_path / "run").exists()


WORDS = [
    ("saliency", "--method", "nothing"), ("saliency", "--method", "\x1b[31m"), ("saliency", "--class", "unicorn"),
    ("saliency", "--indices", "99999999"), ("saliency", "--normalize", "0.5,inf"), ("saliency", "--normalize", "0.5,0"),
    ("saliency", "--normalize", "nan"), ("saliency", "--normalize", "0.5,"), ("saliency", "--device", "cuda:99"),
    ("saliency", "--device", "nothing"), ("saliency", "--data", "nothing"), ("saliency", "--arch", "nothing"),
    ("saliency", "--weights", "nothing.pt"), ("pgd", "--attack", "nothing"), ("pgd", "--norm", "l3"),
    ("pgd", "--loss", "nothing"), ("localisation", "--protocol", "nothing"), ("localisation", "--grids", "nothing.csv"),
    ("faithfulness", "--method", ""), ("compare", "--analyses", "nothing"), ("compare", "--images", "pgd=²"),
    ("compare", "--images", "pgd"), ("compare", "--fail-if", "accuracy"), ("compare", "--fail-if", "accuracy < ²"),
    ("compare", "--fail-if", "__import__('os') < 1"), ("compare", "--fail-if", "accuracy < " + "9" * 5000),
    ("data", "--size", "100000"), ("convert", "--layer", "nothing"), ("dynamics", "nothing", ""), ("models", "@", "@"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "value"), WORDS, ids=lambda value: ascii(value)[:25])
def test_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    model = {"data": ["sample"], "dynamics": [], "models": []}.get(name, ["--model", MODEL])
    assert_refused(command(name, *model, option, value))
    assert not list(tmp_path.iterdir())


LABELS = [
    "x" * 3000,
    "$\\frac{$",
    "\udcff",
    "\x1b[31m",
    "a/b",
    "..",
    "a\nb",
    "<script>alert(1)</script>",
    "\u202e",
    "\x00",
    "%s%n",
]


@pytest.mark.parametrize("label", LABELS, ids=lambda label: ascii(label)[:20])
def test_labels_work_or_are_refused_before_the_work(tmp_path: Path, label: str) -> None:
    out = tmp_path / "out"
    run = command("accuracy", f"{label}={MODEL}", "-n", "10", "--out", str(out))
    if run.code == 0:
        assert (out / "table.csv").is_file()
        assert (out / "figure.png").is_file()
        assert "\x1b" not in run.stdout
    else:
        assert_refused(run)
        assert not out.exists()
