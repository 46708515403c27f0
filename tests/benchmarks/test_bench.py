"""The benchmark's arithmetic on times made up by hand, its command in miniature, and its peers against ours."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from closeness import close

from scs_eval.analyses.catalogue import compared
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.study.plan import read_plan
from scs_eval.benchmarks import (
    attacks,
    autoattack,
    epochs,
    explanations,
    faithfulness,
    layers,
    loading,
    run,
    startup,
    strength,
    together,
)
from scs_eval.benchmarks import contest as contest_module
from scs_eval.benchmarks.contest import Growth, Settings, Target, contest, grow
from scs_eval.benchmarks.peers import plain_twin, published_cnn9, published_resnet20
from scs_eval.benchmarks.publish import PUBLISHED, publish
from scs_eval.benchmarks.rohrer_layer import ChannelSumSCS, PublishedSCS, published_rohrer
from scs_eval.benchmarks.run import bench
from scs_eval.cli.commands import bench as command
from scs_eval.cli.main import cli
from scs_eval.models.architectures.bcos_cnn import gamma
from scs_eval.models.zoo.registry import create_model

COMMON = {"suite": "layers", "what": "it", "against": "them"}


def test_ratios_say_what_the_target_asks():
    faster = Target(**COMMON, goal=4, faster=True, ours=(1.0, 2.0, 1.0), theirs=(4.0, 8.2, 5.0))
    assert faster.ratios.tolist() == [4.0, 4.1, 5.0]
    assert (faster.reached, faster.met) == (4.1, True)
    slower = Target(**COMMON, goal=1.25, faster=False, ours=(1.2, 1.3, 1.4), theirs=(1.0, 1.0, 1.0))
    assert (slower.reached, slower.met) == (1.3, False)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when a contender says how long it took: no test waits, none depends on a busy machine."""
    now = [0.0]
    monkeypatch.setattr(contest_module.time, "perf_counter", lambda: now[0])

    def take(seconds):
        now[0] += seconds

    return take


def test_contenders_take_turns_and_the_first_rounds_do_not_count(clock):
    order = []
    runs = {"slow": lambda: (order.append("s"), clock(2.0)), "fast": lambda: (order.append("f"), clock(0.5))}
    seconds = contest(runs, rounds=3, warmup=1)
    assert seconds == {"slow": (2.0, 2.0, 2.0), "fast": (0.5, 0.5, 0.5)}
    assert "".join(order) == "sffssffs"  # every round both, each time another first


def test_exponent_of_a_known_law(clock):
    measured = grow("s", "w", "c", {n: lambda n=n: clock(3.0 * n**2) for n in (1, 2, 4)}, rounds=3)
    assert measured.cost == (3.0, 12.0, 48.0)
    assert measured.exponent == pytest.approx(2)


def result():
    targets = [
        Target(**COMMON, goal=4, faster=True, ours=(1.0, 1.0), theirs=(5.0, 4.5)),
        Target(**COMMON, goal=1.25, faster=False, ours=(1.5, 1.6), theirs=(1.0, 1.0)),
    ]
    growths = [Growth(suite="s", what="w", counted="values of ε", sizes=(1.0, 2.0), cost=(0.1, 0.3))]
    return run.BenchResult.of(targets, growths, ["a peer is missing"], label="layers", settings={"threads": 2})


def test_table_and_figures():
    found = result()
    assert found.summary()["met"].tolist() == ["yes", "no"]
    assert found.summary()["reached"].tolist() == ["4.75× faster", "1.55×"]
    assert found.table()["target"].tolist() == ["≥ 4", "≤ 1.25"]
    assert set(found.figures()) == {"figure", "growth_values_of_eps"}
    assert {"table", "growth", "conditions"} == set(found.tables())


def test_numbers_stay_clear_of_the_rows_names_and_rows_fill_the_figure():
    targets = [
        Target(**COMMON, goal=10, faster=True, ours=(1.0,), theirs=(theirs,))
        for theirs in (0.1, 1, 2, 4, 8, 12, 20, 45, 900)
    ]
    figure = run.BenchResult.of(6 * targets, [], [], label="layers", settings={}).figure()
    figure.canvas.draw()
    (ax,) = figure.axes
    frame, texts = ax.get_window_extent(), [text.get_window_extent() for text in ax.texts]
    assert all(frame.x0 <= text.x0 and text.x1 <= frame.x1 for text in texts)
    row = texts[1].y0 - texts[0].y0
    assert frame.y1 - texts[-1].y1 < row, "no blank margin above"
    assert texts[0].y0 - frame.y0 < row, "nor below"


def test_what_the_repository_shows_is_written_by_one_command(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "docs").mkdir()
    publish(result(), tmp_path)
    table = pd.read_csv(tmp_path / "benchmarks" / "bench.csv")
    assert table["reached"].tolist() == result().table()["reached"].tolist()
    assert {path.name for path in tmp_path.glob("*/*")} == {"bench.csv", "growth.csv", "conditions.csv", "speed.png"}
    committed = pd.read_csv(Path(run.__file__).parent / "bench.csv")
    assert list(committed) == list(table)
    assert set(PUBLISHED) < set(run.SUITES)


