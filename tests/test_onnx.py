"""Exported files give the model's numbers without torch; what cannot be exported is refused in one line."""

import copy
import hashlib
import json
import subprocess
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis.strategies import booleans, datetimes, integers, lists, sampled_from
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from torch import nn
from torch.nn.functional import interpolate

import coverwell
from coverwell import (
    LSTM,
    MLP,
    Forecaster,
    MatchedForecaster,
    MatchedRegressor,
    ResNet18,
    Schedule,
    TableFiles,
    baselines,
    to_onnx,
)
from coverwell import onnx as onnx_file
from coverwell.calibration import Correction, Split
from coverwell.errors import ExtrapolationWarning
from coverwell.inputs.columns import Column
from coverwell.inputs.scaling import Scaling
from coverwell.options import part_from
from coverwell.paper.matching import Matching, SigmaFit
from coverwell.predictor import MatchedTeam, Predictor

onnx, onnxruntime = (pytest.importorskip(name) for name in ("onnx", "onnxruntime"))
if tuple(map(int, torch.__version__.split(".")[:2])) < onnx_file.OLDEST_TORCH:
    pytest.skip("torch is too old to export a model", allow_module_level=True)

BRIEF = {"folds": 2, "schedule": Schedule(max_rounds=1), "random_state": 0, "device": "cpu"}
ALONE = {"companions": (), "calibration": "cross"}
LEVELS = [0.5, 0.9]

# A process in which torch, and all of coverwell, cannot be imported; it learns all names from the metadata.
SERVER = """
import sys, json
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "coverwell", "sklearn"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Absent())
import onnxruntime

model, given, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
metadata = json.loads(session.get_modelmeta().custom_metadata_map["coverwell"])
inputs = np.load(given)
names = [entry["name"] for entry in metadata["outputs"]]
found = session.run(names, {entry["name"]: inputs[entry["name"]] for entry in metadata["inputs"]})
np.savez(out, **dict(zip(names, found)))
print("torch" in sys.modules)
"""


def served(path, inputs):
    """The outputs of a file from a process that has no torch."""
    onnx.checker.check_model(str(path), full_check=True)
    files = [path, path.with_suffix(".in.npz"), path.with_suffix(".out.npz")]
    np.savez(files[1], **inputs)
    command = [sys.executable, "-I", "-c", SERVER, *map(str, files)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stdout) == (0, "False\n"), process.stderr
    return dict(np.load(files[2]))


def run_file(path, **inputs):
    """The outputs of a file by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def largest_difference(found, model, X, sd):
    """Between a file's outputs and the model's, in standard deviations of each target."""
    levels = model.predictor_.levels
    (n_rows, n_targets), n_levels = found["prediction"].shape, len(levels)
    expected = {"prediction": model.predict(X)}
    for prefix, joint in (("", False), ("joint_", True)):
        if f"{prefix}lower" in found:
            interval = model.predict_interval(X, levels, joint=joint)
            expected |= {f"{prefix}lower": interval.lower, f"{prefix}upper": interval.upper}
    assert set(expected) == set(found)
    shapes = {name: (n_rows, n_targets) if name == "prediction" else (n_rows, n_targets, n_levels) for name in found}
    assert {name: value.shape for name, value in found.items()} == shapes
    unit = np.reshape(sd, (-1, 1))
    apart = [(found[name] - expected[name].reshape(shapes[name])).reshape(n_rows, n_targets, -1) for name in found]
    return max(np.abs(difference / unit).max() for difference in apart)


# Tables.

RNG = np.random.default_rng(0)
# Half of the rows share a millionth of the first column's range: bins that float32 cannot tell apart.
X = np.stack([np.exp(5 * RNG.normal(size=120)), RNG.normal(size=120), 1e-3 * RNG.normal(size=120)], axis=1)
Y = np.stack([np.log(X[:, 0]) + RNG.normal(size=120), 30 * X[:, 1] * RNG.normal(size=120)], axis=1)
SD = Y.std(axis=0)


def fitted(x=X, y=Y, **parameters):
    defaults = {"coverage": LEVELS, "network": MLP(hidden=8, bins=16, waves=2, scaled=True), **BRIEF, **ALONE}
    return MatchedRegressor(**defaults | parameters).fit(x, y)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A model of two targets and levels, its file, and the metadata."""
    model, path = fitted(repeats=1), tmp_path_factory.mktemp("table") / "model.onnx"
    path.with_name("model.safetensors").write_bytes(b"a model")
    return model, path, to_onnx(model, path, model_file=path.with_name("model.safetensors"))


