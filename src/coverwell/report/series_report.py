"""The report on a forecaster: what live operation over a period would have given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from coverwell import metrics
from coverwell.forecasting import Backtest
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.plots.style import percent
from coverwell.report.charts import bands_spec, rolling_spec
from coverwell.report.judged import FEWEST_ROWS
from coverwell.report.library import check_library
from coverwell.report.page import Block, Chart, Choice, Figures, Mark, Page, Section, Table, Text, write_page
from coverwell.report.provenance import Source, provenance_section
from coverwell.report.rounds_section import rounds_section
from coverwell.report.row_sections import histogram_of
from coverwell.report.rows_report import place_of_level
from coverwell.report.series_views import SeriesView, steps_shown, views_of, window_of, worst_stretch
from coverwell.report.wording import as_text, counted, number, share

__all__ = ["write_series_report"]

Array = NDArray[np.float64]

STRETCH = 150  # values in a picture
MOST_WINDOWS_DRAWN = 400
MOST_MISSES = 10
LIVE, STATIC = "with live calibration", "without it"


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
    backtest = model.backtest(series, start, covariates=covariates, past_covariates=past_covariates)
    return write_page(_page(model, backtest, shown, title, source or Source()), Path(path))


def _page(model: SeriesForecaster, backtest: Backtest, shown: int, title: str | None, source: Source) -> Page:
    steps, views = steps_shown(backtest.y.shape[1]), views_of(backtest)
    fewest = min(len(view.y) for view in views)
    if fewest < FEWEST_ROWS:
        raise ValueError(
            f"a report needs at least {FEWEST_ROWS} values that came after a forecast of them, got {fewest}; give a "
            "longer period"
        )
    ahead = {step - 1: f"{backtest.name}, {counted(step, 'step')} ahead" for step in steps}
    sections = [
        _reached(views, live=bool(model.live)),
        _bands(backtest.name, views),
        _rolling(views),
        _misses(views),
        _residuals(backtest.name, views),
        rounds_section(model.regressor_, backtest.levels, ahead, target_key="step"),
        _data(model, backtest),
        provenance_section(source, model),
    ]
    name = source.model_file.name if source.model_file else type(model).__name__
    return Page(
        title or f"Report on {name}",
        f"{counted(len(backtest), 'forecast')} of {backtest.name}, {_told(views[0].times[0])} to "
        f"{_told(views[0].times[-1])}, up to {counted(backtest.y.shape[1], 'step')} ahead",
        sections,
        (
            Choice("step", "Steps ahead", tuple(map(str, steps))),
            Choice("level", "Level", tuple(percent(level) for level in backtest.levels), shown),
        ),
    )


def _told(time: Any) -> str:
    return as_text(time) if isinstance(time, np.datetime64) else f"step {time}"


def _reached(views: list[SeriesView], *, live: bool) -> Section:
    blocks: list[Block] = []
    for view in views:
        low, high = view.band
        static = [("reached without live calibration", share(float(view.static_inside.mean())))] if live else []
        figures = [
            ("asked", percent(view.asked)),
            ("reached", share(float(view.inside.mean()))),
            ("expected band", f"{share(low)} to {share(high)}"),
            *static,
            ("typical error (RMSE)", number(float(metrics.rmse(view.y, view.prediction)))),
            ("mean width", number(float(view.width.mean()))),
        ]
        tone = "good" if low <= view.inside.mean() <= high else "bad"
        blocks += [Figures(tuple(figures), view.when), Text(_verdict(view), tone, view.when)]
    heads = ("steps ahead", "asked", "reached", "without live calibration", "expected", "mean width", "interval score")
    blocks.append(Table("All steps and levels", heads, [_line(view) for view in views]))
    lead = "A forecast is right if the value that came lies in its interval; coverage is the share of such values."
    return Section("reached", "What was asked, and what was reached", lead, blocks)


def _verdict(view: SeriesView) -> str:
    low, high = view.band
    reached = float(view.inside.mean())
    where = "✓ inside" if low <= reached <= high else "✕ below" if reached < low else "✕ above"
    worst = worst_stretch(view.inside, window_of(len(view.y)))
    return (
        f"{int(view.inside.sum()):,} of {len(view.y):,} values lie inside their {percent(view.asked)} interval, "
        f"{share(reached)}: {where} the band of {share(low)} to {share(high)} in which nine of ten periods of so many "
        "values lie if each is inside with the asked probability, independently of the others. In a series misses "
        f"often come together, and then coverage varies more than this. The worst {worst.n} values in a row begin at "
        f"{_told(view.times[worst.first])}, with {share(worst.coverage)} inside."
    )


def _line(view: SeriesView) -> tuple[str, ...]:
    low, high = view.band
    return (
        f"{view.step}",
        percent(view.asked),
        share(float(view.inside.mean())),
        share(float(view.static_inside.mean())),
        f"{share(low)} to {share(high)}",
        number(float(view.width.mean())),
        number(float(metrics.interval_score(view.y, view.lower, view.upper, view.asked))),
    )


def _bands(name: str, views: list[SeriesView]) -> Section:
    options = ("the worst stretch", "the beginning", "the end")
    blocks: list[Block] = []
    for view in views:
        n = min(STRETCH, len(view.y))
        worst = worst_stretch(view.inside, n)
        for place, first in enumerate((worst.first, 0, len(view.y) - n)):
            rows = slice(first, first + n)
            told = (
                f"{options[place].capitalize()}: {counted(n, 'value')} from {_told(view.times[first])} to "
                f"{_told(view.times[first + n - 1])}; {int(view.inside[rows].sum())} of them inside at "
                f"{percent(view.asked)}."
            )
            marks = (
                Mark("▮", "band", f"{percent(view.asked)} interval, {LIVE}"),
                Mark("╌", "other", f"the interval {STATIC}"),
                Mark("━", "inside", "forecast"),
                Mark("●", "ink", "value that came, inside"),
                Mark("✚", "outside", "value that came, outside"),
            )
            spec = bands_spec(name, dates=view.dates)
            blocks.append(Chart(spec, _band_records(view, rows), told, marks, {**view.when, "stretch": place}))
    lead = "The band is where the next value was said to lie; it follows what was missed before."
    choice = Choice("stretch", "Period", options)
    return Section("bands", "Forecasts and what came", lead, blocks, choice)


def _band_records(view: SeriesView, rows: slice) -> list[dict[str, Any]]:
    columns = {
        "time": [_json_time(time) for time in view.times[rows]],
        "y": view.y[rows].tolist(),
        "prediction": view.prediction[rows].tolist(),
        "lower": view.lower[rows].tolist(),
        "upper": view.upper[rows].tolist(),
        "static_lower": view.static_lower[rows].tolist(),
        "static_upper": view.static_upper[rows].tolist(),
        "fits": view.inside[rows].tolist(),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _json_time(time: Any) -> Any:
    return str(time.astype("datetime64[s]")) if isinstance(time, np.datetime64) else int(time)


def _rolling(views: list[SeriesView]) -> Section:
    blocks: list[Block] = []
    for view in views:
        window = window_of(len(view.y))
        live, static = (metrics.rolling_coverage(inside, window) for inside in (view.inside, view.static_inside))
        drawn = np.unique(np.round(np.linspace(0, len(live) - 1, min(len(live), MOST_WINDOWS_DRAWN))).astype(int))
        records = [
            {
                "time": _json_time(view.times[place + window - 1]),
                "live": live[place],
                "static": static[place],
                "asked": view.asked,
            }
            for place in drawn
        ]
        told = (
            f"The share inside among the latest {window} values: between {share(live.min())} and {share(live.max())} "
            f"{LIVE}, between {share(static.min())} and {share(static.max())} {STATIC}."
        )
        marks = (Mark("━", "inside", LIVE), Mark("╌", "other", STATIC), Mark("─", "centre", "asked"))
        blocks.append(Chart(rolling_spec(dates=view.dates), records, told, marks, view.when))
    lead = "Coverage that is right over the whole period may still be wrong for a long while; this shows when."
    return Section("rolling", "Coverage over time", lead, blocks)


def _misses(views: list[SeriesView]) -> Section:
    blocks: list[Block] = []
    for view in views:
        places = [
            place for place in np.argsort(-view.missed_by, kind="stable")[:MOST_MISSES] if view.missed_by[place] > 0
        ]
        if not places:
            blocks.append(Text("No value lies outside its interval.", when=view.when))
            continue
        heads = ("time", "observed", "predicted", "lower", "upper", "missed by")
        numbers = (view.y, view.prediction, view.lower, view.upper, view.missed_by)
        rows = [(_told(view.times[place]), *(f"{values[place]:.5g}" for values in numbers)) for place in places]
        caption = f"{len(places)} of {int((~view.inside).sum()):,} values outside, the farthest first"
        blocks.append(Table(caption, heads, rows, texts=("time",), when=view.when))
    return Section("misses", "The largest misses", "The values that surprised the forecaster most.", blocks)


def _residuals(name: str, views: list[SeriesView]) -> Section:
    first_of_step = {view.when["step"]: view for view in reversed(views)}
    blocks: list[Block] = [
        histogram_of(name, view.y - view.prediction, {"step": step}, "value")
        for step, view in sorted(first_of_step.items())
    ]
    return Section("residuals", "Residuals", "How far the values that came lie from the forecasts.", blocks)


def _data(model: SeriesForecaster, backtest: Backtest) -> Section:
    seen, came = model.history_.values, backtest.y[:, 0]
    rows = [
        (what, f"{len(values):,}", f"{int(np.isnan(values).sum()):,}", *map(number, _summary(values)))
        for what, values in (("seen by the forecaster", seen), ("this period", came))
    ]
    heads = ("", "steps", "missing", "lowest", "median", "highest", "mean", "standard deviation")
    low, high = np.nanmin(seen), np.nanmax(seen)
    n_outside = int(((came < low) | (came > high)).sum())
    text = (
        f"{counted(n_outside, 'value')} of this period lie outside the range of all that the forecaster had seen."
        if n_outside
        else "All values of this period lie in the range of those that the forecaster had seen."
    )
    step = model.history_.clock.step_in_words()
    lead = f"The series has steps of {step}; what came is compared with what was seen before."
    table = Table(f"{backtest.name} in both periods", heads, rows, texts=("",))
    return Section("data", "The data, and drift", lead, [table, Text(text, "note")])


def _summary(values: Array) -> tuple[float, ...]:
    there = values[~np.isnan(values)]
    return tuple(float(value) for value in (there.min(), np.median(there), there.max(), there.mean(), there.std()))
