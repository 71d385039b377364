"""The runs of Table 2: a forecaster learns the first part of a series, goes through the rest, and a line says how."""

from __future__ import annotations

import time
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.experiments.linear_forecasts import autoregression, calibrator_of, last_value, live_backtest
from coverwell.experiments.results import FORMAT, Line, environment
from coverwell.experiments.series_data import LONELY, READINGS, Problem, problem, readings_of
from coverwell.experiments.series_methods import COVERAGE, FIXED_RATE, Linear, Networks, SeriesMethod
from coverwell.forecasting.backtest import Backtest

__all__ = ["SERIES_FIELDS", "SERIES_KEY", "SeriesGrid", "SeriesUnit", "line_of"]

Array = NDArray[np.float64]

SERIES_KEY = ("method", "data", "reading", "trial")  # no two lines of a file agree in all of these
SERIES_FIELDS = (
    *("format", *SERIES_KEY, "seed", "coverage", "n_train", "n_test", "rmse", "static", "live", "rate"),
    *("n_refits", "rounds", "fit_seconds", "backtest_seconds", "device", "versions"),
)
ROLLING = metrics.ROLLING_WINDOW
EXCERPT_STEPS = 336
PATH_POINTS = 200
DIGITS = 6  # of what a figure shows


@dataclass(frozen=True)
class SeriesUnit:
    """One run: a method on a series in one reading with one seed."""

    method: SeriesMethod
    data: str
    reading: str
    trial: int
    device: str
    quick: bool

    def __str__(self) -> str:
        return f"{self.method.slug} on {self.data} ({self.reading}), trial {self.trial}"

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""
        return self.method.cost * len(problem(self.data, self.reading).y)

    def lines(self) -> list[Line]:
        """The line of the run."""
        posed = problem(self.data, self.reading)
        return [line_of(self.method, posed, self.trial, device=self.device, quick=self.quick)]


@dataclass(frozen=True)
class SeriesGrid:
    """All runs that are asked for; a trial is a seed."""

    KEY: ClassVar[tuple[str, ...]] = SERIES_KEY
    FIELDS: ClassVar[tuple[str, ...]] = SERIES_FIELDS

    methods: tuple[SeriesMethod, ...]
    data: tuple[str, ...]
    readings: tuple[str, ...] = READINGS
    trials: int = 1
    device: str = "auto"
    quick: bool = False

    def check_data(self) -> None:
        """Load every series, so that missing data are told before anything is written."""
        for name in self.data:
            problem(name, readings_of(name, self.readings)[0])

    def units(self, done: Container[Any] = ()) -> list[SeriesUnit]:
        """What is not yet done, the longest first so that no worker is left with it at the end."""
        units = [
            SeriesUnit(method, data, reading, trial, self.device, self.quick)
            for method in self.methods
            for data in self.data
            if not is_another(method, data)
            for reading in readings_of(data, self.readings)
            for trial in range(1 if isinstance(method, Linear) else self.trials)  # nothing random in linear ones
            if (method.slug, data, reading, trial) not in done
        ]
        return sorted(units, key=lambda unit: unit.cost, reverse=True)


def is_another(method: SeriesMethod, data: str) -> bool:
    """Whether a run would repeat that of another method, as there is nothing beside the series to see."""
    return isinstance(method, Networks) and method.alone is not None and data in LONELY


def line_of(method: SeriesMethod, posed: Problem, trial: int, *, device: str, quick: bool = False) -> Line:
    """Learn, go through the test period, and measure."""
    where = {"method": method.slug, "data": posed.data, "reading": posed.reading, "trial": trial}
    run = _linear_run(method, posed) if isinstance(method, Linear) else _run(method, posed, trial, device, quick)
    came = ~np.isnan(posed.y[posed.start :])
    sizes = {"n_train": posed.start, "n_test": int(came.sum())}
    return {"format": FORMAT, **where, "seed": trial, "coverage": COVERAGE, **sizes, **run, **environment(device)}


