"""A regressor on the windows of a series: how it learns them, learns on, and speaks about a moment."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.calibration import Estimate
from coverwell.estimator import check_count
from coverwell.forecasting.rates import choose_rate
from coverwell.forecasting.windows import Panel, TimeFolds, Windows
from coverwell.inputs.scaling import ConstantDataWarning, ExtrapolationWarning
from coverwell.networks.lstm import LSTM
from coverwell.regressor import NetworkChoice

__all__ = [
    "NETWORK",
    "REFIT",
    "USUAL_RATE",
    "estimate_of",
    "fitting",
    "folds_of",
    "learn",
    "rate_of",
    "refitted",
    "windows_of",
]

Array = NDArray[np.float64]
Steps = NDArray[np.intp]

# Chosen on the first two thirds of each training part (benchmarks/results/forecasting-selection.md), as the defaults of
# MatchedForecaster are.
NETWORK = LSTM(hidden=128, layers=2, dropout=0.1)
# How a network is trained on when a series has grown: briefly, from where it was. Longer refits were better in the same
# comparison; this lies between its candidates and is taken for what it costs.
REFIT = {"warm_start": True, "max_rounds": 2, "mean_epochs": 2, "interval_epochs": 2, "learning_rate": 2e-3}
# The rate of live calibration for regressors that keep no word about rows they left out, on which to choose it.
USUAL_RATE = 0.05
# Blocks of time that are held out whole where a regressor holds out rows to stop its training.
N_BLOCKS = 20


def fitting(network: NetworkChoice, windows: Windows) -> Any:
    """The network for these windows: an `LSTM` gets their steps and channels, any other sees flat rows."""
    chosen = NETWORK if network is None else network
    return replace(chosen, steps=windows.n_past, channels=windows.channels) if isinstance(chosen, LSTM) else chosen


def windows_of(panel: Panel, *, past: int, horizon: int, differences: bool) -> Windows:
    """How moments of this series become rows; an error where it has too few of them."""
    windows = Windows(
        n_past=past,
        horizon=horizon,
        differences=differences,
        flags=not panel.observed.all(),
        n_past_covariates=panel.past.shape[1],
        n_known=panel.known.shape[1],
    )
    n_rows = len(windows.origins(panel))
    if n_rows < 2:
        raise ValueError(
            f"the series must hold at least 2 windows of past + horizon = {past + horizon} steps whose last {horizon} "
            f"were observed, got {n_rows} in {len(panel)} steps; give a longer series, or a shorter past"
        )
    return windows


def folds_of(regressor: Any, windows: Windows, panel: Panel) -> TimeFolds:
    """The blocks of time that stand for a regressor's folds."""
    given = _checked_folds(regressor)
    n_folds = 1 if given is None else int(given)
    embargo, first, n_steps = windows.n_past + windows.horizon, int(windows.origins(panel)[0]), len(panel)
    needed = first + n_folds * (2 * embargo + windows.horizon + 1)  # with less, a member could have no row to train on
    if n_folds > 1 and n_steps < needed:
        raise ValueError(
            f"{n_folds} blocks of time with {embargo} steps (past + horizon) kept free on both sides need {needed} "
            f"steps or more, got {n_steps}; give a longer series, fewer folds or a shorter past"
        )
    # Later blocks are a fifth of the first ones: a series that grows week by week soon has some of every fold.
    block = max(2 * embargo, (n_steps - first) // (5 * n_folds))
    return TimeFolds(n_folds, first, n_steps, block, embargo)


def _checked_folds(regressor: Any) -> int | None:
    """How many folds a regressor asks for; None where it has none."""
    if "folds" not in regressor.get_params(deep=False):
        return None
    given: int | None = regressor.folds
    if regressor.calibration not in ("cross", None):
        raise ValueError(
            f"calibration must be 'cross' or None for a series, got {regressor.calibration!r}: rows kept at random for "
            "ranks would overlap with the windows of others"
        )
    if given is None and regressor.calibration == "cross":
        raise ValueError("calibration='cross' needs folds, got folds=None; give folds=5, or calibration=None")
    if given is not None:
        check_count("folds", given)
    if given == 1:
        raise ValueError("folds must be at least 2 blocks of time, or None, got 1")
    return given


def learn(regressor: Any, windows: Windows, folds: TimeFolds, panel: Panel) -> None:
    """Fit a regressor on all rows of a series, with blocks of time left out whole."""
    origins = windows.origins(panel)
    X, y = windows.rows(panel, origins), windows.targets(panel, origins)
    told = regressor.get_params(deep=False)
    # Levels are all that a network without changes sees: bounded, it would not know where a series has gone.
    regressor._bounded = windows.differences
    with _constants_allowed():
        if "folds" not in told:
            regressor.fit(X, y, groups=np.arange(len(origins)) * N_BLOCKS // len(origins))
        elif told["folds"] is None:
            regressor.fit(X, y)
        else:  # the blocks serve this fit alone: what is kept is the number that was told
            regressor.set_params(folds=folds.split(origins)).fit(X, y).set_params(folds=told["folds"])


def refitted(regressor: Any, windows: Windows, folds: TimeFolds, panel: Panel) -> Any:
    """A copy of the regressor, trained on with these steps; from the start if it cannot go on."""
    fresh = copy.copy(regressor)
    if "warm_start" in fresh.get_params(deep=False):
        n_members = regressor.ensembles_[0].mean_team.n_members  # "auto" repeats would change with the rows
        fresh.set_params(**REFIT, repeats=n_members // folds.n_folds)
    learn(fresh, windows, folds, panel)
    return fresh


def estimate_of(regressor: Any, windows: Windows, panel: Panel, origins: Steps) -> Estimate:
    """The forecasts made at these origins, in the units of the series."""
    rows = windows.rows(panel, origins)
    _warn_if_far_outside(regressor, windows, rows)
    said: Estimate = regressor._stretched(rows)
    return Estimate(said.mean + windows.anchors(panel, origins), said.reach)


def _warn_if_far_outside(regressor: Any, windows: Windows, rows: Array) -> None:
    levels = slice(0, windows.n_past * windows.channels, windows.channels)  # the first channel of every step
    far = regressor.ensembles_[0].inputs.far_outside(rows)[:, levels].any(axis=1)
    if far.any():
        warnings.warn(
            f"{int(far.sum())} of {len(rows)} forecasts see values far outside what was learned; these are treated as "
            "lying on its border. A refit takes them in",
            ExtrapolationWarning,
            stacklevel=4,
        )


def rate_of(regressor: Any, windows: Windows, panel: Panel) -> float:
    """The rate of live calibration, chosen by what members said about rows they left out, in time order."""
    said = getattr(regressor, "out_of_fold_", None)
    if said is None:
        return USUAL_RATE
    heard = ~np.isnan(said.prediction).any(axis=1)
    origins, mean = windows.origins(panel)[heard], said.prediction[heard]
    reach = np.stack([mean[..., None] - said.lower[heard], said.upper[heard] - mean[..., None]], axis=-2)
    forecasts = Estimate(mean + windows.anchors(panel, origins), reach)
    truths = _truths_in_a_row(panel.values, origins, windows.horizon)
    return choose_rate(forecasts, truths, regressor._fitted_levels, start=1.0)


def _truths_in_a_row(values: Array, origins: Steps, horizon: int) -> Array:
    """The value after each origin; NaN after a gap in the origins, where it is not what the rows before were about."""
    truths = values[origins + 1].copy()
    for place in np.flatnonzero(np.diff(origins) > 1):
        truths[place + 1 : place + horizon] = np.nan
    return truths


@contextmanager
def _constants_allowed() -> Iterator[None]:
    """A window has columns that are constant by construction, as its first change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantDataWarning)
        yield
