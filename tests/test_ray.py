"""Fits and predictions on a small simulated Ray cluster, started once: the results are those of one process."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule, SigmaFit, TableFiles, save
from coverwell.errors import ClusterError, TableFileError
from coverwell.estimator import IntervalRegressor
from coverwell.model_file import read_tensors
from coverwell.ray import TorchWorkers, cause_of, check_cluster, fit_on_ray, has_lost_a_worker, predict_dataset
from coverwell.streaming import fit_streamed
from coverwell.training.rows import Workers

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

# Ray's own: it touches its old settings whenever it makes its context.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.use_(push_based_shuffle|polars|arrow_tensor_v2). is deprecated:DeprecationWarning"
)

SOURCES = Path(__file__).parents[1] / "src"
BRIEF = Schedule(max_rounds=2, mean_epochs=2, interval_epochs=2)
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
# A node that is killed is noticed in two seconds, not fifteen. Ray's workers give way to all else on a machine; beside
# other tests they would hardly come to work.
SYSTEM = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500}
SYSTEM |= {"health_check_failure_threshold": 3, "worker_niceness": 0}


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node with one CPU; tests add others and take them away again."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # else Ray looks for a server of its own to report to
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"  # how often it looks whether a fit is done
    os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # a process less
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "_system_config": SYSTEM}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def connected(cluster):
    """The cluster with this process connected to it: workers that have started once serve all tests."""
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()


@pytest.fixture
def second_node(connected):
    node = connected.add_node(**NODE)
    yield node
    if node in connected.worker_nodes:
        connected.remove_node(node)


def draw(n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-2, 2, n), rng.uniform(0, 1, n)
    return pl.DataFrame({"a": a, "b": b, "y": np.sin(a) + 0.5 * (0.5 + b) * rng.normal(size=n)})


def model(**more):
    defaults = {"network": MLP(hidden=8, layers=2, dropout=0.0, bins=0), "schedule": BRIEF, "repeats": 1}
    return MatchedRegressor(**{**defaults, "device": "cpu", "random_state": 0, **more})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("rows"), draw(1500, 0)
    rows[:700].write_parquet(folder / "1.parquet")
    rows[700:].write_parquet(folder / "2.parquet")
    return TableFiles(folder)


@pytest.mark.parametrize("calibration", ["cross", pytest.param("local", marks=pytest.mark.slow)])
def test_two_workers_give_what_one_gives(second_node, files, calibration):
    asked = {"buffer_rows": 600}  # three buffers, of which each worker has half
    together = model(calibration=calibration)
    assert fit_on_ray(together, files, "y", workers=2, **asked) is together
    alone = fit_streamed(model(calibration=calibration), files, "y", **asked)
    new = draw(500, 1).drop("y")
    np.testing.assert_allclose(together.predict(new), alone.predict(new), rtol=0, atol=1e-4)
    for ours, theirs in zip(together.predict_interval(new), alone.predict_interval(new), strict=True):
        # Where local calibration's forest splits by a prediction, rounding puts some rows on the other side.
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 if calibration == "cross" else 0.1)
        assert np.median(np.abs(ours - theirs)) < 1e-4
    assert set(vars(together)) == set(vars(alone))
    assert [r.coverage for r in together.rounds_] == pytest.approx([r.coverage for r in alone.rounds_], abs=1e-4)
    assert together.n_ranked_ == 1500
    assert together.get_params()["device"] == "cpu"


@pytest.mark.slow
def test_two_workers_fit_classes_as_one_does(second_node, tmp_path):
    rows = draw(1500, 0)
    rows = rows.with_columns(y=np.array(["low", "mid", "high"])[np.digitize(rows["y"], [-0.5, 0.5])])
    rows[:700].write_parquet(tmp_path / "1.parquet")
    rows[700:].write_parquet(tmp_path / "2.parquet")
    known = {**model().get_params(deep=False), "matching": "confidence", "calibration": "cross", "hold_for": "class"}
    del known["shape"]
    together, alone = MatchedClassifier(**known), MatchedClassifier(**known)
    assert fit_on_ray(together, tmp_path, "y", workers=2, buffer_rows=600) is together
    fit_streamed(alone, TableFiles(tmp_path), "y", buffer_rows=600)
    new = draw(500, 1).drop("y")
    assert together.classes_.tolist() == ["high", "low", "mid"]
    np.testing.assert_allclose(together.predict_proba(new), alone.predict_proba(new), rtol=0, atol=1e-4)
    assert (together.predict_set(new).members == alone.predict_set(new).members).mean() > 0.995
    assert set(vars(together)) == set(vars(alone))


@pytest.mark.slow
def test_networks_of_the_users_own_targets_groups_and_no_seed(second_node, tmp_path):
    rows = draw(1200, 0).with_columns(z=-pl.col("y"), house=pl.Series([f"house {k % 60}" for k in range(1200)]))
    rows.write_parquet(tmp_path / "1.parquet")
    own = model(network=torch.nn.Linear, random_state=None, calibration="split")
    fit_on_ray(own, tmp_path, ["y", "z"], groups="house")
    assert own.predict(rows.select("a", "b")).shape == (1200, 2)
    assert own.target_names_ == ("y", "z")
    assert own.random_state is None


# Mistakes. Whatever can be known before workers are started is an error then; they take half a minute to start.


@pytest.mark.parametrize(
    ("options", "asked", "error", "message"),
    [
        ({"calibration": "cv+"}, {}, ValueError, r"can be calibrated by one of .*, got 'cv\+'"),
        ({}, {"target": "price"}, TableFileError, "no target price"),
        ({}, {"buffer_rows": 10}, ValueError, "buffer_rows must be a whole number of at least 500, got 10"),
        ({}, {"max_failures": -1}, ValueError, "max_failures must be a whole number of at least 0, got -1"),
        ({}, {"workers": 3}, ValueError, "must divide 8, got 3; take 1, 2, 4 or 8"),
        ({}, {"address": "127.0.0.1:1"}, ClusterError, "no Ray cluster answers at '127.0.0.1:1'"),
    ],
)
def test_mistakes_are_found_before_anything_is_started(files, options, asked, error, message):
    unfitted = model(**options)
    with pytest.raises(error, match=message):
        fit_on_ray(unfitted, files, **{"target": "y", **asked})
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    with pytest.raises(TypeError, match="trains a MatchedRegressor or MatchedClassifier, got a IntervalRegressor"):
        fit_on_ray(IntervalRegressor(), files, "y")


def test_a_cluster_that_is_too_small_is_an_error(connected, files):
    with pytest.raises(ClusterError, match="4 workers need 4 CPUs, but the Ray cluster has 1; add nodes"):
        fit_on_ray(model(), files, "y", workers=4)
    with pytest.raises(ClusterError, match="1 workers need 1 GPUs, but the Ray cluster has 0"):
        fit_on_ray(model(), files, "y", workers=1, gpus=True)


def test_a_node_without_the_same_files_is_an_error_before_anything_is_fitted(connected, tmp_path):
    path = tmp_path / "1.parquet"
    with pytest.raises(ClusterError, match=r"there is no file .*1\.parquet.*put the same files at the same paths"):
        check_cluster({path: 1000}, 1, gpus=False)
    draw(700, 0).write_parquet(path)
    with pytest.raises(ClusterError, match=r"1\.parquet has \d+ bytes there, but 1000 here"):
        check_cluster({path: 1000}, 1, gpus=False)


def test_a_missing_ray_names_the_extra_and_an_old_one_the_version(files, monkeypatch):
    monkeypatch.delattr("ray.train.Result.return_value")
    with pytest.raises(ImportError, match=r"needs Ray 2\.60 or later"):
        fit_on_ray(model(), files, "y")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'coverwell\[ray\]'"):
        fit_on_ray(model(), files, "y")


def test_errors_of_workers_become_one_sentence():
    from ray.train import WorkerGroupError

    lost, bad = RuntimeError("Connection closed\nby peer"), TableFileError("the target 'y' must be a finite number")
    assert cause_of(WorkerGroupError("", {0: lost, 1: bad})) is bad
    (sentence,) = cause_of(WorkerGroupError("", {1: lost})).args
    assert sentence.startswith("the fit ended on worker 1 of the Ray cluster, and the model is not fitted")
    assert sentence.endswith(": RuntimeError: Connection closed by peer")


def test_a_lost_worker_is_told_from_an_error_in_the_fit():
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

    gone = WorkerHealthCheckFailedError("A worker health check failed.", failure=RuntimeError())
    cut = RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer")
    assert all(has_lost_a_worker(WorkerGroupError("", found)) for found in ({1: gone}, {0: cut}, {0: cut, 1: gone}))
    wrong = RuntimeError("shapes do not match"), ValueError("y must hold numbers")
    assert not any(has_lost_a_worker(WorkerGroupError("", {0: error})) for error in wrong)
    assert not has_lost_a_worker(WorkerGroupError("", {0: cut, 1: wrong[1]}))


@pytest.mark.slow
def test_an_error_that_only_workers_find_reaches_the_caller_as_it_is(second_node, tmp_path):
    gap = pl.when(pl.col("a") > 1.99).then(None).otherwise("y")
    draw(600, 0).with_columns(y=gap).write_parquet(tmp_path / "1.parquet")
    with pytest.raises(TableFileError, match="'y' must be a finite number in every row, but is missing in row"):
        fit_on_ray(model(), tmp_path, "y")


@dataclass(frozen=True)
class KilledWorker(SigmaFit):
    """A matching in whose third batch after the first checkpoint a worker is killed, once."""

    checkpoint: str = ""

    def loss(self, outputs, y, target):
        checkpoint = Path(self.checkpoint)
        if checkpoint.exists() and dist.get_rank() == 1:
            count = checkpoint.with_name("batches")
            n_batches = 1 + int(count.read_text() if count.exists() else 0)
            count.write_text(str(n_batches))
            if n_batches == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(outputs, y, target)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_fit_ends_as_if_undisturbed(second_node, files, tmp_path):
    matching, asked = KilledWorker(checkpoint=str(tmp_path / "checkpoint")), {"buffer_rows": 600}
    killed, undisturbed = model(matching=matching), model(matching=SigmaFit())
    fit_on_ray(killed, files, "y", **asked, checkpoint=matching.checkpoint)
    assert int((tmp_path / "batches").read_text()) > 3  # it was killed, and the fit went on
    fit_on_ray(undisturbed, files, "y", **asked)
    new = draw(500, 1).drop("y")
    np.testing.assert_array_equal(killed.predict(new), undisturbed.predict(new))
    for ours, theirs in zip(killed.predict_interval(new), undisturbed.predict_interval(new), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert killed.rounds_[0].rmse == undisturbed.rounds_[0].rmse


@pytest.mark.slow
def test_a_worker_that_may_not_be_replaced_ends_the_fit_with_an_error_and_leaves_the_checkpoint(
    second_node, files, tmp_path
):
    path = tmp_path / "checkpoint"
    unfitted = model(matching=KilledWorker(checkpoint=str(path)))
    with pytest.raises(ClusterError, match=r"fit ended on worker . of the Ray cluster, and the model is not fitted"):
        fit_on_ray(unfitted, files, "y", buffer_rows=600, checkpoint=path, max_failures=0)
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    assert read_tensors(path)[0]["checkpoint"]["rounds"] == 1


ENDLESS = """
import sys
from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.ray import fit_on_ray

