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


@pytest.fixture(scope="module")
def new():
    return demo.Flats.read("flats_new.csv")


@pytest.fixture(scope="module")
def results(new):
    return demo.compare(demo.Flats.read("flats.csv"), new, max_rounds=1, mean_epochs=2, interval_epochs=2)


def test_the_four_methods_predict_every_new_flat_all_of_other_buildings(new, results):
    assert not set(demo.Flats.read("flats.csv").building) & set(new.building)
    assert [result.name for result in results] == [
        *("default", "around a forest", "forest, split ranks", "MLP, split ranks")
    ]
    for result in results:
        assert result.prediction.shape == result.interval.lower.shape == (1000,)
        assert (result.interval.width > 0).all()


@pytest.mark.parametrize("place", [1, 2, 3])
def test_those_around_a_regressor_have_learned_something_and_cover(new, results, place):
    result = results[place]
    assert result.n_ranked == (500 if place == 1 else 100)
    # Flats of one building resemble each other: there are fewer independent ones than flats.
    low, _ = metrics.coverage_band(demo.ASKED, len(set(new.building)), result.n_ranked, probability=0.999)
    assert low <= metrics.coverage(new.y, *result.interval)
    assert metrics.rmse(new.y, result.prediction) < 0.5 * new.y.std()


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


def test_without_matplotlib_the_sentence_names_the_extra(results, new, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it now raises ImportError
    sentence = demo.plot_if_possible(results[0], new.y, tmp_path / "plot.png")
    assert "coverwell[plots]" in sentence
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_table_its_settings_the_time_and_the_place_of_the_plot(tmp_path, capsys):
    demo.main(["--max-rounds", "1", "--plot", str(tmp_path / "demo.png")])
    text = capsys.readouterr().out
    for part in (
        "500 flats",
        "MLP, split ranks",
        "two teams of networks and a forest",
        str(tmp_path / "demo.png"),
    ):
        assert part in text
    assert re.search(r"It took \d+ s\.", text)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_with_its_own_settings_it_takes_less_than_fifteen_seconds(tmp_path):
    started = time.process_time()  # of this process: what else the machine does is not counted
    demo.main(["--plot", str(tmp_path / "demo.png")])
    assert time.process_time() - started < 15