def test_a_process_without_torch_gives_the_models_numbers(table):
    model, path, _ = table
    beyond = np.concatenate([X, X.max(axis=0, keepdims=True) * 1.4])  # read as the border of the range of the training
    assert largest_difference(served(path, {"X": beyond}), model, beyond, SD) < 1e-5


def test_the_metadata_hold_all_that_a_server_needs_and_nothing_about_this_machine(table):
    model, path, metadata = table
    made = onnx.load(path)
    (entry,) = made.metadata_props
    assert (entry.key, json.loads(entry.value)) == ("coverwell", metadata)
    assert (metadata["format"], metadata["version"]) == (2, coverwell.__version__)
    assert (metadata["class"], metadata["kind"]) == ("MatchedRegressor", "table")
    assert (metadata["targets"], metadata["levels"]) == (["y0", "y1"], LEVELS)
    assert metadata["columns"] == [{"name": f"column {number}", "kind": "numbers"} for number in range(3)]
    assert (metadata["calibration"], metadata["promise"]) == ("cross", model.chosen_calibration.promise)
    assert metadata["model_sha256"] == hashlib.sha256(b"a model").hexdigest()
    assert (made.ir_version, made.opset_import[0].version, made.producer_name) == (9, 18, "coverwell")
    assert b"site-packages" not in path.read_bytes()
    assert not any(node.metadata_props or node.doc_string for node in made.graph.node)


def test_names_types_and_shapes_are_those_of_the_graph(table):
    _, path, metadata = table
    session = onnxruntime.InferenceSession(path)
    for entries, found in ((metadata["inputs"], session.get_inputs()), (metadata["outputs"], session.get_outputs())):
        assert [(e["name"], e["shape"]) for e in entries] == [(f.name, f.shape) for f in found]
        assert all(len(entry["is"]) > 20 for entry in entries)
        assert {f.type for f in found} == {"tensor(double)"}


@pytest.mark.parametrize("n_rows", [0, 1, 7])
def test_any_number_of_rows_may_be_given(table, n_rows):
    model, path, _ = table
    found, rows = run_file(path, X=X[:n_rows]), model.predict(X)[:n_rows]
    assert found["lower"].shape == (n_rows, 2, 2)
    np.testing.assert_allclose(found["prediction"] / SD, rows / SD, atol=1e-5)


def test_a_row_that_the_model_would_refuse_is_nan_and_no_other(table):
    rows = X[:3].copy()
    rows[1, 2], rows[2, 0] = np.nan, np.inf
    for values in run_file(table[1], X=rows).values():
        assert np.isfinite(values[0]).all()
        assert np.isnan(values[1:]).all()


def test_float64_is_exact_and_larger(table, tmp_path):
    model, path, _ = table
    to_onnx(model, tmp_path / "model.onnx", precision="float64")
    assert largest_difference(run_file(tmp_path / "model.onnx", X=X), model, X, SD) < 1e-12
    assert (tmp_path / "model.onnx").stat().st_size > path.stat().st_size


def test_local_calibration_and_a_forest_beside_the_networks_are_exported(tmp_path):
    model = fitted(X[:60], Y[:60, 0], repeats=1, calibration="local", companions=("forest",))
    assert to_onnx(model, tmp_path / "model.onnx")["calibration"] == "local"
    # A forest is one operator, and no level is computed but those that were asked for.
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert [node.domain for node in graph.node if "Tree" in node.op_type] == ["ai.onnx.ml"] * 2
    assert max(len(part.dims) and part.dims[-1] for part in graph.initializer if "shares" in part.name) == 2 * len(
        LEVELS
    )
    # Shares of a forest are of single precision, and a quantile lies where they are nearly flat.
    assert largest_difference(run_file(tmp_path / "model.onnx", X=X[:60]), model, X[:60], SD[0]) < 1e-3


def test_cv_plus_has_the_models_bounds(tmp_path):
    model = fitted(calibration="cv+", network=MLP(hidden=6, layers=3, bins=2))
    assert to_onnx(model, tmp_path / "model.onnx")["calibration"] == "cv+"
    found = run_file(tmp_path / "model.onnx", X=X)
    assert largest_difference(found, model, X, SD) < 1e-5
    assert run_file(tmp_path / "model.onnx", X=X[:0])["joint_lower"].shape == (0, 2, 2)


