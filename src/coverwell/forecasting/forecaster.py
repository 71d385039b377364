"""Forecasters: a series becomes rows of windows, an interval regressor learns them, and the present follows updates."""

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from coverwell.companions import FOREST
from coverwell.errors import ConstantDataWarning
from coverwell.estimator import IntervalRegressor
from coverwell.forecasting import outside
from coverwell.forecasting.history import Array, History, Steps, read_history
from coverwell.forecasting.live import (
    ADAPTIVE,
    RATES,
    Backtest,
    Coverage,
    LiveCalibrator,
    best_rate,
    one_truth,
    truths_ahead,
)
from coverwell.forecasting.outside import Counts
from coverwell.forecasting.windows import CALENDAR, TimeFolds, Windows, calendar_features
from coverwell.inputs.scaling import varies
from coverwell.matched import NetworkChoice
from coverwell.networks.lstm import LSTM
from coverwell.options import Schedule, check_count, check_number, levels_from, stored
from coverwell.paper.algorithm import Round
from coverwell.paper.losses import IntervalLoss
from coverwell.paper.matching import Matching
from coverwell.prediction import PredictionInterval
from coverwell.regressor import MatchedRegressor
from coverwell.training.device import device_from

# Chosen on the first two thirds of each training part (benchmarks/results/forecasting-selection.md).
NETWORK = LSTM(hidden=128, layers=2, dropout=0.1)
SCHEDULE = {
    "mean_epochs": 3,
    "interval_epochs": 3,
    "max_rounds": 15,
    "patience": 3,
    "learning_rate": 4e-3,
    "growth": 1.0,
}
# Training that goes on is brief. Longer refits were better in the same comparison; this is taken for what it costs.
REFIT: dict[str, Any] = {"max_rounds": 2, "mean_epochs": 2, "interval_epochs": 2, "learning_rate": 2e-3}
DEFAULT_RATE = 0.05  # of live calibration, for regressors without out-of-fold predictions on which to choose it
N_BLOCKS = 20  # of time, held out whole where a regressor holds out rows to stop its training


