"""`fit` and predictions for tables that do not fit into memory: what comes out is an ordinary fitted model.

The first pass over the table checks targets and groups, and draws a uniform sample of about 100,000 rows. The sample
alone decides how columns are read, the scaling and range of inputs and targets, the bins of the networks' inputs, and
the measures of every round. Then come the rounds of Algorithm 1, each on the next 262,144 rows from all over the table,
and one pass for the ranks.

Memory holds the networks, the sample, one buffer in single precision, one part of 32,768 rows, and the outputs for
these. In wide tables they have at most 2^24, 2^26 and 2^22 numbers. None of it grows with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from coverwell.calibration import Cross, Estimate, Split, Uncalibrated
from coverwell.estimator import IntervalRegressor, show_round
from coverwell.inputs.parquet import Part, TableFiles
from coverwell.inputs.source import InputSource, is_image_network
from coverwell.options import check_enough_rows, levels_from
from coverwell.paper.algorithm import History, Measures, alternate
from coverwell.regressor import MatchedRegressor
from coverwell.streaming.buffers import BUFFER_ROWS, RowStream, StreamedTable, lanes_of
from coverwell.streaming.ranks import StreamedCross, StreamedSplit
from coverwell.streaming.row_hash import RowHash, seed_of
from coverwell.training.device import few_threads, seeded
from coverwell.training.rows import FEWEST_REPEATS, MOST_REPEATS, REPEATED_ROWS, Rows, Workers

OnRound = Callable[[Measures], None]

FEWEST_ROWS = 500  # with fewer a lane of a batch may be empty; such a table fits into memory


def fit_streamed(
    model: IntervalRegressor,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    buffer_rows: int = BUFFER_ROWS,
    workers: Workers | None = None,
    on_round: OnRound = lambda measures: None,
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
    workers : Workers, optional
        Processes that fit the model together; all of them call this function with the same arguments.
    on_round : function, optional
        Called after every round with its measures, in scaled units.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, polars as pl
    >>> from coverwell import MLP, MatchedRegressor, Schedule
    >>> area = np.random.default_rng(0).uniform(50, 90, size=600)
    >>> model = MatchedRegressor(network=MLP(hidden=4), repeats=1, schedule=Schedule(max_rounds=1), random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     pl.DataFrame({"area": area, "price": 2 * area}).write_parquet(f"{folder}/sales.parquet")
    ...     fit_streamed(model, TableFiles(folder), "price").n_rows_
    600
    """
    if workers is not None:
        lanes_of(workers.rank, workers.size)
        workers = workers if workers.size > 1 else None
    table = check_fit(model, files, target, groups=groups, buffer_rows=buffer_rows)
    assert isinstance(model, MatchedRegressor)
    model.forget()
    try:
        model.one_dimensional_, model.target_names_ = isinstance(target, str), table.targets
        _fit(model, table, buffer_rows, workers, on_round)
    except BaseException:  # Ctrl-C too: unfitted, not broken
        model.forget()
        raise
    return model


def _fit(
    model: MatchedRegressor, table: StreamedTable, buffer_rows: int, workers: Workers | None, on_round: OnRound
) -> None:
    training = model.training_for(len(table.files))
    settings, stream = training.settings, _stream(model, table, workers, training.settings.device)
    sample = stream.sample
    with seeded(sample.seeds[0], settings.device), few_threads(training, sample):
        F, I = training.learners(sample)
        # All workers draw the same weights, but dropout is to silence other units for other rows.
        if workers is not None and workers.rank > 0:
            torch.manual_seed(seed_of(sample.seeds[0], workers.rank))
        with tqdm(total=settings.max_rounds, disable=not model.verbose, desc="rounds", unit="round") as bar:

            def after_round(history: History) -> None:
                show_round(bar, history)
                on_round(history.rounds[-1])

            history = alternate(F, I, training.recipe, stream.buffers(buffer_rows), sample, after_round)
        unit, calibration = history.best[1].unit, model.chosen_calibration
        if isinstance(calibration, Cross):
            estimate = partial(training.estimates_of_members, F, I, unit=unit, left_out=True)
            calibration = StreamedCross(stream=stream, left_out_estimate=estimate)
        elif isinstance(calibration, Split):
            calibration = StreamedSplit(calibration.size, stream=stream)
        trained = training.taken_apart(F, I, sample, unit)
        model.set_fitted(sample, trained, history, slice(0, 1), calibration)


