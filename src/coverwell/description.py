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


@dataclass(frozen=True)
class TableColumn:
    """A column of the training rows."""

    name: str
    kind: str  # numbers, true or false, categories, or dates and times
    n_missing: int


@dataclass(frozen=True, eq=False)
class InputRange:
    """The inputs of the networks: their names, some rows, and what the model keeps of the training rows."""

    names: list[str]
    rows: Array  # (row, input)
    mean: Array  # (input,), over the training rows as all below
    deviation: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class ModelDescription:
    """A fitted model as an evaluation or a report describes it."""

    model: IntervalRegressor | SeriesForecaster = field(repr=False)
    name: str  # of its class
    takes: str  # "table", "images" or "series"
    levels: tuple[float, ...]  # the fitted ones, rising
    target_names: tuple[str, ...]  # a forecaster's targets are its steps ahead
    is_ranked: bool  # whether ranks of training rows set the widths
    n_ranked: int | None  # of how many rows, where that is known
    n_trained: int | None  # rows of the fit, where that is known
    has_joint: bool  # whether there are intervals for all targets together
    rounds: Sequence[Round]  # the record of the training
    leaves_out: bool  # whether it was measured on rows that the networks did not train on
    epochs: int | None  # in a round of a single network
    parameters: Mapping[str, str]
    device: str
    columns: tuple[TableColumn, ...] = ()  # of a data frame in training
    dropped: tuple[str, ...] = ()  # columns that were left out, with the reason
    boxes: bool = False  # whether its targets are boxes in images
    live: bool = False  # whether a forecaster's widths follow its misses
    step: str = ""  # of a series, in words
    seen: Mapping[str, Array] = field(default_factory=dict)  # the series and its covariates so far

    @property
    def by_round(self) -> tuple[Array, Array, Array]:
        """Error (round, target), coverage and width (round, target, level) of the training, before calibration."""
        shape = (len(self.rounds), len(self.target_names), -1)
        rmse, coverage, width = (
            np.array([getattr(one, name) for one in self.rounds]).reshape(shape)
            for name in ("rmse", "coverage", "width")
        )
        return rmse[..., 0], coverage, width

    def predict(self, X: Any) -> tuple[Array, Array, Array]:
        """Predictions (row, target) and both bounds (row, target, level); the networks run once."""
        predicted = _regressor(self.model).predict_all(X)
        return predicted.mean, predicted.lower, predicted.upper

    def features(self, X: Any, names: Sequence[str] | None = None) -> dict[str, Column]:
        """The features of a table by name, as numbers, times or texts; NaN, NaT or None where a value is missing."""
        if self.takes != "table":
            return {}
        if is_frame(X):
            given = columns_of(X)
            return {name: _column(given[name]) for name in [column.name for column in self.columns] or given}
        if names is None:
            n_features = self.model.n_features_in_
            names = getattr(self.model, "feature_names_in_", [f"column {place}" for place in range(n_features)])
        return {str(name): column for name, column in zip(names, np.asarray(X, dtype=np.float64).T, strict=True)}

    def input_range(self, X: Any) -> InputRange | None:
        """The inputs that the networks get for these rows, beside those of the training; None where none are kept."""
        regressor = _regressor(self.model)
        if self.takes != "table":
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the predictions have warned of the same
            rows = regressor.source_.rows(X, regressor)
        names = regressor.source_.names or [f"column {place}" for place in range(rows.shape[1])]
        scalings, seen = [team.inputs for team in regressor.predictor_.fitted_teams], regressor.predictor_.inputs
        mean, deviation = (
            np.mean([getattr(scaling, part).cpu().numpy() for scaling in scalings], axis=0)
            for part in ("centre", "spread")
        )
        low, high = (np.asarray(bound.cpu()) for bound in (seen.low, seen.high) if bound is not None)
        return InputRange(list(names), rows, mean, deviation, low, high)

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
    regressor = _regressor(model)
    source, correction = regressor.source_, regressor.predictor_.correction
    takes_images = isinstance(source, ImageSource)
    special: dict[str, Any] = {}
    if isinstance(model, SeriesForecaster):
        history = model.history_
        steps = range(1, model.windows_.horizon + 1)
        special = {
            "takes": "series",
            "target_names": tuple(f"{history.name}, {k} step{'s' * (k > 1)} ahead" for k in steps),
            "n_ranked": None,  # live calibration moves on from the ranks
            "live": bool(model.live),
            "step": history.clock.step_in_words(),
            "seen": _series_columns(history, slice(0, len(history))),
        }
    elif source.columns is not None:
        columns = [TableColumn(c.name, KINDS[c.kind], c.n_missing) for c in source.columns.columns]
        dropped = [f"{name} ({reason})" for name, reason in source.columns.dropped]
        special = {"columns": tuple(columns), "dropped": tuple(dropped)}
    common: dict[str, Any] = {
        "takes": "images" if takes_images else "table",
        "levels": regressor.predictor_.levels,
        "target_names": regressor.target_names_,
        "is_ranked": regressor.chosen_calibration.name is not None,
        "n_ranked": _n_ranked(regressor),
        "n_trained": _n_trained(regressor),
        "has_joint": correction.joint_factor is not None or correction.n_scores > 0,
        "rounds": regressor.rounds_,
        "leaves_out": getattr(regressor, "folds", 0) is not None,
        "epochs": EPOCHS_PER_ROUND if regressor.rounds_[0].interval_loss is None else None,
        "parameters": {name: str(getattr(regressor, name)) for name in RECORDED if hasattr(regressor, name)},
        "device": str(device_from(regressor.device)),
        "boxes": source.mirroring is not None and source.mirroring.targets == "boxes",
    }
    return ModelDescription(model, type(model).__name__, **{**common, **special})


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
    columns = model.source_.columns
    return columns.n_rows if columns is not None and columns.n_rows else None


def _regressor(model: IntervalRegressor | SeriesForecaster) -> IntervalRegressor:
    regressor: IntervalRegressor = model.regressor_ if isinstance(model, SeriesForecaster) else model
    return regressor


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
