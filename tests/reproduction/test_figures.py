"""The figures: which lines they show, that nothing is hidden without a note, and photographs only where git looks away.

That stored lines give the stored figures byte by byte is in test_stored.py.
"""

import statistics
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from reproduction import figures
from reproduction.data.series import SERIES
from reproduction.domains.boxes import Source
from reproduction.domains.tables import TableStudy
from reproduction.tables import splits

STORED = Path(__file__).parents[2] / "reproduction"


def note_of(figure):
    (text,) = figure.texts
    return text.get_text().replace("\n", " ")


# Figure 2.


SIZES = {"sigma-fit": 1.0, "iqr-fit": 2.0, "sigma-fit-published": 3.0, "iqr-fit-published": 4.0}


def made_up(slug, data, trial, curve):
    """A line whose curves are this one on test rows, and half of it on the networks' own."""
    curve = [SIZES[slug] * (10 if data == "red wine" else 1) * value for value in curve]
    test, own = ({name: [by * value for value in curve] for name in ("rmse", "coverage", "width")} for by in (1.0, 0.5))
    return {"method": slug, "data": data, "trial": trial, "test": test, "own": own, "device": "made up"}


def test_curves_by_round_are_means_over_the_trials_both_forms_have_the_same_axes_and_nothing_overlaps():
    # Two trials of every method on two tables; the second trial ends one round earlier.
    where = product(SIZES, ("boston", "red wine"), enumerate([[0.4, 0.3, 0.1], [0.2, 0.2]]))
    rounds = figures.draw_figure2([made_up(slug, data, *trial) for slug, data, trial in where])
    rounds.draw_without_rendering()
    axes = np.array(rounds.axes).reshape(-1, 3)
    assert axes.shape == (4, 3)  # tables, of 0.1.0 and as published
    for ax in axes[0]:
        curves = {line.get_label(): line for line in ax.lines}
        test, own = curves["Sigma Fit, test rows"], curves["Sigma Fit, own rows"]
        assert test.get_xdata().tolist() == [1, 2]  # what both trials have
        assert test.get_ydata().tolist() == pytest.approx([3.0, 2.5])
        assert own.get_ydata().tolist() == pytest.approx([1.5, 1.25, 0.5])
    for above, below in ((axes[0], axes[1]), (axes[2], axes[3])):
        assert [ax.get_ylim() for ax in above] == [ax.get_ylim() for ax in below]
    assert {ax.get_ylim()[0] for ax in axes[:, 2]} == {0.0}  # widths
    boxes = [ax.get_tightbbox() for ax in rounds.axes]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])


# Figure 3.

DEFAULT, FIRST = {splits.title(splits.DEFAULT)}, {splits.title(method) for method in splits.FIRST_VERSION}


@pytest.fixture(scope="module")
def tables():
    lines = TableStudy.stored(STORED / TableStudy.FILE, version=None)
    return [line for line in lines if line["data"] in ("boston", "auto mpg") and line["trial"] < 6]


