"""Streamed fits as a user meets them. Networks are small, so that fits take a second or two."""

import gc
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats, integers
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

from coverwell import MLP, MatchedRegressor, ResNet18, Schedule, TableFiles, load, metrics, save
from coverwell.calibration import CrossScores, Estimate, cross_factor, grid_matrix, grid_of, rank_factor, scores_of
from coverwell.companions import grown_forest
from coverwell.errors import CoverageWarning, TableFileError
from coverwell.estimator import IntervalRegressor
from coverwell.inputs.columns import columns_for
from coverwell.inputs.parquet import Part
from coverwell.inputs.scaling import Scaling
from coverwell.streaming import buffers, estimate_files, estimates_of_parts, fit_streamed
from coverwell.streaming.buffers import Buffer, RowHash, RowStream, SampledForest, StreamedTable, group_keys
from coverwell.streaming.fit import LARGEST, RELATIVE_ERROR, SMALLEST, ScoreSketch, StreamedRanks
from coverwell.training.rows import Rows

N_ROWS, N_NEW = 4000, 20_000


def draw(n, seed, *, noise=0.5):
    """Rows of a known law: the noise grows with b."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-2, 2, n), rng.uniform(0, 1, n)
    y = np.sin(a) + noise * (0.5 + b) * rng.normal(size=n)
    return pl.DataFrame({"a": a, "b": b, "y": y})


def written(folder, frame, n_files=3):
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame[rows].write_parquet(folder / f"{number}.parquet")
    return TableFiles(folder)


QUICK = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
EVEN = Schedule(max_rounds=6, mean_epochs=10, interval_epochs=10, patience=6, learning_rate=1e-3, growth=1.0)


def model(**more):
    defaults = {"network": MLP(hidden=16, layers=3, dropout=0.0, bins=0), "schedule": EVEN}
    defaults |= {"calibration": "cross", "companions": ()}
    return MatchedRegressor(**{**defaults, "repeats": 1, "device": "cpu", "random_state": 0, **more})


once = pytest.fixture(scope="module")
files = once(lambda tmp_path_factory: written(tmp_path_factory.mktemp("rows"), draw(N_ROWS, 0)))
two_files = once(lambda tmp_path_factory: written(tmp_path_factory.mktemp("two"), frame(), 2))
fitted = once(lambda files: model(repeats=2).fit(files, "y"))
new = once(lambda: draw(N_NEW, 1))


def test_a_streamed_fit_errs_as_one_in_memory_does(fitted, new):
    rows = draw(N_ROWS, 0)
    in_memory = model(repeats=2).fit(rows.drop("y"), rows["y"])
    streamed, whole = (metrics.rmse(new["y"], m.predict(new.drop("y"))) for m in (fitted, in_memory))
    # The error is noise but for what some hundred weights learn amiss from n rows: a share of about 100 / n of its
    # square.
    assert abs(streamed / whole - 1) < 100 / N_ROWS
    widths = [np.mean(m.predict_interval(new.drop("y")).width) for m in (fitted, in_memory)]
    assert abs(widths[0] / widths[1] - 1) < 4 / np.sqrt(N_ROWS)


def test_coverage_of_new_rows_is_near_the_asked_one(fitted, new):
    lower, upper = fitted.predict_interval(new.drop("y"))
    sd = np.sqrt(0.9 * 0.1 * (1 / N_ROWS + 1 / N_NEW))
    assert abs(metrics.coverage(new["y"], lower, upper) - 0.9) < 4 * sd


def test_ranks_of_all_rows_agree_with_those_of_a_sample_that_is_all_rows(fitted):
    """The sample of a small table is the table: its out-of-fold outputs, ranked exactly, give the factor."""
    out_of_fold = fitted.out_of_fold_
    inside = metrics.coverage(draw(N_ROWS, 0)["y"], out_of_fold.lower[:, 0, 0], out_of_fold.upper[:, 0, 0])
    # Fewer members are averaged than are deployed, so they cover a little less.
    assert 0.88 < inside < 0.905
    assert fitted.out_of_fold_rows_.tolist() == list(range(N_ROWS))
    assert fitted.n_rows_ == fitted.n_ranked_ == N_ROWS
    assert len(fitted.rounds_) == 6
    assert fitted.rounds_[-1].rmse == pytest.approx(0.53, abs=0.05)  # in the unit of the target
    assert 0.8 < fitted.rounds_[-1].coverage < 0.97


def test_many_small_buffers_learn_too(files, new):
    streamed = fit_streamed(model(schedule=replace(EVEN, max_rounds=12)), files, "y", buffer_rows=1000)
    lower, upper = streamed.predict_interval(new.drop("y"))
    noise = np.sqrt(np.mean((0.5 * (0.5 + new["b"].to_numpy())) ** 2))
    assert metrics.rmse(new["y"], streamed.predict(new.drop("y"))) < 1.05 * noise
    # One member leaves each row out, and the average of five errs less: a little more is covered.
    assert 0.885 < metrics.coverage(new["y"], lower, upper) < 0.92


def test_split_ranks_rows_that_nothing_else_touches(files, new):
    split = model(calibration="split").fit(files, "y")
    lower, upper = split.predict_interval(new.drop("y"))
    n_kept = split.n_ranked_
    assert n_kept == N_ROWS - len(split.out_of_fold_rows_)
    assert abs(n_kept / N_ROWS - 0.2) < 4.5 * np.sqrt(0.16 / N_ROWS)
    sd = np.sqrt(0.9 * 0.1 * (1 / n_kept + 1 / N_NEW))
    assert abs(metrics.coverage(new["y"], lower, upper) - 0.9) < 4 * sd


def test_without_calibration_nothing_is_ranked(files):
    plain = model(calibration=None, schedule=QUICK).fit(files, "y")
    assert plain.n_ranked_ == 0
    assert plain.factor_.tolist() == [[1.0]]


def test_training_stops_when_scores_of_the_sample_no_longer_improve(files):
    hasty = Schedule(max_rounds=200, patience=1, mean_epochs=1, interval_epochs=1, learning_rate=0.03, growth=1.0)
    streamed = model(schedule=hasty).fit(files, "y")
    assert 1 < len(streamed.rounds_) < 200
    assert streamed.rounds_[-1].interval_score > min(r.interval_score for r in streamed.rounds_)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_callers_random_state_alone(files, new):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CoverageWarning)  # so short a fit is short somewhere
        first, second = (model(schedule=QUICK).fit(files, "y") for _ in range(2))
    np.testing.assert_array_equal(first.predict(new.drop("y")), second.predict(new.drop("y")))
    np.testing.assert_array_equal(first.factor_, second.factor_)
    assert torch.equal(before, torch.random.get_rng_state())


def test_only_one_buffer_is_in_memory_and_every_round_can_be_followed(files):
    alive, measures = [], []

    def after_round(latest):
        gc.collect()
        alive.append({id(thing.x) for thing in gc.get_objects() if type(thing) is Buffer})
        measures.append(latest)

    schedule = Schedule(max_rounds=3, mean_epochs=1, interval_epochs=1)
    streamed = fit_streamed(model(schedule=schedule), files, "y", buffer_rows=1000, on_round=after_round)
    assert max(map(len, alive)) == 1  # that of the stream itself
    assert [r.coverage for r in streamed.rounds_] == pytest.approx([float(m.coverage) for m in measures])


def test_a_streamed_model_is_saved_and_loaded_as_any_other(fitted, new, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.n_rows_ == again.n_ranked_ == N_ROWS
    for one, other in zip(fitted.predict_interval(new.drop("y")), again.predict_interval(new.drop("y")), strict=True):
        np.testing.assert_array_equal(one, other)


def test_several_targets_levels_and_kinds_of_columns(tmp_path):
    frame = draw(1500, 2)
    frame = frame.with_columns(
        z=-pl.col("y") + 0.1 * pl.col("b"),
        kind=pl.when(pl.col("a") > 0).then(pl.lit("up")).otherwise(pl.lit("down")),
        b=pl.when(pl.col("b") > 0.9).then(None).otherwise(pl.col("b")),
    )
    streamed = model(coverage=[0.5, 0.9], repeats=2, schedule=Schedule(max_rounds=3))
    streamed.fit(written(tmp_path, frame), ["y", "z"])
    assert streamed.target_names_ == ("y", "z")
    assert {"kind=up", "b (missing)"} <= set(streamed.columns_.feature_names)
    lower, _ = streamed.predict_interval(frame)
    assert lower.shape == (1500, 2, 2)
    assert (lower[..., 1] <= lower[..., 0]).all()
    joint_lower, joint_upper = streamed.predict_interval(frame, 0.9, joint=True)
    y = frame.select("y", "z").to_numpy()
    inside = ((joint_lower <= y) & (y <= joint_upper)).all(axis=1).mean()
    assert abs(inside - 0.9) < 0.05


def test_groups_are_never_split(tmp_path):
    houses = [f"house {k % 60}" for k in range(1200)]
    files = written(tmp_path, draw(1200, 3).with_columns(house=pl.Series(houses)))
    streamed = model(schedule=QUICK).fit(files, "y", groups="house")
    assert "house" not in streamed.columns_.feature_names
    # The hash that the fit has drawn first from its seed.
    row_hash = RowHash(np.random.RandomState(0).randint(2**31 - 1), folds=5, repeats=1)
    left_out = row_hash.left_out_by(group_keys(houses))
    for house in range(60):
        assert len(np.unique(left_out[:, house::60], axis=1).T) == 1


# A forest on the sample, and local calibration ------------------------------------------------------------------------

WITH_FOREST = {"calibration": "local", "companions": ("forest",), "schedule": Schedule(max_rounds=3)}
local = once(lambda files: model(**WITH_FOREST).fit(files, "y"))


def test_by_default_a_streamed_fit_has_a_forest_and_local_calibration_from_its_sample(local, new, tmp_path):
    (team,) = local.predictor_.fitted_teams
    assert team.shape is not None
    assert team.weights.sum() == pytest.approx(1.0)
    assert local.n_ranked_ == N_ROWS
    lower, upper = local.predict_interval(new.drop("y"), [0.5, 0.73, 0.9, 0.99])
    sd = np.sqrt(np.array([0.5, 0.73, 0.9, 0.99]) * np.array([0.5, 0.27, 0.1, 0.01]) * (1 / N_ROWS + 1 / N_NEW))
    covered = ((lower <= new["y"].to_numpy()[:, None]) & (new["y"].to_numpy()[:, None] <= upper)).mean(axis=0)
    # One member leaves each row out, and the average of five errs less: a little more is covered.
    assert (np.abs(covered - [0.5, 0.73, 0.9, 0.99]) < 4 * sd + 0.01).all()
    save(local, tmp_path / "model")
    again = load(tmp_path / "model").predict_interval(new.drop("y"), 0.73)
    np.testing.assert_array_equal(again.lower, lower[:, 1])


def test_predictions_of_files_and_of_rows_are_the_same_with_companions_and_local_calibration(local, files):
    rows = draw(N_ROWS, 0).drop("y")
    np.testing.assert_allclose(local.predict(files), local.predict(rows), atol=1e-9)
    quantiles = (local.predict_quantiles(X, [0.1, 0.8]) for X in (files, rows))
    np.testing.assert_allclose(*quantiles, atol=1e-9)


@pytest.mark.parametrize("calibration", ["local", "cross", "split", None])
def test_a_forest_that_knows_the_step_is_blended_in_and_coverage_stays(tmp_path, calibration, monkeypatch):
    """Networks of one epoch learn nothing of a step, a forest on half of the rows does; noise is within half a unit."""
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 1500)
    rng = np.random.default_rng(4)
    a, noise = rng.uniform(-1, 1, (2, 6000))
    step = pl.DataFrame({"a": a, "y": 20 * (a > 0.3) + noise / 2})
    blended = model(calibration=calibration, companions=("forest",), schedule=QUICK)
    blended.fit(written(tmp_path, step[:3000]), "y")
    (team,) = blended.predictor_.fitted_teams
    assert team.weights[1] > 0.9
    later = step[3000:].filter((pl.col("a") - 0.3).abs() > 0.01)
    assert metrics.rmse(later["y"], blended.predict(later.drop("y"))) < 1.5 * np.sqrt(1 / 12)
    if calibration is not None:
        n_ranked = blended.n_ranked_
        assert n_ranked < 2000 or calibration == "cross"
        lower, upper = blended.predict_interval(later.drop("y"))
        sd = np.sqrt(0.09 * (1 / n_ranked + 1 / len(later)))
        # Rows beside the step are left out of the count.
        assert abs(metrics.coverage(later["y"], lower, upper) - 0.9) < 4 * sd + 0.015


@pytest.mark.parametrize("calibration", ["local", "cross", "split"])
def test_a_sample_is_kept_for_other_ranks(files, new, calibration, monkeypatch):
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 1500)
    streamed = model(calibration=calibration, schedule=QUICK).fit(files, "y")
    noisy = new.filter((pl.col("b") + 0.3 * pl.col("a")).is_between(0.9, 2.0))
    before = metrics.coverage(noisy["y"], *streamed.predict_interval(noisy.drop("y")))
    streamed.recalibrate(noisy[:500].drop("y"))
    found = streamed.recalibration_
    assert 1000 < found.n_ranked <= N_ROWS
    assert 50 < found.n_effective < 0.7 * found.n_ranked
    after = metrics.coverage(noisy["y"], *streamed.predict_interval(noisy.drop("y")))
    assert abs(after - 0.9) < max(abs(before - 0.9), 4 * np.sqrt(0.09 / found.n_effective))
    y = noisy["y"][:500]
    streamed.recalibrate(noisy[:500].drop("y"), y)
    # Ends that move to values of a target that takes few are no matter here: each y is one of a kind.
    inside = metrics.coverage(y, *streamed.predict_interval(noisy[:500].drop("y")))
    assert 450 / 500 <= inside <= 451 / 500  # the rank of 501 * .9, whose own row may round to either side


def test_ranks_are_those_of_networks_and_companions_together(two_files):
    row_hash = RowHash(1, folds=4, repeats=2)
    stream, estimate, _ = untrained(two_files, row_hash)
    X, y = stream.columns.transform(frame()), frame().select("y", "z").to_numpy()
    trees, _, in_bag = grown_forest(X, y, NUMBERS, 0)
    forest = SampledForest(trees, in_bag, NUMBERS, y.mean(axis=0))
    stream = replace(stream, forests=[forest])
    calibration, part = StreamedRanks(stream, partial(estimate, left_out=True)), next(stream.own_parts())
    weights = torch.tensor([[0.75, 0.5], [0.25, 0.5]])  # (part, target)
    (_, alone), (_, together) = calibration.out_of_fold(part), calibration.out_of_fold(part, weights)
    beside = stream.sample.targets[0](torch.from_numpy(forest.out_of_bag(part.X, part.keys))).numpy()
    np.testing.assert_allclose(together.mean, alone.mean * [0.75, 0.5] + beside * [0.25, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(together.half_width, alone.half_width)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("calibration", ["local", "cross", "split"])
def test_a_gpu_streams_as_a_cpu_does(files, new, calibration):
    options = WITH_FOREST | {"calibration": calibration}
    there, here = (model(**options | {"device": device}).fit(files, "y") for device in ("cuda", "cpu"))
    errors = [metrics.rmse(new["y"], m.predict(new.drop("y"))) for m in (there, here)]
    assert abs(errors[0] / errors[1] - 1) < 100 / N_ROWS
    lower, upper = there.predict_interval(new.drop("y"))
    sd = np.sqrt(0.9 * 0.1 * (1 / there.n_ranked_ + 1 / N_NEW))
    assert abs(metrics.coverage(new["y"], lower, upper) - 0.9) < 4 * sd + 0.01


def test_other_companions_than_a_forest_are_refused_before_a_row_is_read(files):
    unfitted = model(companions=("forest", Ridge()))
    with pytest.raises(ValueError, match=r"companion of a streamed fit must be 'forest', got Ridge\(\); leave it out"):
        unfitted.fit(files, "y")
    assert not [name for name in vars(unfitted) if name.endswith("_")]


def test_a_bar_names_each_part_of_a_streamed_fit(files, capfd):
    model(companions=("forest",), schedule=QUICK).fit(files, "y")
    assert capfd.readouterr() == ("", "")
    model(companions=("forest",), schedule=QUICK, verbose=1).fit(files, "y")
    shown = capfd.readouterr().err
    places = [shown.index(word) for word in ("first pass [", "companions [", "round 1 [", "calibration [", "1 round [")]
    assert places == sorted(places)


# Ranks of all rows ---------------------------------------------------------------------------------------------------

MANY, LEVELS = 2000, (0.5, 0.9)
NUMBERS = np.arange(MANY, dtype=np.uint64)
scores_of_any_size = arrays(np.float64, integers(9, 60), elements=floats(SMALLEST, LARGEST))


def filled(scores):
    """A sketch of scores of one target and level, which boxes repeat."""
    sketch = ScoreSketch(np.ones((1, 1)))
    sketch.add(np.asarray(scores, dtype=float)[:, None, None])
    return sketch


@given(scores=scores_of_any_size, level=floats(0.1, 0.9))
def test_a_rank_lies_at_or_just_above_the_exact_one(scores, level):
    exact = rank_factor(scores[:, None, None], (level,))
    assert (exact <= filled(scores).factor((level,))).all()
    assert (filled(scores).factor((level,)) <= exact * (1 + 1.000001 * RELATIVE_ERROR)).all()


@given(scores=scores_of_any_size, cut=integers(0, 60))
def test_the_sketches_of_two_workers_are_the_sketch_of_all_scores(scores, cut):
    first, second, whole = filled(scores[:cut]), filled(scores[cut:]), filled(scores)
    workers = SimpleNamespace(rank=0, size=2, of_first=print)
    workers.summed = lambda own: [own[0] + torch.from_numpy(second.counts), own[1] + torch.from_numpy(second.sums)]
    workers.together = lambda own: torch.cat([own, torch.from_numpy(second.largest.reshape(-1, 1))], dim=1)
    np.testing.assert_array_equal(first.factor((0.9,), workers), whole.factor((0.9,)))


def test_the_factor_is_that_of_exact_ranks_for_every_target_and_level():
    scores, sketch = np.random.default_rng(0).lognormal(size=(20_000, 3, 2)), ScoreSketch(np.ones((3, 2)))
    for part in np.array_split(scores, 7):
        sketch.add(part)
    joint = scores.max(axis=1, keepdims=True)
    ratio = sketch.factor(LEVELS) / rank_factor(np.concatenate([scores, joint], axis=1), LEVELS)
    assert ((ratio >= 1) & (ratio <= 1 + 1.000001 * RELATIVE_ERROR)).all()


def test_scores_outside_the_bins_count_as_the_first_edge_and_as_the_largest():
    sketch = filled([0.0, 1e-9, 5e7, 8e7])
    assert sketch.factor((0.2,))[0, 0] == pytest.approx(SMALLEST)
    assert sketch.factor((0.6,))[0, 0] == sketch.factor((0.8,))[0, 0] == 8e7


def test_scores_that_are_negative_or_not_finite_are_refused():
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite and not negative"):
            filled([bad])


def frame():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, MANY))
    return pl.DataFrame({"a": a, "b": b, "y": a + rng.normal(size=MANY), "z": 5 * b * rng.normal(size=MANY)})


def untrained(files, row_hash):
    """A stream, and an untrained pair of teams, whose scores are ranked like any others."""
    columns = columns_for(frame().select("a", "b"))[0]
    X, y = columns.transform(frame()), frame().select("y", "z").to_numpy()
    scaling = {"inputs": [Scaling.of(X, bounded=True)], "targets": [Scaling.of(y)]}
    x, y = (kind[0](torch.tensor(given))[None].float() for kind, given in zip(scaling.values(), (X, y), strict=True))
    left_out = torch.from_numpy(row_hash.left_out_by(NUMBERS))[None]
    known = {"levels": [LEVELS], "lengths": [MANY], **scaling}
    sample = Rows(x, y, ~left_out, left_out, torch.tensor([LEVELS]), **known)
    training = MatchedRegressor(LEVELS, network=MLP(hidden=4, bins=0), device="cpu").training_for(MANY)
    torch.manual_seed(0)
    F, I = training.learners(sample)  # noqa: E741
    n_kept = int(row_hash.kept(NUMBERS).sum())
    stream = RowStream(StreamedTable.of(files, ["y", "z"], None), row_hash, columns, sample, NUMBERS, n_kept)
    estimate = partial(training.estimates_of_members, F, I, unit=torch.ones(1, 2))
    return stream, estimate, training.taken_apart(F, I, sample, torch.ones(1, 2))


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_cross_factor_is_that_of_exact_ranks_or_a_little_more(two_files, repeats):
    row_hash = RowHash(1, folds=4, repeats=repeats)
    stream, estimate, trained = untrained(two_files, row_hash)
    calibration = StreamedRanks(stream, partial(estimate, left_out=True))
    y, estimates = zip(*map(calibration.out_of_fold, stream.own_parts()), strict=True)
    mean, half_width = (np.concatenate([getattr(e, name) for e in estimates], 1) for name in ("mean", "half_width"))
    everywhere, grid = np.ones((repeats, MANY), dtype=bool), grid_of(LEVELS, MANY)
    exact = CrossScores.of(np.concatenate(y), Estimate(mean, half_width @ grid_matrix(LEVELS, grid)), everywhere)
    exact = replace(exact, n_members=4 * repeats)
    factor = cross_factor(exact, grid)
    found = calibration.correction(trained.teams, stream.sample, trained.members[0])
    assert (found.asked, found.levels) == (LEVELS, grid)
    assert (found.factor.numpy() >= factor).all()
    most = 1 + (1 if repeats == 1 else 10) * RELATIVE_ERROR
    assert (found.factor.numpy() <= factor * most).all()
    joint = factor * cross_factor(exact.joint(factor), grid)
    assert (found.joint_factor.numpy() >= joint).all()
    assert (found.joint_factor.numpy() <= joint * most).all()


def test_members_are_asked_about_the_rows_that_they_leave_out(two_files):
    row_hash = RowHash(1, folds=4, repeats=2)
    stream, estimate, trained = untrained(two_files, row_hash)
    calibration = StreamedRanks(stream, partial(estimate, left_out=True))
    y, by_repeat = calibration.out_of_fold(stream.read(stream.table.files.parts()[0]))
    np.testing.assert_allclose(y, stream.sample.y[0, :1000], atol=1e-6)
    for row in (0, 1, 500):
        first, second = np.flatnonzero(stream.sample.leaves_out[0, :, row])
        assert first < 4 <= second
        np.testing.assert_allclose(by_repeat.mean[:, row], trained.members[0].mean[[first, second], row], atol=1e-5)


def test_split_ranks_the_kept_rows_alone(two_files):
    row_hash = RowHash(1, folds=4, repeats=1, kept_share=0.3)
    stream, _, trained = untrained(two_files, row_hash)
    rows = frame().filter(row_hash.kept(NUMBERS))
    estimate = trained.teams[0].estimate(stream.columns.transform(rows))
    grid = grid_of(LEVELS, len(rows))
    half_width = estimate.half_width @ grid_matrix(LEVELS, grid)
    scores = scores_of(rows.select("y", "z").to_numpy(), Estimate(estimate.mean, half_width))
    found = StreamedRanks(stream).correction(trained.teams, stream.sample, None)
    joint = np.broadcast_to(scores.max(axis=1, keepdims=True), scores.shape)
    for ours, exact in ((found.factor, scores), (found.joint_factor, joint)):
        ratio = ours.numpy() / rank_factor(exact, grid)
        assert ((ratio >= 1 - 1e-9) & (ratio <= 1 + 1.001 * RELATIVE_ERROR)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": "cv+"}, r"can be calibrated by one of .*, got 'cv\+'"),
        ({"folds": KFold(3)}, "folds of a streamed fit must be a whole number of at least 2, got KFold"),
        ({"folds": None, "calibration": None}, "must be a whole number of at least 2, got None"),
        ({"folds": 1}, "must be a whole number of at least 2, got 1"),
        ({"warm_start": True}, "starts anew, got warm_start=True"),
        ({"network": ResNet18(), "interval_network": None}, "got one that takes images"),
        ({"interval_network": ResNet18()}, "must both take images or both take tables"),
        ({"coverage": 1.5}, "strictly between 0 and 1"),
        ({"matching": "gamma"}, "matching"),
        ({"calibration": "split", "coverage": 0.9999}, r"calibration='split' keeps \d+ of 4000 rows"),
    ],
)
def test_settings_that_cannot_be_streamed_are_refused(files, options, message):
    unfitted = model(**options)
    with pytest.raises(ValueError, match=message):
        unfitted.fit(files, "y")
    assert not [name for name in vars(unfitted) if name.endswith("_")]


def test_other_estimators_targets_and_buffers_are_refused(files):
    with pytest.raises(TypeError, match="trains a MatchedRegressor or MatchedClassifier, got a IntervalRegressor"):
        IntervalRegressor().fit(files, "y")
    with pytest.raises(TableFileError, match="no target price"):
        fit_streamed(model(), files, "price")
    with pytest.raises(ValueError, match="buffer_rows must be a whole number of at least 500, got 499"):
        fit_streamed(model(), files, "y", buffer_rows=499)


def test_too_few_rows_and_too_few_groups_are_refused(tmp_path):
    with pytest.raises(ValueError, match="needs at least 500 rows, got 400; read them into a data frame"):
        model().fit(written(tmp_path, draw(400, 0)), "y")
    files = written(tmp_path, draw(900, 0).with_columns(house=pl.lit("one")))
    with pytest.raises(ValueError, match="folds=5 needs groups in 'house' for every fold, but one has none"):
        model().fit(files, "y", groups="house")


def test_an_interrupted_fit_leaves_the_model_unfitted_and_no_file(files):
    before = sorted(files.paths[0].parent.iterdir())
    unfitted = model()

    def interrupt(measures):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_streamed(unfitted, files, "y", on_round=interrupt)
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    assert sorted(files.paths[0].parent.iterdir()) == before


def small(**more):
    return model(network=MLP(hidden=4, bins=0), schedule=QUICK, **more)


@pytest.mark.parametrize(("calibration", "n_teams"), [("cross", 1), ("cv+", 3)])
def test_predictions_of_files_are_those_of_their_rows(files, calibration, n_teams):
    rows = draw(N_ROWS, 0)[:90]
    trained = small(calibration=calibration, folds=3).fit(rows.drop("y"), rows["y"])
    estimates, whole = estimate_files(trained, files), draw(N_ROWS, 0).drop("y")
    assert [estimate.half_width.shape for estimate in estimates] == [(N_ROWS, 1, 2, 1)] * n_teams
    np.testing.assert_allclose(trained.predict(files), trained.predict(whole), atol=1e-12)
    for of_files, of_rows in zip(trained.predict_interval(files), trained.predict_interval(whole), strict=True):
        np.testing.assert_allclose(of_files, of_rows, atol=1e-12)


def test_parts_are_predicted_in_order_and_found_in_their_files(fitted, files):
    parts, estimates = zip(*estimates_of_parts(fitted, files), strict=True)
    n_rows = [1334, 1333, 1333]
    assert list(parts) == [Part(files.paths[k], 0, n, sum(n_rows[:k])) for k, n in enumerate(n_rows)]
    assert [len(estimate.mean) for (estimate,) in estimates] == n_rows


def test_a_model_of_an_array_takes_the_columns_in_their_order(files):
    X, y = draw(N_ROWS, 0).select("a", "b").to_numpy(), draw(N_ROWS, 0)["y"].to_numpy()
    without_names = small().fit(X[:90], y[:90])
    chosen = TableFiles(files.paths, columns=["a", "b"])
    np.testing.assert_allclose(without_names.predict(chosen), without_names.predict(X), atol=1e-12)


def test_files_without_a_fitted_column_and_models_that_are_not_fitted_are_refused(fitted, files, tmp_path):
    with pytest.raises(NotFittedError):
        estimate_files(model(), files)
    draw(10, 0).drop("b").write_parquet(tmp_path / "new.parquet")
    with pytest.raises(TableFileError, match="no column that the model was fitted on: b"):
        estimate_files(fitted, TableFiles(tmp_path))
