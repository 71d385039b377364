import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import metrics
from coverwell.class_metrics import places_of

seeds = st.integers(0, 2**16)
TWO = [[0.8, 0.2], [0.4, 0.6]]


def case(seed, *, rows=40, classes=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, classes, rows), rng.dirichlet(np.ones(classes), rows)


def calibrated(n, seed):
    """Classes drawn from their own probabilities."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n)
    return (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=2), p


# By hand -------------------------------------------------------------------------------------------------------------


def test_the_brier_score_by_hand():
    assert_allclose(metrics.brier_score([0, 1], TWO), (0.2**2 + 0.2**2 + 0.4**2 + 0.4**2) / 2)


def test_the_log_loss_by_hand():
    assert_allclose(metrics.log_loss([0, 1], TWO), -(np.log(0.8) + np.log(0.6)) / 2)


def test_the_log_loss_of_a_class_without_probability_is_large_and_finite():
    assert_allclose(metrics.log_loss([1], [[1.0, 0.0]]), -np.log(1e-12))


def test_reliability_by_hand():
    # Confidences .6, .7, .8, .9 in two bins of two rows; right are the second and the fourth.
    found = metrics.reliability([1, 1, 1, 0], [[0.6, 0.4], [0.3, 0.7], [0.8, 0.2], [0.9, 0.1]], n_bins=2)
    assert_allclose(found.confidence, [0.65, 0.85])
    assert_allclose(found.accuracy, [0.5, 0.5])
    assert_array_equal(found.n_rows, [2, 2])


def test_the_reliability_error_by_hand():
    error = metrics.reliability_error([1, 1, 1, 0], [[0.6, 0.4], [0.3, 0.7], [0.8, 0.2], [0.9, 0.1]], n_bins=2)
    assert_allclose(error, (0.15 + 0.35) / 2)


def test_bins_without_rows_are_left_out():
    assert_array_equal(metrics.reliability([0, 1], TWO, n_bins=5).n_rows, [1, 1])


def test_coverage_by_set_size_by_hand():
    assert metrics.coverage_by_set_size([True, False, True, True], [1, 1, 3, 0]) == {
        0: (1.0, 1),
        1: (0.5, 2),
        3: (1.0, 1),
    }


def test_places_of_classes_in_any_order():
    assert_array_equal(places_of(["cat", "owl", "dog"], ["dog", "owl", "cat"]), [2, 1, 0])


def test_labels_are_found_by_the_classes_that_are_given():
    assert metrics.brier_score(["cat", "dog"], TWO, ["cat", "dog"]) == metrics.brier_score([0, 1], TWO)
    assert metrics.brier_score(["cat", "dog"], TWO, ["dog", "cat"]) == metrics.brier_score([1, 0], TWO)


# Twins ---------------------------------------------------------------------------------------------------------------


@given(seed=seeds)
def test_log_loss_is_that_of_scikit_learn(seed):
    y, p = case(seed)
    assert_allclose(metrics.log_loss(y, p), sklearn.metrics.log_loss(y, p, labels=[0, 1, 2]))


@given(seed=seeds)
def test_the_brier_score_of_two_classes_is_twice_that_of_scikit_learn(seed):
    y, p = case(seed, classes=2)
    assert_allclose(metrics.brier_score(y, p), 2 * sklearn.metrics.brier_score_loss(y, p[:, 1], pos_label=1))


@given(seed=seeds)
def test_bins_are_a_partition_of_the_rows(seed):
    y, p = case(seed)
    found = metrics.reliability(y, p, n_bins=7)
    assert found.n_rows.sum() == len(y)
    assert np.ptp(found.n_rows) <= 1
    assert_allclose(np.average(found.accuracy, weights=found.n_rows), (p.argmax(axis=1) == y).mean())
    assert_allclose(np.average(found.confidence, weights=found.n_rows), p.max(axis=1).mean())


def test_chance_alone_gives_the_expected_reliability_error():
    errors, expected = [], []
    for seed in range(60):
        y, p = calibrated(1500, seed)
        errors.append(metrics.reliability_error(y, p))
        expected.append(metrics.expected_reliability_error(p))
    of_mean = np.std(errors, ddof=1) / np.sqrt(len(errors))
    # Bins of 100 rows are nearly normal: the mean distance of a bin is off by less than 2 % of itself.
    assert abs(np.mean(errors) - np.mean(expected)) < 4 * of_mean + 0.02 * np.mean(expected)


def test_probabilities_that_are_too_sure_are_worse_than_chance():
    y, p = calibrated(1500, 0)
    sure = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert metrics.reliability_error(y, sure) > 3 * metrics.expected_reliability_error(sure)


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [metrics.brier_score, metrics.log_loss, metrics.reliability_error])
def test_a_class_that_was_never_seen_is_an_error(metric):
    with pytest.raises(ValueError, match="classes that were not fitted, such as fox; the classes are cat, dog"):
        metric(["cat", "fox"], TWO, ["cat", "dog"])


@pytest.mark.parametrize(("y", "known"), [([0, 1], ["cat", "dog"]), (["cat", "dog"], [0, 1]), ([None, "cat"], ["cat"])])
def test_labels_of_another_kind_are_classes_that_were_never_seen(y, known):
    with pytest.raises(ValueError, match="classes that were not fitted"):
        places_of(np.array(y, dtype=object if None in y else None), known)


@pytest.mark.parametrize("p", [[0.5, 0.5], [[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]], np.empty((0, 2))])
def test_probabilities_must_be_probabilities(p):
    with pytest.raises(ValueError, match="probability must be"):
        metrics.brier_score([0], p)


def test_labels_and_probabilities_must_have_the_same_rows():
    with pytest.raises(ValueError, match=r"one class for each of 2 rows, got the shape \(3,\)"):
        metrics.brier_score([0, 1, 1], TWO)


def test_classes_and_columns_must_be_as_many():
    with pytest.raises(ValueError, match="one label for each of 2 columns"):
        metrics.brier_score([0, 1], TWO, [0, 1, 2])


@pytest.mark.parametrize(("inside", "size"), [([1, 0], [1, 1]), ([True], [1, 1]), ([], [])])
def test_coverage_by_set_size_needs_a_truth_and_a_size_for_each_row(inside, size):
    with pytest.raises(ValueError, match="inside must be True or False"):
        metrics.coverage_by_set_size(inside, size)
