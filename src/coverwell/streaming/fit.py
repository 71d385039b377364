"""`fit` and predictions for tables that do not fit into memory: what comes out is an ordinary fitted model.

The first pass over the table checks targets and groups, and draws a uniform sample of about 50,000 rows. The sample
alone decides how columns are read, all scalings and bins, and the measures of every round. The companion forests are
grown on it. Then come the rounds of Algorithm 1, each on the next 262,144 rows from all over the table. "local"
calibration learns from the sample and ranks it. For "cross", one more pass counts the scores of all rows in a sketch,
whose factor is never below that of exact ranks, and at most 0.1 % above it (0.3 % with repeats).

Classes are counted in a pass of their own, before the first. The sample then sets their probabilities, thresholds and
ranks, also those of "split".

Memory holds the networks, the sample, one buffer in single precision, one part of 32,768 rows, and the outputs for
these. In wide tables they have at most 2^24, 2^26 and 2^22 numbers. None of it grows with the number of rows.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from coverwell.calibration import (
    ROUNDING,
    Correction,
    Cross,
    Estimate,
    Split,
    check_weights,
    deployed_factor,
    grid_matrix,
    grid_of,
    rows_worth,
    scores_by,
    scores_of,
    weighted_mean,
)
from coverwell.checkpoint import Checkpoint, checkpoint_file, named_in_ctrl_c
from coverwell.classifier import MatchedClassifier, check_classes, labels_of
from coverwell.companions import FOREST, grown_forest
from coverwell.errors import RareClassWarning
from coverwell.estimator import CALIBRATION, CalibratedEstimator, progress_bar, resume_bar, show_round
from coverwell.inputs.parquet import Part, TableFiles
from coverwell.inputs.source import InputSource, is_image_network
from coverwell.local import Local
from coverwell.matched import MatchedEstimator
from coverwell.options import check_enough_rows, check_number, coverage_rank, levels_from, part_from, random_state_from
from coverwell.paper.algorithm import History, Measures, alternate
from coverwell.predictor import FittedTeam
from coverwell.streaming.buffers import (
    BUFFER_ROWS,
    RowHash,
    RowStream,
    SampledForest,
    StreamedTable,
    TableRows,
    lanes_of,
    seed_of,
)
from coverwell.training.device import few_threads, seeded
from coverwell.training.rows import LEFT_BY_ALL, Rows, Workers, auto_repeats

Array = NDArray[np.float64]
OnRound = Callable[[Measures], None]

FEWEST_ROWS = 500  # with fewer a lane of a batch may be empty, and the table fits into memory
# A rank from the sketch lies between the exact one and this much more of it: intervals err on the wide side.
RELATIVE_ERROR = 1e-3
LOG_STEP = math.log1p(RELATIVE_ERROR)
# Scores below the first edge count as the edge; those above the last are known by the largest alone.
SMALLEST, LARGEST = 1e-6, 1e6
N_BINS = math.ceil(math.log(LARGEST / SMALLEST) / LOG_STEP)


def fit_streamed(
    model: CalibratedEstimator,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None = None,
    sample_weight: str | None = None,
    buffer_rows: int = BUFFER_ROWS,
    workers: Workers | None = None,
    on_round: OnRound = lambda measures: None,
    checkpoint: Any = None,
) -> MatchedEstimator:
    """Fit a model on a table in files, of which only a part is in memory at any time; returns the model.

    `out_of_fold_` and `rounds_` are about the sample, whose row numbers, counted from 0 through the files, are
    `out_of_fold_rows_`. `n_rows_` is the number of all rows, `n_ranked_` of those whose ranks set the widths: the
    sample for "local", all for "cross", those that were kept for it for "split", none without calibration. Of
    classes, the sample alone is ranked.

    Parameters
    ----------
    model : MatchedRegressor or MatchedClassifier with a whole number of folds, a calibration other than "cv+", and no
        companion but "forest"
    files : TableFiles
    target : str or sequence of str, the column or columns to predict; one of classes
    groups : str, optional, a column whose values are held out together; it is not a feature
    sample_weight : str, optional, a column that says how much each row counts; it is not a feature
    buffer_rows : int, how many rows a round learns from
    workers : Workers, optional, processes that fit the model together: all of them call this function alike
    on_round : function, optional, called after every round with its measures, in scaled units
    checkpoint : path, optional, as for `MatchedRegressor.fit`; one that all workers see

    Examples
    --------
    >>> import numpy as np, polars as pl, tempfile
    >>> from coverwell import MLP, MatchedRegressor, Schedule
    >>> model = MatchedRegressor(network=MLP(hidden=4), repeats=1, schedule=Schedule(max_rounds=1), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pl.DataFrame({"area": np.sin(range(600)), "price": range(600)}).write_parquet(f"{folder}/sales.parquet")
    ...     fit_streamed(model, TableFiles(folder), "price").n_rows_
    600
    """
    if workers is not None:
        lanes_of(workers.rank, workers.size)
        workers = workers if workers.size > 1 else None
    columns: dict[str, Any] = {"groups": groups, "sample_weight": sample_weight}
    table = check_fit(model, files, target, **columns, buffer_rows=buffer_rows)
    assert isinstance(model, MatchedEstimator)
    file = checkpoint_file(checkpoint, model)
    model.forget()
    try:
        model.one_dimensional_ = isinstance(target, str) or isinstance(model, MatchedClassifier)
        model.target_names_ = table.targets
        with progress_bar(model.verbose, "first pass") as bar, named_in_ctrl_c(file):
            stream, kept = _stream(model, table, workers, bar), None
            if file is not None:
                given = {"target": target, **columns, "buffer_rows": buffer_rows}
                size = 1 if workers is None else workers.size
                kept = Checkpoint(file, [model], stream.sample, files=files.paths, workers=size, **given)
            _learn(model, stream, buffer_rows, on_round, bar, kept)
    except BaseException:  # Ctrl-C too: unfitted, not broken
        model.forget()
        raise
    return model


def _learn(
    model: MatchedEstimator,
    stream: RowStream,
    buffer_rows: int,
    on_round: OnRound,
    bar: Any,
    checkpoint: Checkpoint | None,
) -> None:
    training, sample, workers = model.training_for(len(stream.table.files)), stream.sample, stream.sample.workers
    settings = training.settings
    with seeded(sample.seeds[0], settings.device), few_threads(training, sample):
        F, I = training.learners(sample)
        # All workers draw the same weights, but dropout is to silence other units for other rows.
        if workers is not None and workers.rank > 0:
            torch.manual_seed(seed_of(sample.seeds[0], workers.rank))
        n_rounds = 0 if checkpoint is None else checkpoint.n_rounds
        resume_bar(bar, n_rounds)
        buffers = stream.buffers(buffer_rows, first=n_rounds)

        def after_round(history: History) -> None:
            show_round(bar, history)
            on_round(history.rounds[-1])

        history = alternate(F, I, training.recipe, buffers, sample, after_round, checkpoint=checkpoint)
        bar.set_description_str(CALIBRATION)
        unit, calibration = history.best[1].unit, model.chosen_calibration
        if _ranks_all(model):
            estimate = partial(training.estimates_of_members, F, I, unit=unit, left_out=True)
            calibration = StreamedRanks(stream, estimate)
        elif isinstance(calibration, Split) and sample.score is None:
            calibration = StreamedRanks(stream)
        trained = training.taken_apart(F, I, sample, unit)
        model.set_fitted(sample, trained, history, slice(0, 1), calibration)
        model.search_slices(stream.shown, sample)
        bar.set_description_str(f"{bar.n} round{'s' * (bar.n > 1)}")


def _ranks_all(model: MatchedEstimator) -> bool:
    """Whether all rows are ranked: what local calibration and classifiers learn from the sample is ranked on it."""
    calibration, classifies = model.chosen_calibration, isinstance(model, MatchedClassifier)
    return isinstance(calibration, Cross) and not (classifies or isinstance(calibration, Local))


def _with_classes(model: MatchedClassifier, table: StreamedTable, workers: Workers | None) -> StreamedTable:
    """The table with the classes of its target; sets `classes_`."""
    counts = table.class_counts(workers)
    model.classes_, first = np.unique(labels_of(np.array(list(counts), dtype=object)), return_index=True)
    check_classes(model.classes_, np.array(list(counts.values()))[first])
    return replace(table, classes=model.classes_)


def _check_sampled(classes: NDArray[Any], y: Array) -> None:
    """Raise unless the sample, y (row, class), has two of the classes; warn of one that it lacks."""
    there = y.any(axis=0)
    if lacking := classes[~there].tolist():
        more = f", nor of {len(lacking) - 1} more" if len(lacking) > 1 else ""
        line = f"the sample of {len(y):,} rows that sets probabilities and sets has none of class {lacking[0]!r}{more}"
        if there.sum() < 2:
            raise ValueError(f"{line}; two classes are needed there: read more rows of it into memory, and fit on them")
        warnings.warn(f"{line}: it may be in too few sets; join rare classes", RareClassWarning, stacklevel=5)


def _stream(model: MatchedEstimator, table: StreamedTable, workers: Workers | None, bar: Any) -> RowStream:
    """The first pass, and all that is learned from the sample; sets what is known about inputs and rows."""
    random_state, calibration = random_state_from(model.random_state), model.chosen_calibration
    if isinstance(model, MatchedClassifier):
        table = _with_classes(model, table, workers)
    dealing, levels, n_rows = model.dealing(None, random_state), levels_from(model.coverage), len(table.files)
    row_hash = _dealt(model, table, dealing["repeats"], random_state)
    given, *worth = table.survey(row_hash, workers)
    n_counted, n_kept = (int(n + ROUNDING) for n in worth)
    kept = row_hash.kept(given.keys)
    sample = given.at(~kept)
    weight = None if table.weight is None else sample.weight
    left_out = row_hash.left_out_by(sample.keys)
    if not left_out.any(axis=1).all() or left_out.all(axis=1).any():
        needed = "rows" if table.group is None else f"groups in {table.group!r}"
        dealt = "a hash deals them out, so there should be several times as many as folds"
        raise ValueError(f"folds={row_hash.folds} needs {needed} for every fold, but one has none; {dealt}")
    if table.classes is not None:
        _check_sampled(table.classes, sample.y)
        n_kept = rows_worth(given.weight[kept])
    if isinstance(calibration, Split):
        check_enough_rows(n_kept, levels, f"calibration='split' keeps {n_kept} of {n_rows} rows")
    model.n_rows_, model.out_of_fold_rows_ = n_rows, given.numbers.astype(np.int64)
    model.n_ranked_ = n_counted if _ranks_all(model) else n_kept
    if isinstance(calibration, Cross) and not _ranks_all(model):
        model.n_ranked_ = rows_worth(sample.weight)
    if weight is not None:
        model.n_effective_ = worth[0]
    model.source_ = InputSource.of(model.network, model.interval_network)
    y = given.y if table.classes is None else given.y.argmax(axis=1)
    read, _ = model.source_.fit(given.X, y[:, 0] if y.ndim == 2 and model.one_dimensional_ else y, model)
    assert isinstance(read, np.ndarray)  # a table is read already
    assert model.source_.columns is not None  # a data frame has named columns
    model.check_groups(read)
    X = read[~kept]
    folds = [(np.flatnonzero(~out), np.flatnonzero(out)) for out in left_out]
    # Kept rows are not dealt out: only "cross" ranks rows of folds.
    ranked = calibration if isinstance(calibration, Cross) else part_from("calibration", None, object)
    known: dict[str, Any] = {"random_state": random_state, "bounded": model.bounded_, "weight": weight}
    known |= {"calibration": ranked, "unit_range": dealing["unit_range"], "score": dealing.get("score")}
    rows = Rows.of(X, sample.y, levels=tuple(sorted(levels)), folds=folds, repeats=1, **known)
    check_weights(ranked, rows)
    bar.set_description_str("companions")
    forests, found = _forests(model, X, sample, rows.seeds[0], weight)
    if forests:
        beside = rows.targets[0](torch.from_numpy(np.stack(found, axis=1))).to(rows.y)[None]
        rows = replace(rows, beside=beside, companions=[[forest.trees for forest in forests]])
    if kept.any():
        known = {"given_weight": None if weight is None else given.weight, "held_back": [np.flatnonzero(kept)]}
        rows = replace(rows, given=(read, given.y), **known)
    rows = replace(rows, workers=workers, units=[None if table.group is None else sample.keys])
    rows = rows.to(model.training_for(n_rows).settings.device)
    return RowStream(table, row_hash, model.source_.columns, rows, sample.numbers, n_kept, forests, given.X)


def _dealt(model: MatchedEstimator, table: StreamedTable, repeats: int | str, random_state: Any) -> RowHash:
    """Who trains on which row."""
    calibration, by_all = model.chosen_calibration, 0.0
    if repeats == "auto":
        repeats = auto_repeats(len(table.files))
        if repeats == 1 and isinstance(calibration, Cross) and not _ranks_all(model):
            by_all = LEFT_BY_ALL / min(len(table.files), table.sample_size)
    kept_share = calibration.size if isinstance(calibration, Split) else 0.0
    return RowHash(random_state.randint(2**31 - 1), int(model.folds), int(repeats), kept_share, by_all)


def _forests(
    model: MatchedEstimator, X: Array, sample: TableRows, seed: int, weight: Array | None
) -> tuple[list[SampledForest], list[Array]]:
    """The companions, and what they predict for the sample out of bag, (row, target) each."""
    forests, found = [], []
    units, first = np.unique(sample.keys, return_index=True)
    classes = isinstance(model, MatchedClassifier)
    for number in range(len(model.companions)):
        trees, out_of_bag, in_bag = grown_forest(X, sample.y, sample.keys, seed + number, weight, classes=classes)
        forests.append(SampledForest(trees, in_bag[:, first], units, weighted_mean(sample.y, weight, axis=0)))
        found.append(out_of_bag)
    return forests, found


def check_fit(
    model: CalibratedEstimator,
    files: TableFiles,
    target: str | Sequence[str],
    *,
    groups: str | None,
    buffer_rows: int,
    sample_weight: Any = None,
) -> StreamedTable:
    """Raise whatever `fit_streamed` would raise before it reads a row; the model stays as it is."""
    if not isinstance(model, MatchedEstimator):
        kinds, way_out = "a MatchedRegressor or MatchedClassifier", "fit it on rows in memory, as a sample of the files"
        raise TypeError(f"a streamed fit trains {kinds}, got a {type(model).__name__}; {way_out}")
    check_number("buffer_rows", buffer_rows, least=FEWEST_ROWS, whole=True)
    model.check_params()
    levels_from(model.coverage)
    check_number("folds of a streamed fit", model.folds, least=2, whole=True)
    if not isinstance(model.chosen_calibration, Cross | Split) and model.chosen_calibration.name is not None:
        others = f"got {model.calibration!r}: it would need the scores of all rows in memory"
        raise ValueError(f"a streamed fit can be calibrated by one of ('local', 'cross', 'split', None), {others}")
    for choice in model.companions:
        if choice != FOREST:
            way_out = "leave it out, or read a sample into memory"
            raise ValueError(f"a companion of a streamed fit must be {FOREST!r}, got {choice!r}; {way_out}")
    if model.warm_start:
        raise ValueError("a streamed fit starts anew, got warm_start=True; set it to False")
    if is_image_network(model.network):
        raise ValueError("files of tables are read for networks on tables, got one that takes images")
    InputSource.of(model.network, model.interval_network)
    if (n := len(files)) < FEWEST_ROWS:
        raise ValueError(f"a streamed fit needs at least {FEWEST_ROWS} rows, got {n}; read them into a data frame")
    if not (sample_weight is None or isinstance(sample_weight, str)):
        raise TypeError(f"sample_weight of a streamed fit must name a column, got a {type(sample_weight).__name__}")
    targets, classify = (target,) if isinstance(target, str) else tuple(target), isinstance(model, MatchedClassifier)
    return StreamedTable.of(files, targets, groups, sample_weight, classify=classify)


class ScoreSketch:
    """Counts of non-negative scores in logarithmic bins: 0.2 MB a target and level for any number of scores.

    Behind the targets, boxes count as another one: by the largest score of a row, each in its `unit` (target, level).
    If `weighted`, scores count by the weights of their rows.
    """

    def __init__(self, unit: Array, *, weighted: bool = False) -> None:
        self.unit, self.weighted, shape = unit, weighted, (len(unit) + 1, unit.shape[1])
        self.counts = np.zeros((*shape, N_BINS + 2), dtype=np.float64 if weighted else np.int64)
        self.largest, self.sums = np.zeros(shape), np.zeros(2, dtype=self.counts.dtype)  # of weights and their squares

    def add(self, scores: Array, weight: Array | None = None) -> None:
        """Count scores (row, target, level)."""
        if not (np.isfinite(scores).all() and (scores >= 0).all()):
            raise ValueError("scores must be finite and not negative; look for extreme values in the targets")
        scores = np.concatenate([scores, (scores / self.unit).max(axis=1, keepdims=True)], axis=1)
        with np.errstate(divide="ignore"):  # a score of zero belongs to the first bin
            place = np.ceil(np.log(scores / SMALLEST) / LOG_STEP)
        bins = np.clip(place, 0, N_BINS + 1).astype(np.int64)
        for target, level in np.ndindex(self.largest.shape):
            self.counts[target, level] += np.bincount(bins[:, target, level], weight, minlength=N_BINS + 2)
        self.largest = np.maximum(self.largest, scores.max(axis=0, initial=0.0))
        self.sums += len(scores) if weight is None else (weight.sum(), np.square(weight).sum())

    def factor(self, levels: tuple[float, ...], workers: Workers | None = None) -> Array:
        """The score of each level's rank among all workers' scores, (target, level): at least the exact one.

        It is at most `RELATIVE_ERROR` of the exact one above it, and never above the largest score, except for scores
        below 1e-6, which count as that, and above 1e6, which count as the largest.
        """
        counts, largest, sums = self.counts, self.largest, self.sums
        if workers is not None:
            counts, sums = (one.numpy() for one in workers.summed([torch.from_numpy(counts), torch.from_numpy(sums)]))
            of_all = workers.together(torch.from_numpy(largest.reshape(-1, 1)))
            largest = of_all.amax(dim=1).numpy().reshape(largest.shape)
        total = sums[0]
        n_effective = total * (total / sums[1])
        ranks = np.array([coverage_rank(level, int(n_effective + ROUNDING)) for level in levels])
        if self.weighted:  # as in `rank_factor`
            ranks = total * (np.array(levels) * (1 + 1 / n_effective) - ROUNDING)
        bins = (counts.cumsum(axis=-1) >= ranks[:, None]).argmax(axis=-1)
        # A score on an edge may round into either bin; the next double above the edge is above both.
        edges = np.where(bins > N_BINS, np.inf, SMALLEST * np.exp(LOG_STEP * bins) * (1 + 1e-12))
        return np.minimum(edges, np.maximum(largest, SMALLEST))


@dataclass(frozen=True)
class StreamedRanks(Cross):
    """Ranks of the out-of-fold scores of all rows or, without `left_out_estimate`, of the scores of those kept for it.

    Each worker counts the scores of a share of the parts.
    """

    stream: RowStream
    left_out_estimate: Callable[[Rows], tuple[Tensor, Tensor]] | None = None  # of members, (member, place, ...)

    def correction(self, teams: Sequence[FittedTeam], rows: Rows, members: Estimate | None) -> Correction:
        levels, row_hash = rows.levels[0], self.stream.row_hash
        grid = grid_of(levels, self.stream.n_kept)
        unit = np.ones((rows.y.shape[-1], len(grid)))
        if self.left_out_estimate is not None:
            of_sample = super().correction(teams, rows, members)
            assert of_sample.factor is not None  # it is that of ranks
            # Targets of a box are compared in units of the sample's factor: that of all rows is not known yet.
            grid, unit = of_sample.levels, np.maximum(of_sample.factor.numpy(), SMALLEST)  # without noise it is zero
        expand = grid_matrix(levels, grid)
        weighted = rows.weight is not None
        ranked, singles = ScoreSketch(unit, weighted=weighted), ScoreSketch(unit, weighted=weighted)
        for part in self.stream.own_parts():
            weight = part.weight if weighted else None
            if self.left_out_estimate is not None:
                y, estimate = self.out_of_fold(part, teams[0].weights)
                estimate = Estimate(estimate.mean, estimate.half_width @ expand)
                ranked.add(scores_of(y, Estimate(estimate.mean.mean(axis=0), estimate.half_width.mean(axis=0))), weight)
                own = None if weight is None else np.tile(weight, row_hash.repeats)
                singles.add(scores_of(y, estimate).reshape(-1, *unit.shape), own)
            elif (kept := row_hash.kept(part.keys)).any():
                own = None if weight is None else weight[kept]
                ranked.add(scores_by(teams[0], part.X[kept], part.y[kept], expand), own)
        factor, repeats = ranked.factor(grid, rows.workers), row_hash.repeats
        if self.left_out_estimate is not None and repeats > 1:
            # At most the exact one: the larger, the smaller the result.
            single = singles.factor(grid, rows.workers) / (1 + RELATIVE_ERROR)
            factor = deployed_factor(factor, single, n_left_out=float(repeats), n_members=repeats * row_hash.folds)
        return Correction(levels, grid, factor[:-1], unit * factor[-1], expand=expand)

    def out_of_fold(self, part: TableRows, weights: Tensor | None = None) -> tuple[Array, Estimate]:
        """Targets, and the estimates of the members that leave a row out, one in each repeat: (repeat, row, ...).

        `weights` are those of the networks and their companions, (part, target).
        """
        assert self.left_out_estimate is not None  # asked for "cross" alone
        (x, y), row_hash, sample = self.stream.scaled(part.X, part.y), self.stream.row_hash, self.stream.sample
        leaves_out = torch.from_numpy(row_hash.left_out_by(part.keys))[None]
        rows = Rows(x[None].float(), y[None].float(), ~leaves_out, leaves_out, sample.coverage).to(sample.y.device)
        by_repeat = []
        for outputs in self.left_out_estimate(rows):
            values = np.empty((row_hash.repeats, len(y), *outputs.shape[2:]))
            for member, left_out in enumerate(leaves_out[0].numpy()):
                own = outputs[member, : left_out.sum()]
                values[member // row_hash.folds, left_out] = own.double().cpu().numpy()
            by_repeat.append(values)
        mean, half_width = by_repeat
        if weights is not None and (beside := self.stream.beside(part.X, part.keys)) is not None:
            shares = weights.cpu().numpy()
            mean = shares[0] * mean + np.einsum("ct,rct->rt", shares[1:], beside.numpy())
        return y.numpy(), Estimate(mean, half_width)


def estimates_of_parts(
    model: CalibratedEstimator, files: TableFiles, *, noise: bool = True
) -> Iterator[tuple[Part, list[Estimate]]]:
    """The rows of files part by part, in order, each with the estimate of every team; only one part is in memory.

    Parameters
    ----------
    model : fitted estimator
    files : TableFiles, with the columns that it was fitted on
    noise : bool, whether half-widths include the noise of the targets, where an estimator can leave it out
    """
    check_is_fitted(model)
    fitted = getattr(model, "feature_names_in_", None)
    names = files.columns if fitted is None else [str(name) for name in fitted]
    files.check_has(names, "column that the model was fitted on:")
    for part in files.parts():
        frame = files.read(part, names)
        yield part, model.estimates(frame.to_numpy() if fitted is None else frame, noise=noise)


def estimate_files(model: CalibratedEstimator, files: TableFiles, *, noise: bool = True) -> list[Estimate]:
    """The estimates of all rows at once, one for each team; memory must hold a mean and half-widths per row."""
    by_part = [estimates for _, estimates in estimates_of_parts(model, files, noise=noise)]
    teams = [[(one.mean, one.half_width) for one in team] for team in zip(*by_part, strict=True)]
    return [Estimate(*map(np.concatenate, zip(*team, strict=True))) for team in teams]
