"""What all benchmarks have in common: they can be run, and stored texts are made from stored numbers."""

import importlib
import json
import math
import sys
from pathlib import Path

import accuracy_report
import adapters
import alarm
import command_line
import edges
import fuzz
import gaps
import groups
import kill
import left_range
import localization
import numpy as np
import onnx_images
import onnx_speed
import peers
import pytest
import scale
import selection
import soak
import species
import speed
import worst_slices
from flat_settings import as_arguments

import forecasting
import serve
from coverwell import MatchedRegressor, Schedule
from coverwell.monitor import Evidence, reserve
from coverwell.training.rows import MOST_ROWS_PER_EPOCH

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"
PEERS = ("class_peers_runner", "mapie_runner", "peers_runner", "uq360_runner")  # they run in environments of their own
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
        ("adapters.json", adapters.report),
        ("alarm.json", alarm.report),
        ("command-line.json", command_line.report),
        ("forecasting.json", forecasting.report),
        ("kill.json", kill.report),
        ("fuzz.json", fuzz.report),
        ("localization.json", localization.report),
        ("onnx.json", onnx_speed.report),
        ("onnx-images.json", onnx_images.report),
        ("scale.json", scale.report),
        ("serve.json", serve.report),
        ("soak.json", soak.report),
        ("speed.json", speed.report),
        ("accuracy.jsonl", accuracy_report.report),
        ("edges.jsonl", edges.report),
        ("gaps.jsonl", gaps.report),
        ("groups.jsonl", groups.report),
        ("peers.jsonl", peers.report),
        ("range.jsonl", left_range.report),
        ("selection.jsonl", selection.report),
        ("species.jsonl", species.report),
        ("species-selection.jsonl", species.selection_report),
        ("worst-slices.jsonl", worst_slices.table),
    ],
)
def test_the_committed_text_comes_from_the_committed_numbers(stored, report):
    path = RESULTS / stored
    text = path.read_text()
    numbers = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    assert path.with_suffix(".md").read_text() == report(numbers)


def test_the_growth_of_memory_is_told_from_noise():
    rng, n = np.random.default_rng(0), 200
    t = np.linspace(0, 1800, n)
    samples = {"seconds": list(t), "updates": list(10 * t), "service": list(3e8 + 1e5 * rng.normal(size=n))}
    samples["live"] = list(5e8 + 2e7 * t / 3600 + soak.BYTES_OF_HISTORY * 10 * t)
    flat, grown = soak.growth(samples, "service"), soak.growth(samples, "live")
    assert abs(flat["slope"]) < 4 * flat["error"] < 1e6
    assert grown["slope"] == pytest.approx(2e7)  # an hour, beside what the series itself takes
    assert grown["end"] - grown["after"] == pytest.approx(2e7 / 2 * 0.7, rel=0.02)


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
    of_images = json.loads((RESULTS / "onnx-images.json").read_text())["rows"]
    largest, exact = (max(row[name] for row in of_images) for name in ("rounded", "unrounded"))
    assert f"by up to {largest:.1e}, of which {exact:.1e} are left where features are not rounded" in page


def test_the_page_about_scale_quotes_what_checkpoints_cost_and_what_kills_did():
    page = " ".join((BENCHMARKS.parent / "docs" / "scale.md").read_text().split())
    stored = json.loads((RESULTS / "kill.json").read_text())
    small, large = stored["costs"]
    took = "{:.0f} ms, {:.1f} % of a default fit of {:,} rows that took {:.0f} s"
    for one in (small, large):
        assert took.format(1000 * one["seconds each"], 100 * one["share"], one["rows"], one["seconds"]) in page
    assert "at 100 random moments: none left a damaged file" in page
    assert len(stored["cases"]) == 100
    assert not [case for case in stored["cases"] if case["wrong"]]


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
    in_a_group = [f"{case['median']:,.0f}" for case in stored["one group"] if case["drop"] == 0.1]
    ways = {name: [f"{case['median']:,.0f}" for case in stored["ways"] if case["way"] == name] for name in alarm.WAYS}
    live = {(case["rate"], case["noise"]): 100 * case["rung"] / stored["sizes"]["streams"] for case in stored["live"]}
    changed = [
        [share for (rate, noise), share in live.items() if noise > 1 and (rate > 0) is on] for on in (False, True)
    ]
    quoted = [
        f"no cause, {100 * stored['groups']['rung'] / stored['sizes']['quiet_streams']:.2f} % of drawn streams rang",
        f"it takes {in_a_group[0]} of its own rows (median) for the first group to appear and {in_a_group[-1]} for the",
        f"the alarm rings {stored['inputs'][1]['median']:,.0f} rows later (median)",
        f"rang in {min(changed[0]):.0f} % and the one for live intervals in {max(changed[1]):.0f} %",
        f"they rang in {live[0.0, 1.0]:.1f} % and {max(live[rate, 1.0] for rate in alarm.RATES):.1f} %",
        f"a drop from 0.9 to 0.85 takes {ways['the monitor'][-1]} rows",
        "takes {} rows from the start, {} after 2,000 and {} after 50,000".format(*ways["learned rate"]),
        "takes {}, {} and {}".format(*ways["e-detector"]),
        f"needs {stored['windows']['0.9']} rows for that bound",
    ]
    words = " ".join(page.split())
    assert [text for text in quoted if text not in words] == []


