"""Rows: what networks train on. Scaled tensors, who trains on what, and the asked levels.

A *job* is one team's share of a fit: its rows, and which of its members train on which of them. Jobs of the same kind
(the splits of a study, the teams of CV+) are stacked and train at once; nothing passes between them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from coverwell.inputs.scaling import Mirroring, Scaling, check_values, without_far_off
from coverwell.options import check_enough_rows
from coverwell.paper.losses import Levels, z_score

if TYPE_CHECKING:
    from coverwell.calibration import Calibration, Estimate
    from coverwell.paper.scores import Score
    from coverwell.predictor import FittedTeam

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Masks = NDArray[np.bool_]  # (2, member, row): who trains on a row, who leaves it out

# Above this many rows a pass costs more than it teaches: an epoch is then this many random rows.
MOST_ROWS_PER_EPOCH = 20_000
# The largest key of a shuffle; whole numbers are sorted faster than floats.
LAST = 2**31 - 1


@runtime_checkable
class Workers(Protocol):
    """The processes that fit one model together, as one of them sees it: its place from 0, and 2, 4 or 8 in all."""

    rank: int
    size: int

    def together(self, own: Tensor) -> Tensor:
        """Every worker's (member, own batch, ...) as (member, batch, ...); gradients reach the own part only."""

    def summed(self, gradients: list[Tensor]) -> list[Tensor]:
        """The sums over all workers, with the same bits on each."""

    def of_first(self, values: Tensor) -> Tensor:
        """The values of the first worker, with the same bits on all."""


def place_of(workers: Workers | None) -> tuple[int, int]:
    """This worker's place, and how many there are."""
    return (0, 1) if workers is None else (workers.rank, workers.size)


class Draw:
    """Each member's rows in random order, `(member, row)`; behind them others, that are of no use.

    With a weight, a row of n comes n times its share of their weight, rounded up or down at random (systematic
    resampling), so any loss of a batch is that of the weighted rows.
    """

    def __init__(self, trains: Bool[Tensor, "member row"], weight: Float[Tensor, "member row"] | None = None) -> None:
        self.trains, self.counts = trains, trains.sum(dim=1, keepdim=True)
        self.up_to: Tensor | None = None  # the share of the rows before a row and its own
        if weight is not None:
            summed = (weight.double() * trains).cumsum(dim=1)
            self.up_to = summed / summed[:, -1:]
            self.places = torch.arange(int(self.counts.max()), device=trains.device)

    def __call__(self, generator: torch.Generator | None = None) -> Int[Tensor, "member row"]:
        if self.up_to is None:
            return self._shuffled(self.trains, generator)
        device = self.up_to.device if generator is None else generator.device
        # In single precision, so that it is below one also when the number of rows is added.
        start = torch.rand(self.counts.shape, generator=generator, device=device).to(self.up_to)
        rows = torch.searchsorted(self.up_to, (self.places + start) / self.counts, right=True)
        rows = rows.clamp(max=self.trains.shape[1] - 1)  # behind a member's own, which sort in front
        return rows.gather(1, self._shuffled(self.places < self.counts, generator))

    def _shuffled(self, own: Tensor, generator: torch.Generator | None) -> Tensor:
        device = own.device if generator is None else generator.device
        keys = torch.randint(LAST, own.shape, dtype=torch.int32, generator=generator, device=device).to(own.device)
        return keys.masked_fill_(~own, LAST).argsort(dim=1)  # others sort behind all of one's own


