"""The charts of `coverwell.plots`, each described once; a report shows the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from coverwell.plots.chart import SLICE, Axis, Chart, CurveStyle, Mark, Table, Tip, drawn, percent, shortened, with_unit
from coverwell.prediction import PredictionInterval

if TYPE_CHECKING:
    from coverwell.slices import Slice, Slices

Array = NDArray[np.float64]

LONE_BAND = 8.0  # points: the width of a band at a single level
ROOMY, THINNEST = 100, 0.25  # rows that a figure shows apart; with more, marks shrink, but not below this share
MISSES_SHOWN = 3.0  # times the misses that the asked coverage allows, or more where there are more
LONGEST_SLICE = 34  # characters; with a count of rows behind it, it fits into 360 pixels
ASKED = Axis("asked coverage", "share", (0, 1))


@drawn
def draw_calibration_curve(
    asked: ArrayLike,
    reached: ArrayLike,
    *,
    label: str | None = None,
    style: CurveStyle | None = None,
    error: ArrayLike | None = None,
    band: tuple[ArrayLike, ArrayLike] | None = None,
    band_label: str | None = None,
) -> Chart:
    """Coverage against the asked coverage, with the diagonal on which both agree; call it once for each method.

    Parameters
    ----------
    asked, reached : array-like (level,)
    label, style : name in the legend, which the caller draws, and CurveStyle
    error : array-like (level,), half the length of a thin bar at every level
    band, band_label : lowest and highest coverage to expect, array-likes (level,), and their name in the legend

    Examples
    --------
    >>> draw_calibration_curve(None, [0.5, 0.9], [0.4, 0.95], label="a method").get_xlabel()
    'asked coverage'
    """
    low, high = (None, None) if band is None else band
    table, curve = _curve(asked, label, style, value=reached, error=error, low=low, high=high)
    marks = [Mark("diagonal", colour="centre", thickness=0.8, once="perfect calibration", z=1.0), *curve]
    tips = [Tip("asked", "asked", "share"), Tip("value", "reached", "share")]
    if band is not None:
        kind: Any = "area" if len(table["asked"]) > 1 else "columns"  # one level has no area
        marks.insert(0, Mark(kind, "asked", "low", "high", "bar", band_label, LONE_BAND, opacity=0.7, z=0.0))
        tips += [Tip("low", "expected from", "share"), Tip("high", "to", "share")]
    return Chart(table, marks, ASKED, Axis("reached coverage", "share", (0, 1)), tips, height=320)


@drawn
def draw_width_curve(
    asked: ArrayLike,
    width: ArrayLike,
    *,
    unit: str | None = None,
    label: str | None = None,
    style: CurveStyle | None = None,
    error: ArrayLike | None = None,
) -> Chart:
    """Average width against the asked coverage, from zero; call it once for each method.

    All but `unit`, that of the target, is as in `draw_calibration_curve`.

    Examples
    --------
    >>> draw_width_curve(None, [0.5, 0.9], [1.0, 3.0], unit="miles per gallon").get_ylabel()
    'average width (miles per gallon)'
    """
    table, curve = _curve(asked, label, style, value=width, error=error)
    tips = [Tip("asked", "asked", "share"), Tip("value", "average width")]
    return Chart(table, curve, ASKED, Axis(with_unit("average width", unit), zero=True), tips)


def _curve(
    asked: ArrayLike, label: str | None, style: CurveStyle | None, **columns: ArrayLike | None
) -> tuple[Table, list[Mark]]:
    """The table of a curve through the column `value`, and its marks; the column `error` becomes bars."""
    levels, style = np.asarray(asked, dtype=np.float64), style or CurveStyle()
    table = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items() if values is not None}
    for values in table.values():
        if levels.ndim != 1 or levels.size == 0 or values.shape != levels.shape:
            must = "a curve has one value at every level: expected two arrays of one shape (level,)"
            raise ValueError(f"{must}, got {levels.shape} and {values.shape}; draw several methods one after the other")
    if not (np.diff(levels) > 0).all() or levels[0] <= 0 or levels[-1] >= 1:
        raise ValueError(f"asked must rise strictly between 0 and 1, got {levels.tolist()}; sort the levels first")
    line = Mark("line", "asked", "value", "", style.colour, label, style.thickness, style.dash, style.marker, z=3.0)
    marks, half = [replace(line, size=2.6 + 0.6 * style.thickness)], table.pop("error", None)
    if half is not None:
        table |= {"below": table["value"] - half, "above": table["value"] + half}
        marks.append(Mark("columns", "asked", "below", "above", style.colour, thickness=0.8, z=3.0))
    return {"asked": levels, **table}, marks


def split_points(x: str, y: str, column: str, labels: Sequence[str], sizes: Sequence[float] = (5.0, 7.0)) -> list[Mark]:
    """Points in two colours and shapes: first those where a column of the table is true."""
    true = Mark("points", x, y, label=labels[0], marker="o", size=sizes[0], where=column, z=3.0)
    return [true, replace(true, colour="outside", label=labels[1], marker="X", size=sizes[1], where=f"!{column}")]


@drawn
def draw_intervals(
    interval: PredictionInterval,
    *,
    prediction: ArrayLike,
    y: ArrayLike | None = None,
    along: ArrayLike | None = None,
    along_name: str = "feature",
    unit: str | None = None,
) -> Chart:
    """Every row's interval as a bar, with its prediction and, where it is known, the observed value.

    Rows stand side by side from the lowest prediction to the highest, or each at its value of a feature. A figure
    has room for a few hundred rows; draw a sample of more.

    Parameters
    ----------
    interval : PredictionInterval of one target and one level, bounds `(n,)`
    prediction, y : array-like (n,)
    along, along_name : array-like (n,) of numbers or dates, where each row stands on the horizontal axis, and its name
    unit : str, of the target

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_intervals(None, interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'prediction', 'observed, inside (1)', 'observed, outside (1)']
    """
    centre, bounds = np.asarray(prediction, dtype=np.float64), {"lower": interval.lower, "upper": interval.upper}
    if interval.lower.ndim != 1 or centre.shape != interval.lower.shape:
        must = "a figure shows one target at one level: bounds and prediction must have one shape (n,)"
        got = f"got {interval.lower.shape} and {centre.shape}; choose with predict_interval(X, coverage=...)"
        raise ValueError(f"{must}, {got}")
    place: NDArray[Any] = rankdata(centre, method="ordinal")
    across = Axis("row, from the lowest prediction to the highest", domain=(0, len(centre) + 1))
    if along is not None:
        place = np.asarray(along)
        if place.dtype.kind not in "biufM":
            raise ValueError(f"along must hold numbers or dates, got {place.dtype}; draw the rows of each text apart")
        odd = np.isnat(place) if place.dtype.kind == "M" else ~np.isfinite(place)
        if place.shape != centre.shape or odd.any():
            got = f"got {place.shape} with {odd.sum()} that are missing or infinite; leave these rows out"
            raise ValueError(f"along must have one finite number per row, {centre.shape}, {got}")
        across = Axis(along_name, "time" if place.dtype.kind == "M" else "number")
    shrunk = max(THINNEST, min(1.0, ROOMY / len(centre)))
    dot = max(shrunk, 0.4)
    table: Table = {"place": place, "prediction": centre, **bounds}
    label = f"{percent(np.max(interval.coverage))} interval"
    marks = [
        Mark("columns", "place", "lower", "upper", "bar", label, 3 * shrunk),
        Mark("points", "place", "prediction", "", "centre", "prediction", marker="_", size=5 * dot, edge=-1.0),
    ]
    if y is not None:
        table |= {"y": np.asarray(y, dtype=np.float64), "inside": interval.contains(y)}
        n_inside = int(table["inside"].sum())
        labels = f"observed, inside ({n_inside})", f"observed, outside ({len(centre) - n_inside})"
        sizes = (18 * dot) ** 0.5, (40 * dot) ** 0.5  # a miss is what one looks for
        marks += split_points("place", "y", "inside", labels=labels, sizes=sizes)
    order = np.argsort(place, kind="stable")
    table = {name: values[order] for name, values in table.items()}
    return Chart(table, marks, across, Axis(with_unit(interval.target_names[0], unit)), legend="below")


@drawn
def draw_forecast(
    time: ArrayLike,
    interval: PredictionInterval,
    *,
    prediction: ArrayLike,
    y: ArrayLike | None = None,
    static: PredictionInterval | None = None,
) -> Chart:
    """A stretch of a series: the band of its intervals, the forecasts, and the observed values, those outside marked.

    The caller draws the legend: `legend_below(ax)` covers nothing.

    Parameters
    ----------
    time : array-like (n,) of numbers or `datetime64` stamps
    interval : PredictionInterval of one level, bounds `(n,)`
    prediction, y : array-like (n,); NaN where nothing was observed
    static : PredictionInterval to compare with, drawn as two thin lines

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_forecast(None, [1, 2], interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'forecast', 'observed', 'observed, outside']
    """
    times, centre = np.asarray(time), np.asarray(prediction, dtype=np.float64)
    if interval.lower.ndim != 1 or not centre.shape == times.shape == interval.lower.shape:
        must = "a figure shows one step ahead at one level: time, prediction and bounds must have one shape (n,)"
        raise ValueError(f"{must}, got {times.shape}, {centre.shape} and {interval.lower.shape}")
    table: Table = {"time": times, "prediction": centre, "lower": interval.lower, "upper": interval.upper}
    marks = [Mark("area", "time", "lower", "upper", "band", f"{percent(np.max(interval.coverage))} interval", z=1.0)]
    if static is not None:
        table |= {"static_lower": static.lower, "static_upper": static.upper}
        for bound, label in (("static_lower", "static interval"), ("static_upper", None)):
            marks.append(Mark("line", "time", bound, "", "other", label, 0.7, "--"))
    marks.append(Mark("line", "time", "prediction", label="forecast", thickness=0.8))
    if y is not None:
        observed = np.asarray(y, dtype=np.float64)
        table |= {"y": observed, "outside": (observed < interval.lower) | (observed > interval.upper)}
        cross: dict[str, Any] = {"marker": "X", "size": 5.0, "edge": 0.4, "where": "outside"}
        marks.append(Mark("points", "time", "y", "", "ink", "observed", marker=".", size=0.0))
        marks.append(Mark("points", "time", "y", "", "outside", "observed, outside", **cross))
    across, tip = _time(times, (times[0], times[-1]))
    tips = [tip, Tip("y", "observed"), Tip("prediction", "forecast"), Tip("lower", "lower"), Tip("upper", "upper")]
    return Chart(table, marks, across, Axis(None), tips, height=320)


@drawn
def draw_rolling_coverage(
    time: ArrayLike, coverage: ArrayLike, *, asked: float, label: str | None = None, style: CurveStyle | None = None
) -> Chart:
    """Coverage over a window that moves through time, against the asked one; call it once for each kind of interval.

    The axis ends at 1 and shows at least three times the misses that were asked for, so that small changes look small.

    Parameters
    ----------
    time, coverage : array-like (n,), where each window ends, and its coverage
    asked : float
    label, style : as in `draw_calibration_curve`, without markers

    Examples
    --------
    >>> draw_rolling_coverage(None, [1, 2], [0.9, 0.96], asked=0.95, label="live").lines[1].get_label()
    'live'
    """
    times, shares = np.asarray(time), np.asarray(coverage, dtype=np.float64)
    if times.ndim != 1 or times.shape != shares.shape:
        raise ValueError(f"time and coverage must have one shape (n,), got {times.shape} and {shares.shape}")
    style, (across, tip) = style or CurveStyle(), _time(times)
    marks = [
        Mark("rule", "", asked, colour="centre", thickness=0.8, once="asked coverage", z=1.0),
        Mark("line", "time", "coverage", "", style.colour, label, style.thickness, style.dash, z=3.0),
    ]
    lowest = max(0.0, min(1 - MISSES_SHOWN * (1 - asked), float(np.nanmin(shares))))
    table, up = {"time": times, "coverage": shares}, Axis(None, "share", (lowest, 1.0))
    tips = [tip, Tip("coverage", label or "coverage of the window", "share")]
    return Chart(table, marks, across, up, tips, height=240)


def _time(times: NDArray[Any], domain: Any = None) -> tuple[Axis, Tip]:
    if times.dtype.kind == "M":
        return Axis(None, "time", domain), Tip("time", "time", "time")
    return Axis("step", "number", domain), Tip("time", "step", "count")


@drawn
def draw_rounds(
    values: ArrayLike, *, label: str | None = None, style: CurveStyle | None = None, asked: float | None = None
) -> Chart:
    """A measure by round: its mean over trials, and a shade from the lowest trial to the highest.

    Trials may end at different rounds. Where one has ended, the mean is over those that go on, which are not a random
    choice: there its line is thin and dotted.

    Parameters
    ----------
    values : array-like (trial, round), NaN after a trial has ended
    label, style : as in `draw_calibration_curve`
    asked : float, a level to compare with, drawn as a thin line across

    Examples
    --------
    >>> ax = draw_rounds(None, [[3.0, 2.0, 1.5], [5.0, 4.0, float("nan")]], label="RMSE")
    >>> [line.get_ydata().tolist() for line in ax.lines]
    [[4.0, 3.0], [3.0, 1.5]]
    """
    trials = np.asarray(values, dtype=np.float64)
    if trials.ndim != 2 or trials.size == 0:
        raise ValueError(f"values must have the shape (trial, round), got {trials.shape}; one trial is values[None, :]")
    there = ~np.isnan(trials)
    if not there[:, 0].all() or (np.diff(there.astype(int), axis=1) > 0).any():
        raise ValueError("every trial must have its rounds from the first on and NaN only after its last, got gaps")
    if not there[:, -1].any():
        raise ValueError(f"no trial has round {trials.shape[1]}; drop the rounds that none has")
    whole, rounds, style = int(there.all(axis=0).sum()), np.arange(1, trials.shape[1] + 1), style or CurveStyle()
    table: Table = {"round": rounds, "value": np.nanmean(trials, axis=0)}  # (trial, round) -> (round,)
    table |= {"low": np.nanmin(trials, axis=0), "high": np.nanmax(trials, axis=0)}
    table |= {"whole": rounds <= whole, "later": rounds >= whole}  # joined at the last round that all trials have
    marks = [Mark("area", "round", "low", "high", style.colour, opacity=0.2, z=1.0)]
    if asked is not None:
        marks.insert(0, Mark("rule", "", asked, colour="centre", thickness=0.8, z=1.0))
    line = Mark("line", "round", "value", "", style.colour, label, style.thickness, style.dash, where="whole", z=3.0)
    marks.append(replace(line, marker="o" if whole == 1 else ""))  # a line of one point cannot be seen
    if whole < len(rounds):
        marks.append(replace(line, label=None, thickness=0.7 * style.thickness, dash=":", where="later"))
    across = Axis("round", "round", (1, len(rounds)) if len(rounds) > 1 else (0, 2))
    kind: Any = "number" if asked is None else "share"
    tips = [Tip("round", "round", "count"), Tip("value", "value", kind)]
    return Chart(table, marks, across, Axis(None, kind), tips, height=200)


@drawn
def draw_slices(slices: Slices, *, most: int = 20) -> Chart:
    """The coverage of each slice of the rows with its 95 % confidence interval, the worst on top.

    First come those that fall short by more than chance, however many were compared (see `Slices.worst`), in a colour
    and a marker of their own. Behind each, a band shows where 19 of 20 slices of its size lie if each row is inside
    with exactly the asked probability. A quarter of an inch per slice is enough.

    Parameters
    ----------
    slices : Slices, from `coverwell.slices.slices_of`
    most : int, how many to draw

    Examples
    --------
    >>> from coverwell.slices import slices_of
    >>> found = slices_of([True, True, True, False], {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> ax = draw_slices(None, found)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['city: Oslo (2 rows)', 'city: Rome (2 rows)']
    """
    if most < 1 or not len(slices):
        raise ValueError(f"there must be a slice to draw, got most={most!r} of {len(slices)}; cut the rows by a column")
    return slices_chart(slices, slices.worst(most))


def slices_chart(slices: Slices, parts: Sequence[Slice]) -> Chart:
    """Some of the slices, one below the other."""
    asked, n_rows, short = slices.asked, np.array([part.n_rows for part in parts]), set(slices.short)
    low, high = binom.interval(0.95, n_rows, asked)
    table: Table = {"place": np.arange(len(parts)), "name": [], "band_low": low / n_rows, "band_high": high / n_rows}
    table |= {name: np.array([getattr(part, name) for part in parts]) for name in ("coverage", "low", "high")}
    table |= {"expected": np.array([part not in short for part in parts]), "chance": []}
    for part in parts:
        values = shortened(part.values, LONGEST_SLICE - 10)  # they stay: they tell slices of a column apart
        column = shortened(part.column, LONGEST_SLICE - 2 - len(values))
        table["name"].append(f"{column}: {values} ({part.n_rows:,} row{'s' * (part.n_rows != 1)})")
        table["chance"].append(f"at most {max(slices.chance(part), 0.0001):.1g}" if part in short else "may be")
    labels = "reached", f"reached, short by more than chance (of {len(slices)} slices)"
    behind = f"where 19 of 20 lie if it is exactly {percent(asked)}"
    marks = [
        Mark("rows", "band_low", "place", "band_high", "bar", behind, 12.0, opacity=0.7, z=1.0),
        Mark("rule", asked, colour="centre", label=f"asked, {percent(asked)}", thickness=0.8, z=1.0),
        Mark("rows", "low", "place", "high", "inside", thickness=1.0, where="expected", z=3.0),
        Mark("rows", "low", "place", "high", "outside", thickness=1.0, where="!expected", z=3.0),
        *split_points("coverage", "place", "expected", labels=labels),
    ]
    tips = [Tip("name", "slice", "text"), Tip("coverage", "coverage", "share")]
    tips += [Tip("low", "95 % interval from", "share"), Tip("high", "to", "share"), Tip("chance", "by chance", "text")]
    across = Axis("coverage, with 95 % confidence intervals", "share", (0, 1.02))  # a marker at 1 is whole
    return Chart(table, marks, across, Axis(None, "slice"), tips, legend="right", height=SLICE * len(parts))
