"""What a report says of classes: confusions, sets and classes counted by hand, and pages of few and of many classes."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from coverwell import MLP, MatchedClassifier, Schedule
from coverwell.description import ModelDescription
from coverwell.errors import UnseenClassWarning
from coverwell.evaluation import ClassOutcome, class_outcome_of
from coverwell.report import write_report
from coverwell.report.charts import calibration_chart
from coverwell.report.classes import (
    class_figures,
    class_rows,
    confusion_chart,
    confusion_rows,
    example_rows,
    missed_sets,
    promise_rows,
    reliability_chart,
    set_in_words,
)
from coverwell.report.facts import chosen_images, column_rows, miss_heads

OF_CLASSES = ["reached", "calibration", "reliability", "sizes", "confusion", "by_class", "worst", "slices", "misses"]
OF_CLASSES += ["examples", "rounds", "data", "drift", "promise", "provenance"]
CLASSES = np.array(["fair", "good", "poor"])


def by_hand(**more):
    """Six pupils at one level; the last has a grade that nobody had before."""
    y = np.array(["fair", "fair", "good", "good", "poor", "none"])
    p = [[0.7, 0.2, 0.1], [0.4, 0.5, 0.1], [0.6, 0.3, 0.1], [0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.8, 0.1]]
    members = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
    return ClassOutcome(y, np.array(p), members[:, :, None], CLASSES, (0.8,), ("grade",), **more)


@pytest.fixture(scope="module")
def described(classifier):
    return ModelDescription(classifier)


def fitted(X, y, **options):
    brief = {"network": MLP(hidden=4), "schedule": Schedule(max_rounds=1), "folds": 2, "repeats": 1, "random_state": 0}
    return MatchedClassifier(**{"coverage": 0.8, "companions": (), **brief, **options}).fit(X, y)


def test_confusions_say_how_often_the_set_gave_no_warning():
    rows = confusion_rows(by_hand().views[0], 10)
    assert rows[0] == ("good", "fair", "2 of 2", "100.0 %", "1", "1")  # alone once, both in the set once
    assert sorted(rows[1:]) == [
        ("fair", "good", "1 of 2", "50.0 %", "0", "1"),
        ("none", "good", "1 of 1", "100.0 %", "0", "0"),
    ]


def test_classes_that_come_as_other_numbers_are_those_of_the_fit():
    members = np.array([[1, 0], [1, 1], [0, 1]], dtype=bool)[:, :, None]
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    outcome = ClassOutcome(np.array([1.0, 2.0, 3.0]), p, members, np.array([1, 2]), (0.8,), ("y",))
    assert outcome.labels.tolist() == ["1", "2", "3.0"]
    assert [row[:3] for row in confusion_rows(outcome.views[0], 10)] == [
        ("2", "1", "1 of 1"),
        ("3.0", "2", "1 of 1"),
    ]


def test_every_class_has_a_line_in_the_order_of_the_classes_and_those_never_seen_come_last(described):
    rows = class_rows(by_hand().views[0], described)
    assert [row[0] for row in rows] == ["poor", "fair", "good", "none"]
    counts = {row[0]: (*row[1:5], row[-1]) for row in rows}  # rows, taken for it, accuracy, coverage, size
    assert counts["poor"] == ("1", "1", "100.0 %", "100.0 %", "2")
    assert counts["fair"] == ("2", "3", "50.0 %", "100.0 %", "1.5")
    assert counts["good"] == ("2", "2", "0.0 %", "50.0 %", "1.5")
    assert counts["none"] == ("1", "0", "0.0 %", "0.0 %", "3")


def test_a_set_is_named_with_its_likeliest_class_first_and_a_large_one_is_cut():
    view = by_hand().views[0]
    assert set_in_words(view, 1) == "good (0.50), fair (0.40)"
    p, members = np.linspace(1, 8, 8) / 36, np.ones((1, 8, 1), dtype=bool)
    wide = ClassOutcome(np.array([0]), p[None], members, np.arange(8), (0.9,), ("y",)).views[0]
    assert set_in_words(wide, 0) == "7 (0.22), 6 (0.19), 5 (0.17), 4 (0.14), 3 (0.11), and 3 more"


def test_the_least_probable_class_is_missed_first_and_one_never_seen_before_all():
    outcome = by_hand(groups={"town": np.array(list("abcdef"))})
    rows = missed_sets(outcome.views[0], 10)
    assert rows == [
        ("5", "✕ none", "never seen", "good (0.80), fair (0.10), poor (0.10)", "f"),
        ("3", "✕ good", "0.100", "fair (0.80)", "d"),
    ]
    assert miss_heads(outcome)[0] == ["row", "class", "its probability", "set, the likeliest first", "town"]


def test_examples_are_up_to_three_of_each_size_the_smallest_first():
    n, sizes = 40, np.repeat([1, 2, 3], [30, 8, 2])
    members = (np.arange(3) < sizes[:, None])[:, :, None]
    outcome = ClassOutcome(np.repeat("fair", n), np.tile([0.5, 0.3, 0.2], (n, 1)), members, CLASSES, (0.8,), ("y",))
    rows = example_rows(outcome.views[0], 12)
    assert [row[3].count(",") + 1 for row in rows] == [1, 1, 1, 2, 2, 2, 3, 3]
    assert len({row[0] for row in rows}) == 8
    assert [row[3].count(",") + 1 for row in example_rows(outcome.views[0], 4)] == [1, 1, 2, 3]


def test_the_headline_has_the_scores_of_sets_and_of_probabilities():
    outcome = by_hand()
    figures = dict(class_figures(outcome.views[0]))
    assert (figures["mean size of the sets"], figures["accuracy"]) == ("1.833", "33.3 %")
    for name, title in (("brier_score", "Brier score"), ("expected_reliability_error", "reliability error by chance")):
        assert figures[title] == f"{outcome.scores[name]:.3f}"


def test_a_class_never_seen_counts_as_wrong_in_the_reliability_and_is_not_among_the_confused(described):
    table = reliability_chart(by_hand()).table
    assert (table["n_rows"].sum(), table["accuracy"] @ table["n_rows"]) == (6, 2)
    chart = confusion_chart(by_hand().views[0], described)
    assert chart.y.names == ("poor (1)", "fair (2)", "good (2)")  # as the classes are ordered
    rows, n_columns = column_rows(by_hand(), described)
    assert rows[0][:2] == ("grade", "target")
    assert n_columns == 1


def test_a_level_above_its_band_is_as_expected_where_no_set_may_be_empty(described, page_of):
    n = 200
    y, p = np.repeat("fair", n), np.tile([0.8, 0.1, 0.1], (n, 1))
    members = np.tile([True, False, False], (n, 1))[:, :, None]
    given = (y, p, members, CLASSES, (0.8,), ("grade",))
    alone = ClassOutcome(*given, alone=(np.arange(n) < 40)[:, None])
    assert calibration_chart(alone.views[0]).table["expected"].tolist() == [True]
    page = page_of(alone, described)
    (verdict,) = page.paragraphs("reached", "good")
    assert "200 of 200 rows have grade in their 80 % set: 100.0 %. ✓ That is above the expected band" in verdict
    assert "if sets could be empty, it would be 80.0 %" in verdict
    assert "✓ above, as none is empty" in page.text("reached")
    (verdict,) = page_of(ClassOutcome(*given), described).paragraphs("reached", "bad")
    assert "✕ That is above the expected band" in verdict
    assert "they seem larger than was asked for" in verdict


@pytest.mark.filterwarnings("ignore::coverwell.errors.FullSetsWarning")  # after one round
def test_promises_are_those_of_the_fit(classifier, described):
    rows = dict(promise_rows(described))
    assert rows["all rows together"] == "near the asked level as measured; no finite-sample theorem"
    held = rows["each class or group"]
    assert held.startswith("class, 3 groups: ")
    assert all(f"{name} " in held for name in ("poor", "fair", "good"))
    assert "in each near the asked level, as measured" in held
    assert rows["the order of the classes"].endswith("poor, fair, good")
    X = np.random.default_rng(0).normal(size=(80, 2))
    plain = promise_rows(ModelDescription(fitted(X, X[:, 0] > 0, calibration=None)))
    assert plain[0][1].startswith("none: thresholds are as the networks learned them")
    assert plain[1][1].startswith("none: some may be covered less")
    split = fitted(X, X[:, 0] > 0, calibration="split", hold_for="class")
    rows = dict(promise_rows(ModelDescription(split)))
    assert rows["all rows together"] == "at least p on average, for exchangeable rows"
    assert "at least the asked level on average in each of 4 rows or more" in rows["each class or group"]
    moved = copy.deepcopy(split).recalibrate(X, X[:, 1] > 0)
    assert promise_rows(ModelDescription(moved))[0][1].startswith("near the asked level for rows like those of")


def test_a_report_on_grades_has_the_sections_of_classes_and_the_numbers_of_the_evaluation(
    classifier, graded, tmp_path, page_of
):
    rows, path = graded(150, seed=1), tmp_path / "report.html"
    X, y = rows.drop("grade"), rows["grade"].to_numpy()
    n_bytes = write_report(classifier, X, y, path, coverage=0.5, title="Grades", groups={"half": np.arange(150) < 75})
    page = page_of(path)
    assert list(page.sections) == OF_CLASSES
    assert n_bytes == path.stat().st_size < 2_000_000
    outcome = class_outcome_of(classifier, X, y)
    for view in outcome.views:
        n_inside = classifier.predict_set(X, view.asked).contains(y).sum()
        assert f"{n_inside} of 150 rows have grade in their {100 * view.asked:.0f} % set" in page.html
    assert "150 rows; prediction of grade, one of 3 classes, with sets" in page.html
    assert f"accuracy {100 * np.mean(classifier.predict(X) == y):.1f} %" in page.text("reached")
    assert '<option value="0" selected>50 %</option>' in page.html
    assert "This model holds the coverage within each class." in page.text("by_class")
    assert "interval of grade" not in page.html
    names = [table["name"] for table in page.tables if "name" in table]
    assert any(name[0].startswith("grade: poor") and len(name) == 3 for name in names)
    assert "Training went through 1 round. The error is measured" in page.text("rounds")
    assert "The Brier score is the squared distance between the probabilities and what came" in page.text("rounds")
    assert "the higher the mean threshold, the larger the sets" in page.text("rounds")


def test_classes_never_seen_are_counted_and_named(classifier, graded, tmp_path, page_of):
    rows, path = graded(60, seed=2), tmp_path / "report.html"
    y = np.where(np.arange(60) < 3, "<b>excellent</b>", rows["grade"].to_numpy().astype("<U20"))
    with pytest.warns(UnseenClassWarning):
        write_report(classifier, rows.drop("grade"), y, path)
    page = page_of(path)
    (note,) = page.paragraphs("reached", "note")
    assert "3 rows have classes never seen in training (<b>excellent</b>)" in note
    assert "<b>excellent" not in page.html
    assert "✕ <b>excellent</b> never seen" in page.text("misses")


@pytest.mark.parametrize("n_classes", [2, 40])
def test_two_classes_and_forty_fit_on_a_page(tmp_path, page_of, n_classes):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), 480 // n_classes)
    X = np.column_stack([y + rng.normal(size=480), rng.normal(size=480)])
    names = np.array([f"a species with number {place:02d}" for place in range(n_classes)])
    model, path = fitted(X[::2], names[y[::2]]), tmp_path / "report.html"
    write_report(model, X[1::2], names[y[1::2]], path)
    page = page_of(path)
    (cells,) = [table for table in page.tables if "strength" in table]
    assert max(cells["row"]) == min(12, n_classes) - 1
    folded = "<summary>All classes in numbers</summary>" in page.html
    assert folded == (n_classes == 40)
    assert page.sections["by_class"].count('<td role="cell" data-head="taken for it"') == n_classes
    assert ("Drawn are 12 of 40 classes" in page.text("confusion")) == folded
    assert ("The worst 12 of 40 classes are drawn." in page.text("by_class")) == folded


def test_images_are_shown_with_their_sets(image_model, tmp_path, page_of):
    regressor, X, y = image_model()
    kinds = np.where(y[:, 0] > np.median(y[:, 0]), "right", "left")
    options = {"network": regressor.network, "folds": 2, "device": "cpu", "companions": (), "random_state": 0}
    model, path = MatchedClassifier(0.6, **options).fit(X, kinds), tmp_path / "report.html"
    write_report(model, X, kinds, path)
    text = page_of(path).text("images")
    assert text.count("in the set: ") == page_of(path).html.count("data:image/jpeg;base64")
    outcome = class_outcome_of(model, X, kinds)
    missed = outcome.views[0].missed_by
    worst = [place for place, is_worst, _ in chosen_images(outcome, 0) if is_worst]
    assert worst == np.argsort(-missed, kind="stable")[: min(6, (missed > 0).sum())].tolist()
    with pytest.raises(ValueError, match="boxes are targets of a regressor, and this model predicts classes"):
        write_report(model, X, kinds, path, boxes=True)


def test_rows_keep_their_numbers(described, page_of):
    outcome = replace(by_hand(), row_numbers=np.arange(11, 17))
    assert missed_sets(outcome.views[0], 1)[0][0] == "16"
    assert "Rows are counted from 1." in page_of(outcome, described).text("misses")
