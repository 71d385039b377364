import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, text

from coverwell.streaming.row_hash import N_LANES, RowHash, group_keys, row_keys, seed_of

N_ROWS = 200_000
ROWS = row_keys(0, N_ROWS)
HASH = RowHash(seed=3, folds=5, repeats=2, kept_share=0.2)


def within(share, expected, n, sds=4.5):
    """Whether a share of n draws is as near to the expected one as chance allows."""
    return abs(share - expected) < sds * np.sqrt(expected * (1 - expected) / n)


def test_bits_are_those_of_splitmix64():
    # The first number of the reference implementation, started at 1234567; a seed drops the last bit.
    assert seed_of(1234567) == 6457827717110365317 >> 1


def test_every_row_is_left_out_once_in_every_repeat():
    left_out = HASH.left_out_by(ROWS)
    assert left_out.shape == (10, N_ROWS)
    for repeat in (left_out[:5], left_out[5:]):
        assert (repeat.sum(axis=0) == 1).all()


def test_folds_lanes_sample_and_kept_rows_have_the_sizes_of_a_fair_draw():
    for fold in HASH.left_out_by(ROWS):
        assert within(fold.mean(), 0.2, N_ROWS)
    for lane in range(N_LANES):
        assert within((HASH.lanes(ROWS) == lane).mean(), 1 / N_LANES, N_ROWS)
    assert within(HASH.kept(ROWS).mean(), 0.2, N_ROWS)
    assert within(HASH.sampled(ROWS, 0.37).mean(), 0.37, N_ROWS)


def test_the_uses_of_a_row_do_not_depend_on_each_other():
    fold, other = HASH.left_out_by(ROWS)[0], HASH.left_out_by(ROWS)[5]
    lane, kept, sampled = HASH.lanes(ROWS) == 0, HASH.kept(ROWS), HASH.sampled(ROWS, 0.5)
    uses = [(fold, 0.2), (other, 0.2), (lane, 1 / N_LANES), (kept, 0.2), (sampled, 0.5)]
    for place, (one, p) in enumerate(uses):
        for another, q in uses[place + 1 :]:
            assert within((one & another).mean(), p * q, N_ROWS)


def test_neither_neighbours_nor_seeds_are_alike():
    fold = HASH.left_out_by(ROWS)[0]
    assert within((fold[1:] & fold[:-1]).mean(), 0.04, N_ROWS)
    same = (HASH.left_out_by(ROWS)[:5] & RowHash(4, folds=5, repeats=2).left_out_by(ROWS)[:5]).any(axis=0)
    assert within(same.mean(), 0.2, N_ROWS)


@given(first=integers(0, 2**40), n=integers(1, 200), seed=integers(0, 2**31))
def test_a_row_is_dealt_alike_wherever_a_part_begins(first, n, seed):
    row_hash = RowHash(seed, folds=3, repeats=1, kept_share=0.5)
    whole, tail = row_keys(first, n), row_keys(first + n // 2, n - n // 2)
    assert (row_hash.left_out_by(whole)[:, n // 2 :] == row_hash.left_out_by(tail)).all()
    assert (row_hash.lanes(whole)[n // 2 :] == row_hash.lanes(tail)).all()
    assert (row_hash.kept(whole)[n // 2 :] == row_hash.kept(tail)).all()


def test_a_larger_share_contains_a_smaller_one():
    assert not (HASH.sampled(ROWS, 0.1) & ~HASH.sampled(ROWS, 0.2)).any()
    assert HASH.sampled(ROWS, 1.0).all()
    assert not HASH.sampled(ROWS, 0.0).any()


@given(name=text(max_size=4), other_name=text(max_size=4))
def test_rows_of_one_group_have_one_key_and_others_another(name, other_name):
    one, other, again = group_keys([name, other_name, name])
    assert one == again
    assert (one == other) == (name == other_name)


def test_keys_of_groups_never_change():
    # Models and files outlive a version.
    expected = int.from_bytes(hashlib.blake2b(b"house 1", digest_size=8).digest(), "little")
    assert group_keys(["house 1"]).tolist() == [expected]


@pytest.mark.parametrize(("one", "other"), [((1, 2), (2, 1)), ((1,), (1, 0)), ((0,), (1,))])
def test_seeds_tell_numbers_and_their_order_apart(one, other):
    assert seed_of(*one) != seed_of(*other)
    assert 0 <= seed_of(*one) < 2**63
