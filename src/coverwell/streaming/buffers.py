"""A table in files as rows: the first pass, which checks them and draws a sample, and the buffers of the rounds.

Who trains on a row is decided by a hash of its *key*, its number in the table or a digest of its group's name: no pass
over the table, and always the same. Keys are mixed with the seed by splitmix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from coverwell.errors import ColumnWarning, TableFileError
from coverwell.inputs.columns import Columns
from coverwell.inputs.parquet import PART_NUMBERS, PART_ROWS, Part, TableFiles
from coverwell.inputs.scaling import LARGEST_NUMBER
from coverwell.streaming.exchange import frames_of_each, rows_of_each
from coverwell.tables import needed_polars
from coverwell.training.rows import MOST_ROWS_PER_EPOCH, Batches, Draw, Rows, Workers, as_tensor, place_of
from coverwell.trees import Trees, mean_of_unseen

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

# About so many rows are sampled, and so many are learned from in a round; of wide tables fewer, with so many numbers.
SAMPLE_ROWS, SAMPLE_NUMBERS, BUFFER_ROWS, BUFFER_NUMBERS = 50_000, 2**24, 2**18, 2**26
MOST_CLASSES = 1000  # each is a column of every buffer
PARTS_OF_A_BUFFER = 16  # at least, from all over the table: files may be sorted
N_LANES = 8  # with equal shares of a batch, so that 1, 2, 4 or 8 workers can make the same batches together
FEWEST_IN_LANE = 16  # rows of a member in a buffer; else, as with a single group, the sample is added
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
FOLD, KEPT, SAMPLED, LANE, BY_ALL = range(1, 6)  # what a hash is for; each use has numbers of its own


def group_keys(groups: Sequence[str]) -> Keys:
    """The keys of rows by the names of their groups: rows of one group have one key."""
    keys = {name: hashlib.blake2b(name.encode(), digest_size=8).digest() for name in set(groups)}
    return np.frombuffer(b"".join(keys[name] for name in groups), dtype="<u8").astype(np.uint64)


def seed_of(*numbers: int) -> int:
    """A seed of 63 bits, made of several numbers; their order counts."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = _mixed(state ^ np.array([number], dtype=np.uint64))
    return int(state[0] >> np.uint64(1))


def _mixed(keys: Keys) -> Keys:
    """The output of splitmix64 for these states."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        bits = keys + GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * FIRST
        bits = (bits ^ (bits >> np.uint64(27))) * SECOND
        return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class RowHash:
    """Folds, kept rows, sample and lanes, as a function of keys."""

    seed: int
    folds: int
    repeats: int  # member r * folds + k leaves out fold k of repeat r
    kept_share: float = 0.0  # of the rows, or groups: they are kept for the ranks and train nobody
    by_all_share: float = 0.0  # of the rows, or groups, that all members leave out

    def left_out_by(self, keys: Keys) -> Mask:
        """Which members leave a row out, (member, row); all others train on it."""
        folds = np.arange(self.folds)[:, None]
        by_repeat = [self._bits(keys, FOLD, repeat) % np.uint64(self.folds) == folds for repeat in range(self.repeats)]
        return np.concatenate(by_repeat) | self.drawn(keys, self.by_all_share, BY_ALL)

    def kept(self, keys: Keys) -> Mask:
        return self.drawn(keys, self.kept_share, KEPT)

    def drawn(self, keys: Keys, share: float, use: int = SAMPLED) -> Mask:
        """A uniform sample of rows; a larger share contains a smaller one."""
        return (self._bits(keys, use) >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share

    def lanes(self, numbers: Keys) -> NDArray[np.int64]:
        return (self._bits(numbers, LANE) % np.uint64(N_LANES)).astype(np.int64)

    def _bits(self, keys: Keys, *use: int) -> Keys:
        return _mixed(keys ^ np.uint64(seed_of(self.seed, *use)))


class TableRows(NamedTuple):
    """Some rows of a table, in the user's units."""

    X: Any  # the features: a data frame, or numbers (row, input)
    y: Array  # (row, target); of classes (row, class), 1 at that of a row
    keys: Keys  # what decides the fold of a row: its group, or its number
    numbers: Keys  # in the table
    weight: Array  # one where all count alike

    def at(self, chosen: Mask) -> TableRows:
        """Some of the rows."""
        X, y, keys, numbers, weight = self
        return TableRows(X.filter(chosen), y[chosen], keys[chosen], numbers[chosen], weight[chosen])


