"""Work that one machine is too small for, on a Ray cluster (extra `ray`): one big fit, and predictions for a Dataset.

Every worker of a fit calls `fit_streamed`, with its part of each batch. Coverage is that of the whole batch and
gradients are summed, so two workers give what one gives, but for the order of sums.
"""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from coverwell._version import __version__
from coverwell.errors import ClusterError
from coverwell.estimator import IntervalRegressor
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.source import TableSource
from coverwell.prediction import prediction_columns
from coverwell.predictor import ROWS_AT_A_TIME
from coverwell.streaming.buffers import BUFFER_ROWS, lanes_of
from coverwell.streaming.fit import check_fit, fit_streamed
from coverwell.tables import needed_polars

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TorchWorkers", "fit_on_ray", "predict_dataset"]

SECONDS_TO_CONNECT = 15.0
SECONDS_TO_KNOCK = 5.0  # a port without a listener answers sooner
SECONDS_OF_A_CHECK = 150.0  # looking for data at a public address may take a minute
# What passes between processes is small: a third of the machine's memory, as Ray takes by default, is not needed.
BYTES_OF_OBJECTS = 100_000_000
# Ray itself tries for two minutes, and may end the whole process then: another process tries first.
TRIAL = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False)"
# How long Ray waits for workers that wait for one that has failed, before it ends them; its own 30 s help nobody.
SHUTDOWN_TIMEOUT, SHUTDOWN_SECONDS = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", "3"

# The cluster.


def needed_ray() -> Any:
    """The module `ray`, or a sentence that names the extra."""
    try:
        import ray
    except ImportError:
        raise ImportError("Ray is not installed; install the extra `ray`: pip install 'coverwell[ray]'") from None
    return ray


