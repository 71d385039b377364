"""Reports on fitted models: one HTML file each, which needs no network and opens from disk."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from coverwell.description import ModelDescription
from coverwell.evaluation import ClassOutcome, Outcome, class_outcome_of, forecast_outcome, outcome_of, place_of_level
from coverwell.report.facts import Source, counted, time_of
from coverwell.report.page import check_library, rendered, write_page

__all__ = ["Source", "write_report", "write_series_report"]

FEWEST_ROWS = 10
MOST_STEPS = 4  # ahead, that can be chosen
MOST_VIEWS = 150  # targets times levels: a page holds the charts of each


def write_report(
    model: object,
    X: Any,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    coverage: float | None = None,
    title: str | None = None,
    quantiles: int = 4,
    row_numbers: ArrayLike | None = None,
    n_skipped: int = 0,
    boxes: bool | None = None,
    source: Source | None = None,
) -> int:
    """Write one HTML file on how a model does on rows it has not seen; returns the number of bytes.

    It needs the extra `report`. The file loads nothing from a network.

    Parameters
    ----------
    model : fitted regressor or classifier
    X : array-like or data frame (n, feature), or images, as in `fit`
        At least ten rows that were not trained on. The worst images and some others are shown.
    y : array-like (n,) or (n, target); of a classifier the classes (n,)
    path : str or path; an existing file is replaced once the new one is complete
    groups : mapping from name to array-like (n,), by which coverage is shown as well, such as a region or a customer
    coverage : float, the fitted level that is shown first; the highest if None
    title : str
    quantiles : int, into how many slices numbers are cut
    row_numbers : array-like of int (n,), names of rows in the list of misses; by default they are counted from 0
    n_skipped : int, rows that were left out before because a target is missing
    boxes : bool, whether the four targets of images are boxes (left, top, width and height in fractions of the sides)
        By default they are if the model was fitted with a network that mirrors boxes.
    source : Source, files and command to be named

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MatchedRegressor, Schedule
    >>> X, y = make_regression(n_samples=60, n_features=2, noise=5, random_state=0)
    >>> model = MatchedRegressor(schedule=Schedule(max_rounds=1), random_state=0).fit(X[:40], y[:40])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model, X[40:], y[40:], f"{folder}/report.html") < 5_000_000
    True
    """
    check_library()
    description, source = ModelDescription(model), source or Source()
    if description.takes == "series":
        takes = f"write_report takes a fitted regressor or classifier, got {description.name}"
        raise TypeError(f"{takes}; see write_series_report")
    level = place_of_level(description.levels, coverage)
    about: dict[str, Any] = {"groups": groups, "quantiles": quantiles, "row_numbers": row_numbers}
    if description.classes and boxes:
        raise ValueError("boxes are targets of a regressor, and this model predicts classes; leave it out")
    about |= {} if description.classes else {"boxes": boxes}
    read: Callable[..., Outcome | ClassOutcome] = class_outcome_of if description.classes else outcome_of
    outcome = read(model, X, y, n_skipped=n_skipped, **about)
    if len(outcome) < FEWEST_ROWS:
        why = f"since fewer tell nothing about coverage, got {len(outcome)}; give more rows"
        raise ValueError(f"a report needs at least {FEWEST_ROWS} rows whose targets are known, {why}")
    of = f" of {source.data_file.name}" if source.data_file else ""
    how = f", one of {len(description.classes)} classes, with sets" if description.classes else " with intervals"
    shown = outcome.of_targets(targets_to_show(outcome)) if isinstance(outcome, Outcome) else outcome
    names, n_shown, n_targets = ", ".join(shown.target_names), len(shown.target_names), len(outcome.target_names)
    worst = (
        f"{n_targets} targets{how}; shown are the {n_shown} whose coverage lies farthest from what was asked: {names}"
    )
    what = f"{names}{how}" if n_shown == n_targets else worst
    subtitle = f"{counted(len(outcome), 'row')}{of}; prediction of {what}"
    page = rendered(shown, description, title=title, subtitle=subtitle, level=level, source=source)
    return write_page(page, Path(path))


def targets_to_show(outcome: Outcome) -> list[int]:
    """The places of the targets that a page has room for: those whose coverage lies farthest from what was asked."""
    y, room = outcome.y[..., None], max(1, MOST_VIEWS // len(outcome.levels))
    inside = ((outcome.lower <= y) & (y <= outcome.upper)).sum(axis=0)
    coverage = inside / np.maximum(1, (~np.isnan(y)).sum(axis=0))
    off = np.abs(coverage - outcome.levels).max(axis=1)
    worst: list[int] = np.sort(np.argsort(-off, kind="stable")[:room]).tolist()
    return worst


def write_series_report(
    model: object,
    series: Any,
    path: str | os.PathLike[str],
    *,
    start: Any = None,
    covariates: Any = None,
    past_covariates: Any = None,
    coverage: float | None = None,
    title: str | None = None,
    source: Source | None = None,
) -> int:
    """Write one HTML file on how a forecaster does over a period; returns the number of bytes.

    Parameters
    ----------
    model : fitted forecaster
    series, start, covariates, past_covariates : as in `Forecaster.backtest`
        The period and at least `past` steps before it.
    path, coverage, title, source : as in `write_report`

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from coverwell import LSTM, MatchedForecaster, Schedule
    >>> series = np.sin(np.arange(160) / 5) + 0.1 * np.random.default_rng(0).normal(size=160)
    >>> forecaster = MatchedForecaster(past=8, network=LSTM(hidden=4), schedule=Schedule(max_rounds=1), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_series_report(forecaster.fit(series[:120]), series, f"{folder}/report.html") < 5_000_000
    True
    """
    check_library()
    description = ModelDescription(model)
    if description.takes != "series":
        raise TypeError(f"write_series_report takes a fitted forecaster, got {description.name}; see write_report")
    level = place_of_level(description.levels, coverage)
    outcome = forecast_outcome(model, series, start, covariates=covariates, past_covariates=past_covariates)
    horizon = len(outcome.target_names)
    steps = np.linspace(0, horizon - 1, min(horizon, MOST_STEPS)).round().astype(int)
    outcome = outcome.of_targets(np.unique(steps).tolist())
    fewest = min(len(view.y) for view in outcome.views)
    if fewest < FEWEST_ROWS:
        needed = f"a report needs at least {FEWEST_ROWS} values that came after a forecast of them"
        raise ValueError(f"{needed}, got {fewest}; give a longer period")
    first, last = (time_of(outcome.views[0], place) for place in (0, -1))
    about = f"{counted(len(outcome), 'forecast')} of {next(iter(description.seen))}, {first} to {last}"
    subtitle = f"{about}, up to {counted(horizon, 'step')} ahead"
    page = rendered(outcome, description, title=title, subtitle=subtitle, level=level, source=source)
    return write_page(page, Path(path))