def _run(method: Networks, posed: Problem, seed: int, device: str, quick: bool) -> Line:
    forecaster = method.build(seed, device, quick=quick)
    started = time.perf_counter()
    forecaster.fit(posed.y[: posed.start], **_beside(method, posed, posed.start))
    fitted = time.perf_counter()
    backtest = forecaster.backtest(posed.y, start=posed.start, **_beside(method, posed, len(posed.y)))
    ended = time.perf_counter()
    every = forecaster.refit_every
    line = {
        **_measured(backtest),
        "rate": forecaster.rate_,
        "n_refits": 0 if every is None else (len(backtest) - 1) // every,
        "rounds": len(forecaster.rounds_),
        "fit_seconds": round(fitted - started, 3),
        "backtest_seconds": round(ended - fitted, 3),
    }
    if method.pictured:
        line |= {"excerpt": _excerpt(posed, backtest), "rolling": _rolling_path(posed, backtest)}
    return line


def _beside(method: Networks, posed: Problem, end: int) -> dict[str, Array]:
    """What a method sees beside the series, up to a step."""
    seen = {}
    if method.calendar:
        seen["covariates"] = posed.calendar[:end]
    if method.past_covariates and posed.past_covariates is not None:
        seen["past_covariates"] = posed.past_covariates[:end]
    return seen


def _linear_run(method: Linear, posed: Problem) -> Line:
    started = time.perf_counter()
    forecast = autoregression(posed, method.lags) if method.lags else last_value(posed)
    calibrator = calibrator_of(posed, forecast, COVERAGE, rate="auto")
    fixed = calibrator_of(posed, forecast, COVERAGE, rate=FIXED_RATE)
    fitted = time.perf_counter()
    line = _measured(live_backtest(posed, forecast, calibrator))
    ended = time.perf_counter()
    return {
        **line,
        "fixed_rate": {"rate": FIXED_RATE, **_measured(live_backtest(posed, forecast, fixed))["live"]},
        "rate": calibrator.rate,
        "n_refits": 0,
        "rounds": 0,
        "fit_seconds": round(fitted - started, 3),
        "backtest_seconds": round(ended - fitted, 3),
    }


def _measured(backtest: Backtest) -> Line:
    static, live = backtest.scores(static=True), backtest.scores()
    inside = _inside(backtest)
    for name, scores in (("static", static), ("live", live)):
        scores["worst_rolling_coverage"] = float(metrics.rolling_coverage(inside[name], ROLLING).min())
    rmse = static.pop("rmse")
    live.pop("rmse")  # the forecasts are the same
    factor = backtest.factor
    return {"rmse": rmse, "static": static, "live": live, "factor_range": [float(factor.min()), float(factor.max())]}


def _inside(backtest: Backtest) -> dict[str, NDArray[np.bool_]]:
    """Whether each value that came lay in its interval."""
    y = backtest.y[:, 0]
    came = ~np.isnan(y)
    bounds = {
        "static": (backtest.static_lower, backtest.static_upper),
        "live": (backtest.lower, backtest.upper),
    }
    return {name: ((low[:, 0, 0] <= y) & (y <= high[:, 0, 0]))[came] for name, (low, high) in bounds.items()}


def _excerpt(posed: Problem, backtest: Backtest) -> Line:
    """Some steps from the middle of the test period on, as a figure shows them."""
    first = len(backtest) // 2
    rows = slice(first, first + EXCERPT_STEPS)
    shown = {
        "y": backtest.y[rows, 0],
        "prediction": backtest.prediction[rows, 0],
        "lower": backtest.lower[rows, 0, 0],
        "upper": backtest.upper[rows, 0, 0],
        "static_lower": backtest.static_lower[rows, 0, 0],
        "static_upper": backtest.static_upper[rows, 0, 0],
    }
    return {**_clock(posed, posed.start + first), **{name: _rounded(values) for name, values in shown.items()}}


def _rolling_path(posed: Problem, backtest: Backtest) -> Line:
    """The coverage of 500 values in a row through the test period, at about 200 places."""
    came = np.flatnonzero(~np.isnan(backtest.y[:, 0]))
    ends = came[ROLLING - 1 :]
    chosen = np.unique(np.linspace(0, len(ends) - 1, PATH_POINTS).round().astype(int))
    path = {
        name: _rounded(metrics.rolling_coverage(inside, ROLLING)[chosen]) for name, inside in _inside(backtest).items()
    }
    return {**_clock(posed, posed.start), "steps": ends[chosen].tolist(), **path}


def _clock(posed: Problem, step: int) -> Line:
    seconds = int(posed.step / np.timedelta64(1, "s"))
    return {"start": str(posed.time[step].astype("datetime64[s]")), "step_seconds": seconds}


def _rounded(values: Array) -> list[float | None]:
    """Enough digits for a figure; None where nothing was observed."""
    return [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