def connect(address: str | None = None, *, num_cpus: int | None = None) -> bool:
    """Connect this process to Ray; returns whether that was new, and is to be ended by `ray.shutdown()`.

    `address` is `host:port` of a running cluster, `"auto"` for one that runs on this machine, or None for a cluster of
    our own with so many CPUs, unless this process is connected already. Raises a `ClusterError` if nobody answers.
    """
    ray = needed_ray()
    if ray.is_initialized() and address is None:
        return False
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        own = {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": BYTES_OF_OBJECTS}
        ray.init(address="local", **own, **quiet)
    else:
        _check_answers(address)
        ray.init(address=address, **quiet)
    return True


def _check_answers(address: str) -> None:
    unanswered = f"no Ray cluster answers at {address!r}; is it running (`ray start --head`), and is the address right?"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():
            socket.create_connection((host, int(port)), timeout=SECONDS_TO_KNOCK).close()
        trial = [sys.executable, "-c", TRIAL, address]
        done = subprocess.run(trial, timeout=SECONDS_TO_CONNECT, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{unanswered} (waited {SECONDS_TO_CONNECT:.0f} s)") from None
    except (OSError, OverflowError) as error:
        raise ClusterError(f"{unanswered} ({error})") from None
    if done.returncode:
        raise ClusterError(f"{unanswered} ({(done.stderr.strip().splitlines() or ['without a message'])[-1]})")


def problems_of_nodes(find_problem: Callable[..., str], *arguments: Any) -> list[str]:
    """What a function finds wrong when it runs on every node that has CPUs, each with the address of the node."""
    ray = needed_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    find = ray.remote(num_cpus=0, max_retries=0)(find_problem)  # beside whatever else the node does
    answers = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answers.append((node["NodeManagerAddress"], find.options(scheduling_strategy=there).remote(*arguments)))
    problems = []
    for address, answer in answers:
        try:
            problem = ray.get(answer, timeout=SECONDS_OF_A_CHECK)
        except ray.exceptions.GetTimeoutError:
            problem = f"did not answer within {SECONDS_OF_A_CHECK:.0f} s"
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            problem = ""  # it has left, and work goes to the others
        except ray.exceptions.RayError as error:
            problem = " ".join(str(error).split())[-300:]
        problems += [f"{address}: {problem}"] if problem else []
    return problems


# A fit.


@dataclass(frozen=True)
class TorchWorkers:
    """The processes of `torch.distributed` as workers that fit one model together.

    Their default group must have been made: with gloo for CPUs, with nccl for GPUs. `device` is where tensors must be
    for the group; others go there and back.
    """

    device: torch.device

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def size(self) -> int:
        return dist.get_world_size()

    def together(self, own: Tensor) -> Tensor:
        there = own.detach().to(self.device).contiguous()
        parts = [torch.empty_like(there) for _ in range(self.size)]
        dist.all_gather(parts, there)
        parts = [part.to(own.device) for part in parts]
        parts[self.rank] = own  # the gradient of the others' parts is theirs to compute
        return torch.cat(parts, dim=1)

    def summed(self, gradients: list[Tensor]) -> list[Tensor]:
        flat = torch.cat([gradient.flatten() for gradient in gradients]).to(self.device)
        dist.all_reduce(flat)  # each number is summed on one worker and sent to all: the same bits
        parts = flat.to(gradients[0].device).split([gradient.numel() for gradient in gradients])
        return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]

    def of_first(self, values: Tensor) -> Tensor:
        there = values.detach().clone().to(self.device).contiguous()
        dist.broadcast(there, src=0)
        return there.to(values.device)


def fit_on_ray(
    model: IntervalRegressor,
    files: Any,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    workers: int = 2,
    address: str | None = None,
    gpus: bool = False,
    buffer_rows: int = BUFFER_ROWS,
) -> IntervalRegressor:
    """Fit a model on a table in files by several workers of a Ray cluster together; returns the model.

    The result is that of `fit_streamed` in one process, but for rounding if networks have no dropout. Rounding grows
    with the number of steps: on 60,000 rows predictions differed by 0.1 % of the target's spread, as much as they do
    after a change of 1e-7 in the targets.

    Every node must have the files at the same paths. Each worker reads the whole table, and computes its share. If one
    of them dies, the fit fails and must be started again. Warnings and progress of workers are not shown.

    Parameters
    ----------
    model : MatchedRegressor
        As for `fit_streamed`. Its `device` is ignored: workers use a GPU each, or the CPU.
    files : TableFiles, or what it is made of
    target, groups : names of columns, as for `fit_streamed`
    workers : int
        How many: 1, 2, 4 or 8, with one CPU and one thread each.
    address : str, optional
        `host:port` of a running cluster, `"auto"` for one that runs on this machine; by default one of our own, unless
        this process is connected already.
    gpus : bool
        Whether each worker has a GPU.
    buffer_rows : int
        How many rows a round learns from, all workers together.

    Raises
    ------
    ClusterError
        If no cluster answers, if it is too small, if a node lacks the files, or if a worker dies.
    """
    _ray_train()
    lanes_of(0, workers)
    files = files if isinstance(files, TableFiles) else TableFiles(files)
    check_fit(model, files, target, groups=groups, buffer_rows=buffer_rows)  # before anything is started
    seed = model.random_state  # workers must draw alike
    if not isinstance(seed, Integral):
        seed = int(check_random_state(seed).randint(2**31 - 1))
    paths = {path.absolute(): n_bytes for path, n_bytes in files.bytes_of_files.items()}  # workers are elsewhere
    work = {"model": clone(model).set_params(random_state=seed), "paths": list(paths), "columns": files.columns}
    work |= {"target": target, "groups": groups, "buffer_rows": buffer_rows, "gpus": gpus}
    model.forget()
    own_cluster = connect(address, num_cpus=workers)
    try:
        _check_cluster(paths, workers, gpus=gpus)
        fitted = needed_ray().cloudpickle.loads(_trained(work, workers, gpus=gpus))
    finally:
        if own_cluster:
            needed_ray().shutdown()
    model.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    return model


def _fit_here(work: dict[str, Any]) -> bytes | None:
    """On a worker: fit the model; the first worker returns it, pickled."""
    from ray.train.torch import get_device

    torch.set_num_threads(1)  # the other cores are for the other workers
    device = get_device() if work["gpus"] else torch.device("cpu")
    files, workers = TableFiles(work["paths"], work["columns"]), TorchWorkers(device)
    options = {name: work[name] for name in ("groups", "buffer_rows")}
    model = work["model"].set_params(device=str(device))
    fitted = fit_streamed(model, files, work["target"], workers=workers, **options)
    return needed_ray().cloudpickle.dumps(fitted) if workers.rank == 0 else None


def _ray_train() -> Any:
    """The module `ray.train`, of a version that returns what workers return."""
    needed_ray()
    import ray.train.torch

    if not hasattr(ray.train.Result, "return_value"):
        raise ImportError(
            "a fit on Ray needs Ray 2.60 or later, and its Train in version 2; update Ray, and do not set "
            "RAY_TRAIN_V2_ENABLED to 0"
        )
    return ray.train


def _check_cluster(paths: dict[Path, int], workers: int, *, gpus: bool) -> None:
    """Raise unless there are enough CPUs and GPUs, and all nodes have the files with these sizes."""
    resources = needed_ray().cluster_resources()
    for kind in ("CPU", "GPU") if gpus else ("CPU",):
        if (there := resources.get(kind, 0.0)) < workers:
            raise ClusterError(
                f"{workers} workers need {workers} {kind}s, but the Ray cluster has {there:g}; add nodes, or ask for "
                "fewer workers"
            )
    if problems := problems_of_nodes(_problem_here, paths, __version__):
        raise ClusterError(
            f"not every Ray node can do the work. {'. '.join(problems)}. Nothing was fitted; put the same files at the "
            "same paths on every node, as a shared folder has them, and the same coverwell"
        )


def _problem_here(paths: dict[Path, int], version: str) -> str:
    if version != __version__:
        return f"coverwell {__version__} is installed, {version} is needed"
    for path, size in paths.items():
        if not path.is_file():
            return f"there is no file {path}"
        if (own := path.stat().st_size) != size:
            return f"{path} has {own} bytes there, but {size} here"
    return ""


def _trained(work: dict[str, Any], workers: int, *, gpus: bool) -> bytes:
    """The pickle of the model that the workers have fitted."""
    train, each = _ray_train(), {"CPU": 1, "GPU": 1} if gpus else {"CPU": 1}
    scaling = train.ScalingConfig(num_workers=workers, use_gpu=gpus, resources_per_worker=each)
    with tempfile.TemporaryDirectory() as folder, _as_usual():
        run = train.RunConfig(name="fit", storage_path=folder)
        trainer = train.torch.TorchTrainer(_fit_here, train_loop_config=work, scaling_config=scaling, run_config=run)
        try:
            content: bytes = trainer.fit().return_value
        except train.TrainingFailedError as error:
            raise _cause(error) from None
    return content


def _cause(error: Exception) -> Exception:
    """The error of a worker that explains most: one of our own checks as it is, another in one sentence."""
    failures = dict(sorted(getattr(error, "worker_failures", {}).items()))
    causes = {rank: getattr(failure, "_base_exc", failure) for rank, failure in failures.items()}
    for cause in causes.values():
        if isinstance(cause, ValueError | TypeError | FloatingPointError | OSError):
            return cause
    rank, cause = next(iter(causes.items()), ("?", error))
    return ClusterError(
        f"the fit ended on worker {rank} of the Ray cluster, and the model is not fitted: {type(cause).__name__}: "
        f"{' '.join(str(cause).split())[:500]}"
    )


@contextmanager
def _as_usual() -> Iterator[None]:
    """A failed worker ends the others soon, and Ctrl-C ends them and then raises here: Ray would end this process."""
    timeout, handler = os.environ.get(SHUTDOWN_TIMEOUT), signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()  # Ray changes signals only there
    os.environ.setdefault(SHUTDOWN_TIMEOUT, SHUTDOWN_SECONDS)
    try:
        yield
    except SystemExit:
        if in_main:
            raise KeyboardInterrupt from None
        raise
    finally:
        if timeout is None:
            os.environ.pop(SHUTDOWN_TIMEOUT, None)
        if in_main:
            signal.signal(signal.SIGINT, handler)


# Predictions.


def predict_dataset(
    model: object,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    gpus: float = 0.0,
) -> Any:
    """The columns that `coverwell predict` writes, for the rows of a `ray.data.Dataset`, as another one.

    For a target `price` at coverage 0.9: what is kept, price, price_lower_0.9 and price_upper_0.9. Nothing is computed
    before they are read or written. The values are those of the model in this process, but for rounding in the last
    digits. Ray Data keeps rows in order only if its context asks for that: keep a column that identifies them.

    Parameters
    ----------
    model : fitted regressor on tables, or path
        A path must be readable here alone: workers are sent the model.
    rows : ray.data.Dataset
        Columns are found by name; others than those that the model was fitted on are ignored. A model that was fitted
        without names takes all columns, but for its targets and those in `keep`.
    keep : sequence of str
        Columns that are copied.
    device : str
        Where the networks run on each worker.
    workers : int, optional
        At most how many workers, each with one CPU and one thread; by default as many as the cluster has CPUs.
    gpus : float
        The share of a GPU that each worker takes.
    """
    ray = needed_ray()
    fitted = _table_model(model).set_params(device=device)
    names = _features(fitted, rows.columns(), keep)
    columns = prediction_columns(fitted.target_names_, fitted.predictor_.levels, keep)
    most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    return rows.map_batches(
        _BatchPredictor,
        fn_constructor_args=(fitted, names, list(keep), columns),
        batch_format="pyarrow",
        batch_size=4 * ROWS_AT_A_TIME,
        # Workers that come when they are needed leave CPUs to whatever reads the rows.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most),
        num_cpus=1,
        num_gpus=gpus,
    )


def _table_model(model: object) -> IntervalRegressor:
    """A copy of the model, or that of a file, so that the caller's own keeps its device."""
    if isinstance(model, str | os.PathLike):
        from coverwell.model_file import load

        model = load(model)
    if not isinstance(model, IntervalRegressor) or not isinstance(getattr(model, "source_", None), TableSource):
        raise TypeError(
            f"the model must be a fitted regressor on tables or the path of one, got {type(model).__name__}"
        )
    return copy.copy(model)


def _features(fitted: IntervalRegressor, there: Sequence[str], keep: Sequence[str]) -> list[str]:
    names = fitted.source_.table_columns
    for name in (*(names or ()), *keep):
        if name not in there:
            what = "to keep" if name in keep else "that the model was fitted on"
            raise ValueError(f"the dataset must have the column {name}, {what}; it has {', '.join(there)}")
    if names is not None:
        return names
    others = [name for name in there if name not in (*fitted.target_names_, *keep)]
    if len(others) != fitted.n_features_in_:
        raise ValueError(
            f"the model was fitted without column names on {fitted.n_features_in_} columns, but the dataset has "
            f"{len(others)} beside targets and kept columns; select exactly these columns, in order"
        )
    return others


@dataclass
class _BatchPredictor:
    """A worker's model, and how a batch of rows is given to it."""

    fitted: IntervalRegressor
    names: list[str]
    keep: list[str]
    columns: list[str]

    def __post_init__(self) -> None:
        torch.set_num_threads(1)  # the other cores are for the other workers

    def __call__(self, batch: pa.Table) -> pa.Table:
        polars = needed_polars()
        part = polars.from_arrow(batch.select(list(dict.fromkeys([*self.names, *self.keep]))))
        features = part.select(self.names)
        if self.fitted.source_.table_columns is None:
            features = features.select(polars.all().cast(polars.Float64)).to_numpy()
        found = zip(self.columns, [*part.select(self.keep), *self.fitted.predict_all(features).columns], strict=True)
        return polars.DataFrame(dict(found)).to_arrow()
