"""Settings as flat dictionaries, which candidates of a search merge and change one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coverwell import Schedule


def as_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `MatchedRegressor` or `MatchedForecaster`: numbers of the training go into a `Schedule`."""
    numbers = {name: settings[name] for name in vars(Schedule()) if name in settings}
    others = {name: value for name, value in settings.items() if name not in numbers}
    return {**others, "schedule": replace(settings.get("schedule", Schedule()), **numbers)}
