"""Ensembles and voices as graphs: random models, and the baselines."""

import numpy as np
import pytest
from coverwell.export import speakers as speakers_file
from coverwell.export import to_onnx
from coverwell.matching import SigmaFit
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, sampled_from

from coverwell import MLP, baselines

LEVELS = [(0.9,), (0.5, 0.9), (0.1, 0.5, 0.99)]


@settings(max_examples=15)
@given(
    seed=integers(0, 2**20),
    hidden=integers(1, 12),
    layers=integers(1, 4),
    bins=sampled_from([0, 1, 5]),
    n_members=integers(1, 4),
    n_targets=integers(1, 3),
    levels=sampled_from(LEVELS),
    matching=sampled_from(["sigma", "iqr", None]),
    both=booleans(),
    precision=sampled_from(["float32", "float64"]),
)
def test_random_models_say_in_a_file_what_they_say_here(
    random_regressor,
    run_file,
    largest_difference,
    tmp_path_factory,
    seed,
    hidden,
    layers,
    bins,
    precision,
    both,
    **told,
):
    network = MLP(hidden=hidden, layers=layers, bins=bins)
    model, rows = random_regressor(seed=seed, network=network, shape="both" if both else "interval", **told)
    path = tmp_path_factory.mktemp("random") / "model.onnx"
    to_onnx(model, path, precision=precision)
    outside = rows.max(axis=0) + 0.5 * np.ptp(rows, axis=0)  # taken for the border of the range of the training
    beyond = np.concatenate([rows, outside[None]])
    said = run_file(path, {"X": beyond})
    assert largest_difference(said, model, beyond, model.ensembles_[0].targets.spread) < 1e-5


@pytest.mark.parametrize("name", baselines.__all__)
def test_every_baseline_can_be_exported(name, run_file, largest_difference, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.stack([X[:, 0] + rng.normal(size=60), 5 * X[:, 1]], axis=1)
    regressor = getattr(baselines, name)
    sampled = {"n_samples": 3} if "n_samples" in regressor().get_params() else {}
    network = MLP(hidden=6, layers=3, dropout=0.3, bins=2)
    model = regressor([0.5, 0.9], network=network, max_epochs=10, random_state=0, device="cpu", **sampled).fit(X, y)
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"X": X})
    assert largest_difference(said, model, X, y.std(axis=0)) < 1e-5


def test_samples_that_take_too_much_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(speakers_file, "MOST_NUMBERS", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    network = MLP(hidden=4, layers=2, dropout=0.3, bins=0)
    model = baselines.MCDropoutRegressor(network=network, max_epochs=10, random_state=0, device="cpu").fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"up to 100 weights, got more in the 50 samples.*smaller n_samples"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


class OwnMatching(SigmaFit):
    pass


def test_a_matching_of_the_users_own_is_refused(random_regressor, tmp_path):
    model, _ = random_regressor(matching=OwnMatching())
    with pytest.raises(ValueError, match=r"matching of your own.*got OwnMatching; fit with matching='sigma'"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_voices_of_the_same_samples_are_exported_every_time(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    network = MLP(hidden=4, layers=2, bins=0)
    model = baselines.BayesByBackpropRegressor(network=network, n_samples=2, max_epochs=10, random_state=0)
    model.fit(X, X[:, 0])
    for name in ("one", "two"):
        to_onnx(model, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