def _joined(parts: Sequence[TableRows], workers: Workers | None) -> TableRows:
    """The rows of parts that each worker has read, in the order of the table."""
    frames, *columns = zip(*parts, strict=True)
    y, keys, numbers, weight = map(np.concatenate, columns)
    own = list(map(torch.from_numpy, (y, keys.view(np.int64), numbers.view(np.int64), weight)))
    of_each, polars = rows_of_each(workers, own), needed_polars()
    X = polars.concat(frames_of_each(workers, polars.concat(frames)), rechunk=True)
    y, key, number, weight = (torch.cat(column).numpy() for column in zip(*of_each, strict=True))
    order = np.argsort(number)
    return TableRows(X[order], y[order], key[order].view(np.uint64), number[order].view(np.uint64), weight[order])


@dataclass(frozen=True)
class StreamedTable:
    """A table in files, and which of its columns are what."""

    files: TableFiles
    features: tuple[str, ...]
    targets: tuple[str, ...]
    group: str | None
    weight: str | None = None  # how much rows count; those of zero are not read
    classes: NDArray[Any] | None = None  # of a classifier's target, ascending

    @classmethod
    def of(
        cls,
        files: TableFiles,
        targets: Sequence[str],
        group: str | None,
        weight: str | None = None,
        *,
        classify: bool = False,
    ) -> StreamedTable:
        """All columns but the targets, the group and the weight are features; with `classify`, targets are classes."""
        files.check_has(targets, "target")
        files.check_has([] if group is None else [group], "column of groups")
        files.check_has([] if weight is None else [weight], "column of weights")
        if weight in targets:
            raise ValueError(f"sample_weight must be another column than the targets, got {weight!r}")
        if weight is not None and not files.types[weight].is_numeric():
            raise TableFileError(f"the weights {weight!r} must hold numbers, got {files.types[weight]}; convert it")
        if not targets or len(set(targets)) < len(targets) or group in targets:
            raise ValueError(f"targets must be columns, each once and none of them groups, got {list(targets)}")
        for name in targets:
            if not (_may_be_class(files.types[name]) if classify else files.types[name].is_numeric()):
                must = "texts, whole numbers or booleans for its classes" if classify else "numbers"
                raise TableFileError(f"the target {name!r} must hold {must}, got {files.types[name]}; convert it")
        if classify and len(targets) > 1:
            raise ValueError(f"a classifier has one target, got {', '.join(targets)}; fit a classifier for each")
        features = tuple(name for name in files.columns if name not in (*targets, group, weight))
        if not features:
            raise ValueError("there must be a column to learn from beside targets and groups, got none")
        return cls(files, features, tuple(targets), group, weight)

    @property
    def sample_size(self) -> int:
        """About how many rows are sampled, if there are so many."""
        return min(SAMPLE_ROWS, SAMPLE_NUMBERS // max(len(self.features), self.n_outputs))

    @property
    def n_outputs(self) -> int:
        """How many numbers say what is to be predicted of a row."""
        return len(self.targets) if self.classes is None else len(self.classes)

    def parts(self, most: int = PART_ROWS) -> list[Part]:
        """The whole table in parts of at most so many rows, in order."""
        return self.files.parts(min(most, PART_NUMBERS // self.n_outputs))

    def class_counts(self, workers: Workers | None = None) -> Counter[Any]:
        """How many rows each class has, from a pass over the target alone."""
        counts: Counter[Any] = Counter()
        rank, n_workers = place_of(workers)
        for part in self.files.parts()[rank::n_workers]:
            labels = self._labels(self.files.read(part, self.targets), part)
            counts.update(dict(labels.alias("class").value_counts().iter_rows()))
            self._check_n_classes(counts, part.number + part.n_rows)
        counted = needed_polars().DataFrame({"class": list(counts), "n": list(counts.values())})
        counts = Counter()
        for of_worker in frames_of_each(workers, counted):
            counts.update(dict(of_worker.iter_rows()))
        self._check_n_classes(counts, len(self.files))
        return counts

    def _check_n_classes(self, counts: Counter[Any], n_rows: int) -> None:
        if len(counts) > MOST_CLASSES:
            must = f"the target {self.targets[0]!r} of a streamed fit must have at most {MOST_CLASSES:,} classes"
            found = f"got {len(counts):,} in the first {n_rows:,} rows"
            raise TableFileError(f"{must}, {found}; join rare ones, or take MatchedRegressor for a quantity")

    def survey(self, row_hash: RowHash, workers: Workers | None = None) -> tuple[TableRows, float, float]:
        """Read all rows once: a uniform sample of those that may train, and how many there are and are kept for ranks.

        With weights the two are how many rows of equal weight these are worth. The sample of a classifier has kept rows
        as well. Each worker reads a share of the parts.
        """
        share, parts = self.sample_size / len(self.files), self.parts()
        rank, n_workers = place_of(workers)
        sample, sums = [], torch.zeros(len(parts), 2, 2, dtype=torch.float64)  # of weights and their squares
        for number in range(rank, len(parts), n_workers):
            rows = self.read(parts[number])
            kept = row_hash.kept(rows.keys)
            drawn = row_hash.drawn(rows.numbers, share)
            sample.append(rows.at(drawn if self.classes is not None else drawn & ~kept))
            for own, values in zip(sums[number], (rows.weight, rows.weight[kept]), strict=True):  # all, and kept
                own[:] = torch.tensor([values.sum(), np.square(values).sum()])
        if not sample:  # fewer parts than workers
            sample = [(rows := self.read(parts[0])).at(np.zeros(len(rows.y), dtype=bool))]
        if workers is not None:
            (sums,) = workers.summed([sums])
        totals = sum(sums.numpy(), np.zeros((2, 2)))  # part by part: the same bits for any number of workers
        n_all, n_kept = (float(total * (total / squares)) if total else 0.0 for total, squares in totals.tolist())
        if not n_all:
            raise ValueError("sample_weight must be above zero for some rows, got zero for all of them")
        return _joined(sample, workers), n_all, n_kept

    def read(self, part: Part) -> TableRows:
        """The rows of a part that count; raises for a missing target, group or weight."""
        frame = self.files.read(part)
        weight = self.weights_of(frame, part)
        targets = self._numbers(frame, part) if self.classes is None else self._one_of_classes(frame, part)
        keys = numbers = np.arange(part.number, part.number + part.n_rows, dtype=np.uint64)
        if self.group is not None:
            groups = frame[self.group]
            missing = groups.is_null() | (groups.is_nan() if groups.dtype.is_float() else False)
            if missing.any():
                found = f"has none in row {part.first + int(missing.arg_true()[0]) + 1} of {part.path}; fill it in"
                raise TableFileError(f"the groups {self.group!r} must have a value in every row, but {found}")
            keys = group_keys(groups.cast(needed_polars().String).to_list())
        rows = TableRows(frame.select(self.features), np.ascontiguousarray(targets), keys, numbers, weight)
        return rows.at(weight > 0)

    def _numbers(self, frame: pl.DataFrame, part: Part) -> Array:
        targets: Array = frame.select(self.targets).cast(needed_polars().Float64).to_numpy()
        odd = ~np.isfinite(targets)
        if odd.any():
            row, column = np.argwhere(odd)[0].tolist()
            what = "infinite" if np.isinf(targets[row, column]) else "missing"
            found = f"is {what} in row {part.first + row + 1} of {part.path}; leave these rows out"
            must = f"the target {self.targets[column]!r} must be a finite number in every row"
            raise TableFileError(f"{must}, but {found}")
        return targets

    def _one_of_classes(self, frame: pl.DataFrame, part: Part) -> Array:
        """1 at the class of a row, (row, class)."""
        assert self.classes is not None  # they are known
        labels, known = self._labels(frame, part), self.classes.tolist()
        places = labels.replace_strict(known, range(len(known)), return_dtype=needed_polars().Int64)
        one_each: Array = np.eye(len(known))[places.to_numpy()]
        return one_each

    def _labels(self, frame: pl.DataFrame, part: Part) -> pl.Series:
        """The classes of the rows of a part; raises for a missing one, and for what is no whole number."""
        polars, labels = needed_polars(), frame[self.targets[0]]
        if labels.dtype in (polars.Categorical, polars.Enum):
            labels = labels.cast(polars.String)
        of_numbers = labels.dtype.is_float()
        missing = labels.is_null() | (labels.is_nan() if of_numbers else False)
        odd = missing | (labels != labels.round() if of_numbers else False)
        if odd.any():
            row = int(odd.arg_max() or 0)
            where = f"in row {part.first + row + 1} of {part.path}"
            if missing[row]:
                must = f"the target {labels.name!r} must have a class in every row"
                raise TableFileError(f"{must}, but has none {where}; leave these rows out")
            must = f"the target {labels.name!r} must hold classes"
            raise TableFileError(f"{must}, got {labels[row]:g} {where}; for a quantity, take MatchedRegressor")
        return labels

    def weights_of(self, frame: pl.DataFrame, part: Part) -> Array:
        """How much the rows of a part count."""
        if self.weight is None:
            return np.ones(len(frame))
        weight: Array = frame[self.weight].cast(needed_polars().Float64).to_numpy()
        if (wrong := ~((weight >= 0) & (weight <= LARGEST_NUMBER))).any():
            row = int(wrong.argmax())
            found = f"{weight[row]:g} in row {part.first + row + 1} of {part.path}; zero leaves a row out"
            raise TableFileError(f"the weights {self.weight!r} must lie in [0, {LARGEST_NUMBER:g}], got {found}")
        return weight


def _may_be_class(kind: Any) -> bool:
    """Whether the values of a column of files can be classes."""
    polars = needed_polars()
    texts = (polars.String, polars.Categorical, polars.Enum)
    return bool(kind in (*texts, polars.Boolean) or kind.is_integer() or kind.is_float())


def lanes_of(rank: int, n_workers: int) -> range:
    """The lanes of a batch that a worker owns."""
    if n_workers < 1 or N_LANES % n_workers:
        raise ValueError(f"the number of workers must divide {N_LANES}, got {n_workers}; take 1, 2, 4 or 8")
    n_own = N_LANES // n_workers
    return range(rank * n_own, (rank + 1) * n_own)


@dataclass(frozen=True, kw_only=True)
class Buffer(Rows):
    """The rows of one round that belong to this worker."""

    lanes: Int[Tensor, " row"]
    longest: int  # the most rows that a member trains on in one lane, those of other workers included
    number: int = 1  # over all rounds: each of them shuffles anew

    def batches(self, batch_size: int, epochs: int, *, honest: bool) -> LaneBatches:
        """The hash leaves every row out, so every residual is out-of-fold."""
        return LaneBatches(self, batch_size, epochs, seed_of(self.seeds[0], self.number, int(honest)))


class LaneBatches(Batches):
    """Shuffled batches of a buffer's row numbers, `(member, own batch)`, with equal shares of all lanes.

    A round passes over the rows once; where they are few, each epoch does, as without a stream.
    """

    def __init__(self, buffer: Buffer, batch_size: int, epochs: int, seed: int) -> None:
        own, weight = lanes_of(*place_of(buffer.workers)), buffer.weight
        weight = None if weight is None else weight.expand(buffer.trains.shape[1], -1)
        self.rows = [(buffer.lanes == lane).nonzero()[:, 0] for lane in own]
        self.draws = [
            Draw(buffer.trains[0][:, rows], None if weight is None else weight[:, rows]) for rows in self.rows
        ]
        self.counts_by_lane = [draw.counts for draw in self.draws]
        if any(int(count.min()) == 0 for count in self.counts_by_lane):
            needed = "every member needs rows to train on in every buffer, but one has none"
            raise ValueError(f"{needed}; the folds are too uneven: give fewer folds, or smaller groups")
        self.generators = [torch.Generator().manual_seed(seed_of(seed, lane)) for lane in own]
        self.longest = self.place = buffer.longest
        most = MOST_ROWS_PER_EPOCH // N_LANES
        per_epoch = self.longest if self.longest <= most else max(most, -(-self.longest // epochs))
        self.n_steps = -(-per_epoch // max(1, batch_size // N_LANES))
        self.share = -(-per_epoch // self.n_steps)  # even batches: as few rows as possible come twice
        self.order: list[Tensor] = []

    def epoch(self) -> Iterator[Int[Tensor, "member batch"]]:
        """The next batches; all rows are shuffled anew when they have been given."""
        if self.place >= self.longest:
            self.order, self.place = [], 0
            for rows, draw, generator in zip(self.rows, self.draws, self.generators, strict=True):
                self.order.append(rows[draw(generator)])
        places = torch.arange(self.place, self.place + self.n_steps * self.share, device=self.rows[0].device)
        self.place += self.n_steps * self.share
        shares = [
            order.gather(1, places % count).unflatten(1, (self.n_steps, self.share))
            for order, count in zip(self.order, self.counts_by_lane, strict=True)
        ]
        yield from torch.cat(shares, dim=2).transpose(0, 1).contiguous()  # (step, member, batch)


@dataclass(frozen=True)
class SampledForest:
    """A forest that was grown on the sample: rows that it has not seen may be anywhere in the table."""

    trees: Trees
    in_bag: Mask  # which units each tree has seen, (tree, unit)
    keys: Keys  # of the units, ascending
    elsewhere: Array  # what is predicted for a unit that all trees have seen, (target,)

    def out_of_bag(self, X: Array, keys: Keys) -> Array:
        """What the trees that have not seen a row, or its group, predict for it, (row, target)."""
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        found = mean_of_unseen(self.trees, X, self.in_bag[:, place] & (self.keys[place] == keys))
        return np.where(np.isnan(found), self.elsewhere, found)


@dataclass(frozen=True)
class RowStream:
    """The parts of a table as rows, as one worker reads them; what the sample lacks is read as in a prediction."""

    table: StreamedTable
    row_hash: RowHash
    columns: Columns
    sample: Rows  # with scalings, levels, seed and workers, on the device of the networks
    numbers: Keys  # of the sample's rows in the table
    n_kept: int = 0  # rows that train nobody
    forests: Sequence[SampledForest] = ()  # the companions
    shown: Any = None  # the features of the sample, kept rows included, as in the table

    def own_parts(self) -> Iterator[TableRows]:
        rank, n_workers = place_of(self.sample.workers)
        return map(self.read, self.table.parts()[rank::n_workers])

    def read(self, part: Part) -> TableRows:
        rows = self.table.read(part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            try:
                return TableRows(self.columns.transform(rows.X), *rows[1:])
            except (ValueError, TypeError) as error:
                last = part.first + part.n_rows
                raise TableFileError(f"in rows {part.first + 1} to {last} of {part.path}, {error}") from None

    def scaled(self, X: Array, y: Array) -> tuple[Tensor, Tensor]:
        return self.sample.inputs[0](as_tensor(X)), self.sample.targets[0](as_tensor(y))

    def beside(self, X: Array, keys: Keys) -> Tensor | None:
        """What companions that have not seen a row predict for it, (row, companion, target)."""
        if not self.forests:
            return None
        found = np.stack([forest.out_of_bag(X, keys) for forest in self.forests], axis=1)
        scaled: Tensor = self.sample.targets[0](as_tensor(found))
        return scaled

    def buffers(self, n_rows: int, first: int = 0) -> Iterator[Buffer]:
        """Endless buffers of about so many rows that may train, each of parts from all over the table in random order.

        A table that fits into one buffer is read once. The buffers before the `first` are not read.
        """
        files, numbers = self.table.files, itertools.count(first)
        n_rows = max(1, min(n_rows, BUFFER_NUMBERS // max(self.sample.x.shape[-1], self.sample.y.shape[-1])))
        parts = self.table.parts(n_rows // PARTS_OF_A_BUFFER)
        n_buffers = -(-len(files) // n_rows)
        for number in numbers:
            sweep, place = divmod(number, n_buffers) if n_buffers > 1 else (0, 0)
            order = np.random.default_rng(seed_of(self.row_hash.seed, sweep)).permutation(len(parts))
            buffer = self._buffer([parts[chosen] for chosen in np.array_split(order, n_buffers)[place]])
            yield replace(buffer, number=number + 1)
            while n_buffers == 1:
                yield replace(buffer, number=next(numbers) + 1)
            del buffer  # before the next one is read

    def _of_parts(self, parts: Sequence[Part]) -> Iterator[list[Tensor]]:
        """The rows of each part that may train, those that other workers have read included."""
        workers = self.sample.workers
        rank, n_workers = place_of(workers)
        own: list[Tensor] = []
        for first in range(0, len(parts), n_workers):
            together = parts[first : first + n_workers]
            if rank < len(together):
                own = self._trained_on(together[rank])
            else:  # it has no part left, and tells what its rows would look like
                own = [values[:0] for values in own or self._trained_on(parts[0])]
            yield from rows_of_each(workers, own)[: len(together)]

    def _trained_on(self, part: Part) -> list[Tensor]:
        """The rows of a part that may train: x, y, the members that leave them out, lanes, weights, companions."""
        X, y, keys, numbers, weight = self.read(part)
        may_train = ~self.row_hash.kept(keys)
        X, keys = X[may_train], keys[may_train]
        scaled = self.scaled(X, y[may_train])
        lanes, out = self.row_hash.lanes(numbers[may_train]), np.ascontiguousarray(self.row_hash.left_out_by(keys).T)
        others, beside = list(map(torch.from_numpy, (out, lanes, weight[may_train]))), self.beside(X, keys)
        return [*(values.float() for values in scaled), *others, *([] if beside is None else [beside.float()])]

    def _buffer(self, parts: Sequence[Part]) -> Buffer:
        sample, row_hash, device = self.sample, self.row_hash, self.sample.y.device
        own_lanes, n_most = lanes_of(*place_of(sample.workers)), sum(part.n_rows for part in parts)
        # Filled part by part, so that no row is held twice.
        x, y = (torch.empty(1, n_most, values.shape[-1]) for values in (sample.x, sample.y))
        left_out, lanes, weights, beside, end = [], [], list[Tensor](), list[Tensor](), 0
        counts = np.zeros((row_hash.folds * row_hash.repeats, N_LANES), dtype=np.int64)  # rows that train a member
        for of_part in self._of_parts(parts):
            x_part, y_part, out, lane, weight, *found = of_part
            counts += (~out.numpy()).T.astype(np.int64) @ (lane[:, None] == torch.arange(N_LANES)).numpy()
            own = torch.isin(lane, torch.tensor(list(own_lanes)))
            first, end = end, end + int(own.sum())
            x[0, first:end], y[0, first:end] = x_part[own], y_part[own]
            left_out.append(out[own].T[None].to(device))
            lanes.append(lane[own].to(device))
            weights.append(weight[own])
            beside += [values[own][None].to(device) for values in found]
        x, y = x[:, :end].to(device), y[:, :end].to(device)
        if counts.min() < FEWEST_IN_LANE:
            of_sample = row_hash.lanes(self.numbers)
            counts += sample.trains[0].cpu().numpy().astype(np.int64) @ (of_sample[:, None] == np.arange(N_LANES))
            mine = torch.from_numpy(np.isin(of_sample, own_lanes)).to(device)
            x, y = torch.cat([x, sample.x[:, mine]], dim=1), torch.cat([y, sample.y[:, mine]], dim=1)
            left_out.append(sample.leaves_out[..., mine])
            lanes.append(torch.from_numpy(of_sample).to(device)[mine])
            weights += [] if sample.seen_weight is None else [torch.from_numpy(sample.seen_weight[mine.cpu().numpy()])]
            beside += [] if sample.beside is None else [sample.beside[:, mine]]
        leaves_out, longest = torch.cat(left_out, dim=2), int(counts.max())
        rows, workers = (x, y, ~leaves_out, leaves_out, sample.coverage), sample.workers
        known: dict[str, Any] = {"seeds": sample.seeds, "workers": workers, "lanes": torch.cat(lanes)}
        known |= {"score": sample.score}
        if sample.weight is not None:
            known["weight"] = torch.cat(weights)[None].to(device)
        return Buffer(*rows, beside=torch.cat(beside, dim=1) if beside else None, longest=longest, **known)
