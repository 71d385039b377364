"""Lines of series: which stands for which, means over seeds, units, and the paper's numbers."""

import re
from pathlib import Path

import pytest
from coverwell.experiments.series_data import SERIES
from coverwell.experiments.series_summary import PAPER, SeriesSelection, measure, papers, title

PAPER_TEX = Path(__file__).parents[3] / "shared" / "paper.tex"
PAPERS_NAMES = {
    "mc-dropout": "MC Dropout",
    "concrete-dropout": "Concrete Dropout",
    "quantiles": "Quantile Estimator",
    "bnn": "BNN",
    "hnn": "HNN",
    "sigma-fit": "Sigma Fit",
    "iqr-fit": "IQR Fit",
}


def test_the_papers_numbers_are_those_of_its_table():
    if not PAPER_TEX.exists():
        pytest.skip(f"the paper is not in {PAPER_TEX}")
    table = PAPER_TEX.read_text(encoding="utf-8").partition("time-series forecasting experiments")[2]
    table = re.sub(r"\\cellcolor\{[^}]*\}|\\textbf|[{}\s]", "", table.partition(r"\end{table*}")[0])
    for method, name in PAPERS_NAMES.items():
        rows = table[table.index(f"*{name.replace(' ', '')}&RMSE") :].split(r"\\")
        for row, (measured, numbers) in zip((rows[0], rows[1], rows[2]), PAPER[method].items(), strict=True):
            printed = [float(cell) for cell in row.split("&")[2:8]]
            if measured != "calibration_error":
                printed[3] /= 1e8
            assert printed == pytest.approx(list(numbers)), (method, measured)


def test_a_series_without_gaps_stands_in_both_readings(series_line):
    chosen = SeriesSelection([series_line("hnn", "nsw2013"), series_line("hnn", "air quality")])
    assert len(chosen.of("hnn", "nsw2013", "interpolated")) == 1
    assert chosen.of("hnn", "air quality", "interpolated") == []


def test_where_nothing_was_measured_beside_the_series_the_calendars_run_stands(series_line):
    chosen = SeriesSelection(
        [series_line("sigma-fit-calendar", "traffic"), series_line("sigma-fit-calendar", "tas2016")]
    )
    assert chosen.of("sigma-fit-covariates", "traffic", "observed") == chosen.of(
        "sigma-fit-calendar", "traffic", "observed"
    )
    assert chosen.of("sigma-fit-covariates", "tas2016", "observed") == []


def test_estimates_are_means_over_seeds_with_their_standard_error(series_line):
    lines = [series_line("hnn", "nsw2013", trial=trial) for trial in (0, 1, 2)]  # errors 100, 101, 102
    found = SeriesSelection(lines).estimate("hnn", "nsw2013", "observed", "rmse", "live")
    assert (found.mean, found.trials) == (pytest.approx(101.0), 3)
    assert found.error == pytest.approx(1 / 3**0.5)
    assert SeriesSelection(lines[:1]).estimate("hnn", "nsw2013", "observed", "rmse", "live").error is None
    assert SeriesSelection(lines).estimate("hnn", "nsw2013", "observed", "rmse", "fixed_rate") is None


def test_traffic_is_told_in_units_of_1e8_bits_but_its_coverage_is_not(series_line):
    chosen = SeriesSelection([series_line("hnn", "traffic")])
    assert chosen.estimate("hnn", "traffic", "observed", "rmse", "static").mean == pytest.approx(1.3)
    assert chosen.estimate("hnn", "traffic", "observed", "calibration_error", "static").mean == pytest.approx(0.05)


def test_a_measure_is_of_the_intervals_that_are_asked_for(series_line):
    line = series_line("ar48", "tas2016", live=0.94, static=0.9)
    assert measure(line, "calibration_error", "live") == pytest.approx(0.01)
    assert measure(line, "calibration_error", "static") == pytest.approx(0.05)
    assert measure(line, "interval_score", "fixed_rate") == pytest.approx(5 * 1.2 * 20)


def test_variants_have_the_papers_number_of_their_method():
    assert papers("sigma-fit-covariates-refit", "nsw2013", "rmse") == 90.31
    assert papers("iqr-fit-published", "air quality", "width") == 3.11
    assert papers("ar48", "nsw2013", "rmse") is None
    assert papers("hnn", "nsw2013", "interval_score") is None


def test_unknown_methods_keep_their_name_and_lines_of_no_series_are_refused(series_line):
    assert title("forest") == "forest"
    assert SeriesSelection([series_line("zzz", SERIES[0]), series_line("hnn", SERIES[0])]).methods == ["hnn", "zzz"]
    with pytest.raises(ValueError, match="results on at least one of nsw2013"):
        SeriesSelection([])
