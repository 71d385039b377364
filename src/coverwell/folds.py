"""Who trains on what, and the out-of-fold view of what a team says.

A *job* is one fit: its rows, and which of its members train on which of them. Several jobs of the same kind (the splits
of a study, the teams of CV+) are stacked and train at once; nothing passes between them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, check_cv
from torch import Tensor

__all__ = ["Job", "Problem", "as_tensor", "stack_jobs", "who_trains_and_speaks"]


@dataclass(frozen=True)
class Job:
    """The rows of one fit, scaled, and who trains on them.

    Attributes
    ----------
    x : tensor (row, ...)
        Features of pictures stay in the precision they are kept in; batches of them are brought to that of y. Jobs may
        share one x: rows that nobody trains on or speaks about are no part of a job.
    y : tensor (row, target)
    trains : bool tensor (member, row)
        Which members train on a row.
    speaks : bool tensor (member, row)
        Which members' word about a row is used: those that did not train on it, or all for literal training.
    coverage : tensor (level,)
    """

    x: Float[Tensor, "row ..."]
    y: Float[Tensor, "row target"]
    trains: Bool[Tensor, "member row"]
    speaks: Bool[Tensor, "member row"]
    coverage: Float[Tensor, " level"]


@dataclass(frozen=True)
class Problem:
    """Jobs stacked along a first axis; shorter ones are padded with rows that nobody trains on or speaks about."""

    x: Float[Tensor, "job row ..."]
    y: Float[Tensor, "job row target"]
    trains: Bool[Tensor, "job member row"]
    speaks: Bool[Tensor, "job member row"]
    coverage: Float[Tensor, "job level"]

    @property
    def n_jobs(self) -> int:
        return self.y.shape[0]

    @property
    def members_per_job(self) -> int:
        return self.trains.shape[1]

    @property
    def valid(self) -> Bool[Tensor, "job row"]:
        """Which rows are real."""
        return (self.trains | self.speaks).any(dim=1)

    @property
    def heard(self) -> Bool[Tensor, "job row"]:
        """Which rows at least one member speaks about."""
        return self.speaks.any(dim=1)

    def of_job(self, members: Tensor) -> Tensor:
        """Values per member, seen by job: (job * member, ...) -> (job, member, ...)."""
        return members.reshape(self.n_jobs, self.members_per_job, *members.shape[1:])

    def to_members(self, jobs: Tensor) -> Tensor:
        """Values per job, given to each of its members: (job, ...) -> (job * member, ...)."""
        return jobs.repeat_interleave(self.members_per_job, dim=0)

    def out_of_fold(self, said: Float[Tensor, "job member row *rest"]) -> Float[Tensor, "job row *rest"]:
        """Average over the members that speak about a row; zero where none does."""
        rest = said.dim() - 3
        weight = self.speaks / self.speaks.sum(dim=1, keepdim=True).clamp_min(1)
        return (said * weight.reshape(*weight.shape, *[1] * rest)).sum(dim=1)

    @cached_property
    def all_speak(self) -> bool:
        """Whether every member speaks about every row."""
        return bool(self.speaks.all())

    @cached_property
    def left_out(self) -> Int[Tensor, "member place"]:
        """The rows that each member speaks about, in order; who has fewer than others is given row 0 for the rest."""
        speaks = self.speaks.flatten(end_dim=1)
        n_places = max(int(speaks.sum(dim=1).max()), 1)
        # A stable sort puts the rows of each member in front.
        rows = (~speaks).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_places]
        return torch.where(speaks.gather(1, rows), rows, 0)

    def of_left_out(self, said: Float[Tensor, "member place *rest"]) -> Float[Tensor, "job row *rest"]:
        """The same average as `out_of_fold`, from what each member says about the rows that it left out alone."""
        places, weight = self._voices
        voices = said.flatten(0, 1).index_select(0, places.flatten()).reshape(*places.shape, *said.shape[2:])
        return (voices * weight.reshape(*weight.shape, *[1] * (said.dim() - 2))).sum(dim=2)

    @cached_property
    def _voices(self) -> tuple[Int[Tensor, "job row voice"], Float[Tensor, "job row voice"]]:
        """Where in `left_out` each row stands, once for every member that speaks about it, and how much that counts."""
        count = self.speaks.sum(dim=1)  # (job, row)
        n_voices = max(int(count.max()), 1)
        members = (~self.speaks).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_voices]  # (job, voice, row)
        place_of_row = self.speaks.cumsum(dim=2) - 1  # (job, member, row)
        first = torch.arange(self.n_jobs, device=count.device) * self.members_per_job
        places = (first[:, None, None] + members) * self.left_out.shape[1] + place_of_row.gather(1, members)
        speaking = torch.arange(n_voices, device=count.device)[:, None] < count[:, None, :]
        weight = speaking / count[:, None, :].clamp_min(1)
        return torch.where(speaking, places, 0).transpose(1, 2).contiguous(), weight.transpose(1, 2).contiguous()

    def mean_over_heard(self, values: Float[Tensor, "job row *rest"]) -> Float[Tensor, "job *rest"]:
        """Average over the rows that somebody speaks about."""
        rest = values.dim() - 2
        weight = self.heard / self.heard.sum(dim=1, keepdim=True)
        return (values * weight.reshape(*weight.shape, *[1] * rest)).sum(dim=1)

    def rows_of(self, table: Tensor, rows: Tensor) -> Tensor:
        """One batch per member: table (job, row, ...) at rows (member, batch) -> (member, batch, ...)."""
        if table.stride(0) == 0:  # all jobs look at the same rows; below one another they would be copied
            batches = table[0].index_select(0, rows.flatten())
        else:
            batches = table.flatten(0, 1).index_select(0, (rows + self._first_rows).flatten())
        return batches.reshape(*rows.shape, *table.shape[2:])

    @cached_property
    def _first_rows(self) -> Tensor:
        """Where each member's job begins when the jobs stand one below the other, (member, 1)."""
        return self.to_members(torch.arange(self.n_jobs, device=self.y.device) * self.y.shape[1])[:, None]


