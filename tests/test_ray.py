"""One fit by two workers on two nodes: what one gives; and what is wrong is told before or after the start."""

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

from coverwell import MLP, MatchedRegressor
from coverwell.baselines import NeuralQuantileRegressor
from coverwell.scale import ClusterError, fit_on_ray
from coverwell.scale.ray_fit import _check_cluster, _told, _Work
from coverwell.streaming import TableFiles, fit_streamed
from coverwell.table_files import TableFileError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")

# Ray's own: it touches its old settings whenever it makes its context.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.use_(push_based_shuffle|polars|arrow_tensor_v2). is deprecated:DeprecationWarning"
)

SOURCES = Path(__file__).parents[2] / "src"
NETWORK = MLP(hidden=8, layers=2, dropout=0.0, bins=0)


def draw(n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-2, 2, n), rng.uniform(0, 1, n)
    return pl.DataFrame({"a": a, "b": b, "y": np.sin(a) + 0.5 * (0.5 + b) * rng.normal(size=n)})


def model(**more):
    told = {"network": NETWORK, "max_rounds": 2, "mean_epochs": 2, "interval_epochs": 2, "repeats": 1}
    return MatchedRegressor(**{**told, "device": "cpu", "random_state": 0, **more})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rows = draw(1500, 0)
    rows[:700].write_parquet(folder / "1.parquet")
    rows[700:].write_parquet(folder / "2.parquet")
    return TableFiles(folder)


