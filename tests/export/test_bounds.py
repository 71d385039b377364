"""Calibrated bounds in a graph."""

import numpy as np
import pytest
from coverwell.export import bounds as bounds_file
from coverwell.export import to_onnx

from coverwell import MLP, MatchedRegressor


def fitted(calibration, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    y = np.stack([X[:, 0] + rng.normal(size=60), X[:, 1] * 30 * rng.normal(size=60)], axis=1)
    told = {"folds": 3, "max_rounds": 1, "random_state": 0, "device": "cpu"}
    repeats = {} if calibration == "cv+" else {"repeats": 1}
    network = MLP(hidden=6, layers=3, bins=2)
    model = MatchedRegressor([0.5, 0.9], network=network, calibration=calibration, **told, **repeats)
    return model.fit(X, y), X, y.std(axis=0)


@pytest.mark.parametrize("calibration", ["cross", "split", "cv+", None])
def test_every_calibration_has_the_models_bounds(calibration, run_file, largest_difference, tmp_path):
    model, X, sd = fitted(calibration)
    metadata = to_onnx(model, tmp_path / "model.onnx", precision="float64")
    said = run_file(tmp_path / "model.onnx", {"X": X})
    assert largest_difference(said, model, X, sd) < 1e-12
    assert ("joint_lower" in said) == (calibration is not None)
    assert metadata["calibration"] == calibration
    assert len(metadata["promise"]) > 20


def test_a_level_contains_the_one_inside_it_though_its_factor_is_smaller(random_regressor, run_file, tmp_path):
    model, rows = random_regressor(n_targets=2)
    model.factor_ = np.array([[2.0, 0.1], [1.0, 0.01]])
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"X": rows})
    assert (np.diff(said["lower"]) <= 0).all()
    assert (np.diff(said["upper"]) == 0).all()  # the inner level is the wider one: both are the same


def test_cv_plus_with_too_many_rows_is_refused_and_told_what_to_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(bounds_file, "MOST_SCORES", 59)
    model, *_ = fitted("cv+")
    with pytest.raises(ValueError, match=r"up to 59, got 60; fit with calibration='cross' or 'split'"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
