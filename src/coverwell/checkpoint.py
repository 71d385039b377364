"""Fits that were stopped go on: after a round, the state of the training is written beside the output.

A checkpoint is a safetensors file, as models are. It holds what further rounds depend on: weights, their averages and
best states, Adam's moments, what was measured, and the state of the random generators. What comes before the rounds
(reading, scaling, companions) is done again, and gives the same. The header says what was fitted, on which data and
with which options and versions: from a checkpoint of another fit nothing goes on.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.errors import CheckpointError, CheckpointWarning
from coverwell.files import new_file, remove_parts
from coverwell.model_file import tensor_bytes, tensors_in, versions_here
from coverwell.training.device import device_from
from coverwell.training.rows import place_of

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from coverwell.paper.algorithm import History
    from coverwell.training.rows import Rows

Arrays = dict[str, NDArray[Any]]

HASHED = "x", "y", "trains", "leaves_out", "coverage", "weight"  # of rows; companions see no others
NO_OPTIONS = "verbose", "device"  # the device counts as it was found
REMOVE = "remove it to start anew"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class CheckpointFile:
    """A file for checkpoints, none of which comes sooner than some seconds after the last one, or after the start."""

    def __init__(self, path: str | os.PathLike[str], seconds: float = 0.0) -> None:
        self.path, self.seconds = Path(path), seconds
        self.n_rounds = 0  # that a fit found here and went on from

    def read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    def write(self, content: bytes) -> None:
        with new_file(self.path) as file:
            file.write(content)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        remove_parts(self.path)


class Checkpoint:
    """The checkpoint of one fit: what it has to go on from, and where its rounds are kept.

    A fit has one training, or a second one of other networks behind it, whose state stands beside that of the first.
    """

    def __init__(
        self,
        file: Any,  # a `CheckpointFile`, also one on another machine
        models: Sequence[BaseEstimator],
        rows: Rows,
        *,
        files: Sequence[Path] = (),
        **more: Any,  # other options of the fit
    ) -> None:
        self.file, self.rows, self.files, self.workers = file, rows, files, rows.workers
        self.options = [_in_words({**_options_of(model), **more}) for model in models]
        self.trainings: list[Arrays] = []
        self.place, self.last_written = -1, time.monotonic()
        if (content := file.read()) is not None:
            self._take(content)

    @property
    def n_rounds(self) -> int:
        """How many rounds are kept."""
        return sum(len(training["seconds"]) for training in self.trainings)

    @property
    def is_first(self) -> bool:
        """Whether this is the worker that checks and writes."""
        return place_of(self.workers)[0] == 0

    def restore(self, history: History) -> bool:
        """Let a training begin; returns whether it goes on from a state that was kept."""
        self.place += 1
        if self.place >= len(self.trainings):
            return False
        state = {name: torch.tensor(array) for name, array in self.trainings[self.place].items()}
        (rank, size), device = place_of(self.workers), history.unit.device
        with self._malformed_means_damaged(), torch.no_grad():
            expected = {**history.state(), "generators": torch.get_rng_state().expand(size, -1)}
            for name, value in expected.items():
                if name != "seconds" and state[name].shape != value.shape:
                    raise ValueError(f"{name} is not what this fit has")
            history.load_state(state)
            # A copy: torch reads from where the memory of all of them begins.
            torch.set_rng_state(state["generators"][rank].clone())
            if device.type == "cuda":
                torch.cuda.set_rng_state(state["generators of GPUs"][rank].clone(), device)
        return True

    def keep(self, history: History) -> None:
        """Keep the state after a round, and write it where it is time to."""
        state, device = {**history.state(), "generators": self._of_workers(torch.get_rng_state())}, history.unit.device
        if device.type == "cuda":
            state["generators of GPUs"] = self._of_workers(torch.cuda.get_rng_state(device))
        copies = {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}
        self.trainings[self.place :] = [copies]
        if self.is_first and time.monotonic() - self.last_written >= self.file.seconds:
            self._write()

    def _of_workers(self, own: Tensor) -> Tensor:
        """The states of the generators of all workers, (worker, byte)."""
        return own[None] if self.workers is None else self.workers.together(own[None]).reshape(self.workers.size, -1)

    def _write(self) -> None:
        arrays = {f"{k}.{name}": array for k, training in enumerate(self.trainings) for name, array in training.items()}
        header = {"options": self.options, "data": self.data, "rounds": self.n_rounds}
        try:
            self.file.write(tensor_bytes({"checkpoint": header}, arrays))
        except OSError as error:
            lost = f"{self.file.path} could not be written ({error.strerror or error})"
            warnings.warn(f"{lost}: the fit goes on without a checkpoint", CheckpointWarning, stacklevel=2)
        self.last_written = time.monotonic()

    def _take(self, content: bytes) -> None:
        with self._malformed_means_damaged():
            header, arrays = tensors_in(content, self.file.path)
            self._check(header["checkpoint"], header["versions"])
            self.trainings = [{} for _ in range(1 + max(int(name.partition(".")[0]) for name in arrays))]
            for name, array in arrays.items():
                number, _, own = name.partition(".")
                self.trainings[int(number)][own] = array
            self.file.n_rounds = self.n_rounds

    def _check(self, kept: dict[str, Any], versions: dict[str, str]) -> None:
        """Raise unless this fit is the one that was kept."""
        path, way_out = self.file.path, f"or {REMOVE}"
        if (now := versions_here()) != versions:
            there, here = (", ".join(f"{name} {number}" for name, number in own.items()) for own in (versions, now))
            raise CheckpointError(f"{path} was written with {there}, this is {here}; go on with those, {way_out}")
        if (difference := _difference(kept["options"], self.options)) is not None:
            raise CheckpointError(f"{path} is of a fit with {difference}; give what was given then, {way_out}")
        if self.is_first and kept["data"] != self.data:
            raise CheckpointError(f"{path} is of a fit on other rows or groups; give the same, in order, {way_out}")

    @contextmanager
    def _malformed_means_damaged(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{self.file.path} is damaged or no checkpoint; {REMOVE} ({reason})") from None

    @cached_property
    def data(self) -> str:
        """A digest of the rows that are trained on, and of all that is in the files."""
        digest = hashlib.sha256(repr(list(self.rows.seeds)).encode())
        for name in HASHED:
            values = getattr(self.rows, name)
            if values is not None:
                values = values[:1] if values.stride(0) == 0 else values  # jobs that share their rows
                digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
                digest.update(np.ascontiguousarray(values.cpu().numpy()).data)
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


@contextmanager
def named_in_ctrl_c(file: CheckpointFile | None) -> Iterator[None]:
    """Let Ctrl-C say what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if file is not None and file.path.exists():
            same = "the same fit goes on from there, on the command line with --resume"
            stop.add_note(f"{file.path} keeps the last finished round: {same}.")
        raise