def _stream(model: MatchedRegressor, table: StreamedTable, workers: Workers | None, device: torch.device) -> RowStream:
    """The first pass, and all that is learned from the sample; sets what is known about inputs and rows."""
    random_state, calibration = check_random_state(model.random_state), model.chosen_calibration
    dealing, levels, n_rows = model.dealing(None, random_state), levels_from(model.coverage), len(table.files)
    repeats = int(np.clip(round(REPEATED_ROWS / n_rows), FEWEST_REPEATS, MOST_REPEATS))
    row_hash = RowHash(
        random_state.randint(2**31 - 1),
        int(model.folds),
        repeats if dealing["repeats"] == "auto" else int(dealing["repeats"]),
        kept_share=calibration.size if isinstance(calibration, Split) else 0.0,
    )
    sample, n_kept = table.survey(row_hash)
    left_out = row_hash.left_out_by(sample.keys)
    if not left_out.any(axis=1).all() or left_out.all(axis=1).any():
        what = "rows" if table.group is None else f"groups in {table.group!r}"
        raise ValueError(
            f"folds={row_hash.folds} needs {what} for every fold, but one has none; groups are dealt out by a hash, so "
            "there should be several times as many as folds: give fewer folds"
        )
    if isinstance(calibration, Split):
        check_enough_rows(n_kept, levels, f"calibration='split' keeps {n_kept} of {n_rows} rows")
    model.n_rows_, model.out_of_fold_rows_ = n_rows, sample.numbers.astype(np.int64)
    model.n_ranked_ = n_rows if isinstance(calibration, Cross) else n_kept
    model.source_ = InputSource.of(table.files, model.network, model.interval_network)
    X, _ = model.source_.fit(sample.X, sample.y[:, 0] if model.one_dimensional_ else sample.y, model)
    assert isinstance(X, np.ndarray)  # a table is read already
    assert model.source_.columns is not None  # a data frame has named columns
    rows = Rows.of(
        X,
        sample.y,
        levels=tuple(sorted(levels)),
        folds=[(np.flatnonzero(~out), np.flatnonzero(out)) for out in left_out],
        repeats=1,
        calibration=Cross() if isinstance(calibration, Cross) else Uncalibrated(),  # kept rows are not in the sample
        random_state=random_state,
        bounded=model.bounded_,
        unit_range=dealing["unit_range"],
    )
    sample_rows = replace(rows, workers=workers).to(device)
    return RowStream(table, row_hash, model.source_.columns, sample_rows, sample.numbers)


def check_fit(
    model: IntervalRegressor, files: TableFiles, target: str | Sequence[str], *, groups: str | None, buffer_rows: int
) -> StreamedTable:
    """Raise whatever `fit_streamed` would raise before it reads a row; the model stays as it is."""
    if not isinstance(model, MatchedRegressor):
        raise TypeError(f"a streamed fit trains a MatchedRegressor, got a {type(model).__name__}")
    if not isinstance(buffer_rows, Integral) or buffer_rows < FEWEST_ROWS:
        raise ValueError(f"buffer_rows must be a whole number of at least {FEWEST_ROWS}, got {buffer_rows!r}")
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
    if (n_rows := len(files)) < FEWEST_ROWS:
        raise ValueError(
            f"a streamed fit needs at least {FEWEST_ROWS} rows, got {n_rows}; read them into a data frame, and fit that"
        )
    return StreamedTable.of(files, (target,) if isinstance(target, str) else tuple(target), groups)


def estimates_of_parts(
    model: IntervalRegressor, files: TableFiles, *, noise: bool = True
) -> Iterator[tuple[Part, list[Estimate]]]:
    """The rows of files part by part, in order, each with the estimate of every team; only one part is in memory.

    Parameters
    ----------
    model : fitted estimator
    files : TableFiles
        Files with the columns that it was fitted on.
    noise : bool
        Whether half-widths include the noise of the targets, where an estimator can leave it out.
    """
    check_is_fitted(model)
    fitted = getattr(model, "feature_names_in_", None)
    names = files.columns if fitted is None else [str(name) for name in fitted]
    files.check_has(names, "column that the model was fitted on:")
    for part in files.parts():
        frame = files.read(part, names)
        yield part, model.estimates(frame.to_numpy() if fitted is None else frame, noise=noise)


def estimate_files(model: IntervalRegressor, files: TableFiles, *, noise: bool = True) -> list[Estimate]:
    """The same for all rows at once, one estimate for each team; memory must hold a mean and half-widths per row."""
    by_part = [estimates for _, estimates in estimates_of_parts(model, files, noise=noise)]
    return [
        Estimate(np.concatenate([e.mean for e in team]), np.concatenate([e.half_width for e in team]))
        for team in zip(*by_part, strict=True)
    ]
