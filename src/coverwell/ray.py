"""One big fit by several workers of a Ray cluster: data-parallel, with Ray Train.

Every worker calls `fit_streamed` with its part of each batch. Coverage is that of the whole batch and gradients are
summed, so two workers give what one gives, but for the order of sums. The first worker sends the fitted model back.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from coverwell._version import __version__
from coverwell.persistence import LEARNED, OWN, PARTS, load, save
from coverwell.scale.ray_cluster import ClusterError, connect, needed_ray, problems_of_nodes
from coverwell.scale.torch_workers import TorchWorkers
from coverwell.streaming import TableFiles, fit_streamed
from coverwell.streaming.rows import BUFFER_ROWS
from coverwell.streaming.streamed_fit import check_fit
from coverwell.streaming.workers import Alone, lanes_of

__all__ = ["fit_on_ray"]

FILE = "model.safetensors"
# How long Ray waits for workers that wait for one that has failed, before it ends them; its own 30 s help nobody.
PATIENCE = {"TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3"}


def fit_on_ray(
    model: Any,
    files: Any,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    workers: int = 2,
    address: str | None = None,
    gpus: bool = False,
    buffer_rows: int = BUFFER_ROWS,
) -> Any:
    """Fit a model on a table in files by several workers of a Ray cluster together; returns the model.

    What comes out is what `fit_streamed` gives in one process, but for rounding if networks have no dropout. Rounding
    grows with the number of steps: on 60,000 rows predictions differed by 0.1 % of the target's spread, as much as they
    do after a change of 1e-7 in the targets.

    Every node must have the files at the same paths. Each worker reads the whole table, and computes its share. If one
    of them dies, the fit fails and is to be begun again. Warnings and progress of workers are not shown.

    Parameters
    ----------
    model : MatchedRegressor
        As `fit_streamed` takes it. Its `device` is not asked: workers use a GPU each, or the CPU.
    files : TableFiles, or what it is made of
        Parquet files.
    target : str or sequence of str
        The column or columns to predict.
    groups : str, optional
        A column whose values are held out together; it is not a feature.
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
    lanes_of(Alone(size=workers))
    files = files if isinstance(files, TableFiles) else TableFiles(files)
    check_fit(model, files, target, groups=groups, buffer_rows=buffer_rows)  # before anything is started
    work = _Work.of(model, files, target, groups=groups, gpus=gpus, buffer_rows=buffer_rows)
    model._forget()
    with _connection(address, workers):
        _check_cluster(workers, work)
        fitted = _read(_trained(work, workers), model)
    model.__dict__.update({name: value for name, value in vars(fitted).items() if LEARNED.fullmatch(name)})
    return model


@dataclass(frozen=True)
class _Work:
    """All that a worker needs to know."""

    model: Any
    paths: dict[Path, int]  # and their sizes in bytes
    columns: list[str]
    target: str | Sequence[str]
    groups: str | None
    gpus: bool
    buffer_rows: int

    @classmethod
    def of(cls, model: Any, files: TableFiles, target: str | Sequence[str], **told: Any) -> _Work:
        sent = clone(model)
        if not isinstance(sent.random_state, Integral):  # workers must draw alike
            sent.set_params(random_state=int(check_random_state(model.random_state).randint(2**31 - 1)))
        sizes = {path.absolute(): n_bytes for path, n_bytes in files.bytes_of_files.items()}  # workers are elsewhere
        return cls(sent, sizes, files.columns, target, **told)

    def run(self) -> bytes | None:
        """On a worker: fit the model; the first worker returns it as a file."""
        from ray.train.torch import get_device

        torch.set_num_threads(1)  # the other cores are for the other workers
        device = get_device() if self.gpus else torch.device("cpu")
        workers = TorchWorkers(device)
        self.model.set_params(device=str(device))
        files = TableFiles(list(self.paths), self.columns)
        fitted = fit_streamed(
            self.model, files, self.target, groups=self.groups, buffer_rows=self.buffer_rows, workers=workers
        )
        return _written(fitted) if workers.rank == 0 else None


