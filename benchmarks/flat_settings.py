"""Settings as flat dictionaries, which candidates of a search merge and change one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coverwell import MLP, Schedule

# The default of 0.1.0, from which the first searches started.
FIRST_VERSION: dict[str, Any] = {
    "matching": "sigma",
    "companions": (),
    "calibration": "cross",
    "network": MLP(hidden=128, dropout=0.1),
    "interval_network": MLP(hidden=128, dropout=0.2),
    "mean_epochs": 10,
    "interval_epochs": 10,
    "max_rounds": 100,
    "patience": 6,
    "learning_rate": 1e-3,
    "growth": 1.0,
}


def as_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `MatchedRegressor` or `MatchedForecaster`: numbers of the training go into a `Schedule`."""
    numbers = {name: settings[name] for name in vars(Schedule()) if name in settings}
    others = {name: value for name, value in settings.items() if name not in numbers}
    return {**others, "schedule": replace(settings.get("schedule", Schedule()), **numbers)}
