import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats, integers

from coverwell.calibration import rank_factor
from coverwell.metrics import coverage_rank
from coverwell.streaming.sketch import LARGEST, RELATIVE_ERROR, SMALLEST, ScoreSketch

scores_of_any_size = arrays(np.float64, integers(1, 60), elements=floats(SMALLEST, LARGEST))


def filled(scores):
    sketch = ScoreSketch(1)
    sketch.add(np.asarray(scores, dtype=float)[:, None])
    return sketch


@given(scores=scores_of_any_size)
def test_every_rank_lies_at_or_just_above_the_exact_one(scores):
    sketch = filled(scores)
    for rank, exact in enumerate(np.sort(scores), start=1):
        value = sketch.ranked(rank)[0]
        assert exact <= value <= exact * (1 + 1.000001 * RELATIVE_ERROR)


@given(scores=scores_of_any_size, cut=integers(0, 60))
def test_merged_sketches_are_the_sketch_of_all_scores(scores, cut):
    one, other = filled(scores[:cut]), filled(scores[cut:])
    one.merge(other)
    whole = filled(scores)
    assert (one.counts == whole.counts).all()
    assert one.n_scores == len(scores)
    assert one.largest == whole.largest


def test_the_factor_from_a_sketch_is_that_of_exact_ranks_within_its_error():
    scores = np.abs(np.random.default_rng(0).normal(size=(50_000, 1)))
    sketch = ScoreSketch(1)
    for part in np.array_split(scores, 7):
        sketch.add(part)
    exact = rank_factor(scores[:, :, None], (0.9,))[0, 0]
    ratio = sketch.ranked(coverage_rank(0.9, len(scores)))[0] / exact
    assert 1 <= ratio <= 1 + 1.000001 * RELATIVE_ERROR


def test_columns_have_ranks_of_their_own():
    sketch = ScoreSketch(2)
    sketch.add(np.array([[1.0, 30.0], [2.0, 10.0], [3.0, 20.0]]))
    np.testing.assert_allclose(sketch.ranked(2), [2.0, 20.0], rtol=RELATIVE_ERROR)


def test_scores_outside_the_bins_count_as_the_first_edge_and_as_the_largest():
    sketch = filled([0.0, 1e-9, 5e7, 8e7])
    assert sketch.ranked(1)[0] == pytest.approx(SMALLEST)
    assert sketch.ranked(3)[0] == sketch.ranked(4)[0] == 8e7


def test_memory_does_not_grow_with_the_scores():
    few, many = filled(np.ones(3)), filled(np.random.default_rng(0).lognormal(size=100_000))
    assert few.counts.nbytes == many.counts.nbytes < 300_000


@pytest.mark.parametrize("bad", [[-1.0], [np.nan], [np.inf]])
def test_scores_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        filled(bad)


def test_a_rank_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="between 1 and the number of scores, 2, got 3"):
        filled([1.0, 2.0]).ranked(3)


def test_scores_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(row, 2\), got the shape \(3, 1\)"):
        ScoreSketch(2).add(np.ones((3, 1)))
