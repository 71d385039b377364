"""Streamed fits as a user meets them. Networks are small, so that fits take a second or two."""

import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.model_selection import KFold

from coverwell import MLP, MatchedRegressor, ResNet18, load, metrics, save
from coverwell.baselines import NeuralQuantileRegressor
from coverwell.streaming import TableFiles, fit_streamed
from coverwell.streaming.row_hash import RowHash, group_keys
from coverwell.table_files import TableFileError

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


QUICK = {"max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}


def model(**more):
    told = {"network": MLP(hidden=16, layers=3, dropout=0.0, bins=0), "max_rounds": 6, "repeats": 1}
    return MatchedRegressor(**{**told, "device": "cpu", "random_state": 0, **more})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("rows"), draw(N_ROWS, 0))


@pytest.fixture(scope="module")
def fitted(files):
    return fit_streamed(model(repeats=2), files, "y")


@pytest.fixture(scope="module")
def new():
    return draw(N_NEW, 1)


# Twins ---------------------------------------------------------------------------------------------------------------


def test_a_streamed_fit_errs_as_one_in_memory_does(fitted, new):
    rows = draw(N_ROWS, 0)
    in_memory = model(repeats=2).fit(rows.drop("y"), rows["y"])
    streamed, usual = (metrics.rmse(new["y"], m.predict(new.drop("y"))) for m in (fitted, in_memory))
    # The error is noise but for what some hundred weights learn amiss from n rows: a share of about 100 / n of its
    # square.
    assert abs(streamed / usual - 1) < 100 / N_ROWS
    widths = [np.mean(m.predict_interval(new.drop("y")).width) for m in (fitted, in_memory)]
    assert abs(widths[0] / widths[1] - 1) < 4 / np.sqrt(N_ROWS)


def test_coverage_of_new_rows_is_near_the_asked_one(fitted, new):
    lower, upper = fitted.predict_interval(new.drop("y"))
    sd = np.sqrt(0.9 * 0.1 * (1 / N_ROWS + 1 / N_NEW))
    assert abs(metrics.coverage(new["y"], lower, upper) - 0.9) < 4 * sd


def test_ranks_of_all_rows_agree_with_those_of_a_sample_that_is_all_rows(fitted):
    """The sample of a small table is the table: what its members say out of fold, ranked exactly, gives the factor."""
    y = draw(N_ROWS, 0)["y"].to_numpy()
    said = fitted.out_of_fold_
    inside = metrics.coverage(y, said.lower[:, 0, 0], said.upper[:, 0, 0])
    # Fewer members are averaged than are deployed, so they cover a little less.
    assert 0.88 < inside < 0.905
    assert fitted.out_of_fold_rows_.tolist() == list(range(N_ROWS))
    assert fitted.n_rows_ == fitted.n_ranked_ == N_ROWS


def test_many_small_buffers_learn_too(files, new):
    streamed = fit_streamed(model(max_rounds=12), files, "y", buffer_rows=1000)
    lower, upper = streamed.predict_interval(new.drop("y"))
    noise = np.sqrt(np.mean((0.5 * (0.5 + new["b"].to_numpy())) ** 2))
    assert metrics.rmse(new["y"], streamed.predict(new.drop("y"))) < 1.05 * noise
    # One member speaks about each row, and the average of five errs less: a little more is covered.
    assert 0.885 < metrics.coverage(new["y"], lower, upper) < 0.92


def test_split_ranks_rows_that_nothing_else_touches(files, new):
    split = fit_streamed(model(calibration="split"), files, "y")
    lower, upper = split.predict_interval(new.drop("y"))
    n_kept = split.n_ranked_
    assert n_kept == N_ROWS - len(split.out_of_fold_rows_)
    assert abs(n_kept / N_ROWS - 0.2) < 4.5 * np.sqrt(0.16 / N_ROWS)
    sd = np.sqrt(0.9 * 0.1 * (1 / n_kept + 1 / N_NEW))
    assert abs(metrics.coverage(new["y"], lower, upper) - 0.9) < 4 * sd


# What comes out ------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits(files, new):
    first, second = (fit_streamed(model(**QUICK), files, "y") for _ in range(2))
    np.testing.assert_array_equal(first.predict(new.drop("y")), second.predict(new.drop("y")))
    np.testing.assert_array_equal(first.factor_, second.factor_)