def stack_jobs(jobs: Sequence[Job], device: torch.device) -> Problem:
    """The jobs side by side on a device, padded to the longest; what they share is not copied."""

    def stacked(name: str, row_axis: int | None) -> Tensor:
        parts: list[Tensor] = [getattr(job, name) for job in jobs]
        if len(parts) > 1 and all(_same_memory(part, parts[0]) for part in parts):
            return parts[0].to(device).expand(len(parts), *parts[0].shape)
        if row_axis is not None:
            longest = max(part.shape[row_axis] for part in parts)
            parts = [_padded(part, longest, row_axis) for part in parts]
        stack = parts[0][None] if len(parts) == 1 else torch.stack(parts)  # one job is not copied
        return stack.to(device)

    return Problem(
        stacked("x", 0), stacked("y", 0), stacked("trains", 1), stacked("speaks", 1), stacked("coverage", None)
    )


def as_tensor(rows: NDArray[Any]) -> Tensor:
    """A tensor on the same memory, which nobody writes into: so it may be a read-only map of a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(rows)


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return (one.data_ptr(), one.shape, one.stride()) == (other.data_ptr(), other.shape, other.stride())


def _padded(part: Tensor, length: int, axis: int) -> Tensor:
    missing = length - part.shape[axis]
    if missing == 0:
        return part
    shape = list(part.shape)
    shape[axis] = missing
    return torch.cat([part, part.new_zeros(shape)], dim=axis)


def who_trains_and_speaks(
    X: NDArray[Any],
    *,
    folds: Any,
    repeats: int,
    groups: NDArray[Any] | None,
    random_state: np.random.RandomState,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which member trains on a row, and which left it out and may speak about it: two masks (member, row).

    One member per fold and repeat. `folds` is a number of folds (whole groups stay in one fold) or a scikit-learn
    splitter; of rows that it gives to neither side, such as an embargo, a member says nothing.
    """
    trains, speaks = [], []
    given = None if isinstance(folds, Integral) else check_cv(folds)
    for _ in range(repeats):
        splitter = _shuffled_folds(int(folds), groups, random_state) if given is None else given
        for train, left_out in splitter.split(X, groups=groups):
            trains.append(np.isin(np.arange(len(X)), train))
            speaks.append(np.isin(np.arange(len(X)), left_out) & ~trains[-1])
    return np.stack(trains), np.stack(speaks)


def _shuffled_folds(n_folds: int, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> Any:
    kind = KFold if groups is None else GroupKFold
    return kind(n_splits=n_folds, shuffle=True, random_state=random_state.randint(2**31 - 1))
