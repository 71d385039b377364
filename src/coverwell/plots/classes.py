"""The charts of classifiers: probabilities that mean what they say, sizes of sets, and which classes share one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell import metrics
from coverwell.class_metrics import places_or_none
from coverwell.plots.chart import Axis, Chart, Mark, Tip, drawn, percent, shortened
from coverwell.plots.charts import LONE_BAND, split_points
from coverwell.prediction import PredictionSet
from coverwell.slices import Slice, Slices, by_count

MOST_BINS, ROWS_PER_BIN = 15, 20
PALEST, STRONGEST = 0.06, 0.55  # colours of cells: black and white text can be read on all of them
LONGEST_CLASS = 14  # letters
CELL_HEIGHT, AROUND_CELLS = 30, 90  # pixels on a page
SEVERAL, FEWEST_PLACES = "> 1", 3  # what a set of more than one class is called; sizes that have a place
MATRIX_MARKS = (("of_class", "inside", "the class itself"), ("of_other", "outside", "another class"))


@drawn
def draw_reliability(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None, *, n_bins: int | None = None
) -> Chart:
    """How often the likeliest class is the right one, against its probability, in bins of about as many rows each.

    The band is where nine of ten bins lie if the probabilities are right. The axes end at 1 and begin where the data
    do. The caller draws the legend.

    Parameters
    ----------
    y : array-like (n,), the classes that came
    probability : array-like (n, class)
    classes : array-like (class,), the labels; by default they are places from 0
    n_bins : int, at most 15 bins of at least 20 rows if None

    Examples
    --------
    >>> ax = draw_reliability(None, [0, 1, 0, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], n_bins=2)
    >>> ax.get_xlabel()
    'probability of the likeliest class'
    """
    n_bins = n_bins or int(np.clip(len(np.asarray(y)) // ROWS_PER_BIN, 1, MOST_BINS))
    found = metrics.reliability(y, probability, classes, n_bins=n_bins)
    shares = found.confidence.clip(1e-9, 1 - 1e-9).tolist()
    low, high = np.array(
        [metrics.coverage_band(share, int(n), None) for share, n in zip(shares, found.n_rows, strict=True)]
    ).T
    table: dict[str, Any] = {"confidence": found.confidence, "accuracy": found.accuracy, "n_rows": found.n_rows}
    table |= {"low": low, "high": high, "expected": (low <= found.accuracy) & (found.accuracy <= high)}
    kind: Any = "area" if len(low) > 1 else "columns"  # one bin has no area
    band = Mark(kind, "confidence", "low", "high", "bar", "where nine of ten bins lie if the probabilities are right")
    labels = "share of a bin's rows, inside the band", "outside the band"
    marks = [
        replace(band, thickness=LONE_BAND, opacity=0.7, z=0.0),
        Mark("diagonal", colour="centre", label="probabilities that mean what they say", thickness=0.8, z=1.0),
        Mark("line", "confidence", "accuracy", thickness=0.8, z=2.5),
        *split_points("confidence", "accuracy", "expected", labels=labels),
    ]
    tips = [Tip("confidence", "mean probability", "share"), Tip("accuracy", "rows that have the class", "share")]
    tips += [Tip("low", "expected from", "share"), Tip("high", "to", "share"), Tip("n_rows", "rows", "count")]
    least = np.floor(10 * min(found.confidence.min(), found.accuracy.min(), low.min())) / 10
    across = Axis("probability of the likeliest class", "share", (float(least), 1.0))
    return Chart(table, marks, across, replace(across, title="share of rows that have it"), tips, height=320)


@drawn
def draw_set_sizes(sets: PredictionSet, y: ArrayLike) -> Chart:
    """How many rows have a set of each size, and how often the true class is in sets of this size.

    Where some sets have more than a dozen classes, large sizes come together.

    Parameters
    ----------
    sets : PredictionSet of one level
    y : array-like (n,), the classes that came

    Examples
    --------
    >>> sets = PredictionSet(np.array([[True, False], [True, True]]), coverage=0.9, classes=np.array(["cat", "dog"]))
    >>> ax = draw_set_sizes(None, sets, ["cat", "dog"])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '2']
    """
    inside, asked = _of_one_level(sets, y)
    names, part_of_row = by_count(sets.size)
    n_rows, n_inside = (np.bincount(rows, minlength=len(names)) for rows in (part_of_row, part_of_row[inside]))
    found = np.flatnonzero(n_rows)
    parts = [Slice("size", names[place], int(n_rows[place]), int(n_inside[place])) for place in found]
    short, first = Slices(asked, tuple(parts)).short, min(1, int(found[0]))  # empty sets have a place if there are any
    table: dict[str, Any] = {"place": found - first, "size": [part.values for part in parts]}
    table |= {name: np.array([getattr(part, name) for part in parts]) for name in ("n_rows", "coverage", "low", "high")}
    table |= {"share": table["n_rows"] / len(inside), "expected": np.array([part not in short for part in parts])}
    labels = "their coverage, with 95 % confidence intervals", "their coverage, short by more than chance"
    marks = [
        Mark("bars", "place", "share", colour="bar", label="share of rows whose set has this size", z=1.0),
        Mark("rule", "", asked, colour="centre", label=f"asked, {percent(asked)}", thickness=0.8, z=1.5),
        Mark("columns", "place", "low", "high", "inside", thickness=1.0, where="expected", z=3.0),
        Mark("columns", "place", "low", "high", "outside", thickness=1.0, where="!expected", z=3.0),
        *split_points("place", "coverage", "expected", labels=labels),
    ]
    tips = [Tip("size", "classes in the set", "text"), Tip("n_rows", "rows", "count"), Tip("share", "share", "share")]
    tips += [
        Tip("coverage", "coverage", "share"),
        Tip("low", "95 % interval from", "share"),
        Tip("high", "to", "share"),
    ]
    names += [str(size) for size in range(len(names), min(FEWEST_PLACES, len(sets.classes)) + 1)]
    across = Axis("classes in the set", "place", names=tuple(names[first:]))
    up = Axis("share of rows; coverage", "share", (0, 1.03))  # a marker at 1 is whole
    return Chart(table, marks, across, up, tips, legend="below")


@drawn
def draw_confusion(sets: PredictionSet, y: ArrayLike, *, most: int = 12) -> Chart:
    """Of the rows of each true class, the percentage whose set holds each of the classes.

    On the diagonal stands the coverage of the class. The last column has the share of its rows whose set holds more
    than one class. Of many classes, those are drawn that share sets most often. Rows of a class that was never seen in
    training are left out.

    Parameters
    ----------
    sets : PredictionSet of one level
    y : array-like (n,), the classes that came
    most : int, how many classes are drawn

    Examples
    --------
    >>> sets = PredictionSet(np.array([[True, False], [True, True]]), coverage=0.9, classes=np.array(["cat", "dog"]))
    >>> ax = draw_confusion(None, sets, ["cat", "dog"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['cat (1)', 'dog (1)']
    """
    _of_one_level(sets, y)
    true = places_or_none(np.asarray(y), sets.classes)
    if most < 2 or (true < 0).all():
        must = "there must be a row of a fitted class, and room for two classes"
        raise ValueError(f"{must}, got {(true >= 0).sum()} of {len(true)} rows and most={most!r}")
    members, true = sets.members[true >= 0], true[true >= 0]
    n_rows, shown = np.bincount(true, minlength=len(sets.classes)), most_confused(members, true, most)
    holds = np.array([members[true == place][:, shown].mean(axis=0) for place in shown])  # (true, class)
    several = np.array([(members[true == place].sum(axis=1) > 1).mean() for place in shown])
    cells = np.column_stack([holds, several])
    row, column = np.nonzero(cells > 0)
    share = cells[row, column]
    labels = _short_names([str(sets.classes[place]) for place in shown])
    table: dict[str, Any] = {"row": row, "column": column, "share": share}
    table |= {"of_class": row == column, "several": column == len(shown)}
    table |= {"of_other": ~(table["of_class"] | table["several"])}
    table |= {"strength": PALEST + (STRONGEST - PALEST) * share}
    table |= {"text": ["<1" if one < 0.005 else f"{100 * one:.0f}" for one in share]}
    table |= {"true": [str(sets.classes[shown[place]]) for place in row]}
    table |= {"holds": [[*map(str, sets.classes[shown]), SEVERAL][place] for place in column]}
    marks = [
        Mark("cells", "column", "row", "strength", colour, label, where=where) for where, colour, label in MATRIX_MARKS
    ]
    marks.append(Mark("cells", "column", "row", "strength", "centre", "sets of several classes", where="several"))
    marks.append(Mark("texts", "column", "row", "text", "ink", size=8.0, z=3.0))
    tips = [Tip("true", "true class", "text"), Tip("holds", "in the set", "text"), Tip("share", "of its rows", "share")]
    down = tuple(f"{label} ({n_rows[place]:,})" for label, place in zip(labels, shown, strict=True))
    axes = (
        Axis("class in the set (% of the rows)", "place", names=(*labels, SEVERAL)),
        Axis("true class (rows)", "place", names=down),
    )
    return Chart(table, marks, *axes, tips, legend="below", height=AROUND_CELLS + CELL_HEIGHT * len(shown))


def _short_names(names: list[str]) -> list[str]:
    """Names of classes in few letters; where these begin alike, the middle is left out."""
    short = [shortened(name, LONGEST_CLASS) for name in names]
    if len(set(short)) == len(set(names)):
        return short
    half = LONGEST_CLASS // 2
    return [name if len(name) <= LONGEST_CLASS else f"{name[: half - 1]}…{name[-half:]}" for name in names]


def most_confused(members: NDArray[np.bool_], true: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """The places of the classes that occur, or of those that most often share a set with another, in their order."""
    occur, n_classes = np.unique(true), members.shape[1]
    others = members & (np.arange(n_classes) != true[:, None])
    together = others.sum(axis=0) + np.bincount(true, others.sum(axis=1), minlength=n_classes)
    found: NDArray[np.intp] = np.sort(occur[np.argsort(-together[occur], kind="stable")[:most]])
    return found


def _of_one_level(sets: PredictionSet, y: ArrayLike) -> tuple[NDArray[np.bool_], float]:
    """Whether each row's class is in its set, and the asked level."""
    if sets.members.ndim != 2 or isinstance(sets.coverage, tuple) or not len(sets):
        must = "a figure shows the sets of at least one row at one level"
        got = f"got members {sets.members.shape}"
        raise ValueError(f"{must}, {got}; choose with predict_set(X, coverage=0.9), not a sequence")
    return sets.contains(y), sets.coverage
