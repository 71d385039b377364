"""What evaluation, plots and reports read of a fitted model: the only place that knows its attributes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from coverwell.baselines.training import EPOCHS_PER_ROUND
from coverwell.estimator import IntervalRegressor
from coverwell.forecasting import Backtest
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import History, read_history
from coverwell.inputs.frames import as_times, columns_of, is_frame, read
from coverwell.inputs.source import ImageSource
from coverwell.paper.algorithm import Round
from coverwell.training.device import device_from

Array = NDArray[np.float64]
Column = NDArray[Any]

KINDS = {"numbers": "numbers", "booleans": "true or false", "text": "categories", "times": "dates and times"}
RECORDED = ("calibration", "random_state", "folds", "repeats")


@dataclass(frozen=True, eq=False)
class ModelDescription:
    """A fitted model as an evaluation or a report describes it."""

    model: IntervalRegressor | SeriesForecaster = field(repr=False)
    regressor: IntervalRegressor = field(repr=False)  # the model, or the one inside a forecaster
    name: str  # of its class
    levels: tuple[float, ...]  # the fitted ones, rising
    target_names: tuple[str, ...]  # a forecaster's targets are its steps ahead
    n_ranked: int | None  # of how many rows the ranks set the widths, where that is known
    n_trained: int | None  # rows of the fit, where that is known
    rounds: Sequence[Round]  # the record of the training
    is_ranked: bool  # whether ranks of training rows set the widths
    has_joint: bool  # whether there are intervals for all targets together
    leaves_out: bool  # whether the record was measured on rows that the networks did not train on
    epochs: int | None  # in a round of a single network
    parameters: Mapping[str, str]
    device: str
    boxes: bool  # whether its targets are boxes in images
    takes: str = "table"  # or "images", or "series"
    columns: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # of a data frame: their kinds and gaps
    dropped: tuple[str, ...] = ()  # columns that were left out, with the reason
    live: bool = False  # whether a forecaster's widths follow its misses
    step: str = ""  # of a series, in words
    seen: Mapping[str, Array] = field(default_factory=dict)  # the series and its covariates so far

    @property
    def by_round(self) -> tuple[Array, Array, Array]:
        """Error (round, target), coverage and width (round, target, level) of the training, before calibration."""
        shape, names = (len(self.rounds), len(self.target_names), -1), ("rmse", "coverage", "width")
        rmse, coverage, width = (np.array([getattr(one, name) for one in self.rounds]).reshape(shape) for name in names)
        return rmse[..., 0], coverage, width

    def features(self, X: Any, names: Sequence[str] | None = None) -> dict[str, Column]:
        """The features of a table by name, as numbers, times or texts; NaN, NaT or None where a value is missing."""
        if self.takes != "table":
            return {}
        if is_frame(X):
            given = columns_of(X)
            return {name: _column(given[name]) for name in self.columns or given}
        if names is None:
            n_features = self.model.n_features_in_
            names = getattr(self.model, "feature_names_in_", [f"column {place}" for place in range(n_features)])
        return {str(name): column for name, column in zip(names, np.asarray(X, dtype=np.float64).T, strict=True)}

    def input_range(self, X: Any) -> tuple[list[str], Array, Array, Array, Array, Array]:
        """The inputs of the networks for a table: names, rows (row, input); mean, deviation and range of the fit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the predictions have warned of the same
            rows = self.regressor.source_.rows(X, self.regressor)
        names = self.regressor.source_.names or [f"column {place}" for place in range(rows.shape[1])]
        predictor = self.regressor.predictor_
        scalings = [(team.inputs.centre.cpu(), team.inputs.spread.cpu()) for team in predictor.fitted_teams]
        mean, deviation = (np.mean([np.asarray(one) for one in some], axis=0) for some in zip(*scalings, strict=True))
        low, high = (np.asarray(end.cpu()) for end in (predictor.inputs.low, predictor.inputs.high) if end is not None)
        return list(names), rows, mean, deviation, low, high

    def backtest(
        self, series: Any, start: Any, covariates: Any, past_covariates: Any
    ) -> tuple[Backtest, dict[str, Array], int]:
        """Live operation over a period, its series and covariates, and how many of its steps the model had seen."""
        model = self.model
        assert isinstance(model, SeriesForecaster)
        backtest = model.backtest(series, start, covariates=covariates, past_covariates=past_covariates)
        given = read_history(series, covariates, past_covariates, calendar=model.calendar, missing=model.missing)
        first = backtest.index[0]
        n_seen = max(0, len(model.history_) - model.history_.clock.position(first))
        period = slice(given.clock.position(first), len(given))
        return backtest, _series_columns(given, period), min(len(backtest), n_seen)


