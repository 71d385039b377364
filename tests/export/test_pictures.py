"""Regressors on pictures as graphs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from coverwell.export import pictures as pictures_file
from coverwell.export import to_onnx
from torch.nn.functional import interpolate

from coverwell import MatchedRegressor, ResNet18
from coverwell.baselines import HeteroscedasticRegressor, MCDropoutRegressor

SIZE = 32
BRIEF = {"random_state": 0, "device": "cpu", "batch_size": 8}


def photographs(n, size, seed):
    """Smooth pictures (n, 3, size, size) in [0, 1], and where they are bright."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, size // 8, size // 8, generator=generator)
    pictures = interpolate(coarse, size=(size, size), mode="bilinear").numpy()
    y = np.stack([pictures[:, 0].mean(axis=(1, 2)), pictures[:, 1, : size // 2].mean(axis=(1, 2))], axis=1)
    return pictures, y


def boxes(n, seed):
    """(x, y, width, height) inside their pictures."""
    return np.random.default_rng(seed).uniform(0.05, 0.45, (n, 4))


def fitted(X, y, mirror, size=SIZE, weights=None):
    """Two networks, one of each team."""
    network = ResNet18(weights=weights, size=size, mirror=mirror)
    told = {"folds": None, "calibration": "split", "max_rounds": 1, "mean_epochs": 1, "interval_epochs": 1}
    return MatchedRegressor([0.5, 0.8], network=network, **told, **BRIEF).fit(X, y)


@pytest.fixture(scope="module")
def trunk_weights():
    """Trained weights, beside the repository; skips where there are none."""
    path = Path(__file__).parents[3] / "shared" / "weights" / "resnet18_imagenet_through_layer3.pth"
    if not path.exists():
        pytest.skip(f"no trained weights in {path}")
    return path


def test_pictures_have_in_a_file_the_intervals_of_the_model(trunk_weights, run_file, largest_difference, tmp_path):
    X, y = photographs(20, 96, 0)
    model = fitted(X, y, None, size=96, weights=trunk_weights)
    metadata = to_onnx(model, tmp_path / "model.onnx")
    new, _ = photographs(4, 96, 1)
    said = run_file(tmp_path / "model.onnx", {"X": new})
    assert largest_difference(said, model, new, y.std(axis=0)) < 1e-5
    assert metadata["inputs"][0]["shape"] == ["row", 3, 96, 96]
    assert (metadata["kind"], metadata["size"], metadata["mirror"]) == ("pictures", 96, None)


# Two ways to compute a feature in float32 differ by some 1e-6 of it, so one in several hundred is rounded to another
# neighbour in float16: all features of a picture together by 3e-5 of their size. Tails that have hardly been trained,
# as here, make of that some ten times as much in units of y, trained ones on a trained trunk a tenth.
LOOSE = 1e-3


def test_a_process_without_torch_averages_mirror_images_as_the_model_does(
    served, run_file, largest_difference, tmp_path
):
    (X, _), y = photographs(20, SIZE, 0), boxes(20, 0)
    model = fitted(X, y, "boxes")
    to_onnx(model, tmp_path / "model.onnx")
    said = served(tmp_path / "model.onnx", {"X": X[:3]})
    assert largest_difference(said, model, X[:3], y.std(axis=0)) < LOOSE
    turned = run_file(tmp_path / "model.onnx", {"X": X[:3, ..., ::-1].copy()})["prediction"]
    mirrored = model.ensembles_[0].mirroring.mirrored(said["prediction"])
    np.testing.assert_allclose(turned, mirrored, atol=LOOSE)  # a mirrored picture has the mirrored box


def test_sampled_heads_speak_in_a_file_and_what_is_no_picture_has_no_answer(run_file, largest_difference, tmp_path):
    X, y = photographs(12, SIZE, 0)
    network = ResNet18(weights=None, size=SIZE, mirror="same")
    model = MCDropoutRegressor(0.8, network=network, n_samples=3, max_epochs=1, **BRIEF).fit(X, y)
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"X": X[:3]})
    assert largest_difference(said, model, X[:3], y.std(axis=0)) < LOOSE
    assert run_file(tmp_path / "model.onnx", {"X": X[:0]})["lower"].shape == (0, 2, 1)
    wrong = X[:4].copy()
    wrong[1], wrong[2, 0, 0, 0], wrong[3, 1, 5, 5] = 255 * wrong[1], -0.01, np.nan  # the model refuses these
    for values in run_file(tmp_path / "model.onnx", {"X": wrong}).values():
        assert np.isnan(values).reshape(4, -1).all(axis=1).tolist() == [False, True, True, True]


def test_a_trunk_with_other_features_is_refused(monkeypatch, tmp_path):
    X, y = photographs(8, SIZE, 0)
    network = ResNet18(weights=None, size=SIZE)
    model = HeteroscedasticRegressor(0.8, network=network, max_epochs=1, **BRIEF).fit(X, y)
    right = pictures_file.trunk_features

    def wrong(graph, *given):
        return graph.op("Mul", right(graph, *given), np.float32(1.0004))  # less than float16 can tell

    monkeypatch.setattr(pictures_file, "trunk_features", wrong)
    with pytest.raises(ValueError, match=r"must give the model's features .* nothing was written"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