@dataclass(eq=False, repr=False, kw_only=True)
class SeriesForecaster(BaseEstimator):
    """What all forecasters share: a regressor on windows of a series, and how it follows the present.

    Parameters
    ----------
    past : int, how many past steps a forecast sees
    horizon : int, how many steps ahead are forecast, all at once
    calendar : sequence of "hour", "weekday", "month", what the network sees of the time stamp of a forecast step
    missing : "error" or "fill", whether gaps are an error, or filled by the last value before them
        Filled values are never targets; where the fitted series has gaps, the network sees which values were filled.
    differences : bool, whether the network forecasts the change from the last value, and sees changes beside levels
    live : bool, whether widths follow the misses; `coverwell.forecasting.live` states what that promises
    rate : float, "adaptive" or "auto", how fast it follows
        "adaptive" blends several rates by how well each has done lately; "auto" is one, chosen on the training part.
    refit_every : int or None, after how many updates the networks are trained further with all that has been seen

    Attributes
    ----------
    regressor_ : the fitted regressor
    calibrator_ : LiveCalibrator
    history_ : the series and covariates as far as they have been seen
    windows_ : how a moment becomes a row
    rate_ : float or "adaptive"

    Notes
    -----
    The property ``n_outside_`` maps the name of the series and of each covariate to the number of forecasts since the
    fit that saw it far outside what was learned. The first of them brings a warning.
    """

    past: int = 24
    horizon: int = 1
    calendar: Sequence[str] = ()
    missing: str = "error"
    differences: bool = True
    live: bool = True
    rate: float | str = ADAPTIVE
    refit_every: int | None = None

    history_: History = field(init=False)
    windows_: Windows = field(init=False)
    time_folds_: TimeFolds = field(init=False)
    regressor_: IntervalRegressor = field(init=False)
    calibrator_: LiveCalibrator = field(init=False)
    rate_: float | str = field(init=False)
    n_since_fit_: int = field(init=False)
    counts_outside_: Counts = field(init=False)
    # The mean, learned half-width and bounds of the present.
    _standing: tuple[Array, Array, Array, Array] | None = field(init=False, default=None)

    def fit(self, series: Any, covariates: Any = None, past_covariates: Any = None) -> Any:
        """Learn a series.

        Parameters
        ----------
        series : array-like, pandas Series with a `DatetimeIndex` or `PeriodIndex`, polars DataFrame with a time column
            The values, in time order at regular steps.
        covariates : table, optional, known ahead, such as holidays: a row for every step, and for those to be forecast
        past_covariates : table, optional, measured with the series, such as weather: a row for every step
        """
        for name in ("past", "horizon") if self.refit_every is None else ("past", "horizon", "refit_every"):
            check_count(name, getattr(self, name))
        check_number("rate", self.rate, above=0.0, below=math.inf, words=(ADAPTIVE,), or_auto=True)
        if isinstance(names := self.calendar, str) or not isinstance(names, Sequence):
            raise TypeError(f"calendar must be a sequence of names, such as ('hour', 'weekday') or (), got {names!r}")
        if len(set(names) & set(CALENDAR)) < len(names):
            raise ValueError(f"calendar must be made of {', '.join(map(repr, CALENDAR))}, each once, got {names!r}")
        history = read_history(series, covariates, past_covariates, calendar=self.calendar, missing=self.missing)
        n = len(history)
        for name in self.calendar:  # not in a backtest: a period to be forecast may well lie within one day
            if not varies(calendar_features(history.clock.times(0, n), [name])).any():
                raise ValueError(f"a calendar must vary, but {name!r} is the same at all {n} steps; leave it out")
        if not varies(history.values[~np.isnan(history.values)][:, None])[0]:
            raise ValueError(f"the series must vary, but all its {n} values are {history.filled[0]:g}")
        windows = Windows.of(history, past=self.past, horizon=self.horizon, differences=bool(self.differences))
        regressor = self._unfitted(windows, len(windows.origins(history)))
        if isinstance(regressor.random_state, np.random.RandomState):  # refits must not draw from what others share
            regressor.set_params(random_state=regressor.random_state.randint(2**31 - 1))
        folds = folds_of(regressor, windows, history)
        learn(regressor, windows, folds, history)
        self.rate_ = rate_of(regressor, windows, history) if self.rate == "auto" else self.rate
        self.calibrator_ = LiveCalibrator(regressor.predictor_.levels, rate=self.rate_, horizon=self.horizon)
        self.history_, self.windows_, self.time_folds_, self.regressor_ = history, windows, folds, regressor
        self.n_since_fit_, self._standing = 0, None
        self.counts_outside_ = outside.no_counts(history)
        return self

    def predict(self, covariates: Any = None) -> Any:
        """The next steps: a pandas series, a polars frame or an array, as the series was.

        Parameters
        ----------
        covariates : optional
            Rows for the next steps, which replace what was known; without time stamps they begin with the next step.
        """
        mean, *_ = self._present(covariates)
        return self.history_.clock.labelled(mean.copy(), len(self.history_), self.history_.name)

    def predict_interval(
        self, coverage: Coverage | None = None, *, static: bool = False, covariates: Any = None
    ) -> PredictionInterval:
        """The intervals of the next steps, (step,) or (step, level), with the user's index.

        Parameters
        ----------
        coverage : float or sequence of float, optional, some of the fitted levels; all that were asked for if None
        static : bool, whether to give the intervals as they were learned, whose width has not followed the misses
        covariates : as in `predict`
        """
        check_is_fitted(self)
        asked, fitted_levels = self.regressor_.fitted_coverage(coverage), self.regressor_.predictor_.levels
        mean, half_width, *bounds = self._present(covariates)
        if static:
            bounds = list(LiveCalibrator(fitted_levels, horizon=self.windows_.horizon).interval(mean, half_width))
        one, levels = isinstance(asked, Real), levels_from(asked)
        places = [fitted_levels.index(level) for level in levels]
        return PredictionInterval(
            *(bound[:, places[0] if one else places] for bound in bounds),
            coverage=levels[0] if one else levels,
            target_names=(self.history_.name,),
            index=self.history_.clock.index(len(self.history_), self.windows_.horizon),
        )

    def update(self, y: Any, at: Any = None, *, covariates: Any = None, past_covariates: Any = None) -> Any:
        """Take in the value of the next step, and let the intervals follow their misses; a refit that is due follows.

        A bad update raises and changes nothing.

        Parameters
        ----------
        y : float, NaN where it was not observed, if `missing="fill"`
        at : time stamp, optional
            The step, which must be the next one; with `missing="fill"` a later one leaves a gap before it.
        covariates : optional
            Rows of this step and later ones, if they were not known or are known better. The forecast stands as made.
        past_covariates : optional, the row of this step, if the fit had them
        """
        check_is_fitted(self)
        value, n_skipped = one_truth(y), 0 if at is None else self._n_skipped(at)
        if np.isnan(value) and self.missing == "error":
            raise ValueError("y must be a number, got NaN; make the forecaster with missing='fill' to allow gaps")
        step, windows, regressor = len(self.history_) + n_skipped, self.windows_, self.regressor_
        past = self.history_.past_row(past_covariates, step, missing=self.missing)
        history = self.history_.with_ahead(covariates, step, missing=self.missing)
        calibrator, n_since_fit, standing = copy.deepcopy(self.calibrator_), self.n_since_fit_, self._standing
        n_outside = self.counts_outside_
        for gap in [True] * n_skipped + [False]:
            history.check_known(1)
            if self.live and standing is None:
                _, n_far = forecast_now(regressor, windows, history, calibrator)
                n_outside = outside.added(n_outside, n_far, history, 1)
            if self.live:
                calibrator.update(np.nan if gap else value)
            history, standing = history.grown(*((np.nan, history.past[-1:]) if gap else (value, past))), None
            n_since_fit += 1
            if self.refit_every is not None and n_since_fit >= self.refit_every:
                regressor, n_since_fit = refitted(regressor, windows, self.time_folds_, history), 0
        self.history_, self.calibrator_, self.regressor_ = history, calibrator, regressor
        self.n_since_fit_, self.counts_outside_, self._standing = n_since_fit, n_outside, None
        return self

    def refit(self) -> Any:
        """Train the networks further with all that has been seen; the live factor stays."""
        check_is_fitted(self)
        self.regressor_ = refitted(self.regressor_, self.windows_, self.time_folds_, self.history_)
        self.n_since_fit_, self._standing = 0, None
        return self

    def backtest(
        self, series: Any, start: Any = None, *, covariates: Any = None, past_covariates: Any = None
    ) -> Backtest:
        """What live operation over a whole period would have given, in one call; the forecaster stays as it is.

        Parameters
        ----------
        series, covariates, past_covariates : as in `fit`, of the period and at least `past` steps before it
        start : time stamp or position, optional
            The first step that is forecast, by default the first one not yet seen. Forecasts of learned steps flatter.
        """
        check_is_fitted(self)
        history = read_history(series, covariates, past_covariates, calendar=self.calendar, missing=self.missing)
        origins, horizon, regressor = self._test_origins(history, start), self.windows_.horizon, self.regressor_
        levels, calibrator, stretches = regressor.predictor_.levels, copy.deepcopy(self.calibrator_), [origins]
        static = LiveCalibrator(levels, horizon=horizon)  # which sees no truths
        parts: list[tuple[Array, ...]] = []
        n_outside = outside.no_counts(history)
        goes_on = history.clock.label(int(origins[0])) == self.history_.clock.label(len(self.history_) - 1)
        if not goes_on:  # forecasts that wait for the next truths do not wait for those of another time
            calibrator.drop_pending()
        if self.refit_every is not None:
            first = max(1, self.refit_every - (self.n_since_fit_ if goes_on else 0))
            stretches = np.split(origins, np.arange(first, len(origins), self.refit_every))
        for now in tqdm(stretches, disable=not regressor.verbose, desc="backtest", unit="refit"):
            if parts:
                end = int(now[0]) + 1
                seen = replace(history, values=history.values[:end], past=history.past[:end])
                regressor = refitted(regressor, self.windows_, self.time_folds_, seen)
            mean, half_width, n_far = forecast(regressor, self.windows_, history, now)
            n_outside += n_far
            nothing = np.full(len(now), np.nan)
            live = calibrator.run(mean, half_width, history.values[now + 1] if self.live else nothing)
            parts.append((mean, *live, *static.run(mean, half_width, nothing)))
        mean, lower, upper, factor, low, high, _ = (np.concatenate(part) for part in zip(*parts, strict=True))
        y = truths_ahead(history.values[origins[0] + 1 :], horizon)[: len(origins)]
        stamps = history.clock.index(int(origins[0]) + 1, len(y) + horizon - 1)
        outside.added(outside.no_counts(history), n_outside, history, len(mean))
        far = outside.by_name(history, n_outside)
        return Backtest(stamps, history.name, y, mean, lower, upper, low, high, factor, levels, far)

    @property
    def n_outside_(self) -> dict[str, int]:
        """Since the fit, how many forecasts saw the series or a covariate far outside what was learned."""
        check_is_fitted(self)
        return outside.by_name(self.history_, self.counts_outside_)

    @property
    def rounds_(self) -> list[Round]:
        """One record per round of training, of the latest fit or refit; in changes where `differences` is set."""
        check_is_fitted(self)
        return self.regressor_.rounds_

    def check_learned(self) -> None:
        """Raise unless what was learned fits together, as after a file was read."""
        windows, history, regressor, calibrator = self.windows_, self.history_, self.regressor_, self.calibrator_
        sizes = regressor.n_features_in_, len(regressor.target_names_), calibrator.horizon, calibrator.coverage
        fits = sizes == (windows.n_columns, windows.horizon, windows.horizon, regressor.predictor_.levels)
        again = Windows.of(history, past=windows.n_past, horizon=windows.horizon, differences=windows.differences)
        fits &= replace(again, flags=windows.flags) == windows
        widths, origins = (len(history.past_names), len(history.ahead_names)), windows.origins(history)
        fits &= (history.past.shape, history.ahead.shape[1]) == ((len(history), widths[0]), widths[1])
        fits &= self.counts_outside_.shape == outside.no_counts(history).shape
        if not fits or np.isnan(history.filled).any():
            raise ValueError(f"regressor, history and calibrator must fit {windows}")
        if not 1 <= self.time_folds_.n_folds <= len(history) or self.n_since_fit_ < 0:
            raise ValueError(f"{len(history)} steps cannot have {self.time_folds_}, {self.n_since_fit_} after the fit")
        self.time_folds_.split(origins)
        (mean,), (half_width,), *_ = forecast(regressor, windows, history, origins[-1:])
        trial = copy.deepcopy(calibrator)
        trial.interval(mean, half_width)
        trial.update(0.0)

    def _unfitted(self, windows: Windows, n_rows: int) -> IntervalRegressor:
        raise NotImplementedError

    def _n_skipped(self, at: Any) -> int:
        """How many steps lie between the latest one and the one of this time stamp."""
        due, n_seen = self.history_.clock.label(len(self.history_)), len(self.history_)
        n_skipped = self.history_.clock.position(at) - n_seen
        if n_skipped < 0:
            raise ValueError(f"updates must come in order: {at} has been seen already; the next one is {due}")
        if n_skipped and self.missing == "error":
            way_out = f"give the {n_skipped} before it first, or make the forecaster with missing='fill' to leave a gap"
            raise ValueError(f"the next update must be {due}, got {at}; {way_out}")
        if n_skipped > n_seen:
            gap = f"a gap must not be longer than the {n_seen} steps that have been seen, got {n_skipped} before {at}"
            raise ValueError(f"{gap}; look at the time stamp, or fit again")
        return n_skipped

    def _test_origins(self, history: History, start: Any) -> Steps:
        """The origins of a period: from the step before its start to the last whose next step is in the series."""
        mine, clock, n_past, horizon = self.history_, history.clock, self.windows_.n_past, self.windows_.horizon
        if (history.past_names, history.ahead_names) != (mine.past_names, mine.ahead_names):
            fitted = f"covariates {mine.ahead_names} and past_covariates {mine.past_names}"
            came = f"{history.ahead_names} and {history.past_names}"
            raise ValueError(f"a backtest needs the covariates of the fit: {fitted}, got {came}")
        if (given := clock.step_in_words()) != (fitted := mine.clock.step_in_words()):
            raise ValueError(f"the series must have the steps of the fit, {fitted}, got {given}")
        n, first = len(history), clock.position(mine.clock.index(len(mine), 1)[0] if start is None else start)
        if not n_past <= first < n:
            seen = " after those that have been seen" if start is None else ""
            must = f"start must leave {n_past} steps before it and be one of the {n} steps of the series"
            there = f"from {clock.label(0)} to {clock.label(n - 1)}"
            raise ValueError(f"{must}, {there}, got the step {clock.label(first)}{seen}")
        end = n - 1 if history.n_known is None else min(n - 1, history.n_known - horizon)
        if end < first:
            came = f"got rows up to {clock.label(len(history.ahead) - 1)}; give more rows, or an earlier start"
            raise ValueError(f"covariates must be known for {horizon} steps from {clock.label(first)} on, {came}")
        return np.arange(first - 1, end)

    def _present(self, covariates: Any) -> tuple[Array, Array, Array, Array]:
        """The standing forecast and its intervals, computed once for each moment; better covariates replace it."""
        check_is_fitted(self)
        before, n, horizon = self.history_, len(self.history_), self.windows_.horizon
        history = before.with_ahead(covariates, n, missing=self.missing)
        if self._standing is None or not np.array_equal(history.ahead[n : n + horizon], before.ahead[n : n + horizon]):
            self._standing, n_far = forecast_now(self.regressor_, self.windows_, history, self.calibrator_)
            self.counts_outside_ = outside.added(self.counts_outside_, n_far, history, 1, stacklevel=4)
        self.history_ = history
        return self._standing


