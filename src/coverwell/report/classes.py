"""What a report on classes has and one on numbers has not: charts of sets, confusions, examples, what is promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from coverwell.description import ModelDescription
from coverwell.evaluation import ClassOutcome, SetView
from coverwell.plots.chart import Chart, shortened
from coverwell.plots.charts import slices_chart
from coverwell.plots.classes import draw_confusion, draw_reliability, draw_set_sizes
from coverwell.prediction import PredictionSet
from coverwell.report.facts import MOST_FEATURES, Row, by_chance, number, row_columns, row_number, share, span
from coverwell.slices import Slice

MOST_CLASSES = 12  # in a chart
MOST_OF_A_SET, LONGEST_CLASS = 5, 34  # classes that are named, and their letters
EXAMPLES_OF_A_SIZE, COLUMNS_OF_EXAMPLES = 3, 5


def class_figures(view: SetView) -> list[tuple[str, str]]:
    """The scores of the sets of a level, and those of the probabilities, which all levels share."""
    names = {"brier_score": "Brier score", "log_loss": "log loss", "reliability_error": "reliability error"}
    names["expected_reliability_error"] = "reliability error by chance"
    scores = view.outcome.scores
    figures = [("mean size of the sets", number(view.scores["size"])), ("accuracy", share(scores["accuracy"]))]
    return [*figures, *((title, f"{scores[name]:.3f}") for name, title in names.items())]


def reliability_chart(outcome: ClassOutcome) -> Chart:
    """How often the likeliest class is the right one, against its probability."""
    return draw_reliability.chart(*outcome.padded)


def sizes_chart(view: SetView) -> Chart:
    """Rows and coverage by the size of the sets."""
    return draw_set_sizes.chart(view.sets, view.y)


def confusion_chart(view: SetView, model: ModelDescription) -> Chart:
    """Which classes share sets, in the order of the classes if they have one."""
    order = list(model.class_order)
    sets = PredictionSet(view.members[:, order], coverage=view.asked, classes=view.outcome.classes[order])
    return draw_confusion.chart(sets, view.y, most=MOST_CLASSES)


def confusion_rows(view: SetView, most: int) -> list[Row]:
    """The likeliest classes that were wrong: of which class, how often, and whether the sets showed doubt."""
    y, taken, rows = view.outcome.labels, view.outcome.prediction.astype(str), list[Row]()
    is_wrong, n_of_class = view.outcome.of_rows["accuracy"] == 0, Counter(y)
    pairs = Counter(zip(y[is_wrong], taken[is_wrong], strict=True))
    for (true, instead), n in pairs.most_common(most):
        own = (y == true) & (taken == instead)
        names = (shortened(true, LONGEST_CLASS), shortened(instead, LONGEST_CLASS))
        sure, inside = int((view.size[own] == 1).sum()), int(view.inside[own].sum())
        rows.append((*names, f"{n:,} of {n_of_class[true]:,}", share(n / n_of_class[true]), f"{sure:,}", f"{inside:,}"))
    return rows


def class_slices(view: SetView, model: ModelDescription) -> list[Slice]:
    """The rows of each class, in the order of the classes; at the end those that were never seen in training."""
    place = {str(view.outcome.classes[one]): number for number, one in enumerate(model.class_order)}
    return sorted(view.slices.of(view.name), key=lambda part: place.get(part.values, len(place)))


def class_chart(view: SetView, model: ModelDescription) -> Chart:
    """Coverage by class, of many classes that of the worst."""
    parts = class_slices(view, model)
    worst = view.slices.by_column[view.name][:MOST_CLASSES]
    return slices_chart(view.slices, worst if len(parts) > MOST_CLASSES else parts)


def class_rows(view: SetView, model: ModelDescription) -> list[Row]:
    """Every class in a line: its rows, how many were taken for it, how many of its own were, coverage, size of sets."""
    outcome, rows = view.outcome, list[Row]()
    y, taken, right = outcome.labels, outcome.prediction.astype(str), outcome.of_rows["accuracy"]
    for part in class_slices(view, model):
        own = y == part.values
        counts = (f"{part.n_rows:,}", f"{(taken == part.values).sum():,}", share(right[own].mean()))
        reached = (share(part.coverage), span((part.low, part.high)), by_chance(view.slices.chance(part)))
        rows.append((shortened(part.values, LONGEST_CLASS), *counts, *reached, number(view.size[own].mean())))
    return rows


def set_in_words(view: SetView, place: int) -> str:
    """The classes of a set with their probabilities, the likeliest first."""
    p = view.outcome.probability[place]
    members = [one for one in np.argsort(-p, kind="stable").tolist() if view.members[place, one]]
    named = [f"{shortened(str(view.outcome.classes[one]), LONGEST_CLASS)} ({p[one]:.2f})" for one in members]
    more = [f"and {len(named) - MOST_OF_A_SET} more"] if len(named) > MOST_OF_A_SET else []
    return ", ".join([*named[:MOST_OF_A_SET], *more])


def set_rows(view: SetView, places: Sequence[int], n_columns: int) -> list[Row]:
    """Rows with their classes, sets and first columns."""
    outcome, rows = view.outcome, list[Row]()
    for place in places:
        label, known = outcome.labels[place], outcome.places[place]
        of_class = "never seen" if known < 0 else f"{outcome.probability[place, known]:.3f}"
        mark = "✓" if view.inside[place] else "✕"
        about = (f"{mark} {shortened(label, LONGEST_CLASS)}", of_class, set_in_words(view, place))
        rows.append((f"{row_number(outcome, place):,}", *about, *row_columns(outcome, place)[:n_columns]))
    return rows


def missed_sets(view: SetView, most: int) -> list[Row]:
    """The rows whose class is not in their set, the least probable first."""
    order = np.argsort(-view.missed_by, kind="stable")[:most]
    return set_rows(view, order[~view.inside[order]].tolist(), MOST_FEATURES)


def example_rows(view: SetView, most: int) -> list[Row]:
    """Rows at random, some for each size of set while there is room, the smallest sets first."""
    order = np.random.default_rng(0).permutation(len(view.size))
    size = view.size[order]
    nth = np.empty(len(size), dtype=int)  # of its size
    for one in np.unique(size):
        nth[size == one] = np.arange((size == one).sum())
    chosen = np.lexsort([size, nth])[:most]
    chosen = order[chosen[nth[chosen] < EXAMPLES_OF_A_SIZE]]
    return set_rows(view, chosen[np.lexsort([chosen, view.size[chosen]])].tolist(), COLUMNS_OF_EXAMPLES)


def promise_rows(model: ModelDescription) -> list[Row]:
    """What holds for which rows, in a line each."""
    of_all = model.promise if model.is_ranked else "none: thresholds are as the networks learned them"
    if model.recalibration is not None and model.recalibration.changed:
        of_all = f"near the asked level for rows like those of the recalibration ({model.recalibration})"
    way_out = "none: some may be covered less; hold_for='class' (--hold-for class) holds each class"
    rows: list[Row] = [
        ("all rows together", of_all),
        ("each class or group", model.held_for or way_out),
        ("sets of one size, slices, single rows", "none: measured above"),
        ("the likeliest class", "it is in every set, so where most rows are easy more are covered than asked"),
        ("a class never seen in training", "it is in no set and counts as missed"),
        ("probabilities", "none: measured above"),
    ]
    if model.is_ordered:
        order = ", ".join(shortened(model.classes[place], LONGEST_CLASS) for place in model.class_order)
        rows.append(("the order of the classes", f"sets have no gaps between the lowest and the highest of {order}"))
    return rows