def test_two_workers_give_what_one_gives(added_node, files):
    added_node()
    asked = {"buffer_rows": 600}  # three buffers, of which each worker has half
    together = model()
    assert fit_on_ray(together, files, "y", workers=2, **asked) is together
    alone = fit_streamed(model(), files, "y", **asked)
    new = draw(500, 1).drop("y")
    np.testing.assert_allclose(together.predict(new), alone.predict(new), rtol=0, atol=1e-4)
    for ours, theirs in zip(together.predict_interval(new), alone.predict_interval(new), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert set(vars(together)) == set(vars(alone))
    assert [r.coverage for r in together.rounds_] == pytest.approx([r.coverage for r in alone.rounds_], abs=1e-4)
    assert together.n_ranked_ == 1500
    assert together.get_params()["device"] == "cpu"


@pytest.mark.slow
def test_networks_of_the_users_own_targets_groups_and_no_seed(added_node, tmp_path):
    added_node()
    rows = draw(1200, 0).with_columns(z=-pl.col("y"), house=pl.Series([f"house {k % 60}" for k in range(1200)]))
    rows.write_parquet(tmp_path / "1.parquet")
    own = model(network=torch.nn.Linear, random_state=None, calibration="split")
    fit_on_ray(own, tmp_path, ["y", "z"], groups="house")
    assert own.predict(rows.select("a", "b")).shape == (1200, 2)
    assert own.target_names_ == ("y", "z")
    assert own.random_state is None


# Mistakes. Whatever can be known before workers are started is told then; they take half a minute to start.


@pytest.mark.parametrize(
    ("told", "asked", "error", "message"),
    [
        ({"calibration": "cv+"}, {}, ValueError, r"can be calibrated by one of .*, got 'cv\+'"),
        ({}, {"target": "price"}, TableFileError, "no target price"),
        ({}, {"buffer_rows": 10}, ValueError, "buffer_rows must be a whole number of at least 500, got 10"),
        ({}, {"workers": 3}, ValueError, "must divide 8, got 3; take 1, 2, 4 or 8"),
        ({}, {"address": "127.0.0.1:1"}, ClusterError, "no Ray cluster answers at '127.0.0.1:1'"),
    ],
)
def test_mistakes_are_told_before_anything_is_started(files, told, asked, error, message):
    unfitted = model(**told)
    with pytest.raises(error, match=message):
        fit_on_ray(unfitted, files, **{"target": "y", **asked})
    assert not hasattr(unfitted, "ensembles_")


def test_other_estimators_are_told(files):
    with pytest.raises(TypeError, match="trains a MatchedRegressor, got a NeuralQuantileRegressor"):
        fit_on_ray(NeuralQuantileRegressor(), files, "y")


def test_a_cluster_that_is_too_small_is_told(connected, files):
    with pytest.raises(ClusterError, match="4 workers need 4 CPUs, but the Ray cluster has 1; add nodes"):
        fit_on_ray(model(), files, "y", workers=4)
    with pytest.raises(ClusterError, match="1 workers need 1 GPUs, but the Ray cluster has 0"):
        fit_on_ray(model(), files, "y", workers=1, gpus=True)


def test_a_node_without_the_same_files_is_told_before_anything_is_fitted(connected, tmp_path):
    draw(600, 0).write_parquet(tmp_path / "1.parquet")
    work = _Work.of(model(), TableFiles(tmp_path), "y", groups=None, gpus=False, buffer_rows=600)
    (tmp_path / "1.parquet").unlink()  # the node of this test has our own files
    with pytest.raises(ClusterError, match=r"there is no file .*1\.parquet.*put the same files at the same paths"):
        _check_cluster(1, work)
    draw(700, 0).write_parquet(tmp_path / "1.parquet")
    with pytest.raises(ClusterError, match=r"1\.parquet has \d+ bytes there, but \d+ here"):
        _check_cluster(1, work)


def test_missing_ray_is_told_with_the_extra(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'coverwell\[ray\]'"):
        fit_on_ray(model(), files, "y")


def test_a_ray_that_is_too_old_is_told(files, monkeypatch):
    monkeypatch.delattr("ray.train.Result.return_value")
    with pytest.raises(ImportError, match=r"needs Ray 2\.60 or later"):
        fit_on_ray(model(), files, "y")


def test_what_workers_say_becomes_one_sentence():
    from ray.train import WorkerGroupError

    lost, bad = RuntimeError("Connection closed\nby peer"), TableFileError("the target 'y' must be a finite number")
    assert _told(WorkerGroupError("", {0: lost, 1: bad})) is bad
    (sentence,) = _told(WorkerGroupError("", {1: lost})).args
    assert sentence == (
        "the fit ended on worker 1 of the Ray cluster, and the model is not fitted: RuntimeError: Connection closed by "
        "peer"
    )


@pytest.mark.slow
def test_an_error_that_only_workers_find_reaches_the_caller_as_it_is(added_node, tmp_path):
    added_node()
    draw(600, 0).with_columns(y=pl.when(pl.col("a") > 1.99).then(None).otherwise("y")).write_parquet(
        tmp_path / "1.parquet"
    )
    unfitted = model()
    with pytest.raises(TableFileError, match="'y' must be a finite number in every row, but is missing in row"):
        fit_on_ray(unfitted, tmp_path, "y")
    assert not hasattr(unfitted, "ensembles_")


ENDLESS = """
import sys
from coverwell import MLP, MatchedRegressor
from coverwell.scale import fit_on_ray

model = MatchedRegressor(network=MLP(hidden=4, bins=0), max_rounds=10**6, patience=10**6, repeats=1, random_state=0)
try:
    fit_on_ray(model, sys.argv[2], "y", workers=1, address=sys.argv[1])
except KeyboardInterrupt:
    print("stopped", hasattr(model, "ensembles_"))
"""


def fits_in(logs):
    return [path for path in logs.glob("ray-train-sys-worker-*") if "Launching training function" in path.read_text()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_a_fit_and_its_workers(cluster, files):
    folder = files.paths[0].parent
    command = [sys.executable, "-c", ENDLESS, cluster.address, str(folder)]
    logs = Path(cluster.head_node.get_logs_dir_path(), "train")
    before = len(fits_in(logs))
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 120
        while len(fits_in(logs)) == before and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert said == "stopped False\n"
