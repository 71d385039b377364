"""Models with random weights, which need no training, and ways to run an exported file."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from coverwell.algorithm import n_interval_outputs
from coverwell.ensemble import Ensemble
from coverwell.matching import matching_from

from coverwell import MLP, MatchedRegressor
from coverwell.inputs.scaling import InputScaler, TargetScaler
from coverwell.inputs.source import TableSource

onnx, onnxruntime = (pytest.importorskip(name) for name in ("onnx", "onnxruntime"))

# A process in which torch, and all of coverwell, cannot be imported.
SERVER = """
import sys, json
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "coverwell", "sklearn"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Absent())
try:
    import torch
except ImportError:
    pass
else:
    raise SystemExit("torch could be imported")

import onnxruntime

model, given, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
told = json.loads(session.get_modelmeta().custom_metadata_map["coverwell"])
inputs = np.load(given)
names = [entry["name"] for entry in told["outputs"]]
said = session.run(names, {entry["name"]: inputs[entry["name"]] for entry in told["inputs"]})
np.savez(out, **dict(zip(names, said)))
print("torch" in sys.modules)
"""


def served(path, inputs):
    """The same as `run_file`, from a process that has no torch and learns all names from the metadata."""
    onnx.checker.check_model(str(path), full_check=True)
    files = [path, path.with_suffix(".in.npz"), path.with_suffix(".out.npz")]
    np.savez(files[1], **inputs)
    command = [sys.executable, "-I", "-c", SERVER, *map(str, files)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stdout) == (0, "False\n"), process.stderr
    return dict(np.load(files[2]))


def run_file(path, inputs):
    """The outputs of an exported file by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def largest_difference(said, model, X, sd):
    """Between a file's outputs and what the model says, in standard deviations of each target."""
    levels = model._fitted_levels
    (n_rows, n_targets), n_levels = said["prediction"].shape, len(levels)
    told = {"prediction": model.predict(X)}
    for prefix, joint in (("", False), ("joint_", True)):
        if f"{prefix}lower" in said:
            interval = model.predict_interval(X, levels, joint=joint)
            told |= {f"{prefix}lower": interval.lower, f"{prefix}upper": interval.upper}
    assert set(told) == set(said)
    shapes = {name: (n_rows, n_targets) if name == "prediction" else (n_rows, n_targets, n_levels) for name in said}
    assert {name: value.shape for name, value in said.items()} == shapes
    unit = np.reshape(sd, (-1, 1))  # (target, 1), or one for all
    differences = [
        np.abs(said[name] - told[name].reshape(shapes[name])).reshape(n_rows, n_targets, -1) for name in said
    ]
    return max((difference / unit).max() for difference in differences)


def random_regressor(
    *, seed=0, network=None, matching="sigma", shape="both", n_members=3, n_features=4, n_targets=1, levels=(0.5, 0.9)
):
    """A regressor as fit leaves it, its networks and units drawn at random."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    network, strategy = network or MLP(hidden=8, layers=3, bins=4), matching_from(matching)
    model = MatchedRegressor(list(levels), matching, network=network, shape=shape, device="cpu")
    rows = rng.normal(size=(50, n_features)) * 10.0 ** rng.uniform(-3, 3, n_features) + rng.normal(size=n_features)
    inputs = InputScaler.of(rows)
    sizes = strategy.n_outputs(n_targets, len(levels)), n_interval_outputs(n_targets, len(levels))
    teams = [network.build(n_members, (n_features,), size) for size in sizes]
    for team in teams:
        team.adapt(torch.tensor(inputs.transform(rows))[None].float(), torch.ones(1, len(rows), dtype=torch.bool))
        team.to(team.precision).eval().requires_grad_(False)
    targets = TargetScaler(rng.normal(size=n_targets) * 100, 10.0 ** rng.uniform(-3, 3, n_targets))
    scale = rng.uniform(0.1, 1, n_targets)
    model.ensembles_ = [Ensemble(*teams, strategy, levels, scale, inputs, targets, both=model._both)]
    model._fitted_levels, model._one_dimensional = levels, n_targets == 1
    model.target_names_ = tuple(f"y{number}" for number in range(n_targets))
    model.n_features_in_ = n_features
    model.source_ = TableSource(row_shape=(n_features,))
    model.factor_ = rng.uniform(0.5, 2, (n_targets, len(levels)))
    model.joint_factor_, model.scores_ = model.factor_ * 1.2, None
    return model, rows


@pytest.fixture(name="run_file", scope="session")
def _run_file():
    return run_file


@pytest.fixture(name="served", scope="session")
def _served():
    return served


@pytest.fixture(name="largest_difference", scope="session")
def _largest_difference():
    return largest_difference


@pytest.fixture(name="random_regressor", scope="session")
def _random_regressor():
    return random_regressor