def describe(model: object) -> ModelDescription:
    """Read a fitted regressor or forecaster; TypeError for anything else."""
    if not isinstance(model, IntervalRegressor | SeriesForecaster):
        raise TypeError(f"expected a fitted regressor or forecaster, got {type(model).__name__}")
    check_is_fitted(model)
    regressor: IntervalRegressor = model.regressor_ if isinstance(model, SeriesForecaster) else model
    source, correction = regressor.source_, regressor.predictor_.correction
    about: dict[str, Any] = {"target_names": regressor.target_names_, "n_ranked": _n_ranked(regressor)}
    if isinstance(model, SeriesForecaster):
        history, steps = model.history_, range(1, model.windows_.horizon + 1)
        about |= {"takes": "series", "live": bool(model.live), "step": history.clock.step_in_words()}
        about["target_names"] = tuple(f"{history.name}, {k} step{'s' * (k > 1)} ahead" for k in steps)
        about["n_ranked"] = None  # live calibration moves on from the ranks
        about["seen"] = _series_columns(history, slice(0, len(history)))
    elif isinstance(source, ImageSource):
        about["takes"] = "images"
    elif source.columns is not None:
        about["columns"] = {c.name: (KINDS[c.kind], c.n_missing) for c in source.columns.columns}
        about["dropped"] = tuple(f"{name} ({reason})" for name, reason in source.columns.dropped)
    return ModelDescription(
        model,
        regressor,
        type(model).__name__,
        regressor.predictor_.levels,
        n_trained=_n_trained(regressor),
        rounds=regressor.rounds_,
        is_ranked=regressor.chosen_calibration.name is not None,
        has_joint=correction.joint_factor is not None or correction.n_scores > 0,
        leaves_out=getattr(regressor, "folds", 0) is not None,
        epochs=EPOCHS_PER_ROUND if regressor.rounds_[0].interval_loss is None else None,
        parameters={name: str(getattr(regressor, name)) for name in RECORDED if hasattr(regressor, name)},
        device=str(device_from(regressor.device)),
        boxes=source.mirroring is not None and source.mirroring.targets == "boxes",
        **about,
    )


def _n_ranked(model: IntervalRegressor) -> int | None:
    """How many training rows' ranks set the widths; None if no ranks did, or if the model does not know."""
    if (of_stream := getattr(model, "n_ranked_", None)) is not None:
        return of_stream or None
    if scores := model.predictor_.correction.scores:
        return sum(len(part) for part in scores)
    known, calibration = model.out_of_fold_, model.chosen_calibration.name
    if known is None or calibration is None:
        return None
    left_out = int((~np.isnan(known.prediction[:, 0])).sum())
    return left_out if calibration == "cross" else len(known.prediction) - left_out


def _n_trained(model: IntervalRegressor) -> int | None:
    """How many rows the model was fitted on, where it knows."""
    if (of_stream := getattr(model, "n_rows_", None)) is not None:
        return int(of_stream)
    if model.out_of_fold_ is not None:
        return len(model.out_of_fold_.prediction)
    return model.source_.columns.n_rows or None if model.source_.columns is not None else None


def _series_columns(history: History, steps: slice) -> dict[str, Array]:
    """The series and its covariates by name; a covariate with the name of another says what it is."""
    columns = {history.name: history.values[steps]}
    for names, table in ((history.past_names, history.past), (history.ahead_names, history.ahead)):
        for place, name in enumerate(names):
            columns[name if name not in columns else f"{name} (covariate)"] = table[steps, place]
    return columns


def _column(series: nw.Series[Any]) -> Column:
    values = read(series)
    values = as_times(values) or values
    if values.kind == "booleans":
        column: Column = np.where(values.array > 0, "true", "false").astype(object)
    else:
        column = values.array.astype(object) if values.kind == "text" else values.array.copy()
    nothing: dict[str | None, Any] = {"times": np.datetime64("NaT"), "booleans": None, "text": None}
    column[values.missing] = nothing.get(values.kind, np.nan)
    return column