def test_the_other_ways_to_bet_keep_their_bound_and_notice_a_drop():
    for way in (alarm.learned_rate, alarm.e_detector):
        *_, quiet = way(4000, 0.9, iter([0.1] * 30), seed=1)
        expected = 1 if way is alarm.learned_rate else 30 / alarm.N_ROWS  # each row so far brought a part
        assert abs(quiet.mean() - expected) < 5 * quiet.std() / 4000**0.5
        *_, dropped = way(20, 0.9, iter([0.5] * 200), seed=1)
        assert (dropped > 1 / alarm.FALSE_ALARMS).all()


def test_a_window_is_the_shortest_that_notices_half_of_the_drops():
    n = alarm.window(0.9, 0.2)
    rng, counts = np.random.default_rng(2), {}
    for rows in (n - 4, n, n + 4):
        level = 0.01 * rows / alarm.N_ROWS
        null = 1 - np.cumsum([math.comb(rows, k) * 0.1**k * 0.9 ** (rows - k) for k in range(rows)])
        counts[rows] = np.mean(rng.binomial(rows, 0.3, 20_000) > np.flatnonzero(null <= level)[0])
    assert counts[n - 4] < counts[n + 4]
    assert counts[n] == pytest.approx(0.5, abs=0.08)  # whole numbers of misses


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


def test_groups_are_judged_by_the_law_of_exact_ranks():
    rng, n_fits, n_ranked, n_new = np.random.default_rng(0), 20, 39, 400
    shares = rng.beta(36, 4, size=(3, n_fits)) - np.array([0, 0.1, 0])[:, None]  # the 36th of 39 scores
    fits = [
        {
            "case": "made up",
            "model": "exact",
            "groups": [
                {
                    "by": "group",
                    "group": group,
                    "n_ranked": 7 if group == 2 else n_ranked,
                    "n_new": n_new,
                    "weight": 1.0,
                    "held": dict.fromkeys(("covered", "inside"), int(rng.binomial(n_new, share)))
                    | {"interval_score": 1.1},
                    "alike": {"covered": 300, "inside": 300, "interval_score": 1.0},
                }
                for group, share in enumerate(of_groups)
            ],
        }
        for of_groups in shares.T
    ]
    (right, short), (few,) = groups.groups_of(fits)
    assert (right.side(), short.side(), right.side("alike")) == ("within", "below", "below")
    assert sum(right.within_of_fits) >= n_fits - 1
    assert abs(few.coverage() - 0.9) < 5 * 0.05 / n_fits**0.5
    low, high = right.band
    assert 0.9 - 4 * 0.05 / n_fits**0.5 - 0.02 < low < 0.9 < high
    words = " ".join(groups.missed(fits))
    assert "group 1 (39 ranked rows) is covered 0.79" in words
    assert "the interval score is 1.100 of the one without groups" in words
    assert "group 0" not in words


def test_the_page_about_coverage_quotes_what_is_stored():
    page = (BENCHMARKS.parent / "docs" / "coverage.md").read_text()
    lines = [json.loads(line) for line in (RESULTS / "groups.jsonl").read_text().splitlines()]
    assert groups.summary(lines) in " ".join(page.split())


def test_the_page_about_classes_quotes_the_bird_species_that_are_stored():
    page = (BENCHMARKS.parent / "docs" / "classification.md").read_text()
    for line in (json.loads(text) for text in (RESULTS / "species.jsonl").read_text().splitlines()):
        sets = zip(line["sets"]["coverage"], line["sets"]["size"], strict=True)
        cells = [f"{line['accuracy']:.3f}", f"{line['brier']:.3f}", f"{line['reliability_error']:.3f}"]
        cells += [number for coverage, size in sets for number in (f"{coverage:.3f}", f"{size:.2f}")]
        assert f"| {line['method']} | {' | '.join(cells)} |" in page
        assert f"{line['n_classes']} species" in page


def test_made_up_groups_have_the_rows_and_the_noise_that_they_should():
    rows = groups.twenty_groups(3)
    sizes = np.unique(rows.X[:, 5], return_counts=True)[1]
    assert (sizes.min(), sizes.max(), len(sizes)) == (*groups.SIZES, groups.N_GROUPS)
    assert rows.weight.sum() == pytest.approx(len(rows.y))
    rest = rows.y_new - 2 * rows.X_new[:, 0] - rows.X_new[:, 1] - np.sin(2 * rows.X_new[:, 2])
    noise = np.array([rest[rows.X_new[:, 5] == group].std() for group in range(groups.N_GROUPS)]) / 0.5
    assert np.sort(noise) == pytest.approx(np.geomspace(*groups.NOISES, groups.N_GROUPS), rel=0.2)
    assert np.array_equal(groups.twenty_groups(3).X, rows.X)


def test_a_command_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match=r"coverwell --no-such-option ended with exit code 2"):
        command_line.command_of("--no-such-option")
