from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats, integers

from coverwell import MLP, MatchedRegressor
from coverwell.calibration import CrossScores, Estimate, cross_factor, rank_factor, scores_of
from coverwell.inputs.columns import Columns
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.scaling import Scaling
from coverwell.streaming.buffers import RowStream, StreamedTable
from coverwell.streaming.ranks import LARGEST, RELATIVE_ERROR, SMALLEST, ScoreSketch, StreamedCross, StreamedSplit
from coverwell.streaming.row_hash import RowHash, row_keys
from coverwell.training.rows import Rows

scores_of_any_size = arrays(np.float64, integers(1, 60), elements=floats(SMALLEST, LARGEST))

# Sketches ------------------------------------------------------------------------------------------------------------


def filled(scores):
    sketch = ScoreSketch(1, 1)
    sketch.add(np.asarray(scores, dtype=float)[:, None, None])
    return sketch


@given(scores=scores_of_any_size)
def test_every_rank_lies_at_or_just_above_the_exact_one(scores):
    sketch = filled(scores)
    for rank, exact in enumerate(np.sort(scores), start=1):
        assert exact <= sketch.ranked(rank).item() <= exact * (1 + 1.000001 * RELATIVE_ERROR)


class OnlyOther:
    """A worker that adds what another one has counted."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other = other

    def together(self, own):
        return torch.cat([own, torch.from_numpy(self.other.largest.reshape(-1, 1))], dim=1)

    def summed(self, own):
        counts, n_scores = own
        return [counts + torch.from_numpy(self.other.counts), n_scores + self.other.n_scores]

    def of_first(self, values):
        return values


@given(scores=scores_of_any_size, cut=integers(0, 60))
def test_the_sketches_of_two_workers_are_the_sketch_of_all_scores(scores, cut):
    gathered, whole = filled(scores[:cut]), filled(scores)
    gathered.gather(OnlyOther(filled(scores[cut:])))
    assert (gathered.counts == whole.counts).all()
    assert gathered.n_scores == len(scores)
    assert gathered.largest == whole.largest


def test_the_factor_is_that_of_exact_ranks_for_every_target_and_level():
    scores = np.random.default_rng(0).lognormal(size=(20_000, 3, 2))
    sketch = ScoreSketch(3, 2)
    for part in np.array_split(scores, 7):
        sketch.add(part)
    ratio = sketch.factor((0.5, 0.9)) / rank_factor(scores, (0.5, 0.9))
    assert ((ratio >= 1) & (ratio <= 1 + 1.000001 * RELATIVE_ERROR)).all()


def test_scores_outside_the_bins_count_as_the_first_edge_and_as_the_largest():
    sketch = filled([0.0, 1e-9, 5e7, 8e7])
    assert sketch.ranked(1).item() == pytest.approx(SMALLEST)
    assert sketch.ranked(3) == sketch.ranked(4) == 8e7


def test_memory_does_not_grow_with_the_scores():
    few, many = filled(np.ones(3)), filled(np.random.default_rng(0).lognormal(size=100_000))
    assert few.counts.nbytes == many.counts.nbytes < 300_000


@pytest.mark.parametrize("bad", [[-1.0], [np.nan], [np.inf]])
def test_scores_that_are_negative_or_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        filled(bad)


def test_a_rank_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="between 1 and the number of scores, 2, got 3"):
        filled([1.0, 2.0]).ranked(3)


# Corrections ---------------------------------------------------------------------------------------------------------

N_ROWS, LEVELS = 2000, (0.5, 0.9)


def frame():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N_ROWS))
    return pl.DataFrame({"a": a, "b": b, "y": a + rng.normal(size=N_ROWS), "z": 5 * b * rng.normal(size=N_ROWS)})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("rows"), frame()
    rows[:700].write_parquet(folder / "1.parquet")
    rows[700:].write_parquet(folder / "2.parquet")
    return TableFiles(folder)


def untrained(files, row_hash):
    """A stream, and an untrained pair of teams, whose scores are ranked like any others."""
    columns = Columns.of(frame().select("a", "b"))
    X, y = columns.transform(frame()), frame().select("y", "z").to_numpy()
    scaling = {"inputs": [Scaling.of(X, bounded=True)], "targets": [Scaling.of(y)]}
    x, y = (
        values[0](torch.tensor(given))[None].float() for values, given in zip(scaling.values(), (X, y), strict=True)
    )
    left_out = torch.from_numpy(row_hash.left_out_by(row_keys(0, N_ROWS)))[None]
    known = {"levels": [LEVELS], "lengths": [N_ROWS], **scaling}
    sample = Rows(x, y, ~left_out, left_out, torch.tensor([LEVELS]), **known)
    training = MatchedRegressor(LEVELS, network=MLP(hidden=4, bins=0), device="cpu").training_for(N_ROWS)
    torch.manual_seed(0)
    F, I = training.learners(sample)  # noqa: E741
    stream = RowStream(StreamedTable.of(files, ["y", "z"], None), row_hash, columns, sample, row_keys(0, N_ROWS))
    estimate = partial(training.estimates_of_members, F, I, unit=torch.ones(1, 2))
    return stream, estimate, training.taken_apart(F, I, sample, torch.ones(1, 2))


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_cross_factor_is_that_of_exact_ranks_or_a_little_more(files, repeats):
    row_hash = RowHash(1, folds=4, repeats=repeats)
    stream, estimate, trained = untrained(files, row_hash)
    calibration = StreamedCross(stream=stream, left_out_estimate=partial(estimate, left_out=True))
    y, estimates = zip(*map(calibration.out_of_fold, stream.own_parts()), strict=True)
    mean, half_width = (np.concatenate([getattr(e, name) for e in estimates], 1) for name in ("mean", "half_width"))
    everywhere = np.ones((repeats, N_ROWS), dtype=bool)
    exact = CrossScores.of(np.concatenate(y), Estimate(mean, half_width), everywhere)
    exact = replace(exact, n_members=row_hash.n_members)
    factor = cross_factor(exact, LEVELS)
    found = calibration.correction(trained.teams, stream.sample, trained.members[0])
    assert (found.factor.numpy() >= factor).all()
    most = 1 + (1 if repeats == 1 else 10) * RELATIVE_ERROR
    assert (found.factor.numpy() <= factor * most).all()
    joint = factor * cross_factor(exact, LEVELS, joint_unit=factor)
    assert (found.joint_factor.numpy() >= joint).all()
    assert (found.joint_factor.numpy() <= joint * most).all()


def test_members_are_asked_about_the_rows_that_they_leave_out(files):
    row_hash = RowHash(1, folds=4, repeats=2)
    stream, estimate, trained = untrained(files, row_hash)
    calibration = StreamedCross(stream=stream, left_out_estimate=partial(estimate, left_out=True))
    y, by_repeat = calibration.out_of_fold(stream.read(stream.table.files.parts()[0]))
    np.testing.assert_allclose(y, stream.sample.y[0, :700], atol=1e-6)
    for row in (0, 1, 500):
        first, second = np.flatnonzero(stream.sample.leaves_out[0, :, row])
        assert first < 4 <= second
        np.testing.assert_allclose(by_repeat.mean[:, row], trained.members[0].mean[[first, second], row], atol=1e-5)


def test_split_ranks_the_kept_rows_alone(files):
    row_hash = RowHash(1, folds=4, repeats=1, kept_share=0.3)
    stream, _, trained = untrained(files, row_hash)
    rows = frame().filter(row_hash.kept(row_keys(0, N_ROWS)))
    estimate = trained.teams[0].estimate(stream.columns.transform(rows))
    scores = scores_of(rows.select("y", "z").to_numpy(), Estimate(estimate.mean, estimate.half_width))
    found = StreamedSplit(0.3, stream=stream).correction(trained.teams, stream.sample, None)
    joint = np.broadcast_to(scores.max(axis=1, keepdims=True), scores.shape)
    for ours, exact in ((found.factor, scores), (found.joint_factor, joint)):
        ratio = ours.numpy() / rank_factor(exact, LEVELS)
        assert ((ratio >= 1 - 1e-9) & (ratio <= 1 + 1.001 * RELATIVE_ERROR)).all()
