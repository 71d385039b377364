"""The report on a forecaster: what live operation over a period would have given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from coverwell.forecasting import Backtest
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.forecasting.history import History, read_history
from coverwell.plots.style import percent
from coverwell.report.heard import heard_warnings
from coverwell.report.judged import FEWEST_ROWS
from coverwell.report.library import check_library
from coverwell.report.page import Choice, Page, Section, write_page
from coverwell.report.provenance import Source, provenance_section
from coverwell.report.rounds_section import rounds_section
from coverwell.report.rows_report import place_of_level
from coverwell.report.series_data import series_data_section
from coverwell.report.series_sections import (
    bands_section,
    misses_section,
    reached_section,
    residuals_section,
    rolling_section,
    told_time,
)
from coverwell.report.series_views import SeriesView, steps_shown, views_of
from coverwell.report.wording import counted

__all__ = ["write_series_report"]


def write_series_report(
    model: Any,
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
    """Write one HTML file that says how a forecaster does over a period; how many bytes it has.

    Parameters
    ----------
    model : fitted forecaster
    series, start, covariates, past_covariates
        As in `Forecaster.backtest`: the period and at least `past` steps before it.
    path : str or path
        An existing file is replaced once the new one is complete.
    coverage : float, optional
        The fitted level that is shown first; the highest if None.
    title : str, optional
    source : Source, optional
        Files and command to be named.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from coverwell import LSTM, MatchedForecaster
    >>> from coverwell.report import write_series_report
    >>> series = np.sin(np.arange(160) / 5) + 0.1 * np.random.default_rng(0).normal(size=160)
    >>> forecaster = MatchedForecaster(past=8, network=LSTM(hidden=4), max_rounds=1, folds=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_bytes = write_series_report(forecaster.fit(series[:120]), series, f"{folder}/report.html")
    >>> n_bytes < 5_000_000
    True
    """
    check_library()
    if not isinstance(model, SeriesForecaster):
        raise TypeError(f"write_series_report takes a fitted forecaster, got {type(model).__name__}; see write_report")
    check_is_fitted(model)
    shown = place_of_level(model.regressor_._fitted_levels, coverage)
    with heard_warnings() as warned:
        backtest = model.backtest(series, start, covariates=covariates, past_covariates=past_covariates)
        given = read_history(series, covariates, past_covariates, calendar=model.calendar, missing=model.missing)
    views = _views(backtest, live=bool(model.live))
    sections = _sections(model, backtest, given, views, warned)
    sections.append(provenance_section(source or Source(), model))
    return write_page(_page(model, backtest, views, sections, shown, title, source or Source()), Path(path))


def _views(backtest: Backtest, *, live: bool) -> list[SeriesView]:
    views = views_of(backtest, live=live)
    fewest = min(len(view.y) for view in views)
    if fewest < FEWEST_ROWS:
        raise ValueError(
            f"a report needs at least {FEWEST_ROWS} values that came after a forecast of them, got {fewest}; give a "
            "longer period"
        )
    return views


def _sections(
    model: SeriesForecaster, backtest: Backtest, given: History, views: list[SeriesView], warned: list[str]
) -> list[Section]:
    first = backtest.index[0]
    n_seen_before = min(len(backtest), max(0, len(model.history_) - model.history_.clock.position(first)))
    ahead = {view.step - 1: f"{backtest.name}, {counted(view.step, 'step')} ahead" for view in views}
    return [
        reached_section(views, warned, n_seen_before=n_seen_before),
        bands_section(backtest.name, views),
        rolling_section(views),
        misses_section(views),
        residuals_section(backtest.name, views),
        rounds_section(model.regressor_, backtest.levels, ahead, target_key="step"),
        series_data_section(model.history_, given, given.clock.position(first)),
    ]


def _page(
    model: SeriesForecaster,
    backtest: Backtest,
    views: list[SeriesView],
    sections: list[Section],
    shown: int,
    title: str | None,
    source: Source,
) -> Page:
    name = source.model_file.name if source.model_file else type(model).__name__
    steps = steps_shown(backtest.y.shape[1])
    return Page(
        title or f"Report on {name}",
        f"{counted(len(backtest), 'forecast')} of {backtest.name}, {told_time(views[0].times[0])} to "
        f"{told_time(views[0].times[-1])}, up to {counted(backtest.y.shape[1], 'step')} ahead",
        sections,
        (
            Choice("step", "Steps ahead", tuple(map(str, steps))),
            Choice("level", "Level", tuple(percent(level) for level in backtest.levels), shown),
        ),
    )
