"""Work that one machine is too small for, on a Ray cluster (extra `ray`): one big fit, and predictions for a Dataset.

Every worker of a fit calls `fit_streamed`. Coverage is that of the whole batch and gradients are summed.
"""

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
from dataclasses import dataclass, field
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from coverwell._version import __version__
from coverwell.checkpoint import CheckpointFile, checkpoint_file, named_in_ctrl_c
from coverwell.classifier import SetClassifier
from coverwell.errors import ClusterError
from coverwell.estimator import CalibratedEstimator, IntervalRegressor
from coverwell.inputs.parquet import TableFiles
from coverwell.inputs.source import TableSource
from coverwell.model_file import load
from coverwell.options import check_number
from coverwell.prediction import prediction_columns
from coverwell.predictor import ROWS_AT_A_TIME
from coverwell.streaming.buffers import BUFFER_ROWS, lanes_of
from coverwell.streaming.fit import check_fit, fit_streamed
from coverwell.tables import needed_polars

__all__ = ["TorchWorkers", "fit_on_ray", "predict_dataset"]

Names = Sequence[str]
SECONDS_TO_CONNECT, SECONDS_TO_KNOCK = 15.0, 5.0  # a port without a listener answers sooner
SECONDS_OF_A_CHECK = 150.0  # looking for data at a public address may take a minute
BYTES_OF_OBJECTS = 100_000_000  # what passes between processes is small; Ray takes a third of the memory by default
# Ray itself tries for two minutes, and may end the whole process then: another process tries first.
TRIAL = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False)"
LOST = "gloo/transport", "NCCL"  # in what a worker says whose connection to another one has ended
# How long Ray waits for workers that wait for one that has failed, before it ends them; its own 30 s help nobody.
SHUTDOWN_TIMEOUT, SHUTDOWN_SECONDS = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", "3"


def needed_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ImportError("Ray is not installed; install the extra `ray`: pip install 'coverwell[ray]'") from None
    return ray