class Batches:
    """Shuffled batches of row numbers, `(member, batch)`, each member from its own rows, by their weights if any."""

    def __init__(
        self,
        trains: Bool[Tensor, "member row"],
        batch_size: int,
        weight: Float[Tensor, "member row"] | None = None,
    ) -> None:
        self.draw = Draw(trains, weight)
        self.counts = self.draw.counts
        rows_per_epoch = min(int(self.counts.max()), MOST_ROWS_PER_EPOCH)
        self.n_steps = -(-rows_per_epoch // batch_size)
        self.batch_size = -(-rows_per_epoch // self.n_steps)  # even batches: as few rows as possible come twice

    def epoch(self) -> Iterator[Int[Tensor, "member batch"]]:
        """Batches of equal size that pass once over the rows; a member with fewer rows starts over."""
        order = self.draw()
        places = torch.arange(self.n_steps * self.batch_size, device=order.device)
        rows = order.gather(1, places % self.counts)
        yield from rows.split(self.batch_size, dim=1)


@dataclass(frozen=True)
class OutOfFoldView:
    """How rows are seen by the members that leave them out."""

    left_out: Int[Tensor, "member place"]  # rows of each member, in order; where others have more, row 0 fills up
    places: Int[Tensor, "job row repeat"]  # where in `left_out` a row stands, for every member that leaves it out
    weight: Float[Tensor, "job row repeat"]  # how much that counts
    some: Bool[Tensor, "job row"]  # which rows at least one member leaves out
    literal: bool  # whether every member counts for every row, those it trains on included, as published


@dataclass
class Altered:
    """Copies of rows in which values are hidden or moved: they show what such gaps cost, and rows beyond the range.

    Nothing trains on them. What leaves a row out predicts its copies, as if it came like that.
    """

    X: Array  # (copy, feature), in the user's units
    copy_of: Places  # which row each is a copy of
    edge: NDArray[np.int64]  # (copy, 2), the side and the column that was moved; -1 where values are hidden
    beside: Float[Tensor, "copy companion target"] | None = None  # what companions predict, scaled
    estimate: Estimate | None = None  # out of fold, once a calibration has made it

    @classmethod
    def joined(cls, parts: Iterable[Altered | None]) -> Altered | None:
        """Several sorts of copies as one; None if there are none."""
        known = [part for part in parts if part is not None]
        if len(known) < 2:
            return known[0] if known else None
        X, copy_of, edge = (np.concatenate([getattr(p, name) for p in known]) for name in ("X", "copy_of", "edge"))
        return cls(X, copy_of, edge)


@dataclass(frozen=True)
class Rows:
    """Jobs stacked along a first axis; shorter ones are padded with rows that nobody trains on or leaves out.

    An image and its mirror image are one row of `given` and two of x. Features of images keep the precision they are
    stored in, and jobs may share them.
    """

    x: Float[Tensor, "job row ..."]  # as the networks see them
    y: Float[Tensor, "job row target"]
    trains: Bool[Tensor, "job member row"]  # which members train on a row
    leaves_out: Bool[Tensor, "job member row"]  # whose outputs count for it: others, or all for literal training
    coverage: Float[Tensor, "job level"]
    # What companions predict for each row, out of fold; None without companions.
    beside: Float[Tensor, "job row companion target"] | None = None
    # How much each row counts, with a mean of one over those of a job; None where all count alike. Rows that count for
    # nothing train nobody, and nobody leaves them out.
    weight: Float[Tensor, "job row"] | None = None
    # For each job: the levels as numbers, innermost first; how x and y were scaled; how many rows are no padding; the
    # seed of weights, batches and samples; and which given rows it never sees, for "split" and "cv+".
    levels: Sequence[tuple[float, ...]] = ()
    inputs: Sequence[Scaling] = ()
    targets: Sequence[Scaling] = ()
    lengths: Sequence[int] = ()
    seeds: Sequence[int] = ()
    held_back: Sequence[Places] = ()
    companions: Sequence[Sequence[Any]] = ()
    units: Sequence[NDArray[Any] | None] = ()  # which of its rows stay together; None where each is one of its own
    given: tuple[NDArray[Any], Array] | None = None  # X and y of the fit, in the user's units
    given_weight: Array | None = None  # of the same rows
    altered: Altered | None = None  # beside the rows of a single job
    mirroring: Mirroring | None = None
    score: Score | None = None  # where targets are classes, one column each: what I bounds in place of residuals
    workers: Workers | None = None  # processes that each hold a part of these rows, where there are several

    @classmethod
    def of(
        cls,
        X: NDArray[Any],
        y: Array,
        *,
        levels: tuple[float, ...],
        folds: Any,
        repeats: int | str,
        calibration: Calibration,
        random_state: np.random.RandomState,
        groups: NDArray[Any] | None = None,
        scaled: bool = True,
        bounded: bool = True,
        unit_range: bool = False,
        mirroring: Mirroring | None = None,
        start: Sequence[FittedTeam] = (),
        weight: Array | None = None,
        score: Score | None = None,
    ) -> Rows:
        """The rows of one fit: which of them each team may see, who trains on what, and everything scaled.

        X is (row, feature) or features of images, y (row, target). The calibration decides which rows a team may see.
        Inputs are `scaled` to order one and `bounded` by the range of the training rows, targets scaled by their
        standard deviation or, for the published weights, to `unit_range`. Teams in `start` keep their scalings.
        No scaling looks at the weight (row,). With a `score`, y (row, class) is 1 at the class of a row, 0 elsewhere.
        """
        check_values(X if scaled else None, y if score is None else None)
        if mirroring is not None:
            mirroring.check(y)
        if not (folds is None or isinstance(folds, int)):
            check_folds(folds, calibration)
        seen = [np.arange(len(X))]
        if calibration.holds_back:
            seen = calibration.rows_of_jobs(X, groups, folds, levels, random_state)
        if start and len(start) != len(seen):
            raise ValueError(
                f"warm_start goes on from as many teams as there were, {len(start)}, got {len(seen)}; keep "
                "calibration and folds, or fit with warm_start=False"
            )
        jobs = []
        for number, places in enumerate(seen):
            # Features of images may be too many for a copy per job: all jobs look at the same ones.
            shared = not scaled and len(seen) > 1
            own_groups, own_weight = (None if part is None else part[places] for part in (groups, weight))
            x, y_own = (X, y) if shared or (not scaled and len(places) == len(X)) else (X[places], y[places])
            split = places if shared else x
            known: dict[str, Any] = {"groups": own_groups, "weight": own_weight}
            known |= {} if score is None else {"classes": y[places].argmax(axis=1)}
            masks = left_out_by(split, folds, repeats, calibration, levels, random_state, **known)
            if own_weight is not None:
                own_weight = own_weight / own_weight.mean()
            if shared:
                of_places, masks = masks, np.zeros((*masks.shape[:2], len(X)), dtype=bool)
                masks[..., places] = of_places
                if own_weight is not None:
                    of_places, own_weight = own_weight, np.zeros(len(X))
                    own_weight[places] = of_places
            if scaled and X.ndim == 2 and score is None:
                y_own = without_far_off(y_own)
            y_seen = y_own if scaled else y[places]
            if mirroring is not None:  # an image and its mirror image are two rows
                x, y_own, y_seen = mirroring.flat(x), mirroring.rows(y_own), mirroring.rows(y_seen)
                masks, own_weight = masks.repeat(2, axis=2), None if own_weight is None else own_weight.repeat(2)
            inputs = Scaling.of(x, bounded=bounded, units=own_groups) if scaled else Scaling(x.shape[1:])
            targets = Scaling.of(y_seen, unit_range=unit_range) if score is None else Scaling.unit(y.shape[1])
            if start:  # networks that continue training keep their units, over the range of all rows seen
                before, targets = (copy.deepcopy(one).cpu() for one in (start[number].inputs, start[number].targets))
                inputs = before.widened(inputs)
            x_scaled = inputs(torch.from_numpy(x)).float() if scaled else as_tensor(x)
            trains, leaves_out = torch.from_numpy(masks)
            jobs.append(
                cls(
                    x_scaled[None],
                    targets(torch.from_numpy(y_own)).float()[None],
                    trains[None],
                    leaves_out[None],
                    torch.tensor(levels)[None],
                    weight=None if own_weight is None else torch.from_numpy(own_weight)[None],
                    levels=[levels],
                    inputs=[inputs],
                    targets=[targets],
                    lengths=[len(x)],
                    held_back=[np.setdiff1d(np.arange(len(X)), places)],
                    units=[own_groups],
                )
            )
        rows = jobs[0] if len(jobs) == 1 else cls.stack(jobs)
        seeds = [random_state.randint(2**31 - 1)] * len(jobs)
        return replace(rows, given=(X, y), given_weight=weight, mirroring=mirroring, seeds=seeds, score=score)

    @classmethod
    def stack(cls, parts: Sequence[Rows]) -> Rows:
        """Jobs side by side, padded to the longest; what they share is not copied."""
        if any(part.weight is not None for part in parts):  # beside weighted rows, others have a weight of one
            ones = (torch.ones_like(part.y[..., 0], dtype=torch.float64) for part in parts)
            parts = [p if p.weight is not None else replace(p, weight=one) for p, one in zip(parts, ones, strict=True)]
        joined: dict[str, Any] = {name: [item for part in parts for item in getattr(part, name)] for name in PER_JOB}
        for name, axis in ROW_AXES.items():
            values = [getattr(part, name) for part in parts]
            if values[0] is None:
                continue
            first, memory = values[0], {(value.data_ptr(), value.shape, value.stride()) for value in values}
            if len(first) == len(memory) == 1:
                joined[name] = first.expand(len(parts), *first.shape[1:])
                continue
            longest, behind = max(value.shape[axis] for value in values), [0] * (2 * (first.dim() - 1 - axis))
            padded = [torch.nn.functional.pad(v, [*behind, 0, longest - v.shape[axis]]) for v in values]
            joined[name] = torch.cat(padded)
        return cls(**joined, mirroring=parts[0].mirroring, score=parts[0].score)

    def to(self, device: torch.device) -> Rows:
        """The same rows on a device."""
        moved: dict[str, Any] = {}
        for name in ROW_AXES:
            values = getattr(self, name)
            if values is None:
                continue
            shared = values.stride(0) == 0  # jobs on one memory share it there too
            moved[name] = values[:1].to(device).expand(values.shape) if shared else values.to(device)
        return replace(self, **moved)

    def few(self, n_jobs: int, n_members: int) -> Rows:
        """The first jobs, with some of their members."""
        masks = {name: getattr(self, name)[:n_jobs, :n_members] for name in ("trains", "leaves_out")}
        others = {name: getattr(self, name)[:n_jobs] for name in ("x", "y", "coverage", *PER_JOB)}
        for name in ("beside", "weight"):
            others |= {} if getattr(self, name) is None else {name: getattr(self, name)[:n_jobs]}
        return replace(self, **masks, **others)

    def weight_of(self, places: Places | NDArray[np.bool_]) -> Array | None:
        """The weights of some of the given rows; None where all count alike."""
        return None if self.given_weight is None else self.given_weight[places]

    @property
    def seen_weight(self) -> Array | None:
        """The weights of the given rows that the first team sees; None where all count alike."""
        return None if self.given_weight is None else np.delete(self.given_weight, self.held_back[0])

    @property
    def n_jobs(self) -> int:
        return self.y.shape[0]

    @property
    def n_bounded(self) -> int:
        """For how many numbers of a row I learns bounds: its targets, or the score of its class."""
        return 1 if self.score is not None else self.y.shape[-1]

    def bounded(self, y_mean: Float[Tensor, "job row target"]) -> tuple[Tensor, Tensor]:
        """What I learns to bound, and around what: targets around their means, or the score of the class above zero.

        A score is bounded as a residual is, to both sides: of a number and its negative, the share p lies inside where
        it is below the quantile p. Shape: `(job, row, bounded)` twice.
        """
        if self.score is None:
            return self.y, y_mean
        scores = (self.score.of(y_mean) * self.y).sum(dim=-1, keepdim=True)
        return scores, torch.zeros_like(scores)

    @property
    def members_per_job(self) -> int:
        return self.trains.shape[1]

    @cached_property
    def levels_of_members(self) -> Levels:
        """The asked levels of every member, (member, level)."""
        coverage = self.to_members(self.coverage)
        return Levels(coverage, z_score(coverage))

    def to_members(self, jobs: Tensor) -> Tensor:
        """Values per job, given to each of its members: (job, ...) -> (job * member, ...)."""
        return jobs.repeat_interleave(self.trains.shape[1], dim=0)

    def batches(self, batch_size: int, epochs: int, *, honest: bool) -> Batches:
        """Batches of the rows that each member trains on; if `honest`, of those with an out-of-fold residual."""
        trains = self.trains
        if honest:
            trains = trains & self.out_of_fold_view.some[:, None, :]
            # A member that has none, such as the first of TimeSeriesSplit, learns the spread of its own targets.
            trains = torch.where(trains.any(dim=-1, keepdim=True), trains, self.trains)
        weight = None if self.weight is None else self.to_members(self.weight)
        return Batches(trains.flatten(end_dim=1), batch_size, weight)

    def at(self, table: Tensor, batch: Tensor) -> Tensor:
        """One batch per member: table (job, row, ...) at row numbers (member, batch) -> (member, batch, ...)."""
        if len(table) == 1 or table.stride(0) == 0:  # all members look at the same rows
            values = table[0].index_select(0, batch.flatten())
        else:
            values = table.flatten(0, 1).index_select(0, (batch + self._first_rows).flatten())
        return values.reshape(*batch.shape, *table.shape[2:])

    def batch_of(self, table: Tensor, batch: Tensor) -> Tensor:
        """The same for the whole batch, the rows of other workers included."""
        values = self.at(table, batch)
        return values if self.workers is None else self.workers.together(values)

    @cached_property
    def _first_rows(self) -> Int[Tensor, "member 1"]:
        """Where each member's job begins when the jobs stand one below the other."""
        return self.to_members(torch.arange(self.n_jobs, device=self.y.device) * self.y.shape[1])[:, None]

    def out_of_fold(self, outputs: Float[Tensor, "member place *rest"]) -> Float[Tensor, "job row *rest"]:
        """Average over the members that leave a row out, from outputs for rows they leave out; zero for others."""
        places, weight = self.out_of_fold_view.places, self.out_of_fold_view.weight
        chosen = outputs.flatten(0, 1).index_select(0, places.flatten()).reshape(*places.shape, *outputs.shape[2:])
        return (chosen * weight.reshape(*weight.shape, *[1] * (outputs.dim() - 2))).sum(dim=2)

    @cached_property
    def out_of_fold_view(self) -> OutOfFoldView:
        """How rows are seen by the members that leave them out."""
        n_jobs, n_members, _ = self.leaves_out.shape
        leaves_out = self.leaves_out.flatten(end_dim=1)
        n_places = max(int(leaves_out.sum(dim=1).max()), 1)
        # A stable sort puts the rows of each member in front.
        rows = (~leaves_out).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_places]
        left_out = torch.where(leaves_out.gather(1, rows), rows, 0)

        count = self.leaves_out.sum(dim=1)  # (job, row)
        most = max(int(count.max()), 1)
        members = (~self.leaves_out).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]  # (job, repeat, row)
        place_of_row = self.leaves_out.cumsum(dim=2) - 1  # (job, member, row)
        first = torch.arange(n_jobs, device=count.device) * n_members
        places = (first[:, None, None] + members) * n_places + place_of_row.gather(1, members)
        counted = torch.arange(most, device=count.device)[:, None] < count[:, None, :]
        places, weight = torch.where(counted, places, 0), counted / count[:, None, :].clamp_min(1)
        return OutOfFoldView(
            left_out=left_out,
            places=places.transpose(1, 2).contiguous(),
            weight=weight.transpose(1, 2).contiguous(),
            some=count > 0,
            literal=bool(self.leaves_out.all()),
        )

    def mean_out_of_fold(self, values: Float[Tensor, "job row *rest"]) -> Float[Tensor, "job *rest"]:
        """Average over the rows that some member leaves out, by their weights."""
        some = self.out_of_fold_view.some
        counted = some if self.weight is None else (some * self.weight).to(values)
        weight = counted / counted.sum(dim=1, keepdim=True)
        return (values * weight.reshape(*weight.shape, *[1] * (values.dim() - 2))).sum(dim=1)


