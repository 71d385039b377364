"""Which rows of a file are new: each is counted once, whatever is handed in again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import data, integers

from coverwell.cli.messages import BadInput
from coverwell.cli.stream import RUN, n_watched, row_digests, row_times

FILE = Path("stream.csv")


def watched(seen, now):
    return n_watched(np.array(seen, np.uint64), np.array(now, np.uint64), FILE, list(range(1, len(now) + 1)))


@given(data())
def test_windows_that_move_on_count_every_row_once(data):
    seen, end = [], 0
    for _ in range(5):
        first = data.draw(integers(0, max(0, end - RUN)))  # each file begins with some that were watched, or with all
        new_end = data.draw(integers(max(end, first + RUN), end + 40))
        file = list(range(first, new_end))
        seen += file[watched(seen, file) :]
        end = new_end
        assert seen == list(range(end))


def test_equal_rows_alone_are_new_rows():
    values = np.random.default_rng(0).integers(0, 30, 2000)
    digests = row_digests(values[:, None].astype(float), np.zeros((2000, 1)))
    assert len(set(digests.tolist())) == 30
    assert watched(digests[:1000], digests[1000:]) == 0
    assert watched(digests, digests[500:700]) == 200


def test_a_run_of_old_rows_elsewhere_is_an_error_and_all_of_them_are_not():
    old = list(range(100))
    assert watched(old, old[20:50]) == 30
    with pytest.raises(BadInput, match=r"rows 4 to 13 of stream\.csv repeat earlier rows of the stream"):
        watched(old, [200, 201, 202, *old[20:50]])
    assert watched(old, [200, 201, 202, *old[20 : 20 + RUN - 1]]) == 0
    assert watched([], old) == 0


def test_a_digest_depends_on_the_target_too():
    rows = np.zeros((2, 3))
    first, second = row_digests(rows, np.array([[1.0], [2.0]]))
    assert first != second
    assert (row_digests(rows, np.ones((2, 1))) == first).all()


@pytest.mark.parametrize("time", ["inf", "-inf", "1e999"])
def test_a_time_without_end_is_no_time(time):
    with pytest.raises(BadInput, match=f"the time must hold numbers or times such as .*, got '{time}'"):
        row_times(["1", "2", time], None, "the time", [1, 2, 3])
