"""A fit that was stopped after any round, and goes on from its checkpoint, gives the bits of one that never stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule, TableFiles, fit_together, load, save
from coverwell.baselines import DeepEnsembleRegressor
from coverwell.checkpoint import CheckpointFile
from coverwell.errors import CheckpointError, CheckpointWarning, ModelFileError
from coverwell.matched import MatchedTraining
from coverwell.model_file import read_tensors, write_tensors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=90)
BRIEF = Schedule(max_rounds=3, mean_epochs=1, interval_epochs=1)
SMALL = MLP(hidden=8, layers=2, dropout=0.1)


class Stopped(BaseException):
    """What a kill is to a fit, here within one process."""


class StopsAfter(CheckpointFile):
    """A file whose fit is stopped as soon as so many checkpoints are written."""

    def __init__(self, path, n_written):
        super().__init__(path)
        self.n_left = n_written

    def write(self, content):
        super().write(content)
        self.n_left -= 1
        if self.n_left == 0:
            raise Stopped


def model(kind=MatchedRegressor, **more):
    known = {"network": SMALL, "schedule": BRIEF, "repeats": 1, "companions": (), "device": "cpu", "random_state": 0}
    return kind(**{**known, **more})


def stopped(path, fit, n_rounds):
    with pytest.raises(Stopped):
        fit(StopsAfter(path, n_rounds))
    assert path.exists()


def arrays_of(fitted, path):
    """All that a model file holds but for the seconds of rounds."""
    save(fitted, path)
    return read_tensors(path)[1]


def assert_same(one, other, folder):
    ours, theirs = arrays_of(one, folder / "one"), arrays_of(other, folder / "other")
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], strict=True)
    np.testing.assert_equal(*([{**vars(r), "seconds": 0} for r in fitted.rounds_] for fitted in (one, other)))


@pytest.mark.parametrize(
    ("options", "n_rounds"),
    [
        ({}, 1),
        ({}, 3),
        ({"calibration": "cv+"}, 2),
        ({"schedule": Schedule(max_rounds=3, mean_epochs=1, interval_epochs=1, growth=1.0), "coverage": [0.5, 0.9]}, 2),
        ({"folds": None, "calibration": None, "matching": "sigma", "network": torch.nn.Linear}, 2),
    ],
    ids=["one round", "all rounds", "cv+", "closing rounds", "literal"],
)
def test_a_resumed_fit_has_the_bits_of_one_that_was_never_stopped(tmp_path, options, n_rounds):
    path = tmp_path / "checkpoint"
    stopped(path, lambda file: model(**options).fit(X, Y, checkpoint=file), n_rounds)
    torch.rand(7)  # random numbers of others do not matter
    resumed = model(**options).fit(X, Y, checkpoint=path)
    assert_same(resumed, model(**options).fit(X, Y), tmp_path)


def test_a_fit_resumes_in_the_training_of_its_second_network(tmp_path, monkeypatch):
    monkeypatch.setattr("coverwell.matched.SECOND_ROWS", (50, 200))
    monkeypatch.setattr("coverwell.matched.SECOND_NETWORK", SMALL)
    monkeypatch.setattr("coverwell.matched.SECOND_LONGER", 2)
    monkeypatch.setattr("coverwell.matched.ROUNDS_BEFORE", 2)
    monkeypatch.setattr("coverwell.matched.MEAN_NETWORK", SMALL)
    options = {"network": None, "interval_network": SMALL, "companions": ("forest",)}
    options["schedule"] = Schedule(mean_epochs=1, interval_epochs=1)
    whole = model(**options).fit(X, Y)
    assert len(whole.rounds_) == 3
    for n_rounds in (2, 3):
        path = tmp_path / f"{n_rounds}"
        stopped(path, lambda file: model(**options).fit(X, Y, checkpoint=file), n_rounds)
        assert_same(model(**options).fit(X, Y, checkpoint=path), whole, tmp_path)


def test_classes_weights_and_groups_resume(tmp_path):
    labels, weight, groups = np.where(Y > 0, "high", "low"), RNG.uniform(0.5, 2, 90), np.arange(90) // 2
    given = X, labels, groups, weight
    stopped(tmp_path / "c", lambda file: model(MatchedClassifier).fit(*given, checkpoint=file), 1)
    resumed = model(MatchedClassifier).fit(*given, checkpoint=tmp_path / "c")
    assert_same(resumed, model(MatchedClassifier).fit(*given), tmp_path)


def test_fits_of_one_stack_resume_together(tmp_path):
    def pair(checkpoint=None):
        models = [model(), model(random_state=1)]
        fit_together(models, [(X, Y, None), (X[:70], 2 * Y[:70], None)], checkpoint=checkpoint)
        return models

    stopped(tmp_path / "c", pair, 2)
    for ours, theirs in zip(pair(tmp_path / "c"), pair(), strict=True):
        assert_same(ours, theirs, tmp_path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(1)
    rows = pl.DataFrame({"a": rng.normal(size=1500), "b": rng.normal(size=1500)}).with_columns(y=pl.col("a").sin())
    rows[:800].write_parquet(folder / "1.parquet")
    rows[800:].write_parquet(folder / "2.parquet")
    return TableFiles(folder)


@pytest.mark.parametrize("buffer_rows", [600, 4000], ids=["three buffers", "one buffer"])
def test_a_streamed_fit_resumes_with_the_next_buffer(tmp_path, files, buffer_rows):
    from coverwell.streaming import fit_streamed

    def fit(checkpoint=None):
        return fit_streamed(model(), files, "y", buffer_rows=buffer_rows, checkpoint=checkpoint)

    stopped(tmp_path / "c", fit, 2)
    assert_same(fit(tmp_path / "c"), fit(), tmp_path)


def test_files_that_have_changed_are_other_rows(tmp_path):
    frame = pl.DataFrame({"a": np.arange(60_000) % 97 / 97, "y": np.sin(np.arange(60_000))})
    frame.write_parquet(tmp_path / "1.parquet")
    stopped(tmp_path / "c", lambda file: model().fit(TableFiles(tmp_path / "1.parquet"), "y", checkpoint=file), 1)
    in_the_last_row = pl.int_range(pl.len()) == len(frame) - 1
    frame.with_columns(y=pl.col("y") + 1e-9 * in_the_last_row).write_parquet(tmp_path / "1.parquet")
    with pytest.raises(CheckpointError, match="of a fit on other rows"):
        model().fit(TableFiles(tmp_path / "1.parquet"), "y", checkpoint=tmp_path / "c")


@pytest.fixture
def kept(tmp_path):
    path = tmp_path / "c"
    stopped(path, lambda file: model().fit(X, Y, checkpoint=file), 1)
    return path


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"folds": 3}, (X, Y), r"is of a fit with folds=5, not 3; give what was given then, or remove it"),
        ({"random_state": 1}, (X, Y), "random_state=0, not 1"),
        ({"network": MLP(hidden=9)}, (X, Y), r"network=MLP\(hidden=8.*, not MLP\(hidden=9"),
        ({}, (X, Y + 1e-3 * X[:, 1]), "is of a fit on other rows or groups; give the same, in order, or remove it"),
        ({}, (X[::-1].copy(), Y), "other rows"),
        ({}, (X[:80], Y[:80]), "other rows"),
    ],
)
def test_other_options_and_rows_are_one_clear_error(kept, options, rows, message):
    before, fresh = kept.read_bytes(), model(**options)
    with pytest.raises(CheckpointError, match=message):
        fresh.fit(*rows, checkpoint=kept)
    assert kept.read_bytes() == before
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_another_version_is_an_error_that_names_both(kept, monkeypatch):
    monkeypatch.setattr("coverwell.model_file.__version__", "9.9")
    with pytest.raises(CheckpointError, match=r"was written with coverwell .*, this is coverwell 9\.9, torch"):
        model().fit(X, Y, checkpoint=kept)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text", "a model"])
def test_a_damaged_checkpoint_is_one_clear_error(kept, damage, tmp_path):
    content = kept.read_bytes()
    middle = len(content) // 2
    damaged = {"cut": content[:middle], "empty": b"", "text": b"not a checkpoint"}
    damaged["changed"] = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    if damage == "a model":
        save(model().fit(X, Y), kept)
    else:
        kept.write_bytes(damaged[damage])
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint; remove it to start anew"):
        model().fit(X, Y, checkpoint=kept)


def test_a_checkpoint_is_no_model(kept):
    with pytest.raises(ModelFileError, match="no model can be made of it"):
        load(kept)


def forgeries(header, arrays):
    """Checkpoints with a right sha256 that no fit writes."""
    weights = next(name for name in arrays if name.startswith("0.learner.0.team."))
    yield "weights of another shape", header, {**arrays, weights: arrays[weights][:1]}
    yield "no weights", header, {name: array for name, array in arrays.items() if name != weights}
    yield "no measures", header, {name: array for name, array in arrays.items() if name != "0.round.0.rmse"}
    yield "generators of another size", header, {**arrays, "0.generators": arrays["0.generators"][:, :9]}
    yield "a name without a number", header, {**arrays, "x": np.zeros(1)}
    yield "no arrays", header, {}
    for name, value in (("options", 1), ("options", [1]), ("data", None)):
        yield f"{name}={value}", {**header, name: value}, arrays


def test_a_forged_checkpoint_is_an_error_of_ours(kept):
    header, arrays = read_tensors(kept)
    for what, forged, with_arrays in forgeries(header["checkpoint"], arrays):
        write_tensors(kept, {"checkpoint": forged}, with_arrays)
        with pytest.raises(CheckpointError) as found:
            model().fit(X, Y, checkpoint=kept)
        assert "remove it to start anew" in str(found.value), what


@pytest.mark.parametrize("seed", [None, np.random.RandomState(0)])
def test_a_checkpoint_needs_a_seed(tmp_path, seed):
    with pytest.raises(ValueError, match="needs a whole number as random_state"):
        model(random_state=seed).fit(X, Y, checkpoint=tmp_path / "c")


def test_an_estimator_without_rounds_of_algorithm_1_takes_no_checkpoint(tmp_path):
    with pytest.raises(TypeError, match="for MatchedRegressor and MatchedClassifier, got a DeepEnsembleRegressor"):
        DeepEnsembleRegressor().fit(X, Y, checkpoint=tmp_path / "c")


def test_a_checkpoint_that_cannot_be_written_is_a_warning_and_the_fit_goes_on(tmp_path):
    class Full(CheckpointFile):
        def write(self, content):
            raise OSError(28, "No space left on device")

    with pytest.warns(CheckpointWarning, match="No space left on device.*goes on without a checkpoint"):
        fitted = model().fit(X, Y, checkpoint=Full(tmp_path / "c"))
    assert_same(fitted, model().fit(X, Y), tmp_path)


def test_checkpoints_come_no_sooner_than_asked(tmp_path):
    path = tmp_path / "c"
    model().fit(X, Y, checkpoint=CheckpointFile(path, seconds=60.0))
    assert not path.exists()
    model().fit(X, Y, checkpoint=path)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_trial_of_memory_leaves_the_checkpoint_alone():
    training = model().training_for(90)
    assert isinstance(training, MatchedTraining)
    assert training.shortened().checkpoint is None


def test_ctrl_c_says_what_is_kept(tmp_path):
    class Interrupted(CheckpointFile):
        def write(self, content):
            super().write(content)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        model().fit(X, Y, checkpoint=Interrupted(tmp_path / "c"))
    assert "c keeps the last finished round: the same fit goes on from there" in stop.value.__notes__[0]


ENDLESS = """
import sys
import numpy as np
from coverwell import MLP, MatchedRegressor, Schedule
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
long = Schedule(max_rounds=10**6, patience=10**6, mean_epochs=1, interval_epochs=1, growth=1.0)
model = MatchedRegressor(network=MLP(hidden=8), schedule=long, repeats=1, companions=(), random_state=0)
model.fit(X, X[:, 0], checkpoint=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_what_kill_9_leaves_is_whole(tmp_path):
    path = tmp_path / "c"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], env=environment) as process:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    header, _ = read_tensors(path)  # checks its sha256
    assert header["checkpoint"]["rounds"] >= 1
