"""Which images make which grid: by hand, by what must hold of any choice, and as the B-cos authors' code chooses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scs_eval.analyses.core.labelled_images import ImageSet
from scs_eval.analyses.localisation.choice import choose_mosaics, mosaics_of, published_mosaics
from scs_eval.analyses.localisation.mosaics import compose, mosaic_table, positions_of, read_mosaics
from scs_eval.analyses.localisation.options import MosaicOptions
from scs_eval.errors import InputError

CLASSES = ("a", "b", "c", "d", "e", "f")


def cosines(count: int = 60, classes: int = 6) -> tuple[Tensor, Tensor]:
    """Logits and labels that no random number generator has touched; 44 of the 60 images are right."""
    place = torch.arange(count)
    labels = (place * 7 + place // 11) % classes
    logits = torch.cos(torch.arange(count * classes, dtype=torch.float64) * 1.7).view(count, classes).float()
    logits[place, labels] += 1.5
    return logits, labels


LOGITS, LABELS = cosines()
INDICES = torch.arange(60) * 10 + 3


def pool(labels: Tensor = LABELS, indices: Tensor = INDICES) -> ImageSet:
    """Sixty images; which is which does not depend on their pixels."""
    return ImageSet(torch.zeros(60, 3, 1, 1), labels, CLASSES, indices)


def test_any_choice_keeps_the_rules() -> None:
    other = LOGITS.roll(5, 0)
    other[torch.arange(60), LABELS] += 1
    found = choose_mosaics([LOGITS, other], LABELS, INDICES, side=2, count=500)
    places = positions_of(found, INDICES)
    right = (LOGITS.argmax(1) == LABELS) & (other.argmax(1) == LABELS)
    assert right[places].all()
    assert (found.requested, found.pool, found.usable) == (500, 60, int(right.sum()))
    assert len(found) >= 0.6 * int(right.sum()) / 4  # not stopped early
    assert len(places.unique()) == places.numel()
    assert torch.equal(LABELS[places], torch.from_numpy(found.targets))
    assert all(len(set(row)) == 4 for row in found.targets.tolist())


def test_images_are_a_random_sample() -> None:
    """The first grids are no easier than the last: over seeds, the image that comes first is any of its class."""
    first = set()
    for seed in range(40):
        found = choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=500, seed=seed)
        first.add(int(found.indices.ravel()[found.targets.ravel() == 0][0]))
    everyone = choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=500, order="confident")
    usable = set(everyone.indices.ravel()[everyone.targets.ravel() == 0].tolist())
    assert len(first) > len(usable) / 2


def test_the_most_confident_come_first_where_that_is_asked_for() -> None:
    found = choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=500, order="confident")
    confidence = LOGITS.double().softmax(1).amax(1)[positions_of(found, INDICES)]
    for label in range(6):
        here = confidence.flatten()[torch.from_numpy(found.targets.ravel()) == label]
        assert (here.diff() <= 0).all()
        assert here[0] == LOGITS.double().softmax(1)[:, label][(label == LABELS)].max()


def test_confidence_of_several_models_is_the_mean_rank() -> None:
    """Class 0 has three images, ranked 0 1 2 by one model and 2 0 1 by the other: means 1, ½, 1½."""
    labels = torch.tensor([0, 0, 0, 1, 2, 3])
    first, second = torch.zeros(6, 4), torch.zeros(6, 4)
    first[range(6), labels] = torch.tensor([9.0, 8.0, 7.0, 5.0, 5.0, 5.0])
    second[range(6), labels] = torch.tensor([0.1, 0.3, 0.2, 5.0, 5.0, 5.0])
    found = choose_mosaics([first, second], labels, torch.arange(6), side=2, count=1, order="confident")
    assert sorted(found.indices[0].tolist()) == [1, 3, 4, 5]


def test_the_seed_decides() -> None:
    def choice(seed: int) -> list[list[int]]:
        return choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=5, seed=seed).indices.tolist()

    assert choice(1) == choice(1)
    assert choice(1) != choice(2)
    assert len(choice(0)) == 5


def test_too_few_images() -> None:
    with pytest.raises(InputError, match="too few for one grid of 9 different classes"):
        choose_mosaics([LOGITS], LABELS, INDICES, side=3, count=5)
    with pytest.raises(InputError, match="too few for one grid of 4 different classes"):
        published_mosaics(LOGITS - 10, LABELS, INDICES, side=2)
    with pytest.raises(InputError, match="2 × 2 or 3 × 3"):
        choose_mosaics([LOGITS], LABELS, INDICES, side=4)
    with pytest.raises(InputError, match="count as a whole number of at least 1"):
        published_mosaics(LOGITS, LABELS, INDICES, side=2, count=0)


def test_indices_of_the_authors_code() -> None:
    """Recorded from B-cos-v2 (interpretability/analyses/localisation.py) for these logits, in its order."""
    theirs = [[0, 51, 38, 52], [11, 1, 57, 48], [50, 58, 49, 40], [27, 32, 22, 2], [31, 39, 12, 43]]
    found = published_mosaics(LOGITS, LABELS, torch.arange(60), side=2)
    columns_first = np.array(theirs)[:, [0, 2, 1, 3]]  # its k-th image is at row k % 2, column k // 2
    assert found.indices.tolist() == columns_first.tolist()
    assert (
        published_mosaics(LOGITS, LABELS, torch.arange(60), side=2, count=2).indices.tolist()
        == columns_first[:2].tolist()
    )
    assert (published_mosaics(LOGITS, LABELS, INDICES, side=2).indices == 10 * columns_first + 3).all()


def test_indices_of_the_authors_code_in_grids_of_nine() -> None:
    """Recorded in the same way, of 150 images of twelve classes."""
    theirs = [
        [147, 47, 0, 52, 104, 2, 7, 49, 109],
        [108, 61, 145, 50, 102, 100, 4, 148, 45],
        [98, 9, 56, 99, 107, 105, 101, 91, 60],
        [103, 106, 65, 93, 8, 110, 38, 63, 143],
        [1, 114, 3, 37, 96, 16, 137, 51, 53],
        [149, 46, 89, 64, 35, 144, 21, 6, 58],
    ]
    found = published_mosaics(*cosines(150, 12), torch.arange(150), side=3)
    assert found.indices.tolist() == np.array(theirs)[:, [0, 3, 6, 1, 4, 7, 2, 5, 8]].tolist()  # column by column


def test_a_grid_is_its_images_row_by_row() -> None:
    images = torch.arange(9.0).view(9, 1, 1, 1).expand(9, 3, 2, 2)
    grid = compose(images, torch.tensor([[8, 1, 2, 3, 4, 5, 6, 7, 0]]), side=3)
    assert grid.shape == (1, 3, 6, 6)
    assert grid[0, 2, ::2, 1::2].tolist() == [[8, 1, 2], [3, 4, 5], [6, 7, 0]]


def saved(path: Path) -> Path:
    found = choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=3)
    table = mosaic_table(2, found.indices, np.array(CLASSES)[found.targets])
    table.sample(frac=1, random_state=0).to_csv(path, index=False)  # the order of lines does not matter
    return path


def test_lists_of_grids_can_be_replayed(tmp_path: Path) -> None:
    wanted = choose_mosaics([LOGITS], LABELS, INDICES, side=2, count=3)
    found = read_mosaics(saved(tmp_path / "grids.csv"), pool(), model="m")
    assert found.side == 2
    two = read_mosaics(tmp_path / "grids.csv", pool(), model="m", count=2)
    assert (two.indices == wanted.indices[:2]).all()
    assert (found.indices == wanted.indices).all()
    assert (found.targets == wanted.targets).all()
    assert found.usable is None


def test_each_model_replays_its_own_grids(tmp_path: Path) -> None:
    lines = saved(tmp_path / "one.csv").read_text().splitlines()
    rows = [f"{lines[0]},model", *(f"{line},m" for line in lines[1:]), *(f"{line},other" for line in lines[1:5])]
    (tmp_path / "both.csv").write_text("\n".join(rows))
    assert len(read_mosaics(tmp_path / "both.csv", pool(), model="m")) == 3
    with pytest.raises(InputError, match="whole n × n grids of third"):
        read_mosaics(tmp_path / "both.csv", pool(), model="third")


def test_lists_that_do_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "grids.csv")
    with pytest.raises(InputError, match="are these the same images"):
        read_mosaics(path, pool((LABELS + 1) % 6, INDICES), model="m")
    with pytest.raises(InputError, match="here it is missing"):
        read_mosaics(path, pool(LABELS, INDICES + 1), model="m")
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(InputError, match=r"expected whole n × n grids of m .*got 11 cells in 3 grids"):
        read_mosaics(path, pool(), model="m")
    path.write_text("grid,row\n0,0\n")
    with pytest.raises(InputError, match="expected a column 'column'"):
        read_mosaics(path, pool(), model="m")
    with pytest.raises(InputError, match="expected a list of grids"):
        read_mosaics(tmp_path / "none.csv", pool(), model="m")
    with pytest.raises(InputError, match=r"no image with index .* replay the grids on the images"):
        positions_of(choose_mosaics([LOGITS], LABELS, torch.arange(60), side=2), INDICES)


def test_models_share_their_mosaics_or_have_their_own(tmp_path: Path) -> None:
    """What the command does: by the logits of all, of each alone, by the published rule, from a list."""
    other = LOGITS.roll(5, 0)
    other[torch.arange(60), LABELS] += 1
    logits, data = {"a": LOGITS, "b": other}, {"a": pool(), "b": pool()}
    size = {"side": 2, "count": 3}
    shared = mosaics_of(logits, data, MosaicOptions(**size), seed=4)
    wanted = choose_mosaics([LOGITS, other], LABELS, INDICES, **size, seed=4)
    for name in "ab":
        np.testing.assert_array_equal(shared[name].indices, wanted.indices)
    own = mosaics_of(logits, data, MosaicOptions(**size, own=True), seed=4)
    np.testing.assert_array_equal(own["b"].indices, choose_mosaics([other], LABELS, INDICES, **size, seed=4).indices)
    theirs = mosaics_of(logits, data, MosaicOptions(**size, protocol="bcos-v2"))
    np.testing.assert_array_equal(theirs["a"].indices, published_mosaics(LOGITS, LABELS, INDICES, **size).indices)
    replayed = mosaics_of(logits, data, MosaicOptions(replay=saved(tmp_path / "grids.csv")))
    assert replayed["a"].side == 2
    with pytest.raises(InputError, match="expected --grid 2"):
        mosaics_of(logits, data, MosaicOptions(side=3, replay=tmp_path / "grids.csv"))