def _ray_train() -> Any:
    """The module `ray.train`, in which what workers return comes back."""
    needed_ray()
    import ray.train.torch

    if not hasattr(ray.train.Result, "return_value"):
        raise ImportError(
            "a fit on Ray needs Ray 2.60 or later, and its Train in version 2; update Ray, and do not set "
            "RAY_TRAIN_V2_ENABLED to 0"
        )
    return ray.train


@contextmanager
def _connection(address: str | None, workers: int) -> Iterator[None]:
    own = connect(address, num_cpus=workers)
    try:
        yield
    finally:
        if own:
            needed_ray().shutdown()


def _check_cluster(workers: int, work: _Work) -> None:
    """Raise unless there are enough CPUs and GPUs, and all nodes have the files."""
    there = needed_ray().cluster_resources()
    for kind in ("CPU", "GPU") if work.gpus else ("CPU",):
        if there.get(kind, 0.0) < workers:
            raise ClusterError(
                f"{workers} workers need {workers} {kind}s, but the Ray cluster has {there.get(kind, 0.0):g}; add "
                "nodes, or ask for fewer workers"
            )
    problems = problems_of_nodes(_problem_here, work.paths, __version__)
    if problems:
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


def _trained(work: _Work, workers: int) -> bytes:
    """The file of the model that the workers have fitted."""
    train = _ray_train()
    with tempfile.TemporaryDirectory() as folder, _patience(), _usual_ctrl_c():
        trainer = train.torch.TorchTrainer(
            work.run,
            scaling_config=train.ScalingConfig(
                num_workers=workers,
                use_gpu=work.gpus,
                resources_per_worker={"CPU": 1, "GPU": 1} if work.gpus else {"CPU": 1},
            ),
            run_config=train.RunConfig(name="fit", storage_path=folder),
        )
        try:
            content: bytes = trainer.fit().return_value
        except train.TrainingFailedError as error:
            raise _told(error) from None
    return content


def _told(error: Exception) -> Exception:
    """The error of a worker that says what is wrong: our own checks' as it is, others in one sentence."""
    failures = dict(sorted(getattr(error, "worker_failures", {}).items()))
    causes = {rank: getattr(failure, "_base_exc", failure) for rank, failure in failures.items()}
    for cause in causes.values():
        if isinstance(cause, ValueError | TypeError | FloatingPointError | OSError):
            return cause
    rank, cause = next(iter(causes.items()), ("?", error))
    words = " ".join(str(cause).split())
    return ClusterError(
        f"the fit ended on worker {rank} of the Ray cluster, and the model is not fitted: {type(cause).__name__}: "
        f"{words[:500]}"
    )


@contextmanager
def _patience() -> Iterator[None]:
    """Tell Ray how long to wait; its processes take that from the environment of this one."""
    before = {name: os.environ.get(name) for name in PATIENCE}
    os.environ.update({name: seconds for name, seconds in PATIENCE.items() if before[name] is None})
    try:
        yield
    finally:
        for name, seconds in before.items():
            if seconds is None:
                os.environ.pop(name, None)


@contextmanager
def _usual_ctrl_c() -> Iterator[None]:
    """Ctrl-C as everywhere: Ray ends its workers first, but then would end this process too."""
    if threading.current_thread() is not threading.main_thread():  # Ray changes signals only there
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)


# A model as the bytes of a file, which hold no code.


def _written(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder, FILE))
        return Path(folder, FILE).read_bytes()


def _read(content: bytes, like: Any) -> Any:
    """The model of a file; what is of the user's own comes from the model that was to be fitted."""
    own = {name: getattr(like, name) for name in OWN}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, FILE).write_bytes(content)
        return load(Path(folder, FILE), **{name: value for name, value in own.items() if _is_own(value)})


def _is_own(value: Any) -> bool:
    return not (value is None or isinstance(value, str) or type(value) in PARTS.values())