def network_for(network: NetworkChoice, windows: Windows) -> NetworkChoice:
    """The network for these windows: an `LSTM` gets their steps and channels, any other sees flat rows."""
    chosen = NETWORK if network is None else network
    return replace(chosen, steps=windows.n_past, channels=windows.channels) if isinstance(chosen, LSTM) else chosen


def folds_of(regressor: IntervalRegressor, windows: Windows, history: History) -> TimeFolds:
    """The blocks of time that stand for a regressor's folds; one where it has none."""
    if not isinstance(regressor, MatchedRegressor):
        return TimeFolds.of(1, windows, history)
    folds, calibration = regressor.folds, regressor.chosen_calibration.name
    if calibration not in ("cross", None):
        reason = "rows drawn at random would overlap with the windows of others; give calibration='cross'"
        raise ValueError(f"calibration must be 'cross' or None for a series, got {regressor.calibration!r}: {reason}")
    if folds is not None and FOREST in regressor.companions:
        reason = f"rows that a {FOREST} leaves out at random overlap with the windows of others; give companions=()"
        raise ValueError(f"companions must not hold {FOREST!r} for a series: {reason}")
    if folds is None and calibration == "cross":
        raise ValueError("calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None")
    if folds is not None:
        check_number("folds", folds, least=2, whole=True)
    return TimeFolds.of(1 if folds is None else int(folds), windows, history)


