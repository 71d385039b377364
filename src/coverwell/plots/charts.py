"""The charts of `coverwell.plots`, each described once; a report shows the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from coverwell.evaluation import BY_CHANCE, Slice, Slices
from coverwell.plots.axes import drawn
from coverwell.plots.grammar import SLICE, Axis, Chart, CurveStyle, Mark, Table, Tip, percent, shortened, with_unit
from coverwell.prediction import PredictionInterval

Array = NDArray[np.float64]

LONE_BAND = 8.0  # points: the width of a band at a single level
ROOMY, THINNEST = 100, 0.25  # rows that a figure shows apart; with more, marks shrink, but not below this share
MISSES_SHOWN = 3.0  # times the misses that the asked coverage allows, or more where there are more
LONGEST_SLICE = 34  # characters; with a count of rows behind it, it fits into 360 pixels


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
    band, band_label : two array-likes (level,), lowest and highest coverage to expect, and their name in the legend

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_calibration_curve(Figure().subplots(), [0.5, 0.9], [0.4, 0.95], label="a method")
    >>> ax.get_legend_handles_labels()[1]
    ['a method']
    """
    table, curve = _curve(asked, reached, label, style, error)
    marks = [Mark("diagonal", colour="centre", thickness=0.8, once="perfect calibration", z=1.0), *curve]
    tips = [Tip("asked", "asked", "share"), Tip("value", "reached", "share")]
    if band is not None:
        table["low"], table["high"] = (_levels(asked, edge)[1] for edge in band)
        kind: Any = "area" if len(table["asked"]) > 1 else "columns"  # one level has no area
        marks.insert(0, Mark(kind, "asked", "low", "high", "bar", band_label, LONE_BAND, opacity=0.7, z=0.0))
        tips += [Tip("low", "expected from", "share"), Tip("high", "to", "share")]
    across, up = Axis("asked coverage", "share", (0, 1)), Axis("reached coverage", "share", (0, 1))
    return Chart(table, marks, across, up, tips, height=320)


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

    Parameters
    ----------
    asked, width : array-like (level,)
    unit : str, of the target
    label, style, error : as in `draw_calibration_curve`

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_width_curve(Figure().subplots(), [0.5, 0.9], [1.0, 3.0], unit="miles per gallon")
    >>> ax.get_ylabel()
    'average width (miles per gallon)'
    """
    table, curve = _curve(asked, width, label, style, error)
    axes = Axis("asked coverage", "share", (0, 1)), Axis(with_unit("average width", unit), zero=True)
    return Chart(table, curve, *axes, [Tip("asked", "asked", "share"), Tip("value", "average width")])


def _levels(asked: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    asked, values = np.asarray(asked, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if asked.ndim != 1 or asked.size == 0 or values.shape != asked.shape:
        raise ValueError(
            f"a curve has one value at every level: expected two arrays of one shape (level,), got {asked.shape} and "
            f"{values.shape}; draw several methods one after the other"
        )
    if not (np.diff(asked) > 0).all() or asked[0] <= 0 or asked[-1] >= 1:
        raise ValueError(f"asked must rise strictly between 0 and 1, got {asked.tolist()}; sort the levels first")
    return asked, values


def _curve(
    asked: ArrayLike, values: ArrayLike, label: str | None, style: CurveStyle | None, error: ArrayLike | None
) -> tuple[Table, list[Mark]]:
    levels, heights = _levels(asked, values)
    table, style = {"asked": levels, "value": heights}, style or CurveStyle()
    look: dict[str, Any] = {"thickness": style.thickness, "dash": style.dash, "marker": style.marker}
    marks = [Mark("line", "asked", "value", "", style.colour, label, size=2.6 + 0.6 * style.thickness, z=3.0, **look)]
    if error is not None:
        half = _levels(asked, error)[1]
        table |= {"below": heights - half, "above": heights + half}
        marks.append(Mark("columns", "asked", "below", "above", style.colour, thickness=0.8, z=3.0))
    return table, marks


def split_points(
    x: str, y: str, column: str, *, labels: Sequence[str | None] = (None, None), sizes: Sequence[float] = (5.0, 7.0)
) -> list[Mark]:
    """Points in two colours and shapes: first those where a column of the table is true."""
    looks = zip((column, f"!{column}"), ("inside", "outside"), "oX", labels, sizes, strict=True)
    return [
        Mark("points", x, y, colour=colour, label=label, marker=marker, size=size, where=where, z=3.0)
        for where, colour, marker, label, size in looks
    ]


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

    Rows stand side by side from the lowest prediction to the highest, or each at its value of a feature. A few hundred
    rows can be told apart; draw a sample of more.

    Parameters
    ----------
    interval : PredictionInterval of one target and one level, bounds `(n,)`
    prediction, y : array-like (n,)
    along, along_name : array-like (n,) of numbers or dates, where each row stands on the horizontal axis, and its name
    unit : str, of the target

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_intervals(Figure().subplots(), interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'prediction', 'observed, inside (1)', 'observed, outside (1)']
    """
    centre = np.asarray(prediction, dtype=np.float64)
    if interval.lower.ndim != 1 or centre.shape != interval.lower.shape:
        raise ValueError(
            "a figure shows one target at one level: bounds and prediction must have one shape (n,), got "
            f"{interval.lower.shape} and {centre.shape}; choose with predict_interval(X, coverage=...)"
        )
    place = rankdata(centre, method="ordinal") if along is None else _places(along, len(centre))
    shrunk = max(THINNEST, min(1.0, ROOMY / len(centre)))
    dot = max(shrunk, 0.4)
    table: Table = {"place": place, "prediction": centre, "lower": interval.lower, "upper": interval.upper}
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
    across = Axis("row, from the lowest prediction to the highest", domain=(0, len(centre) + 1))
    if along is not None:
        across = Axis(along_name, "time" if place.dtype.kind == "M" else "number")
    table = {name: values[order] for name, values in table.items()}
    return Chart(table, marks, across, Axis(with_unit(interval.target_names[0], unit)), legend="below")


