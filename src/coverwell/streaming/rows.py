"""The rows of a streamed table: the first pass, which checks them and draws a sample, and the buffers of the rounds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coverwell.errors import ColumnWarning
from coverwell.folds import Problem
from coverwell.inputs.columns import Columns
from coverwell.inputs.scaling import Inputs, TargetScaler
from coverwell.streaming.row_hash import N_LANES, RowHash, group_keys, row_keys, seed_of
from coverwell.streaming.table_parts import Part, TableFiles
from coverwell.table_files import TableFileError, needed_polars

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BUFFER_ROWS", "SAMPLE_ROWS", "Buffer", "RowReader", "Sample", "TableLayout", "buffers", "survey"]

Array = NDArray[np.float64]
Keys = NDArray[np.uint64]

# About so many rows are sampled, and so many are learned from in a round; of wide tables fewer, with so many numbers.
SAMPLE_ROWS, SAMPLE_NUMBERS = 100_000, 2**24
BUFFER_ROWS, BUFFER_NUMBERS = 2**18, 2**26
PARTS_OF_A_BUFFER = 16  # at least, from all over the table: files may be sorted
# A buffer in which a member finds fewer rows than this in a lane, such as one of a single group, gets the sample too.
FEWEST_IN_LANE = 16


@dataclass(frozen=True)
class TableLayout:
    """Which columns are what."""

    features: tuple[str, ...]
    targets: tuple[str, ...]
    group: str | None

    @classmethod
    def of(cls, files: TableFiles, targets: Sequence[str], group: str | None) -> TableLayout:
        """All columns but the targets and the group are features."""
        files.check_has(targets, "target")
        if group is not None:
            files.check_has([group], "column of groups")
        if not targets or len(set(targets)) < len(targets) or group in targets:
            raise ValueError(f"targets must be columns, each once and none of them groups, got {list(targets)}")
        for name in targets:
            if not files.types[name].is_numeric():
                raise TableFileError(f"the target {name!r} must hold numbers, got {files.types[name]}; convert it")
        features = tuple(name for name in files.columns if name not in (*targets, group))
        if not features:
            raise ValueError("there must be a column to learn from beside targets and groups, got none")
        return cls(features, tuple(targets), group)

    def targets_of(self, frame: pl.DataFrame, part: Part) -> Array:
        """The targets, (row, target), all finite."""
        targets = frame.select(self.targets).cast(needed_polars().Float64).to_numpy()
        odd = ~np.isfinite(targets)
        if odd.any():
            row, column = np.argwhere(odd)[0].tolist()
            what = "infinite" if np.isinf(targets[row, column]) else "missing"
            raise TableFileError(
                f"the target {self.targets[column]!r} must be a finite number in every row, but is {what} in row "
                f"{part.first + row + 1} of {part.path}; leave such rows out"
            )
        return np.ascontiguousarray(targets)

    def keys_of(self, frame: pl.DataFrame, part: Part) -> Keys:
        """What decides about a row's fold: its group, or its number."""
        if self.group is None:
            return row_keys(part.number, len(frame))
        groups = frame[self.group]
        missing = groups.is_null() | (groups.is_nan() if groups.dtype.is_float() else False)
        if missing.any():
            raise TableFileError(
                f"the column of groups {self.group!r} must have a value in every row, but has none in row "
                f"{part.first + int(missing.arg_true()[0]) + 1} of {part.path}; fill it in"
            )
        return group_keys(groups.cast(needed_polars().String).to_list())


@dataclass(frozen=True)
class Sample:
    """A uniform sample of the rows that may train, and what the first pass has counted."""

    frame: pl.DataFrame  # the features
    targets: Array
    keys: Keys
    numbers: Keys  # of the rows in the table
    n_kept: int  # rows of the table that are kept for the ranks


