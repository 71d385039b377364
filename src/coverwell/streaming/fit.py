"""`fit` and predictions for tables that do not fit into memory: what comes out is an ordinary fitted model.

The table is read several times. The first pass checks targets and groups, and draws a uniform sample of about 100,000
rows. The sample alone decides how columns are read, the scaling and range of inputs and targets, the bins of the
networks' inputs, and the measures of every round. Then come the rounds of Algorithm 1, each on the next 262,144 rows
from all over the table, and at last one pass for the ranks.

Memory holds the sample, one buffer of a round in single precision, one part of 32,768 rows, the networks' outputs for
these, and the networks. Wide tables have fewer rows in each: at most 2^24, 2^26 and 2^22 numbers. None of it grows with
the number of rows, and nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from coverwell.calibration import Calibration, Cross, Estimate, Split, Uncalibrated, check_enough_rows
from coverwell.estimator import IntervalRegressor, levels_from, operations_per_step, progress_bar
from coverwell.inputs.parquet import Part, TableFiles
from coverwell.inputs.source import InputSource, is_image_network
from coverwell.paper.algorithm import History, Measures, alternate
from coverwell.regressor import MatchedRegressor
from coverwell.streaming.buffers import BUFFER_ROWS, RowStream, Sample, StreamedTable, lanes_of
from coverwell.streaming.ranks import StreamedCross, StreamedSplit
from coverwell.streaming.row_hash import RowHash, seed_of
from coverwell.training.device import few_threads, seeded
from coverwell.training.rows import ALONE, Rows, Workers, n_repeats

__all__ = ["check_fit", "estimate_files", "estimates_of_parts", "fit_streamed"]

# With fewer a lane of a batch may be empty; such a table fits into memory.
FEWEST_ROWS = 500


def fit_streamed(
    model: MatchedRegressor,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    buffer_rows: int = BUFFER_ROWS,
    workers: Workers = ALONE,
    on_round: Callable[[Measures], None] = lambda measures: None,
) -> MatchedRegressor:
    """Fit a model on a table in files, of which only a part is in memory at any time; returns the model.

    `out_of_fold_` and `rounds_` are about the sample, whose row numbers, counted from 0 through the files, are
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
    >>> from coverwell import MLP, MatchedRegressor, Schedule
    >>> area = np.random.default_rng(0).uniform(50, 90, size=600)
    >>> rows = pl.DataFrame({"area": area, "price": 2 * area})
    >>> network, schedule = MLP(hidden=4, bins=0), Schedule(max_rounds=1)
    >>> model = MatchedRegressor(network=network, repeats=1, schedule=schedule, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     rows[:300].write_parquet(f"{folder}/sales-1.parquet")
    ...     rows[300:].write_parquet(f"{folder}/sales-2.parquet")
    ...     model = fit_streamed(model, TableFiles(folder), "price")
    >>> model.n_rows_
    600
    >>> model.predict(rows[:2].select("area")).shape
    (2,)
    """
    table = check_fit(model, files, target, groups=groups, buffer_rows=buffer_rows, n_workers=workers.size)
    model.forget()
    try:
        model.one_dimensional_, model.target_names_ = isinstance(target, str), table.targets
        _fit(model, table, buffer_rows, workers, on_round)
    except BaseException:  # Ctrl-C too: unfitted, not broken
        model.forget()
        raise
    return model


def _fit(
    model: MatchedRegressor,
    table: StreamedTable,
    buffer_rows: int,
    workers: Workers,
    on_round: Callable[[Measures], None],
) -> None:
    training, random_state = model.training_for(len(table.files)), check_random_state(model.random_state)
    stream = _stream(model, table, random_state, workers)
    sample = stream.sample
    with seeded(sample.seeds[0], training.device), few_threads(operations_per_step(sample, training)):
        F, I = training.learners(sample)  # noqa: E741
        if workers.rank:  # the weights were drawn alike; dropout is to silence other units for other rows
            torch.manual_seed(seed_of(sample.seeds[0], workers.rank))
        with progress_bar(training.max_rounds, shown=bool(model.verbose)) as show:

            def after_round(history: History) -> None:
                show(history)
                on_round(history.rounds[-1])

            history = alternate(F, I, training.recipe, stream.buffers(buffer_rows), sample, after_round)

        def left_out_estimate(rows: Rows) -> tuple[Tensor, Tensor]:
            outputs = F.left_out_outputs(rows), I.left_out_outputs(rows)
            return training.members(*outputs, rows, history.best_unit)

        trained = training.taken_apart(F, I, sample, history.best_unit)
        calibration = _of_stream(model.chosen_calibration, stream, left_out_estimate)
        model.set_fitted(sample, trained, history, slice(0, 1), calibration)


def _stream(
    model: MatchedRegressor, table: StreamedTable, random_state: np.random.RandomState, workers: Workers
) -> RowStream:
    """The first pass, and all that is learned from the sample; sets what is known about inputs and rows."""
    dealing, levels, n_rows = model.dealing(None, random_state), levels_from(model.coverage), len(table.files)
    calibration = dealing["calibration"]
    seed, repeats = random_state.randint(2**31 - 1), n_repeats(dealing["repeats"], n_rows, once=False)
    kept_share = calibration.size if isinstance(calibration, Split) else 0.0
    row_hash = RowHash(seed, int(model.folds), repeats, kept_share)
    sample = table.survey(row_hash)
    _check_folds(sample, row_hash, table.group)
    if isinstance(calibration, Split):
        check_enough_rows(sample.n_kept, levels, f"calibration='split' keeps {sample.n_kept} of {n_rows} rows")
    model.n_rows_, model.out_of_fold_rows_ = n_rows, sample.numbers.astype(np.int64)
    model.n_ranked_ = n_rows if isinstance(calibration, Cross) else sample.n_kept
    model.source_ = InputSource.of(table.files, model.network, model.interval_network)
    y = sample.targets[:, 0] if model.one_dimensional_ else sample.targets
    read, _ = model.source_.fit(sample.frame, y, model)
    assert model.source_.columns is not None  # a data frame has named columns
    rows = Rows.of(
        read(random_state),
        sample.targets,
        levels=tuple(sorted(levels)),
        folds=[(np.flatnonzero(~out), np.flatnonzero(out)) for out in row_hash.left_out_by(sample.keys)],
        repeats=1,
        calibration=Cross() if isinstance(calibration, Cross) else Uncalibrated(),  # kept rows are not in the sample
        random_state=random_state,
        bounded=model.bounded_,
        unit_range=dealing["unit_range"],
    )
    rows = replace(rows, workers=workers).to(model.training_for(n_rows).device)
    return RowStream(table, row_hash, model.source_.columns, rows, sample.numbers)


def _of_stream(
    calibration: Calibration, stream: RowStream, left_out_estimate: Callable[[Rows], tuple[Tensor, Tensor]]
) -> Calibration:
    """The same calibration, by the scores of all rows."""
    if isinstance(calibration, Cross):
        return StreamedCross(stream=stream, left_out_estimate=left_out_estimate)
    return StreamedSplit(calibration.size, stream=stream) if isinstance(calibration, Split) else calibration


def check_fit(
    model: MatchedRegressor,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None,
    buffer_rows: int,
    n_workers: int,
) -> StreamedTable:
    """Raise whatever `fit_streamed` would raise before it reads a row; the model stays as it is."""
    if not isinstance(model, MatchedRegressor):
        raise TypeError(f"a streamed fit trains a MatchedRegressor, got a {type(model).__name__}")
    if not isinstance(buffer_rows, Integral) or buffer_rows < FEWEST_ROWS:
        raise ValueError(f"buffer_rows must be a whole number of at least {FEWEST_ROWS}, got {buffer_rows!r}")
    lanes_of(replace(ALONE, size=n_workers))
    model.check_params()
    levels_from(model.coverage)
    if not isinstance(model.folds, Integral) or isinstance(model.folds, bool) or model.folds < 2:
        raise ValueError(
            f"a streamed fit deals rows to folds by a hash and needs their number, at least 2, got {model.folds!r}"
        )
    if not isinstance(model.chosen_calibration, Cross | Split | Uncalibrated):
        raise ValueError(
            f"a streamed fit can be calibrated by one of ('cross', 'split', None), got {model.calibration!r}: its "
            "intervals would need the scores of all rows in memory"
        )
    if model.warm_start:
        raise ValueError("a streamed fit starts anew, got warm_start=True; set it to False")
    if is_image_network(model.network):
        raise ValueError("files of tables are read for networks on tables, got one that takes images")
    InputSource.of(files, model.network, model.interval_network)
    if len(files) < FEWEST_ROWS:
        raise ValueError(
            f"a streamed fit needs at least {FEWEST_ROWS} rows, got {len(files)}; read them into a data frame, and fit "
            "that"
        )
    return StreamedTable.of(files, (target,) if isinstance(target, str) else tuple(target), groups)


def _check_folds(sample: Sample, row_hash: RowHash, group: str | None) -> None:
    """Raise unless every member leaves rows of the sample out, and has some to train on."""
    counts = row_hash.left_out_by(sample.keys).sum(axis=1)
    if counts.min() == 0 or counts.max() == len(sample.keys):
        what = "rows" if group is None else f"groups in {group!r}"
        raise ValueError(
            f"folds={row_hash.folds} needs {what} for every fold, but one has none; groups are dealt out by a hash, so "
            "there should be several times as many as folds: give fewer folds"
        )


# Predictions.


class EstimatedPart(NamedTuple):
    """The estimate of each team for some rows."""

    part: Part
    estimates: list[Estimate]


def estimates_of_parts(model: IntervalRegressor, files: TableFiles, *, noise: bool = True) -> Iterator[EstimatedPart]:
    """The estimates of a fitted model for all rows, in order: no more than a part of the table is in memory.

    Parameters
    ----------
    model : estimator
        A fitted one.
    files : TableFiles
        Files with the columns that it was fitted on.
    noise : bool
        As the estimator's own `predict_interval` takes it, where it does.
    """
    check_is_fitted(model)
    fitted = getattr(model, "feature_names_in_", None)
    names = files.columns if fitted is None else [str(name) for name in fitted]
    files.check_has(names, "column that the model was fitted on:")
    for part in files.parts():
        frame = files.read(part, names)
        yield EstimatedPart(part, model.estimates(frame.to_numpy() if fitted is None else frame, noise=noise))


def estimate_files(model: IntervalRegressor, files: TableFiles, *, noise: bool = True) -> list[Estimate]:
    """The same for all rows at once, one estimate for each team; needs memory for a mean and half-widths of each row.

    Parameters
    ----------
    model : estimator
    files : TableFiles
    noise : bool
        As in `estimates_of_parts`.
    """
    by_part = [of_part.estimates for of_part in estimates_of_parts(model, files, noise=noise)]
    return [
        Estimate(np.concatenate([e.mean for e in team]), np.concatenate([e.half_width for e in team]))
        for team in zip(*by_part, strict=True)
    ]