def test_a_streamed_model_is_saved_and_loaded_as_any_other(fitted, new, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    for one, other in zip(fitted.predict_interval(new.drop("y")), again.predict_interval(new.drop("y")), strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_round_is_told(files):
    told = []
    streamed = fit_streamed(model(**{**QUICK, "max_rounds": 2}), files, "y", on_round=told.append)
    assert len(told) == len(streamed.rounds_) == 2
    assert float(told[1].coverage) == pytest.approx(streamed.rounds_[1].coverage)


def test_rounds_are_measured_in_the_unit_of_the_target(fitted):
    assert len(fitted.rounds_) == 6
    assert fitted.rounds_[-1].rmse == pytest.approx(0.53, abs=0.05)
    assert 0.8 < fitted.rounds_[-1].coverage < 0.97


def test_several_targets_levels_and_kinds_of_columns(tmp_path):
    frame = draw(1500, 2)
    frame = frame.with_columns(
        z=-pl.col("y") + 0.1 * pl.col("b"),
        kind=pl.when(pl.col("a") > 0).then(pl.lit("up")).otherwise(pl.lit("down")),
        b=pl.when(pl.col("b") > 0.9).then(None).otherwise(pl.col("b")),
    )
    files = written(tmp_path, frame)
    streamed = fit_streamed(model(coverage=[0.5, 0.9], repeats=2, max_rounds=3), files, ["y", "z"])
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
    streamed = fit_streamed(model(**QUICK), files, "y", groups="house")
    assert "house" not in streamed.columns_.feature_names
    # The hash that the fit has drawn first from its seed.
    row_hash = RowHash(np.random.RandomState(0).randint(2**31 - 1), folds=5, repeats=1)
    left_out = row_hash.left_out_by(group_keys(houses))
    for house in range(60):
        assert len(np.unique(left_out[:, house::60], axis=1).T) == 1


def test_the_callers_random_state_is_left_alone(files):
    import torch

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    fit_streamed(model(**QUICK), files, "y")
    assert torch.equal(before, torch.random.get_rng_state())


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"calibration": "cv+"}, r"can be calibrated by one of .*, got 'cv\+'"),
        ({"folds": KFold(3)}, "needs their number, at least 2, got KFold"),
        ({"folds": None, "calibration": None}, "needs their number, at least 2, got None"),
        ({"folds": 1}, "needs their number, at least 2, got 1"),
        ({"warm_start": True}, "starts anew, got warm_start=True"),
        ({"network": ResNet18(), "interval_network": None}, "got one that takes pictures"),
        ({"coverage": 1.5}, "strictly between 0 and 1"),
        ({"matching": "gamma"}, "matching"),
    ],
)
def test_settings_that_cannot_be_streamed_are_told(files, told, message):
    unfitted = model(**told)
    with pytest.raises(ValueError, match=message):
        fit_streamed(unfitted, files, "y")
    assert not hasattr(unfitted, "ensembles_")


def test_other_estimators_are_told(files):
    with pytest.raises(TypeError, match="trains a MatchedRegressor, got a NeuralQuantileRegressor"):
        fit_streamed(NeuralQuantileRegressor(), files, "y")


def test_too_few_rows_are_told(tmp_path):
    with pytest.raises(ValueError, match="at least 500 rows, got 90; read them into a data frame"):
        fit_streamed(model(), written(tmp_path, draw(90, 0)), "y")


def test_too_few_groups_are_told(tmp_path):
    files = written(tmp_path, draw(900, 0).with_columns(house=pl.lit("one")))
    with pytest.raises(ValueError, match="folds=5 needs groups in 'house' for every fold, but one has none"):
        fit_streamed(model(), files, "y", groups="house")


def test_too_few_kept_rows_are_told(files):
    with pytest.raises(ValueError, match=r"calibration='split' keeps \d+ of 4000 rows"):
        fit_streamed(model(calibration="split", coverage=0.9999), files, "y")


def test_a_buffer_that_is_too_small_is_told(files):
    with pytest.raises(ValueError, match="buffer_rows must be a whole number of at least 500, got 499"):
        fit_streamed(model(), files, "y", buffer_rows=499)


def test_an_unknown_target_is_told(files):
    with pytest.raises(TableFileError, match="no target price"):
        fit_streamed(model(), files, "price")


class Interrupted(KeyboardInterrupt):
    pass


class InterruptedLoss:
    """A matching whose third batch is where the user presses Ctrl-C."""

    n_batches = 0

    def n_outputs(self, n_targets, n_levels):
        return n_targets

    def mean(self, outputs, n_targets):
        return outputs

    def loss(self, outputs, y, target):
        self.n_batches += 1
        if self.n_batches == 3:
            raise Interrupted
        return (outputs - y).square().mean(dim=(1, 2))


def test_an_interrupted_fit_leaves_the_model_unfitted_and_no_file(files):
    before = sorted(files.paths[0].parent.iterdir())
    unfitted = model(matching=InterruptedLoss())
    with pytest.raises(Interrupted):
        fit_streamed(unfitted, files, "y")
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    assert sorted(files.paths[0].parent.iterdir()) == before


def test_a_fit_gives_no_warning(files):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_streamed(model(**QUICK), files, "y")
