"""Competitors: who is run on what, how ranks move quantiles, and that one failure stops nobody else."""

import math
import sys
import time

import numpy as np
import peers
import peers_runner
import pytest
from peers import Job, Place

from reproduction.data.tables import DEVELOPMENT_TABLES


@pytest.fixture
def data_folder(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


def test_every_peer_has_a_title_and_every_title_a_peer():
    assert set(peers.TITLES) == set(peers_runner.PEERS)
    assert set(peers.NETWORKS) < set(peers_runner.PEERS)


def test_large_tables_have_five_trials_and_the_first_trials_of_all_come_first(data_folder, tmp_path):
    jobs = peers.jobs_of(["ngboost", "forest-oob"], DEVELOPMENT_TABLES, 20, tmp_path / "peers.jsonl")
    runs = [(job.method, job.data, trial) for job in jobs for trial in job.trials]
    assert len(runs) == len(set(runs)) == 2 * (15 * 20 + 3 * 5)
    assert [job.trials for job in jobs if job[:2] == ("ngboost", "kin40k")] == [[0], [1], [2], [3], [4]]
    first = [max(job.trials) < 5 for job in jobs]
    assert first == sorted(first, reverse=True)


def test_ranks_move_both_quantiles_by_the_same_amount():
    """Quantiles that are 0 and 1 everywhere: the scores of 1, ..., n are y - 1, and one of them is the move."""
    y = np.arange(1.0, 401.0)
    split = peers_runner.Split(y[:, None], y, np.zeros((2, 1)), asked=0.9, seed=0, device="cpu")
    found = peers_runner._cqr(split, lambda X, y: lambda X: np.column_stack([0 * X, 0.5 + 0 * X, 1 + 0 * X]))
    np.testing.assert_array_equal(found.y_hat, 0.5)
    np.testing.assert_array_equal(found.upper - 1, -found.lower)
    ranked = found.upper[0] - 1
    # rank ceil(101 * .9) = 91 of 100 rows that were drawn from 400: about 364, with a standard deviation of some 10
    assert ranked == round(ranked)
    assert abs(ranked + 1 - 364) < 5 * 10


def test_the_rank_is_that_of_a_hundred_and_one_rows():
    assert peers_runner._at_rank(np.arange(100.0), 0.9) == 90  # the 91st of 0, 1, ...
    assert peers_runner._at_rank(np.arange(5.0), 0.9) == 4  # six rows: none reaches .9, so the largest


def test_a_peer_that_fails_is_named_and_the_others_are_stored(data_folder, tmp_path, capfd):
    """This environment has scikit-learn, but not NGBoost."""
    path, place = tmp_path / "peers.jsonl", Place(sys.executable, "cpu", math.inf)
    jobs = [Job("ngboost", "concreteslump", [0, 1]), Job("forest-oob", "concreteslump", [1])]
    failed = peers.run(jobs, path, place, workers=2)
    assert len(failed) == 1
    assert "ngboost on concreteslump" in failed[0]
    assert "No module named 'ngboost'" in capfd.readouterr().err
    (line,) = peers.stored(path)
    assert (line["method"], line["trial"], line["n_train"], line["n_test"]) == ("forest-oob", 1, 82, 21)
    assert 0 <= line["coverage"][0] <= 1
    assert line["device"].endswith("CPU")
    assert peers.jobs_of(["forest-oob"], ["concreteslump"], 2, path) == [Job("forest-oob", "concreteslump", [0])]


def test_nothing_starts_after_the_time_is_up(data_folder, tmp_path):
    place = Place(sys.executable, "cpu", time.monotonic())
    assert peers.run([Job("forest-oob", "concreteslump", [0])], tmp_path / "peers.jsonl", place, workers=1) == []
    assert peers.stored(tmp_path / "peers.jsonl") == []
