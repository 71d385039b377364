"""The protocol: splits that can be made again, and the method as published."""

import numpy as np
import pytest
from coverwell.experiments import AS_PUBLISHED, LEVELS, random_split, split_by_group
from sklearn.model_selection import train_test_split

from coverwell import MLP, MatchedRegressor


def test_levels_go_outwards_and_hold_the_papers():
    assert list(LEVELS) == sorted(LEVELS)
    assert {0.9, 0.95, 0.99} <= set(LEVELS)


@pytest.mark.parametrize("n_rows", [5, 392, 506])
def test_a_random_split_takes_every_row_once_80_to_20(n_rows):
    train, test = random_split(n_rows, split=3)
    assert sorted([*train, *test]) == list(range(n_rows))
    assert len(test) == -(-n_rows // 5)


def test_a_random_split_is_scikit_learns_of_that_seed():
    train, test = random_split(100, split=7)
    expected_train, expected_test = train_test_split(np.arange(100), test_size=0.2, random_state=7)
    np.testing.assert_array_equal(train, expected_train)
    np.testing.assert_array_equal(test, expected_test)


def test_splits_of_different_numbers_differ():
    assert set(random_split(100, split=0)[1]) != set(random_split(100, split=1)[1])


def test_a_split_by_group_keeps_groups_whole_80_to_20():
    groups = np.repeat(np.arange(20), np.arange(1, 21))
    train, test = split_by_group(groups, split=0)
    assert sorted([*train, *test]) == list(range(len(groups)))
    assert not set(groups[train]) & set(groups[test])
    assert len(set(groups[test])) == 4


def test_as_published_leaves_nothing_out_and_calibrates_nothing_afterwards():
    model = MatchedRegressor(0.9, **AS_PUBLISHED)
    assert (model.folds, model.interval_loss, model.calibration, model.max_rounds) == (None, "paper", None, 50)
    assert model.network == MLP(hidden=64, layers=5, dropout=0.0, bins=0)
    assert (model.noise_weight, model.sharpness_weight, model.mean_epochs, model.interval_epochs) == (0.1, 0.3, 10, 10)


def test_as_published_is_one_network_whose_intervals_are_the_learned_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    model = MatchedRegressor(0.9, random_state=0, **{**AS_PUBLISHED, "max_rounds": 2}).fit(X, y)
    (ensemble,) = model.ensembles_
    assert ensemble.mean_team.n_members == 1
    np.testing.assert_array_equal(model.factor_, [[1.0]])
    # y is brought to [0, 1] from the training rows
    np.testing.assert_allclose([ensemble.targets.centre[0], ensemble.targets.spread[0]], [y.min(), np.ptp(y)])
