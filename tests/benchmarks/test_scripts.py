"""What all benchmarks have in common: they can be run, and stored texts are made from stored numbers."""

import importlib
import json
import sys
from pathlib import Path

import accuracy_report
import alarm
import command_line
import gaps
import localization
import numpy as np
import onnx_speed
import peers
import pytest
import scale
import selection
import speed
from flat_settings import as_arguments

import forecasting
from coverwell import MatchedRegressor, Schedule
from coverwell.monitor import Evidence, reserve
from coverwell.training.rows import MOST_ROWS_PER_EPOCH

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"
PEERS = ("mapie_runner", "peers_runner", "uq360_runner")  # they run in environments of their own
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in PEERS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_imported_and_every_command_says_what_it_takes(name, monkeypatch, capsys):
    script = importlib.import_module(name)
    if hasattr(script, "main"):
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            script.main()
        assert "--help" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stored", "report"),
    [
        ("alarm.json", alarm.report),
        ("command-line.json", command_line.report),
        ("forecasting.json", forecasting.report),
        ("localization.json", localization.report),
        ("onnx.json", onnx_speed.report),
        ("scale.json", scale.report),
        ("speed.json", speed.report),
        ("accuracy.jsonl", accuracy_report.report),
        ("gaps.jsonl", gaps.table),
        ("peers.jsonl", peers.report),
        ("selection.jsonl", selection.report),
    ],
)
def test_the_committed_text_comes_from_the_committed_numbers(stored, report):
    path = RESULTS / stored
    text = path.read_text()
    numbers = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    assert path.with_suffix(".md").read_text() == report(numbers)


def test_the_guide_has_a_place_for_every_part_and_its_numbers_are_the_stored_ones():
    text, results = scale.PAGE.read_text(), scale.kept(scale.STORED)
    places = {match.groups()[1:3] for match in scale.PLACE.finditer(text)}
    assert places - {("cpu", scale.BILLION)} == {(d, name) for name, part in scale.PARTS.items() for d in part.devices}
    assert scale.page(text, results) == text
    assert f"at most {MOST_ROWS_PER_EPOCH:,} random rows" in text


def test_the_page_about_exports_quotes_what_is_stored():
    page = " ".join((BENCHMARKS.parent / "docs" / "export.md").read_text().split())
    *cases, images = json.loads((RESULTS / "onnx.json").read_text())["found"]
    (one, many), (one_of_series, many_of_series) = (
        [case["batches"][rows]["onnxruntime"] / case["batches"][rows]["torch"] for rows in ("1", "10000")]
        for case in cases
    )
    assert f"one at a time {one:.0f} times the rows per second of torch, 10,000 at a time {many:.1f} times" in page
    assert f"{one_of_series:.0f} and {many_of_series:.1f} times" in page
    assert f"by {images['largest difference']:.1e} standard deviations" in page


def test_the_page_about_monitoring_quotes_what_is_stored():
    page, stored = (
        (BENCHMARKS.parent / "docs" / "monitoring.md").read_text(),
        json.loads((RESULTS / "alarm.json").read_text()),
    )
    at_start, later = ([case for case in stored["delays"] if (case["quiet"] > 0) is late] for late in (False, True))
    for first, second in zip(at_start, later, strict=True):
        covered = f"| {first['coverage']:g} | {first['coverage'] - first['drop']:g} |"
        assert f"{covered} {first['median']:,.0f} | {second['median']:,.0f} |" in page
    shares = [100 * case["rung"] / stored["sizes"]["quiet_streams"] for case in stored["false alarms"]]
    assert "{:.2f} % rang at 0.9 and {:.2f} % at 0.95".format(*shares) in page


def test_the_streams_of_the_alarm_are_those_of_a_monitor():
    *_, found = alarm.money(3, 0.9, iter([0.2] * 50), seed=7)
    misses = (np.random.default_rng(7).random((50, 3)) < 0.2).astype(float)
    for stream, expected in zip(misses.T, found, strict=True):
        evidence = Evidence(1 - 0.9)
        for miss in stream:
            evidence.add(float(miss))
        assert evidence.stakes.sum() + reserve(50) == pytest.approx(expected)


def test_flat_settings_become_a_schedule_that_keeps_what_was_in_one():
    found = as_arguments({"shape": "interval", "schedule": Schedule(max_rounds=9, patience=2), "max_rounds": 3})
    assert found == {"shape": "interval", "schedule": Schedule(max_rounds=3, patience=2)}
    assert MatchedRegressor(**as_arguments({"learning_rate": 0.5})).schedule == Schedule(learning_rate=0.5)


def test_gaps_are_in_the_first_column_alone_and_as_many_as_asked():
    n_rows, share = 40_000, 0.05
    X, y = gaps.draw(n_rows, share, seed=3)
    n_gaps = int(X["a"].isna().sum())
    assert abs(n_gaps - share * n_rows) < 5 * (n_rows * share * (1 - share)) ** 0.5  # five standard deviations
    assert not X.drop(columns="a").isna().any().any()
    whole, y = gaps.draw(n_rows, 0.0, seed=3)
    assert (y - 2 * whole["a"]).var() / y.var() == pytest.approx(0.30, abs=0.02)  # 1 + 1/2 + 1/4 of 5 3/4, about


def test_a_command_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match=r"coverwell --no-such-option ended with exit code 2"):
        command_line.command_of("--no-such-option")