def test_command_writes_table_figure_and_conditions(monkeypatch, tmp_path):
    def few(settings, say):
        say("the package bcos is not installed: skipped")
        yield Target(**COMMON, goal=4, faster=True, ours=(1.0,), theirs=(5.0,))

    monkeypatch.setattr(layers, "targets", few)
    monkeypatch.setattr(layers, "growths", lambda settings, say: iter(()))
    out = tmp_path / "bench"
    done = CliRunner().invoke(command.command, ["--suite", "layers", "--rounds", "1", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "not installed" in done.output
    assert {"table.csv", "figure.png", "conditions.csv", "run.json"} <= {path.name for path in out.iterdir()}
    conditions = (out / "conditions.csv").read_text()
    assert all(word in conditions for word in ("cpu", "threads", "torch", "rounds", "layers"))


def test_a_saved_result_comes_back(tmp_path):
    result().save(tmp_path)
    assert load_result(tmp_path).table().equals(result().table())


def test_what_was_measured_before_an_interruption_is_kept(monkeypatch):
    def broken(settings, say):
        yield Target(**COMMON, goal=4, faster=True, ours=(1.0,), theirs=(5.0,))
        raise KeyboardInterrupt

    monkeypatch.setattr(layers, "targets", broken)
    lines, told = [], []
    found = bench(["layers", "startup"], say=lines.append, tell=told.append)
    assert found.table()["reached"].tolist() == [5.0]
    assert told == ["it against them: 5.00× faster (target ≥ 4× faster)"]
    assert lines == ["interrupted: what follows was not measured"]


def test_a_suite_that_fails_costs_only_its_own_rest(monkeypatch, tmp_path):
    def broken(settings, say):
        yield Target(**COMMON, goal=4, faster=True, ours=(1.0,), theirs=(5.0,))
        raise RuntimeError("no memory")

    monkeypatch.setattr(layers, "targets", broken)
    monkeypatch.setattr(
        startup, "targets", lambda settings, say: [Target(**COMMON, goal=1, faster=True, ours=(1.0,), theirs=(2.0,))]
    )
    words = ["--suite", "layers", "--suite", "startup", "--no-growth", "--out", str(tmp_path / "bench")]
    done = CliRunner().invoke(command.command, words)
    assert done.exit_code == 1
    assert "layers failed, and the rest of it was not measured: no memory" in done.output
    assert load_result(tmp_path / "bench").table()["reached"].tolist() == [5.0, 2.0]


@pytest.mark.parametrize("missing", ["torchattacks", "foolbox", "quantus", "bcos"])
def test_a_missing_peer_is_a_line(monkeypatch, missing):
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    lines: list[str] = []
    if missing in attacks.GOALS:
        assert missing not in dict(attacks._installed(lines.append))
    elif missing == "quantus":
        assert list(faithfulness.targets(Settings(rounds=1), lines.append)) == []
    else:
        monkeypatch.setattr(layers, "_compare", lambda name, task, models, goals, settings: [list(goals)])
        found = list(layers._bcos(Settings(rounds=1), lines.append))
        assert all("published" not in goals for goals in found)
    assert lines
    assert all(f"{missing} is not installed" in line for line in lines)


def test_a_peer_makes_each_of_its_attacks_once_and_counts_them_all(monkeypatch, clock):
    """A round has a part of them, whose seconds count for all."""
    asked, images = [], torch.rand(2, 3, 32, 32)

    def peer(model, images, labels, eps):
        asked.append(eps)
        clock(2.0)
        return 0.5

    def ours(*_, **__):
        clock(1.0)
        return SimpleNamespace(robust_accuracy=torch.full((30,), 0.25).numpy())

    monkeypatch.setattr(attacks, "_sweep", ours)
    speed, excess = attacks._against({"foolbox": peer}, "name", None, images, None)
    assert sorted(asked) == attacks.parse_range(attacks.EPS)
    assert speed.theirs == pytest.approx([60.0] * attacks.ROUNDS)
    assert speed.reached == pytest.approx(60)
    assert excess.ours == pytest.approx((-25.0,))


def test_faithfulness_is_timed_on_the_values_of_quantus():
    given = faithfulness.case(3)
    for name, (ours, theirs) in faithfulness.pairs(given).items():
        found, wanted = ours(), theirs()
        assert found.shape == wanted.shape, name
        faithfulness.check_agreement(name, found, wanted)
        with pytest.raises(RuntimeError, match=name):
            faithfulness.check_agreement(name, found + 0.01, wanted)


def test_a_comparison_is_timed_against_every_analysis_it_makes():
    """Alone, at the size of the comparison, by options that the commands know."""
    commands = together.alone()
    known = {entry.name: cli.get_command(None, entry.name) for entry in compared().values() if entry.command}
    assert len(commands) == len(compared())
    for (name, *words), entry in zip(commands, compared().values(), strict=True):
        if not entry.command:
            assert (name, words[-2:]) == ("compare", ["--analyses", entry.name])
            continue
        flags = {flag for option in known[name].params for flag in option.opts}
        assert {word for word in words if word.startswith("-")} <= flags
        assert entry.size is None or str(entry.size) in words


def test_a_study_is_measured_against_all_of_its_analyses():
    commands, plan = together.studied_alone(), read_plan(together.STUDY).quickened()
    kinds = [(part.models != ()) + (part.untrained != ()) for part in plan.parts]
    assert len(commands) == sum(len(part.sizes) * kind for part, kind in zip(plan.parts, kinds, strict=True)) > 3
    for name, *words in commands:
        options = cli.get_command(None, name).params
        flags = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= flags


def test_why_a_target_is_missed_stands_beside_those_that_are():
    missed = Target(**COMMON, goal=4, faster=True, ours=(1.0,), theirs=(3.0,), why="because")
    met = Target(**COMMON, goal=2, faster=True, ours=(1.0,), theirs=(3.0,), why="because")
    found = run.BenchResult.of([missed, met], [], [], label="layers", settings={})
    assert found.table()["why"].tolist() == ["because", ""]


@pytest.mark.parametrize(
    ("name", "peer"), [("resnet20_bcos", published_resnet20), ("bcos_cnn9", lambda: published_cnn9(gamma(2.0)))]
)
def test_peer_is_the_same_network(name, peer):
    """Else the comparison would be of two different things."""
    ours, theirs = create_model(name, seed=0).double(), peer().double()
    shapes = [sorted(tuple(p.shape) for p in model.parameters()) for model in (ours, theirs)]
    assert shapes[0] == shapes[1]
    values = {tuple(p.shape): [] for p in ours.parameters()}
    for p in ours.parameters():
        values[tuple(p.shape)].append(p.detach())
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(values[tuple(p.shape)].pop(0))
    x = torch.rand(2, 3, 32, 32, dtype=torch.double)
    logits = [model.train()(x) for model in (ours, theirs)]
    spread = [each - each.mean(1, keepdim=True) for each in logits]  # theirs has no logit bias
    # Up to the temperature that ours divides by; 1e-8 because the published layer squares and takes roots elsewhere.
    close(spread[0] / spread[0].abs().max(), spread[1] / spread[1].abs().max(), 1e-8)


@pytest.mark.parametrize("layer", [PublishedSCS, ChannelSumSCS])
def test_published_layer_is_ours(layer):
    theirs, ours = published_rohrer((32, 64, 128), 2048, layer), create_model("rohrer100k_scs", seed=0)
    with torch.no_grad():
        for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
            yours.copy_(mine)
    x = torch.rand(2, 3, 32, 32)
    close(ours(x), theirs(x), 1e-4)  # float32 through three layers


def test_twin_has_the_same_kernels():
    ours = create_model("resnet20_bcos")
    twin = plain_twin(ours)
    assert sum(p.numel() for p in twin.parameters() if p.ndim == 4) == sum(
        p.numel() for p in ours.parameters() if p.ndim == 4
    )
    assert twin(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_every_suite_has_a_command_line_name():
    assert set(command.SUITES) == set(run.SUITES)
    suites = (
        layers, epochs, loading, attacks, autoattack, strength, faithfulness, explanations, together, startup
    )  # fmt: skip
    assert {suite.SUITE for suite in suites} == set(run.SUITES)


def test_loading_is_measured_against_a_training_step(monkeypatch):
    monkeypatch.setattr(loading, "IMAGES", 40)
    found = list(loading.targets(Settings(rounds=2, batch=8), print))
    assert [(line.goal, line.faster, len(line.ours), len(line.theirs)) for line in found] == [(0.1, False, 2, 2)]


def test_threads_are_put_back():
    before = torch.get_num_threads()
    bench([], settings=Settings(threads=before + 1))
    assert torch.get_num_threads() == before


def test_help_imports_nothing_heavy():
    """A load-independent witness of the start-up target: the modules that make a start slow are not there."""
    code = (
        "import sys; import scs_eval.cli.main as m; m.cli.main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())  # above it is the help, which speaks of torch
    assert not loaded & {"torch", "numpy", "pandas", "matplotlib", "scs_eval.benchmarks"}
    assert "bench" in done.stdout


def test_the_symlink_is_relative():
    assert (Path(run.__file__).parent.parent.parent / "benchmarks").resolve() == Path(run.__file__).resolve().parent


def test_an_epoch_and_an_accuracy_beside_plain_loops(monkeypatch):
    monkeypatch.setattr(epochs, "TRAINING_IMAGES", 64)
    rows = list(epochs.targets(Settings(rounds=1, batch=32, most_images=300), print))
    assert [len(row.ours) for row in rows] == [1, 1]
    assert all(row.ours[0] > 0 and row.theirs[0] > 0 for row in rows)