KINDS = ["numbers", "text", "times", "booleans", "numbers", "booleans"]


def flats(n, seed):
    """A frame of all kinds of columns, most with gaps, a level that occurs once, and its target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.gamma(5, 20, n),
            "city": [*rng.choice(["Rome", "Oslo", "Bern"], n - 1), "Lund"],
            "sold": pd.Timestamp("1999-12-30") + pd.to_timedelta(rng.integers(0, 5_000_000, n), unit="min"),
            "garden": pd.array(rng.random(n) < 0.5, dtype="boolean"),
        }
    )
    for number, name in enumerate(frame):
        frame.loc[number :: 11 + number, name] = None
    frame["rooms"], frame["lift"] = rng.integers(1, 6, n), rng.random(n) < 0.5
    return frame, frame["area"].fillna(50) * 2 + 50 * (frame["city"] == "Oslo") + rng.normal(size=n)


def as_codes(frame, columns):
    """The matrix that somebody fills who has nothing but the metadata."""
    raw = []
    for entry in columns:
        values = frame[entry["name"]]
        if entry["kind"] == "text":
            codes = [np.nan if pd.isna(v) else entry["codes"].get(v, entry["unknown"]) for v in values]
        elif entry["kind"] == "times":
            codes = (values - pd.Timestamp("1970-01-01")).dt.total_seconds()
        else:
            codes = values.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        raw.append(np.asarray(codes, dtype=np.float64))
    return np.stack(raw, axis=1)


def test_a_model_that_was_fitted_part_by_part_reads_columns_of_all_kinds_in_a_file(tmp_path):
    rows, rent = flats(600, seed=0)
    rows = rows.assign(rent=rent)
    for number in (0, 1):
        rows[300 * number : 300 * (number + 1)].to_parquet(tmp_path / f"{number}.parquet")
    parameters = {"network": MLP(hidden=6, bins=4), "repeats": 1, "calibration": "split", **BRIEF}
    model = MatchedRegressor(LEVELS, **parameters).fit(TableFiles(tmp_path), "rent")
    columns = to_onnx(model, tmp_path / "model.onnx")["columns"]
    new, _ = flats(80, seed=1)
    found = run_file(tmp_path / "model.onnx", X=as_codes(new, columns))
    assert largest_difference(found, model, new, rent.std()) < 1e-5
    assert [(entry["name"], entry["kind"]) for entry in columns] == list(zip(new.columns, KINDS, strict=True))
    assert (sorted(columns[1]["codes"]), columns[1]["unknown"]) == (["Bern", "Oslo", "Rome"], -1)
    assert columns[2]["unit"].startswith("seconds from 1970")
    assert {entry["missing"] for entry in columns} == {"NaN"}


@given(moments=lists(datetimes(), min_size=1, max_size=20))
@example(moments=["2000-02-29", "1900-02-28", "1900-03-01", "2100-12-31T23:59:59", "0001-01-01", "9999-12-31"])
def test_tensors_have_the_features_of_arrays(moments):
    """Sines of arrays are rounded after 12 digits."""
    sold = Column("sold", "times", median=float(np.datetime64("2020-02-29T12:00", "us").astype(int)))
    codes = np.append(np.array(moments, dtype="datetime64[s]").astype(np.float64) * 1e6, np.nan)
    for part, feature in sold.features(codes).items():
        np.testing.assert_allclose(sold.features(torch.from_numpy(codes))[part], feature, rtol=1e-15, atol=1e-12)


def random_regressor(seed, network, matching, *, both, n_members, n_targets, levels):
    """A regressor as fit leaves it, its networks and units drawn at random."""
    rng, n_features = np.random.default_rng(seed), 4
    torch.manual_seed(seed)
    rows = rng.normal(size=(50, n_features)) * 10.0 ** rng.uniform(-3, 3, n_features) + rng.normal(size=n_features)
    inputs, strategy = Scaling.of(rows, bounded=True), part_from("matching", matching, Matching)
    sizes = strategy.n_outputs(n_targets, len(levels)), 2 * n_targets * len(levels)
    teams = [network.build(n_members, (n_features,), size) for size in sizes]
    for team in teams:
        team.adapt(inputs(torch.tensor(rows))[None].float(), torch.ones(1, len(rows), dtype=torch.bool))
    targets = Scaling((n_targets,), rng.normal(size=n_targets) * 100, 10.0 ** rng.uniform(-3, 3, n_targets))
    unit, factor = rng.uniform(0.1, 1, n_targets), rng.uniform(0.5, 2, (n_targets, len(levels)))
    correction = Correction(levels, levels, factor, 1.2 * factor)
    fitted_team = MatchedTeam(*(t.deployed() for t in teams), strategy, unit, levels, inputs, targets, both=both)
    return Predictor(levels, [fitted_team], correction), rows, targets.spread.numpy()


@settings(max_examples=30)
@given(
    seed=integers(0, 2**20),
    hidden=integers(1, 12),
    layers=integers(1, 4),
    bins=sampled_from([0, 1, 5]),
    n_members=integers(1, 4),
    n_targets=integers(1, 3),
    levels=sampled_from([(0.9,), (0.5, 0.9), (0.1, 0.5, 0.99)]),
    matching=sampled_from(["sigma", "iqr", None]),
    both=booleans(),
)
def test_what_torch_exports_gives_the_numbers_of_random_models(seed, hidden, layers, bins, matching, **sizes):
    """The layers that stand for a model's own in a graph, before they are exported."""
    network = MLP(hidden=hidden, layers=layers, bins=bins)
    predictor, rows, spread = random_regressor(seed, network, matching, **sizes)
    estimates = predictor.estimates(rows)
    expected = [estimates[0].mean[..., None], *predictor.bounds(estimates), *predictor.bounds(estimates, joint=True)]
    model = MatchedRegressor()
    model.target_names_ = ()
    for precision, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        graph = onnx_file._Graph(model, predictor, precision)
        graph.rows = lambda X: (X, torch.zeros(len(X), 1))
        with torch.no_grad():
            found = graph(torch.from_numpy(rows))
        assert len(found) == (5 if sizes["n_targets"] > 1 else 3)
        for own, output in zip(expected, found, strict=False):
            assert np.max(np.abs(own - output.numpy().reshape(own.shape)) / spread[:, None]) < most