def connect(address: str | None = None, *, num_cpus: int | None = None) -> bool:
    """Connect this process to Ray; returns whether that was new, and is to be ended by `ray.shutdown()`."""
    ray = needed_ray()
    if ray.is_initialized() and address is None:
        return False
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        own = {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": BYTES_OF_OBJECTS}
        ray.init(address="local", **own, **quiet)
        return True
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
    ray.init(address=address, **quiet)
    return True


def problems_of_nodes(find_problem: Callable[..., str], *arguments: Any) -> list[str]:
    """What a function finds wrong when it runs on every node that has CPUs, each with the address of the node."""
    ray = needed_ray()
    on_node = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    find = ray.remote(num_cpus=0, max_retries=0)(find_problem)  # beside whatever else the node does
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    there = [find.options(scheduling_strategy=on_node(node["NodeID"], soft=False)) for node in nodes]
    problems = []
    for node, answer in zip(nodes, [on_one.remote(*arguments) for on_one in there], strict=True):
        try:
            problem = ray.get(answer, timeout=SECONDS_OF_A_CHECK)
        except ray.exceptions.GetTimeoutError:
            problem = f"did not answer within {SECONDS_OF_A_CHECK:.0f} s"
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            problem = ""  # it has left, and work goes to the others
        except ray.exceptions.RayError as error:
            problem = " ".join(str(error).split())[-300:]
        problems += [f"{node['NodeManagerAddress']}: {problem}"] if problem else []
    return problems


@dataclass
class TorchWorkers:
    """The processes of the default group of `torch.distributed` as workers that fit one model together."""

    device: torch.device  # where tensors must be for the group, gloo's or nccl's; others go there and back
    rank: int = field(default_factory=dist.get_rank)
    size: int = field(default_factory=dist.get_world_size)

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
    model: CalibratedEstimator,
    files: Any,
    target: str | Names,
    *,
    groups: str | None = None,
    sample_weight: str | None = None,
    workers: int = 2,
    address: str | None = None,
    gpus: bool = False,
    buffer_rows: int = BUFFER_ROWS,
    checkpoint: Any = None,
    max_failures: int = 3,
) -> CalibratedEstimator:
    """Fit a model on a table in files by several workers of a Ray cluster together; returns the model.

    The result is that of `fit_streamed`, but for rounding if networks have no dropout. Rounding grows with the steps:
    on 60,000 rows predictions differed by 0.1 % of the target's spread, as after a change of 1e-7 in the targets. With
    `calibration="local"`, some intervals differ more: its forest splits by predictions too. Every worker grows forests.
    Every node must have the files at the same paths; each worker reads its own part of them. If a worker dies, another
    one takes its place, and the fit goes on from its last round, to the same result. Warnings and progress of workers
    are not shown.

    Parameters
    ----------
    model : MatchedRegressor or MatchedClassifier, as for `fit_streamed`
        Its `device` is ignored: workers use a GPU each, or the CPU.
    files : TableFiles, or what it is made of
    target, groups, sample_weight, buffer_rows : as for `fit_streamed`
    workers : int, how many: 1, 2, 4 or 8, with one CPU and one thread each
    address : str, optional
        `host:port` or `"auto"` for a running cluster; by default the one connected to, or one of our own.
    gpus : bool, whether each worker has a GPU
    checkpoint : path, optional, as for `MatchedRegressor.fit`; on this machine
    max_failures : int, how often workers that died are replaced

    Raises
    ------
    ClusterError, if no cluster answers, if it is too small, if a node lacks the files, or if workers die too often
    """
    ray = needed_ray()
    import_module("ray.train.torch")
    if not hasattr(ray.train.Result, "return_value"):
        raise ImportError("a fit on Ray needs Ray 2.60 or later: update it; and do not set RAY_TRAIN_V2_ENABLED to 0")
    lanes_of(0, workers)
    files = files if isinstance(files, TableFiles) else TableFiles(files)
    options: dict[str, Any] = {"groups": groups, "sample_weight": sample_weight, "buffer_rows": buffer_rows}
    file = checkpoint_file(checkpoint, model)
    check_number("max_failures", max_failures, least=0, whole=True)
    check_fit(model, files, target, **options)  # before anything is started
    if not isinstance(seed := model.random_state, Integral):  # workers must draw alike
        seed = int(check_random_state(seed).randint(2**31 - 1))
    paths = {path.absolute(): path.stat().st_size for path in files.paths}  # workers are elsewhere
    work = {"model": clone(model).set_params(random_state=seed), "paths": list(paths), "columns": files.columns}
    work |= {"target": target, "gpus": gpus, "options": options}
    model.forget()
    own_cluster = connect(address, num_cpus=workers)
    try:
        check_cluster(paths, workers, gpus=gpus)
        with tempfile.TemporaryDirectory() as folder, named_in_ctrl_c(file), _own_signals():
            work["checkpoint"] = kept_here(file or CheckpointFile(Path(folder, "checkpoint")))
            each = {"CPU": 1, "GPU": 1} if gpus else {"CPU": 1}
            scaling = ray.train.ScalingConfig(num_workers=workers, use_gpu=gpus, resources_per_worker=each)
            for n_failures in range(max_failures + 1):
                run = ray.train.RunConfig(name=f"fit-{n_failures}", storage_path=folder)
                settings = {"train_loop_config": work, "scaling_config": scaling, "run_config": run}
                try:
                    content = ray.train.torch.TorchTrainer(_fit_here, **settings).fit().return_value
                    break
                except ray.train.TrainingFailedError as error:
                    if n_failures == max_failures or not has_lost_a_worker(error):
                        raise cause_of(error) from None
                check_cluster(paths, workers, gpus=gpus)  # a node may have left
    finally:
        if own_cluster:
            ray.shutdown()
    fitted = vars(ray.cloudpickle.loads(content))
    model.__dict__.update({name: value for name, value in fitted.items() if name.endswith("_")})
    return model