def survey(files: TableFiles, layout: TableLayout, row_hash: RowHash) -> Sample:
    """Read all rows once: raise for a target or a group that is not there, and draw the sample."""
    polars = needed_polars()
    wanted = min(SAMPLE_ROWS, SAMPLE_NUMBERS // len(layout.features))
    share = wanted / len(files)
    frames, targets, keys, numbers, n_kept = [], [], [], [], 0
    for part in files.parts():
        frame = files.read(part)
        of_part, own_keys = layout.targets_of(frame, part), layout.keys_of(frame, part)
        own_numbers, kept = row_keys(part.number, len(frame)), row_hash.kept(own_keys)
        drawn = row_hash.sampled(own_numbers, share) & ~kept
        n_kept += int(kept.sum())
        frames.append(frame.select(layout.features).filter(drawn))
        targets.append(of_part[drawn])
        keys.append(own_keys[drawn])
        numbers.append(own_numbers[drawn])
    return Sample(
        polars.concat(frames, rechunk=True),
        np.concatenate(targets),
        np.concatenate(keys),
        np.concatenate(numbers),
        n_kept,
    )


@dataclass(frozen=True)
class ReadRows:
    """Rows as the networks see them."""

    x: Array  # (row, input)
    y: Array  # (row, target)
    keys: Keys
    numbers: Keys


@dataclass(frozen=True)
class RowReader:
    """How parts of a table become scaled rows; all that it knows was learned from the sample.

    What the sample does not have, such as a rare level of a column of text, is read as it would be in a prediction.
    """

    files: TableFiles
    layout: TableLayout
    columns: Columns
    inputs: Inputs
    targets: TargetScaler

    def rows(self, part: Part) -> ReadRows:
        """The rows of a part, scaled."""
        frame = self.files.read(part)
        return ReadRows(
            self.inputs.transform(self.features(frame, part)),
            self.targets.transform(self.layout.targets_of(frame, part)),
            self.layout.keys_of(frame, part),
            row_keys(part.number, len(frame)),
        )

    def features(self, frame: pl.DataFrame, part: Part) -> Array:
        """The features of each row, as they are."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            try:
                return self.columns.transform(frame.select(self.layout.features))
            except (ValueError, TypeError) as error:
                last = part.first + part.n_rows
                raise TableFileError(f"in rows {part.first + 1} to {last} of {part.path}, {error}") from None


@dataclass(frozen=True)
class Buffer:
    """The rows of one round that belong to this worker."""

    problem: Problem
    lanes: Tensor  # (row,)
    longest: int  # most rows of a member in one lane, over all lanes


def buffers(
    reader: RowReader, row_hash: RowHash, sample: Problem, sample_numbers: Keys, *, lanes: Sequence[int], rows: int
) -> Iterator[Buffer]:
    """Buffers of about so many rows without end, each of parts from all over the table in a new random order.

    Rows that are kept for the ranks are left out. A table that fits into one buffer is read once.
    """
    maker = _BufferMaker(reader, row_hash, sample, sample_numbers, lanes)
    parts = reader.files.parts(min(reader.files.part_rows, max(1, rows // PARTS_OF_A_BUFFER)))
    n_buffers = -(-len(reader.files) // rows)
    sweep = 0
    while True:
        order = np.random.default_rng(seed_of(row_hash.seed, sweep)).permutation(len(parts))
        for chosen in np.array_split(order, n_buffers):
            buffer = maker.made_of([parts[place] for place in chosen])
            yield buffer
            while n_buffers == 1:
                yield buffer
            del buffer  # before the next one is read
        sweep += 1


@dataclass(frozen=True)
class _BufferMaker:
    reader: RowReader
    row_hash: RowHash
    sample: Problem
    sample_numbers: Keys
    lanes: Sequence[int]

    def made_of(self, parts: Sequence[Part]) -> Buffer:
        n_most = sum(part.n_rows for part in parts)
        x = torch.empty(n_most, self.sample.x.shape[-1])
        y = torch.empty(n_most, self.sample.y.shape[-1])
        left_out, lanes, n_rows = [], [], 0
        counts = np.zeros((self.row_hash.n_members, N_LANES), dtype=np.int64)
        for part in parts:
            read = self.reader.rows(part)
            may_train = ~self.row_hash.kept(read.keys)
            lane, out = self.row_hash.lanes(read.numbers), self.row_hash.left_out_by(read.keys)
            counts += _counts(~out[:, may_train], lane[may_train])
            own = may_train & np.isin(lane, self.lanes)
            end = n_rows + int(own.sum())
            x[n_rows:end], y[n_rows:end] = torch.from_numpy(read.x[own]), torch.from_numpy(read.y[own])
            left_out.append(torch.from_numpy(out[:, own]))
            lanes.append(torch.from_numpy(lane[own]))
            n_rows = end
        return self._with_enough(
            self._problem(x[:n_rows], y[:n_rows], torch.cat(left_out, 1)), torch.cat(lanes), counts
        )

    def _problem(self, x: Tensor, y: Tensor, left_out: Tensor) -> Problem:
        device = self.sample.y.device
        speaks = left_out[None].to(device)
        return Problem(x[None].to(device), y[None].to(device), ~speaks, speaks, self.sample.coverage)

    def _with_enough(self, problem: Problem, lanes: Tensor, counts: NDArray[Any]) -> Buffer:
        """The buffer; with the sample behind it where a member finds too few rows."""
        if counts.min() >= FEWEST_IN_LANE:
            return Buffer(problem, lanes.to(problem.y.device), int(counts.max()))
        sample, lane = self.sample, self.row_hash.lanes(self.sample_numbers)
        counts = counts + _counts(sample.trains[0].cpu().numpy(), lane)
        own = torch.from_numpy(np.isin(lane, self.lanes)).to(sample.y.device)
        joined = replace(
            problem,
            x=torch.cat([problem.x, sample.x[:, own]], dim=1),
            y=torch.cat([problem.y, sample.y[:, own]], dim=1),
            trains=torch.cat([problem.trains, sample.trains[..., own]], dim=2),
            speaks=torch.cat([problem.speaks, sample.speaks[..., own]], dim=2),
        )
        lanes = torch.cat([lanes, torch.from_numpy(lane)[own.cpu()]])
        return Buffer(joined, lanes.to(problem.y.device), int(counts.max()))


def _counts(trains: NDArray[np.bool_], lanes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each member trains on in each lane, (member, lane)."""
    return np.stack([trains[:, lanes == lane].sum(axis=1) for lane in range(N_LANES)], axis=1)
