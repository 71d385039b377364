"""The runs of Table 2 and Figure 4: a forecaster learns the first part of a series and goes through the rest."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.errors import ExtrapolationWarning
from coverwell.forecasting import Backtest
from coverwell.forecasting.history import causal_fill
from coverwell.forecasting.live import LiveCalibrator
from coverwell.forecasting.windows import calendar_features
from reproduction.data.series import SERIES, load_series
from reproduction.lines import Line
from reproduction.methods import CALENDAR, FIXED_RATE, SERIES_METHODS, Method, series_settings
from reproduction.study import Place, Study

Array = NDArray[np.float64]

COVERAGE = 0.95
GAPPY = ("bike sharing", "beijing pm2.5", "air quality")  # the others have a value at every step
LONELY = ("traffic",)  # nothing was measured beside it
OBSERVED, INTERPOLATED = "observed", "interpolated"
READINGS = (OBSERVED, INTERPOLATED)
TRAIN_SHARE = 0.3  # as in the paper: the first 30 % of the steps
ROLLING = metrics.ROLLING_WINDOW
# What a figure shows: steps of bands, places of a curve, digits of a number.
EXCERPT_STEPS, PATH_POINTS, DIGITS = 336, 200, 6


@dataclass(frozen=True, eq=False)
class Problem:
    """A series to forecast from step `start` on; training sees the steps before it. NaN in y is no target."""

    data: str
    time: NDArray[Any]  # (step,), datetime64
    y: Array  # (step,)
    past_covariates: Array | None  # (step, covariate)
    start: int

    def covariates(self, method: Method, end: int) -> dict[str, Array]:
        """What a method sees beside the series, up to a step."""
        seen = {}
        if CALENDAR[0] in method.covariates:
            seen["covariates"] = calendar_features(self.time, CALENDAR)[:end]
        if "past_covariates" in method.covariates and self.past_covariates is not None:
            seen["past_covariates"] = self.past_covariates[:end]
        return seen

    def clock(self, step: int) -> Line:
        """Where a figure's axis begins, and its step."""
        seconds = int((self.time[1] - self.time[0]) / np.timedelta64(1, "s"))
        return {"start": str(self.time[step].astype("datetime64[s]")), "step_seconds": seconds}


@cache
def problem(data: str, reading: str) -> Problem:
    """One of the series in one of its readings; both have their test period at the same hours.

    "observed" leaves gaps open: they are filled by the value before, and are never targets. "interpolated" puts
    straight lines there, as the paper seems to have done. Both begin with the first value that was measured.
    """
    whole = load_series(data)
    first = int(np.flatnonzero(~np.isnan(whole.y))[0])
    start = int(TRAIN_SHARE * len(whole.y)) - first
    series, kept = (whole, slice(first, None)) if reading == OBSERVED else (whole.interpolated(), slice(None))
    past = series.past_covariates[kept] if series.past_covariate_names else None
    return Problem(data, series.time[kept], series.y[kept], past, start)


def readings_of(data: str, asked: Sequence[str] = READINGS) -> tuple[str, ...]:
    """The readings in which a series is run: one that has no gaps has only one."""
    return tuple(asked) if data in GAPPY else (OBSERVED,)


def stand_in(method: Method, data: str) -> str:
    """The method whose run this one would repeat: another one's where there is nothing beside the series to see."""
    return method.alone if method.alone is not None and data in LONELY else method.slug


@dataclass(frozen=True)
class SeriesStudy(Study):
    """Methods on series in one or both readings of their gaps; a trial is a seed."""

    FILE: ClassVar[str] = "series.jsonl"
    VARIANT: ClassVar[str] = "reading"
    FIELDS: ClassVar[str] = (
        "seed coverage n_train n_test rmse static live rate n_refits rounds fit_seconds backtest_seconds"
    )
    QUICK: ClassVar[Mapping[str, Any]] = {"data": ("tas2016", "air quality")}
    SETTINGS: ClassVar[str] = "series_configuration.json"

    methods: tuple[Method, ...] = SERIES_METHODS
    data: tuple[str, ...] = SERIES
    reading: str | None = None  # both

    @classmethod
    def settings(cls) -> dict[str, Any]:
        return {method.slug: series_settings(method, COVERAGE) for method in SERIES_METHODS}

    def places(self, method: Method) -> Iterator[Place]:
        asked = READINGS if self.reading is None else (self.reading,)
        own = (data for data in self.data if stand_in(method, data) == method.slug)
        return ((data, reading) for data in own for reading in readings_of(data, asked))

    def n_trials(self, method: Method) -> int:
        return 1 if method.model is None else self.trials  # nothing is random in linear ones

    def cost(self, method: Method, place: Place) -> float:
        return method.cost * len(problem(*place).y)

    def measure(self, method: Method, place: Place, trials: Sequence[int]) -> list[Line]:
        posed, (trial,) = problem(*place), trials
        run = self._linear(method, posed) if method.model is None else self._run(method, posed, trial)
        found, started, fitted, ended = run
        sizes = {"n_train": posed.start, "n_test": int((~np.isnan(posed.y[posed.start :])).sum())}
        seconds = {"fit_seconds": round(fitted - started, 3), "backtest_seconds": round(ended - fitted, 3)}
        return [{"coverage": COVERAGE, **sizes, "n_refits": 0, "rounds": 0, **found, **seconds}]

    def _run(self, method: Method, posed: Problem, seed: int) -> tuple[Line, float, float, float]:
        """What a forecaster reaches, and when it started, was fitted and had gone through the test period."""
        forecaster = method.build(COVERAGE, seed, self.device, quick=self.quick)
        started = time.perf_counter()
        forecaster.fit(posed.y[: posed.start], **posed.covariates(method, posed.start))
        fitted = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # the first part of a year has not seen all seasons
            backtest = forecaster.backtest(posed.y, start=posed.start, **posed.covariates(method, len(posed.y)))
        ended = time.perf_counter()
        line = {**_measured(backtest), "rate": forecaster.rate_, "rounds": len(forecaster.rounds_)}
        if forecaster.refit_every is not None:
            line["n_refits"] = (len(backtest) - 1) // forecaster.refit_every
        if method.in_figure:
            line |= {"excerpt": _excerpt(posed, backtest), "rolling": _rolling_path(posed, backtest)}
        return line, started, fitted, ended

    def _linear(self, method: Method, posed: Problem) -> tuple[Line, float, float, float]:
        """The same of a linear forecast, which is calibrated at a fixed rate too."""
        started = time.perf_counter()
        forecast = linear_forecast(posed, method.lags)
        chosen, fixed = (calibrator_of(posed, forecast, COVERAGE, rate=rate) for rate in ("auto", FIXED_RATE))
        fitted = time.perf_counter()
        line = {**_measured(live_backtest(posed, forecast, chosen)), "rate": chosen.rate}
        ended = time.perf_counter()
        line["fixed_rate"] = {"rate": FIXED_RATE, **_measured(live_backtest(posed, forecast, fixed))["live"]}
        return line, started, fitted, ended


