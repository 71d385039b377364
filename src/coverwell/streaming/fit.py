"""`fit` for tables that do not fit into memory: what comes out is an ordinary fitted model.

The table is read several times. First pass: targets and groups are checked, and a uniform sample of about 100,000 rows
is drawn. From the sample alone come how columns are read, the scaling of inputs and targets and the range of the
inputs, the bins of the networks' codes, and the measures of every round. Then come the rounds, each on the next 262,144
rows from all over the table (`coverwell.streaming.rounds`); and at last one pass for the ranks.

In memory at any time are the sample, one buffer of a round in single precision, one part of 32,768 rows, what the
networks say about these, and the networks. Of wide tables all three have fewer rows: at most 2^24, 2^26 and 2^22
numbers. Nothing of it grows with the number of rows, and nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from tqdm import tqdm

from coverwell.algorithm import Measures, Record
from coverwell.ensemble import Ensemble, PairTraining, TrainedJob
from coverwell.folds import Problem, stack_jobs
from coverwell.held_out import Stretch, out_of_fold_of, stretch_of
from coverwell.inputs.source import TableSource, is_image_network
from coverwell.metrics import coverage_rank
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network
from coverwell.preparation import Plan, Prepared, levels_from, prepare
from coverwell.rounds import rounds_of
from coverwell.streaming.ranks import Voices, cross_stretch, split_stretch
from coverwell.streaming.rounds import BatchPlan, alternate_on_stream
from coverwell.streaming.row_hash import RowHash, seed_of
from coverwell.streaming.rows import (
    BUFFER_NUMBERS,
    BUFFER_ROWS,
    Buffer,
    RowReader,
    Sample,
    TableLayout,
    buffers,
    survey,
)
from coverwell.streaming.table_parts import TableFiles
from coverwell.streaming.workers import ALONE, SharedLearner, Workers, lanes_of
from coverwell.training import few_threads, seeded

__all__ = ["check_fit", "fit_streamed"]

Array = NDArray[np.float64]

# With fewer a lane of a batch may be empty; such a table fits into memory.
FEWEST_ROWS = 500
STREAMED_CALIBRATIONS = ("cross", "split", None)


def fit_streamed(
    model: Any,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    buffer_rows: int = BUFFER_ROWS,
    workers: Workers = ALONE,
    on_round: Callable[[Measures], None] | None = None,
) -> Any:
    """Fit a model on a table in files, of which only a part is in memory at any time; returns the model.

    `out_of_fold_` and `rounds_` speak about the sample, whose row numbers, counted from 0 through the files, are
    `out_of_fold_rows_`. `n_rows_` is the number of all rows, `n_ranked_` of those whose ranks set the widths: all for
    "cross", those that were kept for it for "split", none without calibration.

    Parameters
    ----------
    model : MatchedRegressor
        With a whole number of folds, and a calibration other than "cv+".
    files : TableFiles
    target : str or sequence of str
        The column or columns to predict.
    groups : str, optional
        A column whose values are held out together; it is not a feature.
    buffer_rows : int
        How many rows a round learns from.
    workers : Workers
        Processes that fit the model together; all of them call this function with the same arguments.
    on_round : function, optional
        Called after every round with its measures, in scaled units.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import polars as pl
    >>> from coverwell import MLP, MatchedRegressor
    >>> area = np.random.default_rng(0).uniform(50, 90, size=600)
    >>> rows = pl.DataFrame({"area": area, "price": 2 * area})
    >>> model = MatchedRegressor(network=MLP(hidden=4, bins=0), repeats=1, max_rounds=1, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     rows[:300].write_parquet(f"{folder}/sales-1.parquet")
    ...     rows[300:].write_parquet(f"{folder}/sales-2.parquet")
    ...     model = fit_streamed(model, TableFiles(folder), "price")
    >>> model.n_rows_
    600
    >>> model.predict(rows[:2].select("area")).shape
    (2,)
    """
    _check_buffer(buffer_rows)
    model._forget()
    try:
        run = _prepared_run(model, files, target, groups, workers)
        run.fit(buffer_rows, on_round)
    except BaseException:  # Ctrl-C too: unfitted, not broken
        model._forget()
        raise
    return model


def check_fit(
    model: Any, files: TableFiles, target: str | Sequence[str], *, groups: str | None, buffer_rows: int
) -> None:
    """Raise whatever `fit_streamed` would raise before it reads a row; the model stays as it is."""
    _check_buffer(buffer_rows)
    _planned(clone(model), len(files))
    TableLayout.of(files, _names(target), groups)


def _names(target: str | Sequence[str]) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else tuple(target)


def _prepared_run(
    model: Any, files: TableFiles, target: str | Sequence[str], groups: str | None, workers: Workers
) -> _Run:
    """Everything up to the first round: checks, the first pass, and what is learned from the sample."""
    plan, row_hash, random_state = _planned(model, len(files))
    training: PairTraining = model._training(len(files))
    layout = TableLayout.of(files, _names(target), groups)
    sample = survey(files, layout, row_hash)
    _check_folds(sample, row_hash, layout)
    if plan.calibration == "split":
        _check_ranks(sample.n_kept, plan, len(files))
    model._one_dimensional = isinstance(target, str)
    model.target_names_ = layout.targets
    prepared = _prepared(model, sample, plan, row_hash, random_state)
    reader = RowReader(files, layout, model.columns_, prepared.inputs[0], prepared.targets[0])
    model.n_rows_ = len(files)
    model.n_ranked_ = {"cross": len(files), "split": sample.n_kept, None: 0}[plan.calibration]
    model.out_of_fold_rows_ = sample.numbers.astype(np.int64)
    return _Run(model, reader, row_hash, prepared, training, workers)


def _planned(model: Any, n_rows: int) -> tuple[Plan, RowHash, np.random.RandomState]:
    """The plan and the folds, after all checks that need no rows."""
    if not hasattr(model, "interval_network"):
        raise TypeError(f"a streamed fit trains a MatchedRegressor, got a {type(model).__name__}")
    model._check_choices()
    _check_can_stream(model)
    if n_rows < FEWEST_ROWS:
        raise ValueError(
            f"a streamed fit needs at least {FEWEST_ROWS} rows, got {n_rows}; read them into a data frame, and fit that"
        )
    model._fitted_levels = tuple(sorted(levels_from(model.coverage)))
    random_state = check_random_state(model.random_state)
    plan = replace(model._plan(None, random_state), bounded=model._bounded)
    kept_share = plan.calibration_size if plan.calibration == "split" else 0.0
    return (
        plan,
        RowHash(random_state.randint(2**31 - 1), int(plan.folds), plan.n_repeats(n_rows), kept_share),
        random_state,
    )


def _check_buffer(rows: int) -> None:
    if not isinstance(rows, Integral) or rows < FEWEST_ROWS:
        raise ValueError(f"buffer_rows must be a whole number of at least {FEWEST_ROWS}, got {rows!r}")


def _check_can_stream(model: Any) -> None:
    if not isinstance(model.folds, Integral) or isinstance(model.folds, bool) or model.folds < 2:
        raise ValueError(
            f"a streamed fit deals rows to folds by a hash and needs their number, at least 2, got {model.folds!r}"
        )
    if model.calibration not in STREAMED_CALIBRATIONS:
        raise ValueError(
            f"a streamed fit can be calibrated by one of {STREAMED_CALIBRATIONS}, got {model.calibration!r}: its "
            "intervals would need the scores of all rows in memory"
        )
    if model.warm_start:
        raise ValueError("a streamed fit starts anew, got warm_start=True; set it to False")
    if is_image_network(model.network):
        raise ValueError("files of tables are read for networks on tables, got one that takes pictures")


def _check_folds(sample: Sample, row_hash: RowHash, layout: TableLayout) -> None:
    """Raise unless every member leaves rows of the sample out, and has some to train on."""
    counts = row_hash.left_out_by(sample.keys).sum(axis=1)
    if counts.min() == 0 or counts.max() == len(sample.keys):
        what = "rows" if layout.group is None else f"groups in {layout.group!r}"
        raise ValueError(
            f"folds={row_hash.folds} needs {what} for every fold, but one has none; groups are dealt out by a hash, so "
            "there should be several times as many as folds: give fewer folds"
        )


def _check_ranks(n_kept: int, plan: Plan, n_rows: int) -> None:
    try:
        coverage_rank(max(plan.levels), n_kept)
    except ValueError as error:
        raise ValueError(f"calibration='split' keeps {n_kept} of {n_rows} rows: {error}") from None


def _prepared(
    model: Any, sample: Sample, plan: Plan, row_hash: RowHash, random_state: np.random.RandomState
) -> Prepared:
    """The sample as a job whose folds are the hash's."""
    y = sample.targets[:, 0] if model._one_dimensional else sample.targets
    model.source_ = TableSource()
    read, _ = model.source_.fit(sample.frame, y, model)
    splits = [(np.flatnonzero(~left_out), np.flatnonzero(left_out)) for left_out in row_hash.left_out_by(sample.keys)]
    calibration = "cross" if plan.calibration == "cross" else None  # rows that "split" keeps are not in the sample
    own = replace(plan, folds=splits, repeats=1, calibration=calibration)
    return prepare(read(random_state), sample.targets, None, own, random_state)


@dataclass(frozen=True)
class _Run:
    """One streamed fit: from prepared rows to trained teams and their stretch."""

    model: Any
    reader: RowReader
    row_hash: RowHash
    prepared: Prepared
    training: PairTraining
    workers: Workers

    def fit(self, buffer_rows: int, on_round: Callable[[Measures], None] | None) -> None:
        """Train, rank, and give the model what it has learned."""
        training, jobs, model = self.training, self.prepared.jobs, self.model
        with (
            seeded(self.prepared.seed, training.device),
            few_threads(self._operations_per_step),
            _progress_bar(training.max_rounds, on_round, shown=bool(model.verbose)) as show,
        ):
            sample = stack_jobs(jobs, training.device)
            mean, interval = self._learners(sample)
            if self.workers.rank:  # the weights were drawn alike; dropout is to silence other units for other rows
                torch.manual_seed(seed_of(self.prepared.seed, self.workers.rank))
            stream = self._stream(sample, buffer_rows)
            plan = BatchPlan(training.batch_size, self.prepared.seed)
            record = alternate_on_stream(mean, interval, training.recipe, stream, plan, show)
            del stream
            (trained,) = training.taken_apart(jobs, mean, interval, record.scale)
            ensemble = model._ensemble(trained, self.prepared, 0)
            voices = Voices(mean, interval, training.recipe.matching, training.both, record.scale, sample.coverage)
            stretch = self._stretch(voices, trained, ensemble)
        _finish(model, self.prepared, record, trained, ensemble, stretch)
        model.ensembles_ = [ensemble]  # last: a model that has them is fitted

    def _stream(self, sample: Problem, buffer_rows: int) -> Iterator[Buffer]:
        numbers = self.model.out_of_fold_rows_.astype(np.uint64)
        rows = max(1, min(buffer_rows, BUFFER_NUMBERS // sample.x.shape[-1]))
        return buffers(self.reader, self.row_hash, sample, numbers, lanes=lanes_of(self.workers), rows=rows)

    def _learners(self, sample: Problem) -> tuple[SharedLearner, SharedLearner]:
        networks = zip(self.training.networks, self.training.n_outputs(sample), strict=True)
        mean, interval = (self._learner(network, sample, n_outputs) for network, n_outputs in networks)
        return mean, interval

    def _learner(self, network: Network, sample: Problem, n_outputs: int) -> SharedLearner:
        team = network.build(sample.members_per_job, tuple(sample.x.shape[2:]), n_outputs).to(sample.y.device)
        team.adapt(sample.x, sample.valid)
        training = self.training
        return SharedLearner(
            team, sample, learning_rate=training.learning_rate, memory=training.memory, workers=self.workers
        )

    def _stretch(self, voices: Voices, trained: TrainedJob, ensemble: Ensemble) -> Stretch:
        """From all rows; for "cross", the sample gives the unit in which targets are compared."""
        calibration, device, levels = self.model.calibration, self.training.device, ensemble.coverage
        if calibration == "split":
            return split_stretch(ensemble, self.reader, self.row_hash, levels, device, workers=self.workers)
        of_sample = stretch_of(calibration, self.prepared, trained.said, [ensemble], device)
        if calibration is None:
            return of_sample
        assert of_sample.factor is not None  # "cross" gives factors
        return cross_stretch(
            voices, self.reader, self.row_hash, levels, reference=of_sample.factor, workers=self.workers
        )

    @property
    def _operations_per_step(self) -> float:
        """Roughly the floating-point operations of one training step."""
        per_row = getattr(self.training.mean_network, "operations_per_row", MLP().operations_per_row)
        n_inputs = self.prepared.jobs[0].x[0].numel()
        return 6.0 * self.row_hash.n_members * self.training.batch_size * float(per_row(n_inputs))


def _finish(
    model: Any, prepared: Prepared, record: Record, trained: TrainedJob, ensemble: Ensemble, stretch: Stretch
) -> None:
    """What users read, beside the ensemble."""
    model.rounds_ = rounds_of(
        record,
        slice(0, 1),
        prepared.targets,
        model._fitted_levels,
        one_target=model._one_dimensional,
        one_level=isinstance(model.coverage, Real),
    )
    model.factor_, model.joint_factor_, model.scores_ = stretch.factor, stretch.joint_factor, None
    model.out_of_fold_ = out_of_fold_of(prepared, trained.said, [ensemble], stretch, torch.device("cpu"))


@contextmanager
def _progress_bar(
    max_rounds: int, on_round: Callable[[Measures], None] | None, *, shown: bool
) -> Iterator[Callable[[Measures, Any], None]]:
    with tqdm(total=max_rounds, disable=not shown, desc="rounds", unit="round") as bar:

        def show(measures: Measures, _: Any) -> None:
            bar.update()
            bar.set_postfix(
                coverage=f"{float(measures.coverage.mean()):.3f}",
                score=f"{float(measures.score.mean()):.4g}",
                refresh=False,
            )
            if on_round is not None:
                on_round(measures)

        yield show
