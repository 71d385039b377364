"""Figure 4: a stretch of every series, misses marked, and the coverage through the whole test period."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from coverwell.experiments import figure4
from coverwell.experiments.series_data import SERIES


@pytest.fixture(scope="module")
def drawn(series_lines):
    figure = figure4.draw(figure4._chosen(series_lines, "sigma-fit"), "sigma-fit")
    figure.draw_without_rendering()
    return figure


def panels(figure, data):
    """The bands of a series, and the rolling coverage below them."""
    place = next(k for k, ax in enumerate(figure.axes) if ax.get_title(loc="left").startswith(f"{data}:"))
    return figure.axes[place], figure.axes[place + 1]


def curve(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def note(figure):
    (text,) = figure.texts
    return text.get_text().replace("\n", " ")


def test_every_series_has_bands_with_a_unit_and_a_rolling_coverage(drawn):
    assert len(drawn.axes) == 2 * len(SERIES)
    for data in SERIES:
        bands, below = panels(drawn, data)
        assert bands.get_ylabel() == figure4.TARGETS[data]
        assert below.get_ylabel() == "coverage"
        assert below.get_ylim() == drawn.axes[1].get_ylim()  # coverages can be compared across series


@pytest.mark.parametrize(("data", "n_shown"), [("nsw2013", 72), ("air quality", 96), ("traffic", 120)])
def test_four_days_of_hours_a_day_and_a_half_of_half_hours_and_ten_hours_of_five_minutes_are_shown(
    drawn, data, n_shown
):
    bands, _ = panels(drawn, data)
    assert len(curve(bands, "forecast").get_xdata()) == n_shown


def test_values_outside_are_marked_and_missing_ones_are_not_counted(drawn):
    bands, _ = panels(drawn, "air quality")
    missing = {k for k in range(96) if k % 25 == 7}
    outside = [k for k in range(0, 96, 10) if k not in missing]
    came = 96 - len(missing)
    assert len(curve(bands, "observed, outside").get_xdata()) == len(outside)
    title = bands.get_title(loc="left")
    assert title == f"air quality: {came - len(outside)} of {came} inside live, {came} static"


def test_the_traffic_is_drawn_in_the_unit_of_its_axis(drawn):
    bands, _ = panels(drawn, "traffic")
    assert 5 < np.nanmax(curve(bands, "observed").get_ydata()) < 50


def test_the_lowest_coverages_are_told_and_the_time_shown_above_is_shaded(drawn):
    _, below = panels(drawn, "nsw2013")
    assert {text.get_text() for text in below.texts} == {"lowest live: 0.920", "lowest static: 0.800"}
    assert len(below.patches) == 1
    assert "500 values" in note(drawn)


def test_the_note_names_the_series_on_which_a_method_was_not_run(series_lines, drawn):
    assert "not run on" not in note(drawn)
    chosen = figure4._chosen(series_lines, "sigma-fit")
    two = figure4.draw({data: chosen[data] for data in ("nsw2013", "traffic")}, "sigma-fit")
    assert "was not run on bike sharing, tas2016, beijing pm2.5 and air quality." in note(two)
    five = figure4.draw({data: line for data, line in chosen.items() if data != "tas2016"}, "sigma-fit")
    assert "was not run on tas2016." in note(five)


def test_both_figures_are_written_and_equal_lines_give_equal_bytes(series_lines, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        paths = figure4.write(series_lines, folder)
    names = [path.name for path in paths]
    assert names == [f"figure4{more}.{kind}" for more in ("", "-covariates-refit") for kind in ("png", "svg")]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_observed_targets_and_the_first_seed_are_preferred(series_line):
    lines = [
        series_line("sigma-fit", "air quality", "interpolated"),
        series_line("sigma-fit", "air quality", "observed", trial=1),
        series_line("sigma-fit", "air quality", "observed", trial=0),
        series_line("sigma-fit", "bike sharing", "interpolated"),
    ]
    chosen = figure4._chosen(lines, "sigma-fit")
    assert {data: (line["reading"], line["trial"]) for data, line in chosen.items()} == {
        "bike sharing": ("interpolated", 0),
        "air quality": ("observed", 0),
    }


def test_lines_of_other_methods_alone_are_refused(series_line, tmp_path):
    with pytest.raises(ValueError, match="Figure 4 needs results of sigma-fit or sigma-fit-covariates-refit"):
        figure4.write([series_line("hnn", "tas2016")], tmp_path)
    assert list(tmp_path.iterdir()) == []
