"""The demo: its table, its plot, and its message if matplotlib is missing."""

import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from coverwell import PredictionInterval, metrics

sys.path.append(str(Path(__file__).parents[1] / "examples"))  # the demo is no part of the package

import demo

N_TEST = 89


@pytest.fixture(scope="module")
def rows():
    return demo.diabetes()


@pytest.fixture(scope="module")
def results(rows):
    return demo.compare(rows, max_rounds=1, mean_epochs=2, interval_epochs=2)


def test_the_five_methods_predict_every_row_of_the_same_test_split(rows, results):
    assert (len(rows.y), len(rows.y_test)) == (353, N_TEST)
    np.testing.assert_array_equal(demo.diabetes().y_test, rows.y_test)
    assert [result.name for result in results] == [
        *("default", "Sigma Fit", "IQR Fit", "as published", "plain, split ranks")
    ]
    for result in results:
        assert result.prediction.shape == result.interval.lower.shape == (N_TEST,)
        assert (result.interval.width > 0).all()


def test_the_plain_network_is_ranked_on_rows_it_did_not_train_on(rows, results):
    plain = results[-1]
    assert plain.n_ranked == 71  # a fifth of 353
    low, high = metrics.coverage_band(demo.ASKED, N_TEST, plain.n_ranked, probability=0.999)
    assert low <= metrics.coverage(rows.y_test, *plain.interval) <= high
    assert metrics.rmse(rows.y_test, plain.prediction) < 0.9 * rows.y_test.std()  # it has learned something


def test_the_table_has_the_scores_worked_out_by_hand():
    y = np.array([1.0, 2.0, 3.0, 6.0])
    prediction = np.array([1.0, 2.0, 3.0, 4.0])
    interval = PredictionInterval(prediction - 1, prediction + 1, coverage=0.9)  # the last misses by 1
    result = demo.Result("by hand", prediction, interval, n_ranked=9, seconds=1.26)
    header, line = demo.report([result], y).splitlines()
    assert " ".join(header.split()) == "RMSE requested coverage error expected band width interval score seconds"
    expected = metrics.expected_calibration_error(0.9, 4, 9)
    low, high = metrics.coverage_band(0.9, 4, 9)
    assert re.split(r"\s{2,}", line) == [
        *("by hand", "1.0", "0.90", "0.750", "0.150", f"{expected:.3f}", f"{low:.2f} to {high:.2f}"),
        *("2", "7", "1.3"),  # the miss costs 20, a quarter of it on average
    ]


def test_without_matplotlib_the_sentence_names_the_extra(results, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it now raises ImportError
    sentence = demo.plot_if_possible(results[0], rows.y_test, tmp_path / "plot.png")
    assert "coverwell[plots]" in sentence
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_table_its_settings_the_time_and_the_place_of_the_plot(tmp_path, capsys):
    demo.main(["--max-rounds", "1", "--plot", str(tmp_path / "demo.png")])
    text = capsys.readouterr().out
    for part in (
        "353 training",
        "plain, split ranks",
        "two teams of networks and a forest",
        str(tmp_path / "demo.png"),
    ):
        assert part in text
    assert re.search(r"It took \d+ s\.", text)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_with_its_own_settings_it_takes_less_than_a_minute(tmp_path):
    started = time.process_time()  # of this process: what else the machine does is not counted
    demo.main(["--plot", str(tmp_path / "demo.png")])
    assert time.process_time() - started < 60
