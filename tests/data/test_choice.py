import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scs_eval.data.choice import choose, deal
from scs_eval.errors import InputError

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(lambda values: np.array(values, dtype=np.int64))
seeds = st.integers(0, 2**32)


@given(label_lists, seeds, st.data())
def test_as_even_over_the_classes_as_the_data_allow(labels, seed, data):
    n = data.draw(st.integers(1, len(labels)))
    chosen = choose(labels, n=n, seed=seed)
    assert len(chosen) == n
    assert (np.diff(chosen) > 0).all()  # rising, so none twice
    there, taken = np.bincount(labels, minlength=5), np.bincount(labels[chosen], minlength=5)
    # Whoever could give one more has at least as many as anyone else, less one.
    assert (taken[taken < there] >= taken.max() - 1).all()


@given(label_lists, seeds, st.data())
def test_a_smaller_choice_lies_inside_a_larger_one(labels, seed, data):
    larger = data.draw(st.integers(1, len(labels)))
    smaller = data.draw(st.integers(1, larger))
    assert set(choose(labels, n=smaller, seed=seed)) <= set(choose(labels, n=larger, seed=seed))


@given(label_lists, seeds, st.data())
def test_an_unusable_image_is_replaced_and_no_other(labels, seed, data):
    n = data.draw(st.integers(1, len(labels)))
    before = choose(labels, n=n, seed=seed)
    usable = np.ones(len(labels), dtype=bool)
    usable[data.draw(st.sampled_from(before.tolist()))] = False
    if usable.sum() < n:
        with pytest.raises(InputError, match=f"at most {n - 1}"):
            choose(labels, n=n, seed=seed, usable=usable)
        return
    after = choose(labels, n=n, seed=seed, usable=usable)
    assert len(after) == n
    assert usable[after].all()
    assert set(before[usable[before]]) < set(after) or n == 1


def test_the_seed_decides():
    labels = np.arange(1000) % 10
    first = choose(labels, n=50, seed=0)
    assert np.array_equal(first, choose(labels, n=50, seed=0))
    assert not np.array_equal(first, choose(labels, n=50, seed=1))
    # A choice of the first 50 of a file sorted by class would not be random.
    assert first.max() > 500


def test_every_image_is_as_likely_as_another():
    labels = np.array([0, 0, 0, 0, 1, 1])
    counts = sum(np.bincount(choose(labels, n=2, seed=seed), minlength=6) for seed in range(600))
    # One of each class: 600/4 and 600/2 expected, standard deviations 10.6 and 12.2; five of them allowed.
    assert np.abs(counts[:4] - 150).max() < 53
    assert np.abs(counts[4:] - 300).max() < 61


def test_all_without_n():
    assert choose(np.array([1, 0, 1]), n=None, seed=3).tolist() == [0, 1, 2]
    assert choose(np.array([1, 0, 1]), n=None, seed=3, usable=np.array([True, False, True])).tolist() == [0, 2]


def test_dealt_in_rounds_so_that_fewer_begin_like_more():
    labels = np.array([2, 0, 1, 1, 0, 2, 0, 0, 1])
    dealt = deal(labels, n=None, seed=3)
    assert labels[dealt].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 0]
    assert dealt[:6].tolist() == deal(labels, n=6, seed=3).tolist()
    assert sorted(dealt[:5]) != sorted(deal(labels, n=5, seed=4))
    assert choose(labels, n=5, seed=3).tolist() == sorted(deal(labels, n=5, seed=3))