def _places(along: ArrayLike, n_rows: int) -> NDArray[Any]:
    values = np.asarray(along)
    if values.dtype.kind not in "biufM":
        raise ValueError(f"along must hold numbers or dates, got {values.dtype}; draw the rows of each text apart")
    odd = np.isnat(values) if values.dtype.kind == "M" else ~np.isfinite(values)
    if values.shape != (n_rows,) or odd.any():
        raise ValueError(
            f"along must have one finite number per row, ({n_rows},), got {values.shape} with {odd.sum()} that are "
            "missing or infinite; leave such rows out"
        )
    return values


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
    >>> from matplotlib.figure import Figure
    >>> from coverwell import PredictionInterval
    >>> interval = PredictionInterval(np.array([0.0, 1.0]), np.array([2.0, 4.0]), coverage=0.9)
    >>> ax = draw_forecast(Figure().subplots(), [1, 2], interval, prediction=[1.0, 2.5], y=[1.5, 9.0])
    >>> ax.get_legend_handles_labels()[1]
    ['90 % interval', 'forecast', 'observed', 'observed, outside']
    """
    times, centre = np.asarray(time), np.asarray(prediction, dtype=np.float64)
    if interval.lower.ndim != 1 or not centre.shape == times.shape == interval.lower.shape:
        raise ValueError(
            "a figure shows one step ahead at one level: time, prediction and bounds must have one shape (n,), got "
            f"{times.shape}, {centre.shape} and {interval.lower.shape}"
        )
    table: Table = {"time": times, "prediction": centre, "lower": interval.lower, "upper": interval.upper}
    marks = [Mark("area", "time", "lower", "upper", "band", f"{percent(np.max(interval.coverage))} interval", z=1.0)]
    if static is not None:
        table |= {"static_lower": static.lower, "static_upper": static.upper}
        for bound, label in (("static_lower", "static interval"), ("static_upper", None)):
            marks.append(Mark("line", "time", bound, "", "other", label, 0.7, "--"))
    marks.append(Mark("line", "time", "prediction", label="forecast", thickness=0.8))
    if y is not None:
        observed = np.asarray(y, dtype=np.float64)
        outside = ~np.isnan(observed) & ~((interval.lower <= observed) & (observed <= interval.upper))
        table |= {"y": observed, "outside": outside}
        cross: dict[str, Any] = {"marker": "X", "size": 5.0, "edge": 0.4, "where": "outside"}
        marks.append(Mark("points", "time", "y", "", "ink", "observed", marker=".", size=0.0))
        marks.append(Mark("points", "time", "y", "", "outside", "observed, outside", **cross))
    tips = [Tip("y", "observed"), Tip("prediction", "forecast"), Tip("lower", "lower"), Tip("upper", "upper")]
    across = _time_axis(times, (times[0], times[-1]))
    return Chart(table, marks, across, Axis(None), [_time_tip(times), *tips], height=320)


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
    >>> from matplotlib.figure import Figure
    >>> ax = draw_rolling_coverage(Figure().subplots(), [1, 2], [0.9, 0.96], asked=0.95, label="live")
    >>> ax.get_legend_handles_labels()[1]
    ['live']
    """
    times, shares = np.asarray(time), np.asarray(coverage, dtype=np.float64)
    if times.ndim != 1 or times.shape != shares.shape:
        raise ValueError(f"time and coverage must have one shape (n,), got {times.shape} and {shares.shape}")
    style = style or CurveStyle()
    marks = [
        Mark("rule", "", asked, colour="centre", thickness=0.8, once="asked coverage", z=1.0),
        Mark("line", "time", "coverage", "", style.colour, label, style.thickness, style.dash, z=3.0),
    ]
    lowest = max(0.0, min(1 - MISSES_SHOWN * (1 - asked), float(np.nanmin(shares))))
    tips = [_time_tip(times), Tip("coverage", label or "coverage of the window", "share")]
    axes = _time_axis(times), Axis(None, "share", (lowest, 1.0))
    return Chart({"time": times, "coverage": shares}, marks, *axes, tips, height=240)


