"""Charts of classifiers: bins, sizes and shares of classes worked out by hand, and nothing that chance explains."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from coverwell import metrics
from coverwell.plots import draw_confusion, draw_reliability, draw_set_sizes
from coverwell.plots.classes import STRONGEST
from coverwell.prediction import PredictionSet
from coverwell.report.charts import specification

CLASSES = np.array(["cat", "dog", "fox"])


def sets_of(*members, classes=CLASSES, coverage=0.9):
    table = np.array([[name in row for name in classes] for row in members])
    return PredictionSet(table, coverage=coverage, classes=classes)


PETS = sets_of(["cat"], ["cat", "dog"], ["cat", "dog", "fox"], ["dog"])
SEEN = ["cat", "dog", "dog", "fox"]


def axes_of(draw, *given, size=(6, 4), **options):
    figure = Figure(figsize=size, layout="constrained")
    ax = draw(figure.subplots(), *given, **options)
    figure.draw_without_rendering()
    return ax


def two_classes(n, right, p=0.8):
    """Rows that all say class 0 with probability p; the first `right` of them are."""
    return (np.arange(n) >= right).astype(int), np.tile([p, 1 - p], (n, 1))


def test_bins_of_the_reliability_hold_as_many_rows_and_lie_at_their_mean_probability():
    y, p = [0, 1, 0, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    ax = axes_of(draw_reliability, y, p, n_bins=2)
    curve = next(line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_zorder() == 2.5)
    np.testing.assert_allclose(curve.get_xydata(), [[0.65, 0.0], [0.85, 1.0]])
    assert (ax.get_xlim(), ax.get_ylim()) == ((0.0, 1.0), (0.0, 1.0))


@pytest.mark.parametrize(("right", "expected"), [(80, True), (70, False)])
def test_a_bin_is_marked_where_chance_does_not_explain_it(right, expected):
    chart = draw_reliability.chart(*two_classes(100, right), n_bins=1)
    assert chart.table["expected"].tolist() == [expected]
    low, high = metrics.coverage_band(0.8, 100, None)
    assert (chart.table["low"].tolist(), chart.table["high"].tolist()) == ([low], [high])


def test_about_nine_of_ten_bins_of_right_probabilities_lie_in_the_band():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 30_000)
    y = (rng.uniform(size=(len(p), 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=2)
    inside = draw_reliability.chart(y, p, n_bins=300).table["expected"]
    assert inside.mean() >= 0.9 - 3 * (0.9 * 0.1 / 300) ** 0.5  # the band of whole rows is never narrower


def test_few_rows_have_few_bins_and_the_axes_end_where_the_data_do():
    chart = draw_reliability.chart(*two_classes(45, 40, p=0.93))
    assert chart.table["n_rows"].tolist() == [23, 22]
    assert chart.x.domain == chart.y.domain == (0.7, 1.0)  # of the last 22, 17 are right
    assert len(draw_reliability.chart(*two_classes(3, 2)).table["n_rows"]) == 1
    assert len(draw_reliability.chart(*two_classes(900, 720)).table["n_rows"]) == 15


def test_sizes_have_their_shares_their_coverage_and_a_place_each():
    ax = axes_of(draw_set_sizes, PETS, SEEN)
    assert [bar.get_height() for bar in ax.patches] == [0.5, 0.25, 0.25]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]
    assert draw_set_sizes.chart(PETS, SEEN).table["coverage"].tolist() == [0.5, 1.0, 1.0]


def test_empty_sets_have_a_place_only_if_there_are_any():
    chart = draw_set_sizes.chart(sets_of([], ["cat"]), ["dog", "cat"])
    assert chart.x.names == ("0", "1", "2", "3")
    assert chart.table["place"].tolist() == [0, 1]
    assert draw_set_sizes.chart(sets_of(["cat"]), ["cat"]).x.names == ("1", "2", "3")


def test_a_size_that_is_short_by_more_than_chance_is_marked():
    members = np.zeros((200, 2), dtype=bool)
    members[:, 0], members[100:, 1] = True, True
    y = np.where((np.arange(200) < 100) & (np.arange(200) % 2 == 0), "dog", "cat")
    sets = PredictionSet(members, coverage=0.9, classes=np.array(["cat", "dog"]))
    assert draw_set_sizes.chart(sets, y).table["expected"].tolist() == [False, True]


def test_large_sizes_come_together_where_there_are_many():
    members = np.arange(40)[None] < np.array([1, 2, 7, 10, 11, 40])[:, None]
    chart = draw_set_sizes.chart(PredictionSet(members, coverage=0.9, classes=np.arange(40)), np.zeros(6, dtype=int))
    assert chart.table["size"] == ["1", "2", "6 to 10", "11 to 20", "21 to 40"]
    assert chart.table["n_rows"].tolist() == [1, 1, 2, 1, 1]
    assert chart.x.names == ("1", "2", "3", "4", "5", "6 to 10", "11 to 20", "21 to 40")


def cells_of(chart):
    table = chart.table
    return dict(zip(zip(table["true"], table["holds"], strict=True), table["share"].tolist(), strict=True))


def test_cells_are_the_shares_of_the_rows_of_a_class_whose_set_holds_another():
    shares = {("cat", "cat"): 1.0, ("dog", "cat"): 1.0, ("dog", "dog"): 1.0, ("dog", "fox"): 0.5}
    assert cells_of(draw_confusion.chart(PETS, SEEN)) == {**shares, ("dog", "> 1"): 1.0, ("fox", "dog"): 1.0}
    ax = axes_of(draw_confusion, PETS, SEEN)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat (1)", "dog (2)", "fox (1)"]
    assert sorted(text.get_text() for text in ax.texts) == ["100"] * 5 + ["50"]
    assert max(bar.get_facecolor()[3] for bar in ax.patches) == pytest.approx(STRONGEST)


def test_rows_of_a_class_that_was_never_seen_are_left_out():
    shares = cells_of(draw_confusion.chart(PETS, ["cat", "dog", "emu", "fox"]))
    assert shares["dog", "cat"] == shares["fox", "dog"] == 1.0
    with pytest.raises(ValueError, match=r"there must be a row of a fitted class.*got 0 of 4 rows"):
        draw_confusion(None, PETS, ["emu"] * 4)


def test_long_names_that_begin_alike_stay_apart():
    names = np.array(["a species of the north", "a species of the south", "fox"])
    sets = PredictionSet(np.ones((3, 3), dtype=bool), coverage=0.9, classes=names)
    chart = draw_confusion.chart(sets, names)
    assert chart.y.names == ("a spec…e north (1)", "a spec…e south (1)", "fox (1)")
    assert set(chart.table["true"]) == set(names)


def test_of_many_classes_those_are_drawn_that_share_sets_most_often():
    names = np.array(list("abcdef"))
    sets = sets_of(["a"], ["b", "e"], ["e", "b"], ["c"], ["d", "e"], classes=names)
    chart = draw_confusion.chart(sets, list("abecd"), most=2)
    assert chart.x.names == ("b", "e", "> 1")
    assert chart.y.names == ("b (1)", "e (1)")


@pytest.mark.parametrize("draw", [draw_set_sizes, draw_confusion])
def test_sets_of_several_levels_and_no_rows_are_refused_with_the_way_out(draw):
    several = PredictionSet(np.ones((2, 3, 2), dtype=bool), coverage=(0.5, 0.9), classes=CLASSES)
    with pytest.raises(ValueError, match=r"sets of at least one row at one level.*choose with predict_set"):
        draw(None, several, ["cat", "cat"])
    with pytest.raises(ValueError, match="at least one row"):
        draw(None, PredictionSet(np.ones((0, 3), dtype=bool), coverage=0.9, classes=CLASSES), [])


def test_a_page_draws_the_same_cells_bars_and_diagonal():
    cells = specification(draw_confusion.chart(PETS, SEEN))["layer"]
    assert [layer["mark"]["type"] for layer in cells] == ["rect", "rect", "rect", "text"]
    axis = cells[0]["encoding"]["x"]["axis"]
    assert (axis["labelExpr"], axis["orient"]) == ('["cat", "dog", "fox", "> 1"][datum.value]', "top")
    assert cells[0]["encoding"]["opacity"]["field"] == "strength"
    bars = specification(draw_set_sizes.chart(PETS, SEEN))["layer"][0]
    assert (bars["encoding"]["x"]["type"], bars["encoding"]["y2"]) == ("ordinal", {"datum": 0})
    diagonal = specification(draw_reliability.chart(*two_classes(45, 40, p=0.93)))["layer"][1]
    assert diagonal["data"]["values"][0] == {"x": 0.7, "y": 0.7}
