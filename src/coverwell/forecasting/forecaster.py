"""Forecasters: a series becomes rows of windows, an interval regressor learns them, and the present follows updates."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from coverwell.calibration import Estimate
from coverwell.estimator import IntervalRegressor, check_count
from coverwell.forecasting.backtest import Backtest, Live
from coverwell.forecasting.calendar import check_calendar, check_names
from coverwell.forecasting.history import History, read_history
from coverwell.forecasting.learning import estimate_of, fitting, folds_of, learn, rate_of, refitted, windows_of
from coverwell.forecasting.live import LiveCalibrator, run_live
from coverwell.forecasting.live_input import check_finite_number, one_truth
from coverwell.forecasting.windows import Panel, TimeFolds, Windows
from coverwell.intervals import PredictionInterval, widen_outwards
from coverwell.preparation import levels_from
from coverwell.rounds import Round
from coverwell.scaling import varies

__all__ = ["Forecaster", "SeriesForecaster"]

Array = NDArray[np.float64]
Steps = NDArray[np.intp]
Standing = tuple[Estimate, tuple[Array, Array]]  # the forecast made at the present, and its bounds (step, level)


# Parameters are the fields of dataclasses: a kind of forecaster adds its own to those that all have.
@dataclass(eq=False, repr=False, kw_only=True)
class SeriesForecaster(BaseEstimator):
    """What all forecasters share: a regressor on windows of a series, and how it follows the present.

    Parameters
    ----------
    past : int, default=24
        How many past steps a forecast sees.
    horizon : int, default=1
        How many steps ahead are forecast, all at once.
    calendar : sequence of "hour", "weekday", "month", default=()
        What the time stamp of a forecast step tells the network.
    missing : "error" or "fill", default="error"
        What gaps in the series or its covariates are: an error, or filled by the last value before them. Filled values
        are never learned or judged as targets; where the series that is fitted has gaps, the network is told of them.
    differences : bool, default=True
        Whether the network forecasts the change from the last value, and sees changes beside levels.
    live : bool, default=True
        Whether the width of the intervals follows the misses; see `coverwell.forecasting.live` for what that promises.
    rate : float or "auto", default="auto"
        How fast it follows; "auto" is chosen on the training part.
    refit_every : int or None, default=None
        After so many updates the networks are trained on with all that has been seen; None is never.

    Attributes
    ----------
    regressor_ : the fitted regressor.
    calibrator_ : LiveCalibrator
    history_ : History
        The series and covariates as far as they have been seen.
    windows_ : Windows
        How a moment becomes a row.
    rate_ : float
    """

    past: int = 24
    horizon: int = 1
    calendar: Sequence[str] = ()
    missing: str = "error"
    differences: bool = True
    live: bool = True
    rate: float | str = "auto"
    refit_every: int | None = None

    history_: History = field(init=False)
    windows_: Windows = field(init=False)
    time_folds_: TimeFolds = field(init=False)
    regressor_: Any = field(init=False)
    calibrator_: LiveCalibrator = field(init=False)
    rate_: float = field(init=False)
    n_since_fit_: int = field(init=False)
    _standing: Standing | None = field(init=False, default=None)  # made again when it is asked for

    # Verbs.

    def fit(self, series: Any, covariates: Any = None, past_covariates: Any = None) -> Any:
        """Learn a series.

        Parameters
        ----------
        series : array-like, pandas Series or polars DataFrame
            The values, in time order at regular steps; pandas with a `DatetimeIndex` or `PeriodIndex`, polars with a
            column of times beside the values.
        covariates : array or data frame, optional
            Known ahead, such as holidays or prices that are set: a row for every step, and for later ones as far as
            they are known. A forecast needs rows for the steps it speaks about.
        past_covariates : array or data frame, optional
            Measured with the series, such as weather: a row for every step.
        """
        self._check_choices()
        history = read_history(series, covariates, past_covariates, calendar=self.calendar, missing=self.missing)
        if self.calendar:  # a period to be forecast may well lie within one day
            check_calendar(history.clock.times(0, len(history)), self.calendar)
        if not varies(history.values[~np.isnan(history.values)][:, None])[0]:
            raise ValueError(f"the series must vary, but all its {len(history)} values are {history.filled[0]:g}")
        panel = history.panel(0, self.horizon)
        windows = windows_of(panel, past=self.past, horizon=self.horizon, differences=bool(self.differences))
        regressor = self._unfitted(windows, len(windows.origins(panel)))
        if isinstance(regressor.random_state, np.random.RandomState):  # refits must not draw from what others share
            regressor.set_params(random_state=regressor.random_state.randint(2**31 - 1))
        folds = folds_of(regressor, windows, panel)
        learn(regressor, windows, folds, panel)
        rate = rate_of(regressor, windows, panel) if self.rate == "auto" else float(self.rate)
        calibrator = LiveCalibrator(regressor._fitted_levels, rate=rate, horizon=self.horizon)
        self.history_, self.windows_, self.time_folds_, self.regressor_ = history, windows, folds, regressor
        self.calibrator_, self.rate_, self.n_since_fit_, self._standing = calibrator, rate, 0, None
        return self

    def predict(self, covariates: Any = None) -> Any:
        """The next steps: a pandas series, a polars frame or an array, as the series was.

        Parameters
        ----------
        covariates : optional
            Rows for the next steps, in place of what was known about them from now on. Rows with time stamps are about
            those times; others begin with the first step that has not been seen.
        """
        estimate, _ = self._forecast(covariates)
        return self.history_.clock.labelled(estimate.mean[0].copy(), len(self.history_), self.history_.name)

    def predict_interval(
        self, coverage: float | Sequence[float] | Array | None = None, *, covariates: Any = None
    ) -> PredictionInterval:
        """The intervals of the next steps, (step,) or (step, level), with the user's index.

        Parameters
        ----------
        coverage : float or sequence of float, optional
            Some of the fitted levels; all that were asked for if None.
        covariates : optional
            As in `predict`.
        """
        check_is_fitted(self)
        wanted = self.regressor_._wanted(coverage)
        _, (lower, upper) = self._forecast(covariates)
        places = [self.regressor_._fitted_levels.index(level) for level in levels_from(wanted)]
        one = isinstance(wanted, Real)
        return PredictionInterval(
            lower[:, places[0]] if one else lower[:, places],
            upper[:, places[0]] if one else upper[:, places],
            coverage=float(wanted) if isinstance(wanted, Real) else levels_from(wanted),
            target_names=(self.history_.name,),
            index=self.history_.clock.index(len(self.history_), self.windows_.horizon),
        )

    def update(self, y: Any, at: Any = None, *, covariates: Any = None, past_covariates: Any = None) -> Any:
        """Take in the value of the next step; the intervals learn from it what they missed.

        A forecast for step h is judged when its value comes, h updates later. A refit that is due follows. A bad update
        raises and changes nothing.

        Parameters
        ----------
        y : float
            NaN where it was not observed, if `missing="fill"`.
        at : time stamp, optional
            Which step this is. It must be the next one; with `missing="fill"` a later one leaves a gap before it.
        covariates : optional
            The row of this step and of later ones, as far as they were not known or are known better now. The forecast
            that stands is judged as it was made.
        past_covariates : optional
            The row of this step, if the series was fitted with such.
        """
        check_is_fitted(self)
        value, n_skipped = self._checked_truth(y), self._n_skipped(at)
        step = len(self.history_) + n_skipped
        past = self.history_.past_row(past_covariates, step, missing=self.missing)
        history = self.history_.with_ahead(covariates, step, missing=self.missing)
        present = _Present(history, copy.deepcopy(self.calibrator_), self.regressor_, self.n_since_fit_, self._standing)
        for _ in range(n_skipped):  # steps that were passed over are gaps
            self._step(present, np.nan, present.history.past[-1:])
        self._step(present, value, past)
        self.history_, self.calibrator_, self.regressor_ = present.history, present.calibrator, present.regressor
        self.n_since_fit_, self._standing = present.n_since_fit, present.standing
        return self

    def refit(self) -> Any:
        """Train the networks on with all that has been seen; the live factor stays."""
        check_is_fitted(self)
        self.regressor_ = self._refitted(self.regressor_, self.history_.panel(0, self.windows_.horizon))
        self.n_since_fit_, self._standing = 0, None
        return self

    def backtest(
        self, series: Any, start: Any = None, *, covariates: Any = None, past_covariates: Any = None
    ) -> Backtest:
        """What live operation over a whole period would have given, in one call; the forecaster stays as it is.

        Parameters
        ----------
        series, covariates, past_covariates
            As in `fit`; the period and at least `past` steps before it.
        start : time stamp or position, optional
            The first step that is forecast; None is the step after those that have been seen. Earlier ones have been
            learned, and forecasts of them flatter.
        """
        check_is_fitted(self)
        history = read_history(series, covariates, past_covariates, calendar=self.calendar, missing=self.missing)
        self._check_alike(history)
        origins = self._test_origins(history, start)
        panel = history.panel(0, self.windows_.horizon)
        goes_on = len(origins) > 0 and history.clock.label(int(origins[0])) == self._latest_label
        regressor, calibrator = self.regressor_, self._calibrator_of_backtest(goes_on)
        parts: list[tuple[Estimate, Live | None]] = []
        stretches = self._between_refits(origins, goes_on)
        for now in tqdm(stretches, disable=not regressor.verbose, desc="backtest", unit="refit"):
            if parts:
                regressor = self._refitted(regressor, panel.until(int(now[0]) + 1))
            estimate = estimate_of(regressor, self.windows_, panel, now)
            live = run_live(calibrator, estimate, history.values[now + 1]) if self.live else None
            parts.append((estimate, live))
        return Backtest.joined(parts, history, origins, regressor._fitted_levels)

    @property
    def rounds_(self) -> list[Round]:
        """One record per round of training, of the latest fit or refit; in changes where `differences` is set."""
        check_is_fitted(self)
        rounds: list[Round] = self.regressor_.rounds_
        return rounds

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "regressor_")

    # What a kind of forecaster says.

    def _unfitted(self, windows: Windows, n_rows: int) -> Any:
        """The regressor that will learn the windows."""
        raise NotImplementedError

    # Checks.

    def _check_choices(self) -> None:
        for name in ("past", "horizon"):
            check_count(name, getattr(self, name))
        check_names(self.calendar)
        if self.refit_every is not None:
            check_count("refit_every", self.refit_every)
        if self.rate != "auto":
            check_finite_number("rate", self.rate, above=0.0)

    def _checked_truth(self, y: Any) -> float:
        value = one_truth(y)
        if np.isnan(value) and self.missing == "error":
            raise ValueError("y must be a number, got NaN; make the forecaster with missing='fill' to allow gaps")
        return value

    def _n_skipped(self, at: Any) -> int:
        """How many steps lie between the latest one and the one of this time stamp."""
        if at is None:
            return 0
        clock, due = self.history_.clock, len(self.history_)
        n_skipped = clock.position(at) - due
        if n_skipped < 0:
            raise ValueError(
                f"updates must come in order: {at} has been seen already; the next one is {clock.label(due)}"
            )
        if n_skipped and self.missing == "error":
            raise ValueError(
                f"the next update must be {clock.label(due)}, got {at}; give the {n_skipped} before it first, or make "
                "the forecaster with missing='fill' to leave a gap"
            )
        if n_skipped > due:
            raise ValueError(
                f"a gap must not be longer than the {due} steps that have been seen, got {n_skipped} before {at}; look "
                "at the time stamp, or fit again"
            )
        return n_skipped

    def _check_alike(self, history: History) -> None:
        """Raise unless a series is of the kind that was fitted."""
        mine = self.history_
        if (history.past_names, history.ahead_names) != (mine.past_names, mine.ahead_names):
            raise ValueError(
                "a backtest needs the covariates of the fit: "
                f"covariates {mine.ahead_names} and past_covariates {mine.past_names}, got {history.ahead_names} and "
                f"{history.past_names}"
            )
        if history.clock.step_in_words() != mine.clock.step_in_words():
            raise ValueError(
                f"the series must have the steps of the fit, {mine.clock.step_in_words()}, got "
                f"{history.clock.step_in_words()}"
            )

    def _test_origins(self, history: History, start: Any) -> Steps:
        """The origins of a period: from the step before its start to the last whose next step is in the series."""
        n_past, horizon = self.windows_.n_past, self.windows_.horizon
        due = self.history_.clock.index(len(self.history_), 1)[0]
        first = history.clock.position(due if start is None else start)
        if not n_past <= first < len(history):
            seen = " after those that have been seen" if start is None else ""
            raise ValueError(
                f"start must leave {n_past} steps before it and be one of the {len(history)} steps of the series, from "
                f"{history.clock.label(0)} to {history.clock.label(len(history) - 1)}, got the step "
                f"{history.clock.label(first)}{seen}"
            )
        known = history.n_known
        end = len(history) - 1 if known is None else min(len(history) - 1, known - horizon)
        if end < first:
            raise ValueError(
                f"covariates must be known for {horizon} steps from {history.clock.label(first)} on, got rows up to "
                f"{history.clock.label(len(history.ahead) - 1)}; give more rows, or an earlier start"
            )
        return np.arange(first - 1, end)

    # A backtest goes on from the present where its period begins there.

    @property
    def _latest_label(self) -> str:
        return self.history_.clock.label(len(self.history_) - 1)

    def _calibrator_of_backtest(self, goes_on: bool) -> LiveCalibrator:
        """A copy of the calibrator; forecasts that wait for the next truths do not wait for those of another time."""
        calibrator = copy.deepcopy(self.calibrator_)
        if not goes_on:
            horizon = calibrator.horizon
            nothing = [[None] * horizon for _ in range(horizon)]
            calibrator.load_state_dict(calibrator.state_dict() | {"pending": nothing})
        return calibrator

    def _between_refits(self, origins: Steps, goes_on: bool) -> list[Steps]:
        """The origins in stretches, with a refit before each but the first."""
        if self.refit_every is None:
            return [origins]
        first = self.refit_every - (self.n_since_fit_ if goes_on else 0)
        return np.split(origins, np.arange(max(1, first), len(origins), self.refit_every))

    # The present.

    def _refitted(self, regressor: Any, panel: Panel) -> Any:
        return refitted(regressor, self.windows_, self.time_folds_, panel)

    def _forecast(self, covariates: Any = None) -> Standing:
        """The standing forecast and its interval, computed once for each moment."""
        check_is_fitted(self)
        before = self.history_
        history = before.with_ahead(covariates, len(before), missing=self.missing)
        standing = self._standing if history.same_ahead(before, self.windows_.horizon) else None
        present = _Present(history, self.calibrator_, self.regressor_, self.n_since_fit_, standing)
        standing = self._spoken(present)
        self.history_, self._standing = history, standing
        return standing

    def _spoken(self, present: _Present) -> Standing:
        if present.standing is not None:
            return present.standing
        horizon = self.windows_.horizon
        present.history.check_known(horizon)
        panel = present.history.panel(len(present.history) - self.windows_.n_past, horizon)
        estimate = estimate_of(present.regressor, self.windows_, panel, np.array([len(panel) - 1]))
        if not self.live:
            lower, upper = widen_outwards(*estimate.bounds(1.0))
            return estimate, (lower[0], upper[0])
        interval = present.calibrator.interval(estimate.mean[0], estimate.reach[0])
        shape = (horizon, -1)
        return estimate, (interval.lower.reshape(shape), interval.upper.reshape(shape))

    def _step(self, present: _Present, y: float, past: Array) -> None:
        """One step of time: judge the standing forecast, take the value in, and refit if it is due."""
        present.history.check_known(1)
        if self.live:
            self._spoken(present)
            present.calibrator.update(y)
        present.history, present.standing = present.history.grown(y, past), None
        present.n_since_fit += 1
        if self.refit_every is not None and present.n_since_fit >= self.refit_every:
            present.regressor = self._refitted(present.regressor, present.history.panel(0, self.windows_.horizon))
            present.n_since_fit = 0


@dataclass
class _Present:
    """What an update changes, until all of it has succeeded."""

    history: History
    calibrator: LiveCalibrator
    regressor: Any
    n_since_fit: int
    standing: Standing | None


@dataclass(eq=False, repr=False)
class Forecaster(SeriesForecaster):
    """The next steps of a series with intervals, from any of our regressors on windows of its past.

    Parameters
    ----------
    regressor : unfitted estimator of ours
        `MatchedRegressor` or one of `coverwell.baselines`; its coverage is the forecaster's. Its folds become blocks of
        time, and its network, unless it is given, an `LSTM`.
    past, horizon, calendar, missing, differences, live, rate, refit_every
        As in `coverwell.forecasting.forecaster.SeriesForecaster`.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import LSTM
    >>> from coverwell.baselines import HeteroscedasticRegressor
    >>> series = np.sin(np.arange(200) / 5) + 0.1 * np.random.default_rng(0).normal(size=200)
    >>> regressor = HeteroscedasticRegressor(0.8, network=LSTM(hidden=4), max_epochs=10, random_state=0)
    >>> forecaster = Forecaster(regressor, past=8, horizon=2).fit(series)
    >>> forecaster.predict().shape
    (2,)
    """

    regressor: Any

    def _unfitted(self, windows: Windows, n_rows: int) -> Any:
        if not isinstance(self.regressor, IntervalRegressor):
            raise TypeError(f"regressor must be one of our estimators, unfitted, got {self.regressor!r}")
        regressor = clone(self.regressor)
        return regressor.set_params(network=fitting(regressor.network, windows))