endless = Schedule(max_rounds=10**6, patience=10**6, growth=1.0)
model = MatchedRegressor(network=MLP(hidden=4, bins=0), schedule=endless, repeats=1, random_state=0)
try:
    fit_on_ray(model, sys.argv[2], "y", workers=1, address=sys.argv[1])
except KeyboardInterrupt:
    print("stopped", "predictor_" in vars(model))
"""


def fits_in(logs):
    return [path for path in logs.glob("ray-train-sys-worker-*") if "Launching training function" in path.read_text()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_a_fit_and_its_workers(cluster, files):
    command = [sys.executable, "-c", ENDLESS, cluster.address, str(files.paths[0].parent)]
    logs = Path(cluster.head_node.get_logs_dir_path(), "train")
    before = len(fits_in(logs))
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 120
        while len(fits_in(logs)) == before and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert printed == "stopped False\n"


def met(rank, place):
    """What one of two workers sees: numbers that travel, and the gradient of a loss over the batch of both."""
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    try:
        workers, weight = TorchWorkers(torch.device("cpu")), torch.tensor([1.0], requires_grad=True)
        batch = workers.together(weight * torch.tensor([[1.0 - rank, 1.0 - rank]]))  # (member, own batch)
        (batch.mean() - 0.5).square().backward()  # no mean over rows, as the coverage terms are
        sums = workers.summed([weight.grad, torch.tensor([1.0, rank]), torch.tensor([[2.0], [3.0]])])
        counts = workers.summed([torch.tensor([2**40 + rank])])
        of_first = workers.of_first(torch.tensor([[1.0 + rank], [5.0 - rank]]))
        travelled = [part.tolist() for part in (batch, *sums, *counts, of_first)]
        return (workers.rank, workers.size, isinstance(workers, Workers)), travelled
    finally:
        dist.destroy_process_group()


def test_what_two_processes_gather_and_sum(connected, tmp_path):
    task = ray.remote(num_cpus=0)(met)
    both = ray.get([task.remote(rank, tmp_path / "place") for rank in range(2)], timeout=60)
    assert [place for place, _ in both] == [(0, 2, True), (1, 2, True)]
    for _, (batch, gradient, *sums, counts, of_first) in both:
        assert batch == [[1.0, 1.0, 0.0, 0.0]]  # by rank
        assert gradient == [0.0]  # half of the batch is inside, as is asked, though each half by itself is 0.5 off
        assert sums == [[2.0, 1.0], [[4.0], [6.0]]]  # they keep their shapes
        assert counts == [2**41 + 1]  # whole numbers stay exact
        assert of_first == [[1.0], [5.0]]


@pytest.fixture(scope="module")
def houses():
    """Rows with numbers, text, truths and gaps."""
    rng = np.random.default_rng(0)
    columns = {"size": rng.normal(size=90), "new": rng.integers(0, 2, 90).astype(bool)}
    frame = pl.DataFrame({**columns, "city": rng.choice(["a", "b"], 90)}).with_row_index("id")
    return frame.with_columns(pl.when(pl.col("id") % 7 > 0).then("size"), pl.when(pl.col("id") % 5 > 0).then("city"))


@pytest.fixture(scope="module")
def price(houses):
    y = pl.Series("price", np.random.default_rng(1).normal(size=len(houses)))
    return model(coverage=[0.5, 0.9]).fit(houses.drop("id"), y)


@pytest.fixture
def dataset(connected, houses):
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data.from_arrow([houses[:40].to_arrow(), houses[40:].to_arrow()])  # two blocks


def test_a_dataset_gets_the_columns_of_predict_with_the_values_of_the_model(dataset, houses, price, tmp_path):
    save(price, tmp_path / "price.safetensors")
    found = predict_dataset(tmp_path / "price.safetensors", dataset, keep=["id", "city"]).to_pandas().sort_values("id")
    bounds = ["price_lower_0.5", "price_upper_0.5", "price_lower_0.9", "price_upper_0.9"]
    assert list(found) == ["id", "city", "price", *bounds]
    interval = price.predict_interval(houses.drop("id"))
    expected = np.stack([interval.lower, interval.upper], axis=2).reshape(len(houses), 4)
    np.testing.assert_allclose(found["price"], price.predict(houses.drop("id")), rtol=1e-12)
    np.testing.assert_allclose(found[bounds].to_numpy(np.float64), expected, rtol=1e-12)


@pytest.mark.slow
def test_a_model_without_names_takes_the_columns_in_order_but_for_what_is_kept(dataset, houses):
    X = houses.select(pl.col("size").fill_null(0.0), "new").cast(pl.Float64).to_numpy()
    fitted = model().fit(X, X[:, 0] ** 2)
    rows = ray.data.from_arrow(pl.DataFrame({"a": X[:, 0], "id": houses["id"], "b": X[:, 1]}).to_arrow())
    found = predict_dataset(fitted, rows, keep=["id"], device="auto").to_pandas().sort_values("id")
    np.testing.assert_allclose(found.iloc[:, 1], fitted.predict(X), rtol=1e-12)
    assert fitted.device == "cpu"


def test_what_cannot_be_predicted_is_an_error_before_any_row_is_read(dataset, price):
    X = np.random.default_rng(0).normal(size=(40, 2))
    mistakes = [
        (price, ["street"], "must have the column street, to keep"),
        (price, ["id", "id"], "two columns named id"),
        (model().fit(X, X[:, 0]), [], "without column names on 2 columns, but the dataset has 4"),
        ({}, [], "must be a fitted regressor on tables or the path of one, got dict"),
        (
            MatchedClassifier(),
            [],
            "a Dataset gets the intervals of a regressor, got a MatchedClassifier; take predict_pr",
        ),
    ]
    for given, keep, message in mistakes:
        with pytest.raises((ValueError, TypeError), match=message):
            predict_dataset(given, dataset, keep=keep)
    with pytest.raises(ValueError, match="must have the column city, that the model was fitted on; it has id, size"):
        predict_dataset(price, dataset.drop_columns(["city"]))