def _measured(backtest: Backtest) -> Line:
    static, live = backtest.scores(static=True), backtest.scores()
    rolling = _rolling(backtest)
    for name, scores in (("static", static), ("live", live)):
        scores["worst_rolling_coverage"] = float(rolling[name].min())
    rmse = static.pop("rmse")
    live.pop("rmse")  # the forecasts are the same
    factor = backtest.factor
    return {"rmse": rmse, "static": static, "live": live, "factor_range": [float(factor.min()), float(factor.max())]}


def _rolling(backtest: Backtest) -> dict[str, Array]:
    """The coverage of every 500 values in a row."""
    static = replace(backtest, lower=backtest.static_lower, upper=backtest.static_upper)
    return {"static": static.rolling_coverage(ROLLING), "live": backtest.rolling_coverage(ROLLING)}


def _excerpt(posed: Problem, backtest: Backtest) -> Line:
    """Some steps from the middle of the test period on, as a figure shows them."""
    first = len(backtest) // 2
    rows = slice(first, first + EXCERPT_STEPS)
    shown = {"y": backtest.y[rows, 0], "prediction": backtest.prediction[rows, 0]}
    for name in ("lower", "upper", "static_lower", "static_upper"):
        shown[name] = getattr(backtest, name)[rows, 0, 0]
    return {**posed.clock(posed.start + first), **{name: _rounded(values) for name, values in shown.items()}}


def _rolling_path(posed: Problem, backtest: Backtest) -> Line:
    """The coverage of 500 values in a row through the test period, at about 200 places."""
    ends = np.flatnonzero(~np.isnan(backtest.y[:, 0]))[ROLLING - 1 :]
    chosen = np.unique(np.linspace(0, len(ends) - 1, PATH_POINTS).round().astype(int))
    path = {name: _rounded(shares[chosen]) for name, shares in _rolling(backtest).items()}
    return {**posed.clock(posed.start), "steps": ends[chosen].tolist(), **path}


def _rounded(values: Array) -> list[float | None]:
    """Enough digits for a figure; None where nothing was observed."""
    return [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]


# Linear forecasts, with the same live calibration around them ---------------------------------------------------------


def linear_forecast(posed: Problem, lags: int) -> Array:
    """Least squares of each value on the `lags` values before it, learned before the test period; (step,).

    Without lags, persistence: the value before. NaN where there are not so many values before. Filled values are
    inputs, never targets.
    """
    filled, gaps = causal_fill(posed.y), np.isnan(posed.y)
    if lags == 0:
        return np.concatenate([[np.nan], filled[:-1]])
    centre = filled[: posed.start].mean()
    windows = np.lib.stride_tricks.sliding_window_view(filled - centre, lags)[:-1]  # row t is before step t + lags
    rows = np.column_stack([windows, np.ones(len(windows))])
    learned = ~gaps[lags : posed.start]
    target = posed.y[lags : posed.start] - centre
    weights, *_ = np.linalg.lstsq(rows[: posed.start - lags][learned], target[learned], rcond=None)
    return np.concatenate([np.full(lags, np.nan), rows @ weights + centre])


def calibrator_of(posed: Problem, forecast: Array, coverage: float, *, rate: float | str) -> LiveCalibrator:
    """A calibrator that starts from the residuals of the training part."""
    residuals = (posed.y - forecast)[: posed.start]
    return LiveCalibrator.from_residuals(residuals[~np.isnan(forecast[: posed.start])], coverage, rate=rate)


def live_backtest(posed: Problem, forecast: Array, calibrator: LiveCalibrator) -> Backtest:
    """Forecasts of the test period with intervals that follow the misses, and with the width they started from."""
    test = slice(posed.start, None)
    mean = forecast[test, None]  # (time, step)
    width = np.ones((*mean.shape, 2, 1))  # (time, step, side, level)
    lower, upper, factor = copy.deepcopy(calibrator).run(mean, width, posed.y[test])
    return Backtest(
        stamps=posed.time[test],
        name=posed.data,
        y=posed.y[test, None],
        prediction=mean,
        lower=lower,
        upper=upper,
        static_lower=mean[..., None] - calibrator.factor,
        static_upper=mean[..., None] + calibrator.factor,
        factor=factor,
        levels=(float(np.max(calibrator.coverage)),),
    )