def panel(figure, title):
    """The panels of one table: coverage, and the widths below it."""
    shown = [ax for ax in figure.axes if ax.get_visible()]
    place = next(k for k, ax in enumerate(shown) if ax.get_title() == title)
    return shown[place], shown[place + len(shown) // 2]


def with_width(lines, method, by):
    """The lines with the widths of one method multiplied."""
    return [{**one, "width": [by * w for w in one["width"]]} if one["method"] == method else one for one in lines]


def test_no_two_methods_look_alike_even_without_colour():
    looks = [(style.marker, style.dash) for style in [*figures.STYLES.values(), figures.UNKNOWN]]
    assert len(set(looks)) == len(looks)
    assert set(figures.STYLES) == set(splits.TITLES) - set(splits.PEERS)  # peers have one level and no curve


def test_curves_by_level_are_means_over_the_trials_and_thick_ones_hide_none(tables):
    figure = figures.draw_figure3(tables)
    own = [one for one in tables if one["method"] == "hnn" and one["data"] == "auto mpg"]
    for ax, measure in zip(panel(figure, "auto mpg"), ("coverage", "width"), strict=True):
        style = figures.STYLES["hnn"]
        (curve,) = [line for line in ax.lines if line.get_marker() == style.marker and line.get_color() == style.colour]
        means = [statistics.fmean(one[measure][k] for one in own) for k in range(len(own[0]["levels"]))]
        assert curve.get_ydata().tolist() == pytest.approx(means)
        widths = [line.get_linewidth() for line in ax.lines if line.get_marker() != "None"]
        assert widths == sorted(widths, reverse=True)


def test_where_the_default_was_run_the_first_version_is_not_drawn(tables):
    without = [one for one in tables if one["method"] != "coverwell"]
    for lines, shown, hidden in ((without, FIRST, DEFAULT), (tables, DEFAULT, FIRST)):
        (legend,) = figures.draw_figure3(lines).legends
        names = {text.get_text() for text in legend.get_texts()}
        assert shown <= names
        assert not hidden & names


def test_the_band_is_what_exact_ranks_reach_and_levels_that_some_trials_lack_are_left_out(tables):
    own = [one for one in tables if one["method"] == "hnn" and one["data"] == "boston"][:3]
    (curve,) = figures.curves_of(own, "boston")
    low, high = figures.coverage_band(curve)
    place = curve.asked.tolist().index(0.9)
    assert (low[place], high[place]) == splits.mean_coverage_band(0.9, 102, 404, trials=3)
    short = {name: own[0][name][:2] for name in ("levels", "coverage", "width", "interval_score")}
    (curve,) = figures.curves_of([{**own[0], **short}, own[1]], "boston")
    assert curve.asked.tolist() == [0.1, 0.2]
    other = {**own[0], "levels": [level / 7.3 for level in own[0]["levels"]]}
    with pytest.raises(ValueError, match=r"hnn on boston have no level in common"):
        figures.curves_of([other, own[1]], "boston")


def test_a_method_that_is_far_wider_leaves_its_panel_with_a_note(tables):
    _, widths = panel(figures.draw_figure3(with_width(tables, "hnn", 20.0)), "boston")
    _, narrow = panel(figures.draw_figure3(with_width(tables, "hnn", 0.1)), "boston")
    own = [one["width"][-1] for one in tables if one["method"] == "hnn" and one["data"] == "boston"]
    assert f"HNN (up to {20 * statistics.fmean(own):.3g})" in widths.get_title(loc="left").replace("\n", " ")
    assert "HNN" not in narrow.get_title(loc="left")
    assert widths.get_ylim()[0] == 0


# Figure 4.


@pytest.fixture(scope="module")
def series(series_lines):
    figure = figures.draw_figure4(figures.lines_of_figure4(series_lines, "sigma-fit"), "sigma-fit")
    figure.draw_without_rendering()
    return figure


def bands_of(figure, data):
    return next(ax for ax in figure.axes if ax.get_title(loc="left").startswith(f"{data}:"))


@pytest.mark.parametrize(("data", "n_shown"), [("nsw2013", 72), ("air quality", 96), ("traffic", 120)])
def test_hours_are_shown_by_the_step_of_the_series_in_the_unit_of_its_axis(series, data, n_shown):
    (forecast,) = [line for line in bands_of(series, data).lines if line.get_label() == "forecast"]
    assert len(forecast.get_xdata()) == n_shown
    if data == "traffic":
        assert 5 < np.nanmax(forecast.get_ydata()) < 50


def test_values_outside_are_marked_and_missing_ones_are_not_counted(series):
    bands = bands_of(series, "air quality")
    missing = {k for k in range(96) if k % 25 == 7}
    outside = [k for k in range(0, 96, 10) if k not in missing]
    came = 96 - len(missing)
    (marked,) = [line for line in bands.lines if line.get_label() == "observed, outside"]
    assert len(marked.get_xdata()) == len(outside)
    title = f"air quality: {came - len(outside)} of {came} inside live, {came} static"
    assert bands.get_title(loc="left") == title


def test_the_note_names_the_series_on_which_a_method_was_not_run(series_lines, series):
    assert "not run on" not in note_of(series)
    chosen = figures.lines_of_figure4(series_lines, "sigma-fit")
    for missing, words in ((SERIES[1:4], "bike sharing, tas2016 and traffic."), (["tas2016"], "tas2016.")):
        some = {data: line for data, line in chosen.items() if data not in missing}
        assert f"was not run on {words}" in note_of(figures.draw_figure4(some, "sigma-fit"))


def test_observed_targets_and_the_first_seed_are_preferred(series_line):
    runs = [("interpolated", 0), ("observed", 1), ("observed", 0)]
    lines = [series_line("sigma-fit", "air quality", reading, trial) for reading, trial in runs]
    chosen = figures.lines_of_figure4([*lines, series_line("sigma-fit", "bike sharing", "interpolated")], "sigma-fit")
    found = {data: (line["reading"], line["trial"]) for data, line in chosen.items()}
    assert found == {"bike sharing": ("interpolated", 0), "air quality": ("observed", 0)}


# Figure 5.


def test_nine_images_are_shown_with_a_pixel_as_long_in_all_panels(box_line):
    figure = figures.draw_figure5(box_line("sigma-fit"))
    figure.draw_without_rendering()
    assert [ax.get_title() for ax in figure.axes][::4] == ["image 0: 2.5 %", "image 101: 15.5 %", "image 202: 76.0 %"]
    ((across, down),) = {
        tuple(np.round(np.diff(ends)[0], 6) for ends in (ax.get_xlim(), ax.get_ylim())) for ax in figure.axes
    }
    assert across == -down  # y runs downwards
    panels = [ax.get_window_extent() for ax in figure.axes]
    assert len({(round(box.width, 3), round(box.height, 3)) for box in panels}) == 1
    assert min(ax.get_tightbbox().y0 for ax in figure.axes) > figure.texts[0].get_window_extent().y1
    assert "The photographs are not ours to print" in note_of(figure)


def test_the_default_method_and_its_first_seed_are_shown(box_line):
    lines = [box_line("small"), box_line("sigma-fit", 2), box_line("sigma-fit", 1), box_line("hnn")]
    assert figures.line_of_figure5(lines) == lines[2]
    assert figures.line_of_figure5(lines[::3]) == lines[0]


def test_a_photograph_is_found_by_its_number_and_lies_upright():
    problem = Source(generated=True).problem()
    seen = figures.photograph(problem, int(problem.test.image_ids[3]))
    assert seen.shape == (400, 400, 3)
    left, top, width, height = (400 * problem.test.fractions[3]).astype(int)
    assert seen[top + height // 2, left + width // 2].min() > 0.5
    with pytest.raises(ValueError, match="image 999 is not among the test images of generated images"):
        figures.photograph(problem, 999)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (figures.draw_figure2, "Figure 2 needs results by round, got none"),
        (figures.draw_figure3, "Figure 3 needs results on one of crime"),
        (lambda lines: figures.write_figure4(lines, Path()), "Figure 4 needs results of sigma-fit or sigma-fit-cov"),
        (figures.line_of_figure5, "Figure 5 needs results of sigma-fit or small"),
    ],
)
def test_without_results_there_is_no_figure(draw, message):
    with pytest.raises(ValueError, match=message):
        draw([])