def checkpoint_file(checkpoint: Any, *models: BaseEstimator) -> Any:
    """Where checkpoints of these models go, from a path or an object with the methods of `CheckpointFile`."""
    if checkpoint is None:
        return None
    for seed in (model.get_params(deep=False)["random_state"] for model in models):
        if not isinstance(seed, Integral):
            must = "a fit with a checkpoint needs a whole number as random_state, to draw the same when it goes on"
            raise ValueError(f"{must}, got {seed!r}")
    return CheckpointFile(checkpoint) if isinstance(checkpoint, str | os.PathLike) else checkpoint


def _options_of(model: BaseEstimator) -> dict[str, Any]:
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in NO_OPTIONS}
    return {"estimator": type(model).__name__, **params, "device": device_from(getattr(model, "device", "auto")).type}


def _in_words(options: dict[str, Any]) -> dict[str, str]:
    return {name: ADDRESS.sub("", " ".join(repr(value).split())) for name, value in options.items()}


def _difference(before: Sequence[dict[str, str]], now: Sequence[dict[str, str]]) -> str | None:
    if len(before) != len(now):
        return f"{len(before)} models, not {len(now)}"
    for was, given in zip(before, now, strict=True):
        for name in sorted({*was, *given}):
            if was.get(name) != given.get(name):
                return f"{name}={was.get(name)}, not {given.get(name)}"
    return None