# A user's own code, and baselines.


class Curved(nn.Sequential):
    def __init__(self, n_inputs, n_outputs):
        super().__init__(nn.Linear(n_inputs, 5), nn.GELU(), nn.Linear(5, n_outputs))


@dataclass(frozen=True)
class Halved(SigmaFit):
    """A matching of the user's own."""

    def mean(self, outputs, n_targets):
        return 0.5 * super().mean(outputs, n_targets)


def test_a_network_and_a_matching_of_the_users_own_are_exported(tmp_path):
    model = fitted(network=Curved, matching=Halved(), repeats=1)
    # The inner level is the wider one: each level contains the one inside it all the same.
    factor = np.array([[2.0, 0.1], [1.0, 0.01]])
    model.predictor_.correction = Correction(tuple(LEVELS), tuple(LEVELS), factor, factor)
    to_onnx(model, tmp_path / "model.onnx")
    found = run_file(tmp_path / "model.onnx", X=X)
    assert largest_difference(found, model, X, SD) < 1e-5
    assert (np.diff(found["upper"]) == 0).all()
    assert run_file(tmp_path / "model.onnx", X=X[:0])["lower"].shape == (0, 2, 2)


class Choosing(nn.Module):
    """A network whose path depends on its numbers."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_outputs)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


def test_a_network_that_torch_cannot_export_is_refused_in_one_line(tmp_path, capfd):
    with pytest.raises(ValueError, match=r"^this model cannot be exported: .*of your own .*MLP\(\)$") as refusal:
        to_onnx(fitted(network=Choosing, repeats=1), tmp_path / "model.onnx")
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def fitted_baseline(kind, network, **parameters):
    return kind(LEVELS, network=network, max_epochs=10, random_state=0, device="cpu", **parameters).fit(X, Y)


SMALL = MLP(hidden=6, layers=3, dropout=0.3, bins=2)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (baselines.BayesByBackpropRegressor, {"network": SMALL, "n_samples": 2}),
        (baselines.MCDropoutRegressor, {"network": LSTM(hidden=3, layers=1, dropout=0.3, steps=2), "n_samples": 2}),
        (baselines.NeuralQuantileRegressor, {"network": SMALL, "calibration": Split(0.3)}),
    ],
)
def test_baselines_are_exported_with_the_networks_that_they_always_sample(kind, parameters, tmp_path):
    model = fitted_baseline(kind, **parameters)
    to_onnx(model, tmp_path / "model.onnx")
    found = run_file(tmp_path / "model.onnx", X=X)
    assert largest_difference(found, model, X, SD) < 1e-5
    assert run_file(tmp_path / "model.onnx", X=X[:0])["lower"].shape == (0, 2, 2)  # an LSTM of no rows ends a process


# Images.

SIZE = 32


def photographs(n, size, seed):
    """Smooth images (n, 3, size, size) in [0, 1], and where they are bright."""
    coarse = torch.rand(n, 3, size // 8, size // 8, generator=torch.Generator().manual_seed(seed))
    images = interpolate(coarse, size=(size, size), mode="bilinear").numpy()
    return images, np.stack([images[:, 0].mean(axis=(1, 2)), images[:, 1, : size // 2].mean(axis=(1, 2))], axis=1)


def test_images_have_in_a_file_the_intervals_of_the_model(imagenet_file, tmp_path):
    images, y = photographs(20, 96, 0)
    schedule = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1, batch_size=8)
    literal = BRIEF | {"folds": None, "calibration": "split", "schedule": schedule}
    model = MatchedRegressor([0.5, 0.8], network=ResNet18(weights=imagenet_file, size=96), **literal).fit(images, y)
    metadata = to_onnx(model, tmp_path / "model.onnx")
    new, _ = photographs(4, 96, 1)
    assert largest_difference(run_file(tmp_path / "model.onnx", X=new), model, new, y.std(axis=0)) < 1e-5
    assert metadata["inputs"][0]["shape"] == ["row", 3, 96, 96]
    assert (metadata["kind"], metadata["size"], metadata["mirror"]) == ("images", 96, None)


# Two ways to compute a feature in float32 differ by some 1e-6 of it, so one in several hundred is rounded to another
# neighbour in float16: all features of an image together by 3e-5 of their size. Tails that have hardly been trained,
# as here, make of that some ten times as much in units of y, trained ones on a trained trunk a tenth.
LOOSE = 1e-3


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    """A model of boxes with sampled heads, which averages mirror images, its images and its file."""
    (images, _), boxes = photographs(12, SIZE, 0), RNG.uniform(0.05, 0.45, (12, 4))
    network = ResNet18(weights=None, size=SIZE, mirror="boxes")
    few = {"n_samples": 3, "max_epochs": 1, "batch_size": 8, "random_state": 0, "device": "cpu"}
    model = baselines.MCDropoutRegressor(0.8, network=network, **few).fit(images, boxes)
    path = tmp_path_factory.mktemp("images") / "model.onnx"
    to_onnx(model, path)
    return model, images, boxes.std(axis=0), path


def test_a_process_without_torch_averages_mirror_images_as_the_model_does(mirrored):
    model, images, sd, path = mirrored
    found = served(path, {"X": images[:3]})
    assert largest_difference(found, model, images[:3], sd) < LOOSE
    turned = run_file(path, X=images[:3, ..., ::-1].copy())["prediction"]
    box = model.source_.mirroring.mirrored(found["prediction"])
    np.testing.assert_allclose(turned, box, atol=LOOSE)  # a mirrored image has the mirrored box


def test_what_is_no_image_has_no_prediction(mirrored):
    _, images, _, path = mirrored
    assert run_file(path, X=images[:0])["lower"].shape == (0, 4, 1)
    wrong = images[:4].copy()
    wrong[1], wrong[2, 0, 0, 0], wrong[3, 1, 5, 5] = 255 * wrong[1], -0.01, np.nan  # the model refuses these
    for values in run_file(path, X=wrong).values():
        assert np.isnan(values).reshape(4, -1).all(axis=1).tolist() == [False, True, True, True]


def test_features_that_are_not_the_models_are_refused(mirrored):
    model, *_ = mirrored
    graph = onnx_file._Images(model, torch.float32)
    features = graph.rows(torch.from_numpy(graph.examples["X"]))[0].numpy()
    assert graph.own_rows(features * (1 + 1e-6))[0].dtype == np.float16
    with pytest.raises(ValueError, match=r"must give the model's features .* nothing was written"):
        graph.own_rows(features * 1.0004)  # less than float16 can tell


# Series.


def wave(n=300):
    index = pd.date_range("2023-12-01", periods=n, freq="h", tz="Asia/Kolkata")
    return pd.Series(np.sin(np.arange(n) / 4) + 0.1 * RNG.normal(size=n) + 5, index=index, name="load")


def inputs_of(model):
    """What the file is given about the present: one row."""
    history, past, horizon = model.history_, model.windows_.n_past, model.windows_.horizon
    times = history.clock.times(len(history), horizon) if history.calendar else None
    inputs = {
        "values": history.values[-past:],
        "before": history.filled[-past - 1 : -past] if model.missing == "fill" else None,
        "past_covariates": history.past[-past:] if history.past_names else None,
        "times": None if times is None else times.astype("datetime64[s]").astype(np.float64),
        "covariates": history.ahead[len(history) : len(history) + horizon] if history.ahead_names else None,
    }
    return {name: values[None] for name, values in inputs.items() if values is not None}


def assert_forecasts_alike(found, model):
    sd = np.nanstd(model.history_.values)
    interval = model.predict_interval(model.regressor_.predictor_.levels)
    np.testing.assert_allclose(found["prediction"][0], np.asarray(model.predict()), atol=1e-5 * sd)
    for name, bound in (("lower", interval.lower), ("upper", interval.upper)):
        assert found[name].shape == (1, *bound.shape)
        np.testing.assert_allclose(found[name][0], bound, atol=1e-5 * sd)


def test_a_process_without_torch_forecasts_as_a_forecaster_with_everything_does(tmp_path):
    """Gaps that are filled and flagged, one at the beginning of the window, covariates, a calendar and live factors."""
    series, n = wave(), 300
    series.iloc[[3, 40, 41, 150, n - 4, n - 2, n - 1]] = np.nan
    few = {"network": LSTM(hidden=4, layers=1), "rate": 0.2, "missing": "fill", **BRIEF}
    model = MatchedForecaster([0.5, 0.8], past=6, horizon=3, calendar=("weekday", "hour", "month"), **few)
    model.fit(series, covariates=np.arange(n + 5.0)[:, None] % 7, past_covariates=RNG.normal(size=(n, 2)))
    for value in (6.3, 3.7):
        model.update(value, past_covariates=[0.5, -0.5])
    metadata = to_onnx(model, tmp_path / "model.onnx")
    inputs = inputs_of(model)
    assert np.isnan(inputs["values"])[0].tolist() == [True, False, True, True, False, False]
    assert_forecasts_alike(served(tmp_path / "model.onnx", inputs), model)
    unknown = run_file(tmp_path / "model.onnx", **inputs | {"before": np.array([[np.nan]])})
    assert all(np.isnan(values).all() for values in unknown.values())  # nothing to fill the first gap by
    assert [entry["name"] for entry in metadata["inputs"]] == list(inputs)
    assert (metadata["kind"], metadata["past"], metadata["horizon"]) == ("series", 6, 3)
    assert (metadata["calendar"], metadata["zone"]) == (["weekday", "hour", "month"], "Asia/Kolkata")
    assert metadata["targets"] == ["step 1", "step 2", "step 3"]
    assert metadata["inputs"][3]["is"].endswith("to what the clock shows in Asia/Kolkata")
    np.testing.assert_array_equal(metadata["live_factor"], model.calibrator_.factor)
    assert np.max(metadata["live_factor"]) > 1.1  # it missed twice


def test_a_series_far_outside_its_range_is_moved_back_in_the_file_too(tmp_path):
    series = wave()
    model = MatchedForecaster(0.8, past=6, network=LSTM(hidden=4, layers=1), live=False, **BRIEF).fit(series[:290])
    to_onnx(model, tmp_path / "model.onnx")
    for shift in (0.5, 1000.0):
        moved = copy.deepcopy(model)
        for value in series[290:] + shift:
            moved.update(value)
        with warnings.catch_warnings(action="ignore", category=ExtrapolationWarning):
            assert_forecasts_alike(run_file(tmp_path / "model.onnx", **inputs_of(moved)), moved)


@pytest.fixture(scope="module")
def gappy(tmp_path_factory):
    """A forecaster that fills gaps and has seen none, so that nothing tells it of them, and its file."""
    network = MLP(hidden=4)
    regressor = baselines.HeteroscedasticRegressor(0.8, network=network, max_epochs=10, random_state=0, device="cpu")
    model = Forecaster(regressor, past=10, horizon=2, missing="fill", differences=False, live=False)
    path = tmp_path_factory.mktemp("gappy") / "model.onnx"
    assert to_onnx(model.fit(wave().to_numpy()), path)["live_factor"] is None
    return model, path


def test_another_regressor_forecasts_too_also_no_moment_at_all_and_many_at_once(gappy):
    model, path = gappy
    assert_forecasts_alike(run_file(path, **inputs_of(model)), model)
    none = run_file(path, values=np.empty((0, 10)), before=np.empty((0, 1)))
    assert [values.shape for values in none.values()] == [(0, 2), (0, 2, 1), (0, 2, 1)]
    windows = np.lib.stride_tricks.sliding_window_view(model.history_.values, 10)
    many = run_file(path, values=windows, before=np.full((len(windows), 1), np.nan))["prediction"]
    np.testing.assert_allclose(many, model.regressor_.predict(windows), rtol=1e-6)


@pytest.mark.parametrize("gap", [1, 2, 5, 9])
def test_a_gap_of_any_length_is_filled_by_the_last_value_before_it(gappy, gap):
    model, path = gappy
    values = np.arange(1.0, 11.0)
    gapped, filled = (np.tile(values, (11 - gap, 1)) for _ in range(2))
    for first in range(11 - gap):
        gapped[first, first : first + gap], filled[first, first : first + gap] = np.nan, first  # 0 stands before
    found = run_file(path, values=gapped, before=np.zeros((11 - gap, 1)))["prediction"]
    np.testing.assert_allclose(found, model.regressor_.predictor_.estimates(filled)[0].mean, rtol=1e-6)


# What is refused, with nothing written.


def test_a_graph_with_other_numbers_or_too_many_of_them_is_not_written(monkeypatch, tmp_path):
    model = fitted(network=MLP(hidden=2, layers=1, bins=0), repeats=1)
    (tmp_path / "model.onnx").write_bytes(b"the file before")
    monkeypatch.setattr(onnx_file, "LARGEST_DIFFERENCE", 1e-12)  # less than float32 can do
    with pytest.raises(ValueError, match=r"within 1e-12 standard deviations .* nothing was written.*float64"):
        to_onnx(model, tmp_path / "model.onnx")
    monkeypatch.setattr(onnx_file, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"up to 1,000 bytes, this model takes more; fit with fewer members"):
        to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == b"the file before"
    assert len(list(tmp_path.iterdir())) == 1


def test_cv_plus_with_too_many_rows_is_refused_with_what_to_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(onnx_file, "MOST_SCORES", 119)
    with pytest.raises(ValueError, match=r"up to 119, got 120; fit with calibration='cross' or 'split'"):
        to_onnx(fitted(calibration="cv+"), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_samples_that_take_too_much_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("coverwell.baselines.training.MOST_NUMBERS", 100)
    model = fitted_baseline(baselines.MCDropoutRegressor, SMALL)
    with pytest.raises(ValueError, match=r"up to 100 weights, got more in the 50 samples.*smaller n_samples"):
        to_onnx(model, tmp_path / "model.onnx")


@pytest.mark.parametrize("model", [MatchedRegressor(), MatchedForecaster()], ids=lambda model: type(model).__name__)
def test_a_model_that_is_not_fitted_is_refused(model, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_is_none_of_our_estimators_or_precisions_is_refused(table, tmp_path):
    with pytest.raises(TypeError, match=r"regressor, classifier or forecaster of coverwell, got LinearRegression"):
        to_onnx(LinearRegression(), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"precision must be 'float32' or 'float64', got 'float16'"):
        to_onnx(table[0], tmp_path / "model.onnx", precision="float16")


def test_a_companion_that_is_absent_or_too_old_is_named_with_the_way_out(table, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs onnxscript; install the extra `onnx`: pip install 'coverw.*\[onnx"):
        to_onnx(table[0], tmp_path / "model.onnx")
    monkeypatch.undo()
    monkeypatch.setattr(onnx_file, "OLDEST_TORCH", (99, 0))
    with pytest.raises(ImportError, match=r"needs torch .* or later, got .*; upgrade torch"):
        to_onnx(table[0], tmp_path / "model.onnx")