ROW_AXES = {"x": 1, "y": 1, "trains": 2, "leaves_out": 2, "coverage": 1, "beside": 1, "weight": 1}
PER_JOB = ("levels", "inputs", "targets", "lengths", "seeds", "held_back", "companions", "units")


def as_tensor(rows: NDArray[Any]) -> Tensor:
    """A tensor on the same memory, which nobody writes into: so it may be a read-only map of a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(rows)


# Who trains on what.

REPEATED_ROWS = 1000  # with "auto", tables of up to this many rows have more repeats, large ones a single one
FEWEST_REPEATS, MOST_REPEATS = 2, 5
FEWEST_DISTINCT = 30  # inputs, for equal ones to stay in one fold
MANY_ROWS = 20_000  # with more, one member leaves out each row, since more would take too long
LEFT_BY_ALL = 2000  # rows that all members leave out there: they show what an average over all is worth


def auto_repeats(n_rows: int) -> int:
    """How many members leave out each row."""
    return 1 if n_rows > MANY_ROWS else int(np.clip(round(REPEATED_ROWS / n_rows), FEWEST_REPEATS, MOST_REPEATS))


def left_out_by(
    X: NDArray[Any],
    folds: Any,
    repeats: Any,
    calibration: Calibration,
    levels: tuple[float, ...],
    random_state: Any,
    *,
    groups: Any,
    weight: Array | None = None,
    classes: NDArray[np.intp] | None = None,
) -> Masks:
    """Which members train on a row, and which leave it out, checked; with `folds=None`, all of them do both.

    "auto" repeats are more on small tables, and one where nobody is left out or each row has a team of its own. Rows
    of weight zero belong to neither side.
    """
    by_all = False
    if repeats == "auto":
        once = folds is None or calibration.one_team_per_fold
        repeats = 1 if once else auto_repeats(len(X))
        by_all = not once and repeats == 1 and isinstance(folds, Integral) and calibration.ranks_out_of_fold
    if folds is None:
        trains = leaves_out = np.ones((int(repeats), len(X)), dtype=bool)
    else:
        trains, leaves_out = split_rows(X, folds, int(repeats), groups, random_state, classes)
    if by_all:
        some = np.isin(units := np.arange(len(X)) if groups is None else groups, drawn_units(units, random_state))
        trains, leaves_out = trains & ~some, leaves_out | some
    rows = "rows"
    if weight is not None:
        rows, trains = "rows of a weight above zero", trains & (weight > 0)
        leaves_out = leaves_out if folds is None else leaves_out & (weight > 0)
    if not leaves_out.any():
        raise ValueError(f"folds must leave {rows} out, but they leave none out")
    if calibration.ranks_out_of_fold:
        n_ranked = int(leaves_out.any(axis=0).sum())
        check_enough_rows(n_ranked, levels, f"calibration={calibration.name!r} ranks {n_ranked} of {len(X)} rows")
    if not trains.any(axis=1).all():
        raise ValueError(f"folds must give every member {rows} to train on, but one has none")
    return np.stack([trains, leaves_out])


def drawn_units(units: NDArray[Any], random_state: np.random.RandomState) -> NDArray[Any]:
    """Some of the units, such that they have about `LEFT_BY_ALL` rows together."""
    distinct = np.unique(units)
    n_drawn = round(len(distinct) * LEFT_BY_ALL / len(units))
    drawn: NDArray[Any] = random_state.permutation(distinct)[:n_drawn]
    return drawn


def equal_rows(X: NDArray[Any]) -> NDArray[np.intp] | None:
    """Which rows have equal inputs: they stay in one fold. None where all differ, or few do: the same come again."""
    distinct, group = np.unique(X, axis=0, return_inverse=True)
    return group.reshape(-1) if FEWEST_DISTINCT <= len(distinct) < len(X) else None


def check_dealing(
    n_rows: int, *, levels: tuple[float, ...], groups: Any, folds: Any, repeats: Any, calibration: Any, **_: Any
) -> None:
    """Raise what `Rows.of` would raise about folds and numbers of rows, before inputs that take long to compute."""
    check_folds(folds, calibration)
    if folds is not None and not isinstance(folds, Integral):
        return  # splits of the user's own may be good for one pass only
    X, random_state = np.empty((n_rows, 0)), np.random.RandomState(0)
    for own in calibration.rows_of_jobs(X, groups, folds, levels, random_state):
        own_groups = None if groups is None else groups[own]
        left_out_by(X[own], folds, repeats, calibration, levels, random_state, groups=own_groups)


def split_rows(
    X: NDArray[Any],
    folds: Any,
    repeats: int,
    groups: NDArray[Any] | None,
    random_state: np.random.RandomState,
    classes: NDArray[np.intp] | None = None,
) -> Masks:
    """Which members train on a row, and which leave it out, one member per fold and repeat.

    `folds` is a number of folds (whole groups stay in one fold) or a scikit-learn splitter. Rows that a splitter gives
    to neither side, such as an embargo, are neither trained on nor left out. A number of folds spreads each class.
    """
    from sklearn.model_selection import GroupKFold, KFold, check_cv

    given = None if isinstance(folds, Integral) else check_cv(folds)
    if given is None:
        n, what = (len(X), "rows") if groups is None else (len(np.unique(groups)), "groups")
        if isinstance(folds, bool) or folds < 2:
            raise ValueError(f"folds must be at least 2, a splitter, or None, got {folds!r}")
        if n < folds:
            raise ValueError(f"folds={folds} needs at least as many {what}, got {n}; give fewer folds or more {what}")
    trains, leaves_out = [], []
    for _ in range(repeats):
        splitter = given
        if splitter is None:
            kind = KFold if groups is None else GroupKFold
            splitter = kind(n_splits=int(folds), shuffle=True, random_state=random_state.randint(2**31 - 1))
        if given is None and classes is not None:
            splits = spread_classes(classes, groups, int(folds), random_state)
        else:
            splits = splitter.split(X, classes, groups)
        for train, left_out in splits:
            trains.append(np.isin(np.arange(len(X)), train))
            leaves_out.append(np.isin(np.arange(len(X)), left_out) & ~trains[-1])
    if not trains:
        raise ValueError(f"folds must be at least 2, or give splits, got none from {folds!r}")
    return np.stack([np.stack(trains), np.stack(leaves_out)])


def spread_classes(
    classes: NDArray[np.intp], groups: NDArray[Any] | None, n_folds: int, random_state: np.random.RandomState
) -> Iterator[tuple[Places, Places]]:
    """Folds with about the same share of each class; rows of a group, which count as their first one, stay together."""
    units = np.arange(len(classes)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    _, first = np.unique(units, return_index=True)
    shuffled = random_state.permutation(len(first))
    dealt = shuffled[np.argsort(classes[first[shuffled]], kind="stable")]  # units class by class, dealt out in turns
    fold_of_unit = np.empty(len(first), dtype=np.intp)
    fold_of_unit[dealt] = (np.arange(len(first)) + random_state.randint(n_folds)) % n_folds
    fold = fold_of_unit[units]
    for number in range(n_folds):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def check_folds(folds: Any, calibration: Calibration) -> None:
    """Raise unless folds is something that can split rows, and goes with the calibration."""
    if isinstance(folds, type):
        raise ValueError(f"folds must be a splitter, not its class; write {folds.__name__}(...)")
    splits = hasattr(folds, "split") and not isinstance(folds, str)
    listed = isinstance(folds, Iterable) and not isinstance(folds, str) and not splits
    if not (folds is None or isinstance(folds, Integral) or splits or listed):
        raise ValueError(f"folds must be a whole number, a scikit-learn splitter or None, got {folds!r}")
    fixed = listed or type(folds).__name__ == "PredefinedSplit"
    if fixed and calibration.holds_back:
        raise ValueError(
            f"calibration={calibration.name!r} splits part of the rows, but the given folds are fixed for all of them; "
            "give a number of folds or another splitter, or calibration='cross'"
        )