def learn(regressor: IntervalRegressor, windows: Windows, folds: TimeFolds, history: History) -> None:
    """Fit a regressor on all rows of a series, with blocks of time left out whole."""
    origins = windows.origins(history)
    X, y = windows.rows(history, origins), windows.targets(history, origins)
    # Levels are all that a network without changes sees: bounded, it would not know where a series has gone.
    regressor.bounded_, regressor.searched = windows.differences, False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantDataWarning)  # a window's first change is always 0
        if not isinstance(regressor, MatchedRegressor):
            regressor.fit(X, y, groups=np.arange(len(origins)) * N_BLOCKS // len(origins))
        else:
            n_folds = regressor.folds  # the blocks serve this fit alone
            blocks = None if n_folds is None else folds.split(origins)
            regressor.set_params(folds=blocks).fit(X, y).set_params(folds=n_folds)
    regressor.predictor_.correction.kept = None  # a series has no other rows to be weighted for: widths follow misses


def refitted(regressor: IntervalRegressor, windows: Windows, folds: TimeFolds, history: History) -> IntervalRegressor:
    """A copy of the regressor, trained further with these steps; from the start if it cannot go on."""
    fresh = copy.copy(regressor)
    if isinstance(fresh, MatchedRegressor):
        n_members = fresh.predictor_.fitted_teams[0].n_members  # "auto" repeats would change with the rows
        schedule = replace(fresh.schedule or Schedule(), **REFIT)
        fresh.set_params(warm_start=True, schedule=schedule, repeats=n_members // folds.n_folds)
    learn(fresh, windows, folds, history)
    return fresh


def forecast(
    regressor: IntervalRegressor, windows: Windows, history: History, origins: Steps
) -> tuple[Array, Array, Counts]:
    """Mean (origin, step) and calibrated half-width (origin, step, side, level) of the forecasts at these origins, and
    how many of them see the series or a covariate far outside what was learned, (1 + covariate,)."""
    rows, inputs = windows.rows(history, origins), regressor.predictor_.inputs
    n_far = outside.count_outside(windows, history, rows, inputs)
    (estimate,) = regressor.predictor_.moved(device_from(regressor.device)).estimates(windows.within(rows, inputs))
    factor = np.asarray(regressor.factor_)  # a single team has factors
    return estimate.mean + windows.anchors(history, origins), estimate.half_width * factor[:, None, :], n_far


def rate_of(regressor: IntervalRegressor, windows: Windows, history: History) -> float:
    """The rate of live calibration, chosen on out-of-fold forecasts in time order."""
    out_of_fold = regressor.out_of_fold_ if isinstance(regressor, MatchedRegressor) else None
    if out_of_fold is None:
        return DEFAULT_RATE
    left_out = ~np.isnan(out_of_fold.prediction).any(axis=1)
    origins, mean = windows.origins(history)[left_out], out_of_fold.prediction[left_out]
    below, above = mean[..., None] - out_of_fold.lower[left_out], out_of_fold.upper[left_out] - mean[..., None]
    truths = history.filled[origins + 1]
    for place in np.flatnonzero(np.diff(origins) > 1):  # after a gap, they are not what the rows before were about
        truths[place + 1 : place + windows.horizon] = np.nan
    levels, horizon = regressor.predictor_.levels, windows.horizon
    trials = [LiveCalibrator(levels, rate=rate, horizon=horizon) for rate in RATES]
    return best_rate(trials, mean + windows.anchors(history, origins), np.stack([below, above], axis=-2), truths)


def forecast_now(
    regressor: IntervalRegressor, windows: Windows, history: History, calibrator: LiveCalibrator
) -> tuple[tuple[Array, Array, Array, Array], Counts]:
    """The forecast made after the last step, (step,), its learned half-width (step, side, level), and its bounds
    (step, level), which wait for their truths; and whether it sees what lies far outside what was learned."""
    history.check_known(windows.horizon)
    (mean,), (half_width,), n_far = forecast(regressor, windows, history, np.array([len(history) - 1]))
    return (mean, half_width, *calibrator.interval(mean, half_width)), n_far


@stored
@dataclass(eq=False, repr=False)
class Forecaster(SeriesForecaster):
    """The next steps of a series with intervals, from any of our regressors on windows of its past.

    Parameters
    ----------
    regressor : unfitted `MatchedRegressor` or one of `coverwell.baselines`
        Its coverage is the forecaster's, its folds become blocks of time, its network is an `LSTM` unless given.
    past, horizon, calendar, missing, differences, live, rate, refit_every
        As in `coverwell.forecasting.forecaster.SeriesForecaster`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import LSTM
    >>> from coverwell.baselines import HeteroscedasticRegressor
    >>> regressor = HeteroscedasticRegressor(0.8, network=LSTM(hidden=4), max_epochs=10, random_state=0)
    >>> Forecaster(regressor, past=8, horizon=2).fit(np.sin(np.arange(200) / 5)).predict().shape
    (2,)
    """

    regressor: IntervalRegressor

    def _unfitted(self, windows: Windows, n_rows: int) -> IntervalRegressor:
        if not isinstance(self.regressor, IntervalRegressor) or "network" not in self.regressor.get_params(deep=False):
            raise TypeError(f"regressor must be one of our estimators with a network, unfitted, got {self.regressor!r}")
        network = network_for(self.regressor.network, windows)
        regressor: IntervalRegressor = clone(self.regressor).set_params(network=network)
        return regressor


@stored
@dataclass(eq=False, repr=False)
class MatchedForecaster(SeriesForecaster):
    """The next steps of a series with intervals, from two teams of LSTMs trained in turns.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of coming values that the interval is to contain; several levels give nested intervals from one fit.
    matching : "sigma", "iqr", None or an object with `Matching`'s methods, default="sigma"
    past, horizon, calendar, missing, differences, live, rate, refit_every
        As in `coverwell.forecasting.forecaster.SeriesForecaster`, and so are the attributes.
    network, interval_network : recipe such as `LSTM(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is an `LSTM`. Rows are flat: the window step by step, then what is known ahead.
    folds : int or None, default=5
        Blocks of time: each member leaves one out, and past + horizon steps on both sides. None is literal training.
    interval_loss, shape, calibration, device, random_state, verbose
        As in `MatchedRegressor`; `calibration` is "cross" or None.
    schedule : Schedule, optional
        As in `MatchedRegressor`, but "auto" is 3 epochs of each network in at most 15 rounds, a patience of 3, a
        learning rate of 4e-3, and batches of a fifth of the rows, from 16 to 512.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import LSTM, Schedule
    >>> series = np.sin(np.arange(400) / 5) + 0.1 * np.random.default_rng(0).normal(size=400)
    >>> forecaster = MatchedForecaster(0.8, past=8, network=LSTM(hidden=8), schedule=Schedule(max_rounds=2)).fit(series)
    >>> lower, upper = forecaster.update(0.5).predict_interval()
    >>> bool(lower[0] < upper[0])
    True
    """

    coverage: Coverage = 0.9
    matching: str | Matching | None = "sigma"
    _: KW_ONLY
    network: NetworkChoice = None
    interval_network: NetworkChoice = None
    folds: int | None = 5
    interval_loss: str | IntervalLoss = "quantile"
    shape: str = "both"
    calibration: Any = "cross"
    schedule: Schedule | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def _unfitted(self, windows: Windows, n_rows: int) -> MatchedRegressor:
        schedule = Schedule() if self.schedule is None else self.schedule
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule(...) or None, got {schedule!r}")
        # Large batches, which cost a GPU no more than small ones, as long as an epoch has five steps.
        batch_size = {"batch_size": int(np.clip(n_rows // 5, 16, 512))}
        shared = set(MatchedRegressor().get_params()) & set(self.get_params(deep=False))
        alone = {"calibration": "cross", "companions": ()}
        settings = (
            alone
            | {name: getattr(self, name) for name in shared}
            | {
                "network": network_for(self.network, windows),
                "interval_network": self.interval_network and network_for(self.interval_network, windows),
                "schedule": schedule.resolved(SCHEDULE, batch_size),
            }
        )
        return MatchedRegressor(**settings, repeats=1)
