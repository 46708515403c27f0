"""One file for interrupted and for finished work, valid for the very same work alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from results import make
from torch import nn

from scs_eval.analyses.core import outcomes
from scs_eval.analyses.core.cache import ResultCache, key_of
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.errors import InputError

IMAGES = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3))


def test_a_fingerprint_depends_on_all_that_the_outcome_depends_on() -> None:
    model, labels = network(), torch.arange(6)
    moved = IMAGES.clone()
    moved[0] = IMAGES[0].flip(0)  # blue for red: the sums are the same
    other = network()
    with torch.no_grad():
        other[1].bias[0] += 1e-6
    wider = nn.Sequential(nn.Flatten(), nn.Dropout(), model[1])
    key = fingerprint(model, (IMAGES, labels), {"a": 1})
    assert key == fingerprint(network(), (IMAGES.clone(), labels.clone()), {"a": 1})
    changed = [
        fingerprint(model, (IMAGES, labels), {"a": 2}),
        fingerprint(model, (IMAGES.flip(0), labels), {"a": 1}),
        fingerprint(model, (moved, labels), {"a": 1}),
        fingerprint(model, (IMAGES, labels.flip(0)), {"a": 1}),
        fingerprint(model, (IMAGES, labels.int()), {"a": 1}),
        fingerprint(model, (IMAGES.reshape(6, 3, 2, 8), labels), {"a": 1}),
        fingerprint(other, (IMAGES, labels), {"a": 1}),
        fingerprint(wider, (IMAGES, labels), {"a": 1}),
    ]
    assert len({key, *changed}) == 9


def test_a_file_is_replaced_whole_and_belongs_to_its_work(tmp_path: Path) -> None:
    store = Checkpoint(tmp_path / "p.npz", "k")
    assert store.load() == {}
    store.save({"scores": np.ones(3)})
    store.save({"scores": np.ones(4)})
    assert len(store.load()["scores"]) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["p.npz"]
    assert Checkpoint(tmp_path / "p.npz", "another").load() == {}
    store.remove()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half", b"\x93NUMPY\x01\x00", None], ids=str)
def test_a_file_that_is_no_checkpoint_counts_as_missing_or_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "p.npz"
    if content is None:
        np.savez(path, key=np.array("k"), trap=np.array([object()]))
    else:
        path.write_bytes(content)
    assert Checkpoint(path, "k").load() == {}
    with pytest.raises(InputError, match="is damaged"):
        Checkpoint(path, "k", own=True).load()


def test_the_users_own_file_of_other_work_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "p.npz", "k").save({})
    with pytest.raises(InputError, match="belongs to another model"):
        Checkpoint(tmp_path / "p.npz", "other", own=True).load()


def test_a_result_comes_back_and_ends_what_was_unfinished(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    assert cache.get("a") is None
    Checkpoint(cache.unfinished("a"), "inner").save({"done": np.ones(2)})
    assert cache.get("a") is None, "unfinished work is no result"
    cache.put("a", make())
    found = cache.get("a")
    assert found is not None
    assert found.table().equals(make().table())
    assert not cache.unfinished("a").exists()
    assert cache.get("b") is None


def test_without_reading_all_is_done_again(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    cache.put("a", make())
    Checkpoint(cache.unfinished("b"), "inner").save({"done": np.ones(2)})
    afresh = ResultCache(tmp_path, read=False)
    assert afresh.get("a") is None
    assert not afresh.unfinished("b").exists()
    afresh.put("a", make(hits=1))
    again = cache.get("a")
    assert again is not None
    assert again.table()["accuracy"].tolist() == [0.25]


def test_the_key_of_work_knows_what_the_network_says() -> None:
    """Its code may change while its weights do not."""

    class Network(nn.Module):
        sign = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.linear = network()[1]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.linear(self.sign * images.flatten(1))

    model = Network()
    before = key_of("pgd", model, (IMAGES,), ())
    assert before == key_of("pgd", model, (IMAGES,), ())
    model.sign = -1.0
    assert before != key_of("pgd", model, (IMAGES,), ())


@pytest.mark.parametrize(("quick", "kept"), [(1e9, 3), (-1, 1)])
def test_outcomes_are_kept_after_every_batch_unless_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: float, kept: int
) -> None:
    monkeypatch.setattr(outcomes, "QUICK", quick)
    monkeypatch.setattr(outcomes, "RARELY", 1e9)
    state = outcomes.Outcomes(Checkpoint(tmp_path / "part.npz", "key"), None)
    found = state.run("squares", outcomes.in_slices(3, 1, lambda part: np.arange(part.start, part.stop) ** 2))
    assert found.tolist() == [0, 1, 4]
    assert outcomes.Outcomes(Checkpoint(tmp_path / "part.npz", "key"), None).count("squares") == kept
