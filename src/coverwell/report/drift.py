"""How far test rows lie from training rows, by what a model keeps of the training inputs.

A model file keeps no training rows. Of every input of its networks (a column, a level of a category, a flag for a
missing value) it keeps mean, standard deviation and range over the training rows. So these are compared, and nothing
else: a column whose spread or shape alone has changed is not found.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell.estimator import IntervalRegressor
from coverwell.fitted_models import n_trained_rows
from coverwell.inputs.scaling import InputScaler

__all__ = ["Shift", "shifts_between"]

Array = NDArray[np.float64]
Z_95 = float(norm.ppf(0.975))


@dataclass(frozen=True)
class Shift:
    """How one input differs between training and test rows.

    Attributes
    ----------
    name : str
    train_mean, test_mean : float
        Of an input that is 0 or 1, the share of ones.
    difference : float
        Of the means, in standard deviations over the training rows; infinite where training had one value only.
    standard_error : float
        Of that difference, if both are samples of the same rows.
    chance : float
        At most the probability that chance makes any of all inputs differ so much (Bonferroni).
    n_outside : int
        Test rows outside the range of the training rows.
    is_share : bool
        Whether it is 0 or 1 in all rows.
    """

    name: str
    train_mean: float
    test_mean: float
    difference: float
    standard_error: float
    chance: float
    n_outside: int
    is_share: bool


def shifts_between(model: IntervalRegressor, X: Any) -> list[Shift]:
    """Every input of the networks, the one that differs most surely first."""
    scalers = [ensemble.inputs for ensemble in model.ensembles_]
    if not all(isinstance(scaler, InputScaler) for scaler in scalers):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the predictions have warned of the same
        rows = model.source_.rows(X, model)
    names = model.source_.names
    named = (
        [str(name) for name in names] if names is not None else [f"column {place}" for place in range(rows.shape[1])]
    )
    seen = InputScaler.around(scalers)
    centre = np.mean([scaler.centre for scaler in scalers], axis=0)
    spread = np.mean([scaler.spread for scaler in scalers], axis=0)
    n_trained = n_trained_rows(model)
    standard_error = float(np.sqrt(1 / len(rows) + (1 / n_trained if n_trained else 0.0)))
    found = [
        _shift(name, rows[:, place], centre[place], spread[place], (seen.low[place], seen.high[place]), standard_error)
        for place, name in enumerate(named)
    ]
    n_inputs = len(found)
    corrected = [Shift(**{**vars(shift), "chance": min(1.0, n_inputs * shift.chance)}) for shift in found]
    return sorted(corrected, key=lambda shift: (shift.chance, -abs(shift.difference) / shift.standard_error))


def _shift(
    name: str, test: Array, centre: float, spread: float, seen: tuple[float, float], standard_error: float
) -> Shift:
    low, high = seen
    mean = float(test.mean())
    if high > low:
        difference = (mean - centre) / spread
        chance = float(2 * norm.sf(abs(difference) / standard_error))
    else:
        same = bool((test == low).all())
        difference, chance = (0.0, 1.0) if same else (float(np.copysign(np.inf, mean - low)), 0.0)
    n_outside = int(((test < low) | (test > high)).sum())
    is_share = bool(low == 0 and high == 1 and np.isin(test, (0.0, 1.0)).all())
    return Shift(name, float(centre), mean, float(difference), standard_error, chance, n_outside, is_share)