def _time_axis(times: NDArray[Any], domain: Any = None) -> Axis:
    return Axis(None, "time" if times.dtype.kind == "M" else "number", domain)


def _time_tip(times: NDArray[Any]) -> Tip:
    return Tip("time", "time", "time") if times.dtype.kind == "M" else Tip("time", "step", "count")


@drawn
def draw_rounds(
    values: ArrayLike, *, label: str | None = None, style: CurveStyle | None = None, asked: float | None = None
) -> Chart:
    """A measure by round: its mean over trials, and a shade from the lowest trial to the highest.

    Trials may end at different rounds. From the first round that one of them lacks, the mean is over the trials that
    go on, which are not a random choice: there its line is thin and dotted.

    Parameters
    ----------
    values : array-like (trial, round), NaN after a trial has ended
    label, style : as in `draw_calibration_curve`
    asked : float, a level to compare with, drawn as a thin line across

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_rounds(Figure().subplots(), [[3.0, 2.0, 1.5], [5.0, 4.0, float("nan")]], label="RMSE")
    >>> [line.get_ydata().tolist() for line in ax.lines]
    [[4.0, 3.0], [3.0, 1.5]]
    """
    trials = np.asarray(values, dtype=np.float64)
    whole = _n_whole(trials)
    rounds, style = np.arange(1, trials.shape[1] + 1), style or CurveStyle()
    table: Table = {"round": rounds, "value": np.nanmean(trials, axis=0)}  # (trial, round) -> (round,)
    table |= {"low": np.nanmin(trials, axis=0), "high": np.nanmax(trials, axis=0)}
    table |= {"whole": rounds <= whole, "later": rounds >= whole}  # joined at the last round that all trials have
    marks = [Mark("area", "round", "low", "high", style.colour, opacity=0.2, z=1.0)]
    if asked is not None:
        marks.insert(0, Mark("rule", "", asked, colour="centre", thickness=0.8, z=1.0))
    dot = "o" if whole == 1 else ""  # a line of one point cannot be seen
    line: dict[str, Any] = {"colour": style.colour, "z": 3.0}
    look: dict[str, Any] = {"thickness": style.thickness, "dash": style.dash, "marker": dot, "where": "whole"}
    marks.append(Mark("line", "round", "value", label=label, **look, **line))
    if whole < len(rounds):
        marks.append(Mark("line", "round", "value", thickness=0.7 * style.thickness, dash=":", where="later", **line))
    across = Axis("round", "round", (1, len(rounds)) if len(rounds) > 1 else (0, 2))
    tips = [Tip("round", "round", "count"), Tip("value", "value", "number" if asked is None else "share")]
    return Chart(table, marks, across, Axis(None, "number" if asked is None else "share"), tips, height=200)


def _n_whole(values: Array) -> int:
    """How many rounds all trials have; none may come back after it ended."""
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"values must have the shape (trial, round), got {values.shape}; one trial is values[None, :]")
    there = ~np.isnan(values)
    if not there[:, 0].all() or (np.diff(there.astype(int), axis=1) > 0).any():
        raise ValueError("every trial must have its rounds from the first on and NaN only after its last, got gaps")
    if not there[:, -1].any():
        raise ValueError(f"no trial has round {values.shape[1]}; drop the rounds that none has")
    return int(there.all(axis=0).sum())


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
    >>> from matplotlib.figure import Figure
    >>> from coverwell.slices import slices_of
    >>> found = slices_of([True, True, True, False], {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> ax = draw_slices(Figure().subplots(), found)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['city: Oslo (2 rows)', 'city: Rome (2 rows)']
    """
    if most < 1 or not len(slices):
        raise ValueError(f"there must be a slice to draw, got most={most!r} of {len(slices)}; cut the rows by a column")
    return slices_chart(slices, slices.worst(most))


def slices_chart(slices: Slices, parts: Sequence[Slice]) -> Chart:
    """Some of the slices, one below the other."""
    asked, n_rows = slices.asked, np.array([part.n_rows for part in parts])
    chances = np.array([slices.chance(part) for part in parts])
    low, high = (binom.ppf(level, n_rows, asked) / n_rows for level in (BY_CHANCE / 2, 1 - BY_CHANCE / 2))
    table: Table = {"place": np.arange(len(parts)), "name": [_slice_name(part) for part in parts]}
    table |= {name: np.array([getattr(part, name) for part in parts]) for name in ("coverage", "low", "high")}
    table |= {"band_low": low, "band_high": high, "expected": chances >= BY_CHANCE}
    table["chance"] = ["may be" if p >= BY_CHANCE else f"at most {max(p, 0.0001):.1g}" for p in chances]
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


def _slice_name(part: Slice) -> str:
    """A slice in few characters; the values stay, which tell slices of a column apart."""
    values = shortened(part.values, LONGEST_SLICE - 10)
    column = shortened(part.column, LONGEST_SLICE - 2 - len(values))
    return f"{column}: {values} ({part.n_rows:,} row{'s' * (part.n_rows != 1)})"