def _fit_here(work: dict[str, Any]) -> bytes | None:
    """On a worker: fit the model; the first worker returns it, pickled."""
    torch.set_num_threads(1)  # the other cores are for the other workers
    device = import_module("ray.train.torch").get_device() if work["gpus"] else torch.device("cpu")
    files, workers = TableFiles(work["paths"], work["columns"]), TorchWorkers(device)
    work["model"].set_params(device=str(device))
    options = {**work["options"], "workers": workers, "checkpoint": work["checkpoint"]}
    fitted = fit_streamed(work["model"], files, work["target"], **options)
    return needed_ray().cloudpickle.dumps(fitted) if workers.rank == 0 else None


@dataclass
class _KeptHere:
    """A `CheckpointFile` on the machine of the caller, as workers elsewhere see it."""

    actor: Any
    path: Path
    seconds: float
    n_rounds: int = 0

    def read(self) -> bytes | None:
        content: bytes | None = needed_ray().get(self.actor.read.remote())
        return content

    def write(self, content: bytes) -> None:
        needed_ray().get(self.actor.write.remote(content))


def kept_here(file: CheckpointFile) -> _KeptHere:
    ray = needed_ray()
    on_node = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    here = on_node(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(num_cpus=0)(CheckpointFile).options(scheduling_strategy=here)
    return _KeptHere(actor.remote(file.path.absolute()), file.path, file.seconds)


def check_cluster(paths: dict[Path, int], workers: int, *, gpus: bool) -> None:
    """Raise unless there are enough CPUs and GPUs, and all nodes have the files with these sizes."""
    resources = needed_ray().cluster_resources()
    for kind in ("CPU", "GPU") if gpus else ("CPU",):
        if (there := resources.get(kind, 0.0)) < workers:
            needed = f"{workers} workers need {workers} {kind}s, but the Ray cluster has {there:g}"
            raise ClusterError(f"{needed}; add nodes, or ask for fewer workers")
    if problems := problems_of_nodes(_problem_here, paths, __version__):
        way_out = "put the same files at the same paths on every node, as in a shared folder, and the same coverwell"
        raise ClusterError(f"not every Ray node can do the work. {'. '.join(problems)}. Nothing was fitted; {way_out}")


def _problem_here(paths: dict[Path, int], version: str) -> str:
    if version != __version__:
        return f"coverwell {__version__} is installed, {version} is needed"
    for path, size in paths.items():
        own = path.stat().st_size if path.is_file() else None
        if own != size:
            return f"there is no file {path}" if own is None else f"{path} has {own} bytes there, but {size} here"
    return ""


def cause_of(error: Exception) -> Exception:
    """The error of a worker that explains most: one of our own checks as it is, another in one sentence."""
    causes = _causes(error)
    for _, cause in causes:
        if isinstance(cause, ValueError | TypeError | FloatingPointError | OSError):
            return cause
    rank, cause = causes[0]
    what = f"{type(cause).__name__}: {' '.join(str(cause).split())[:500]}"
    return ClusterError(f"the fit ended on worker {rank} of the Ray cluster, and the model is not fitted: {what}")


def has_lost_a_worker(error: Exception) -> bool:
    """Whether a worker is gone, as Ray or the others notice, and none has found something wrong with the fit."""
    causes = [cause for _, cause in _causes(error)]
    gone = any(type(cause).__name__.startswith("WorkerHealth") for cause in causes)
    cut_off = any(word in str(cause) for cause in causes for word in LOST)
    return isinstance(cause_of(error), ClusterError) and (gone or cut_off)


def _causes(error: Exception) -> list[tuple[Any, Any]]:
    """What went wrong on each worker, by rank."""
    failures = sorted(getattr(error, "worker_failures", {}).items()) or [("?", error)]
    return [(rank, getattr(failure, "_base_exc", failure)) for rank, failure in failures]


@contextmanager
def _own_signals() -> Iterator[None]:
    """A failed worker ends the others soon, and Ctrl-C ends them and then raises here: Ray would end this process."""
    timeout, handler = os.environ.get(SHUTDOWN_TIMEOUT), signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()  # Ray changes signals only there
    os.environ.setdefault(SHUTDOWN_TIMEOUT, SHUTDOWN_SECONDS)
    try:
        yield
    except SystemExit:
        raise (KeyboardInterrupt if in_main else SystemExit) from None
    finally:
        if timeout is None:
            os.environ.pop(SHUTDOWN_TIMEOUT, None)
        if in_main:
            signal.signal(signal.SIGINT, handler)


def predict_dataset(
    model: object, rows: Any, *, keep: Names = (), device: str = "auto", workers: int | None = None, gpus: float = 0.0
) -> Any:
    """The columns that `coverwell predict` writes, for the rows of a `ray.data.Dataset`, as another one.

    For a target `price` at coverage 0.9: what is kept, price, price_lower_0.9 and price_upper_0.9. Nothing is computed
    before they are read or written. Ray Data does not keep rows in order: keep a column that identifies them.

    Parameters
    ----------
    model : fitted regressor on tables, or the path of one, which only this process must be able to read
    rows : ray.data.Dataset
        Columns are found by name, others are ignored. A model that was fitted without names takes all columns, but for
        its targets and those in `keep`.
    keep : sequence of str, columns that are copied
    device : str, where the networks run on each worker
    workers : int, optional, at most how many, each with one CPU and one thread; by default one for each CPU
    gpus : float, the share of a GPU that each worker takes
    """
    ray = needed_ray()
    if isinstance(model, str | os.PathLike):
        model = load(model)
    if isinstance(model, SetClassifier):
        way_out = "take predict_proba or predict_set in rows.map_batches"
        raise TypeError(f"a Dataset gets the intervals of a regressor, got a {type(model).__name__}; {way_out}")
    if not isinstance(model, IntervalRegressor) or not isinstance(getattr(model, "source_", None), TableSource):
        must = "the model must be a fitted regressor on tables or the path of one"
        raise TypeError(f"{must}, got {type(model).__name__}")
    fitted = copy.copy(model).set_params(device=device)  # the caller's own keeps its device
    names, there = fitted.source_.table_columns, rows.columns()
    if lacking := [name for name in (*(names or ()), *keep) if name not in there]:
        what = f"{lacking[0]}, {'to keep' if lacking[0] in keep else 'that the model was fitted on'}"
        raise ValueError(f"the dataset must have the column {what}; it has {', '.join(there)}")
    others = [name for name in there if name not in (*fitted.target_names_, *keep)]
    if names is None and len(others) != fitted.n_features_in_:
        found = f"{fitted.n_features_in_} columns, but the dataset has {len(others)} beside targets and kept columns"
        raise ValueError(f"the model was fitted without column names on {found}; select exactly these, in order")
    columns = prediction_columns(fitted.target_names_, fitted.predictor_.levels, keep)
    most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    # Workers that come when they are needed leave CPUs to whatever reads the rows.
    each = {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=most), "num_cpus": 1, "num_gpus": gpus}
    each |= {"batch_format": "pyarrow", "batch_size": 4 * ROWS_AT_A_TIME}
    return rows.map_batches(_BatchPredictor, fn_constructor_args=(fitted, names or others, list(keep), columns), **each)


@dataclass
class _BatchPredictor:
    """A worker's model, and how a batch of rows, a pyarrow table, is given to it."""

    fitted: IntervalRegressor
    names: list[str]
    keep: list[str]
    columns: list[str]

    def __call__(self, batch: Any) -> Any:
        torch.set_num_threads(1)  # the other cores are for the other workers
        polars = needed_polars()
        part = polars.from_arrow(batch.select(list(dict.fromkeys([*self.names, *self.keep]))))
        features = part.select(self.names)
        if self.fitted.source_.table_columns is None:
            features = features.select(polars.all().cast(polars.Float64)).to_numpy()
        found = zip(self.columns, [*part.select(self.keep), *self.fitted.predict_all(features).columns], strict=True)
        return polars.DataFrame(dict(found)).to_arrow()
