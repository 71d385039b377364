"""Figure 3: every method in every panel, told apart without colour, nothing hidden without a note."""

import itertools
import json
import statistics
from pathlib import Path

import pytest
from coverwell.experiments import figure3, summary
from PIL import Image

RESULTS = Path(__file__).parent / "data" / "results-small.jsonl"


@pytest.fixture(scope="module")
def lines():
    return [json.loads(text) for text in RESULTS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def figure(lines):
    drawn = figure3.draw(lines)
    drawn.draw_without_rendering()
    return drawn


def visible(figure):
    return [ax for ax in figure.axes if ax.get_visible()]


def panel(figure, title):
    """The panels of one table: coverage, and the widths below it."""
    shown = visible(figure)
    place = next(k for k, ax in enumerate(shown) if ax.get_title() == title)
    return shown[place], shown[place + len(shown) // 2]


def with_width(lines, method, by):
    """The lines with the widths of one method multiplied."""
    return [{**one, "width": [by * w for w in one["width"]]} if one["method"] == method else one for one in lines]


def test_every_table_has_a_panel_of_coverage_and_one_of_widths(figure):
    assert [ax.get_title() for ax in visible(figure)][:2] == ["boston", "auto mpg"]
    assert [ax.get_ylabel() for ax in visible(figure)] == [
        *["reached coverage"] * 2,
        "average width (thousand dollars)",
        "average width (miles per gallon)",
    ]


def test_curves_are_means_over_the_trials_at_every_level(lines, figure):
    coverage, widths = panel(figure, "auto mpg")
    own = [one for one in lines if one["method"] == "hnn" and one["data"] == "auto mpg"]
    for ax, measure in ((coverage, "coverage"), (widths, "width")):
        means = [statistics.fmean(one[measure][k] for one in own) for k in range(3)]
        style = figure3.STYLES["hnn"]
        (curve,) = [line for line in ax.lines if line.get_marker() == style.marker and line.get_color() == style.colour]
        assert curve.get_xdata().tolist() == [0.5, 0.9, 0.99]
        assert curve.get_ydata().tolist() == pytest.approx(means)


def test_no_two_methods_look_alike_even_without_colour():
    looks = [(style.marker, style.dash) for style in [*figure3.STYLES.values(), figure3.UNKNOWN]]
    assert len(set(looks)) == len(looks)
    families = {name: style.colour for name, style in figure3.STYLES.items() if style.dash == "-"}
    assert len(set(families.values())) == len(families)


def test_every_method_of_the_study_has_a_look_of_its_own():
    assert set(figure3.STYLES) == set(summary.TITLES) - set(summary.PEERS)  # peers have one level and no curve


def test_ours_is_thicker_than_all_others():
    thickness = {name: style.thickness for name, style in figure3.STYLES.items()}
    others = [value for name, value in thickness.items() if name not in summary.DEFAULTS]
    assert min(thickness[name] for name in summary.DEFAULTS) >= 2 * max(others)


def test_thick_curves_are_drawn_first_so_that_they_hide_none(figure):
    for ax in visible(figure):
        widths = [line.get_linewidth() for line in ax.lines if line.get_marker() != "None"]
        assert widths == sorted(widths, reverse=True)


def test_one_legend_names_every_method_once_and_covers_no_panel(lines, figure):
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [summary.title(method) for method in summary.methods_of(lines)]
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert not any(box.overlaps(ax.get_tightbbox()) for ax in visible(figure))


def test_all_methods_on_one_table_still_fit_with_legend_and_note(lines):
    one = [line for line in lines if line["method"] == "hnn" and line["data"] == "boston"]
    figure = figure3.draw([{**line, "method": method} for line in one for method in figure3.STYLES])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    for box in (legend.get_window_extent(), figure._supxlabel.get_window_extent()):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_no_two_panels_overlap_with_their_labels(figure):
    boxes = [ax.get_tightbbox() for ax in visible(figure)]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_the_band_is_that_of_the_fewest_trials(lines):
    own = [one for one in lines if one["data"] == "boston"]  # iqr-fit has three trials, all others six
    curves = figure3.curves_of(own, "boston")
    bands = {curve.method: figure3._band(curve, curves) for curve in curves}
    low, high = bands.pop("iqr-fit")
    assert (low[1], high[1]) == summary.mean_coverage_band(0.9, 102, 404, trials=3)
    assert set(bands.values()) == {None}


def test_widths_start_at_zero(figure):
    assert {ax.get_ylim()[0] for ax in visible(figure)} == {0}


def test_a_method_that_is_far_wider_leaves_its_panel_with_a_note(lines):
    _, widths = panel(figure3.draw(with_width(lines, "bnn", 20.0)), "boston")
    _, usual = panel(figure3.draw(with_width(lines, "bnn", 0.1)), "boston")
    own = [one["width"][2] for one in lines if one["method"] == "bnn" and one["data"] == "boston"]
    assert widths.get_title(loc="left") == f"outside the panel: BNN (up to {20 * statistics.fmean(own):.3g})"
    assert usual.get_title(loc="left") == ""
    assert widths.get_ylim() == pytest.approx(usual.get_ylim())


def test_within_its_panel_no_width_is_cut_off(lines):
    _, widths = panel(figure3.draw(with_width(lines, "bnn", 0.1)), "boston")
    assert max(line.get_ydata().max() for line in widths.lines) < widths.get_ylim()[1]


def test_a_method_that_is_not_known_is_drawn_too(lines):
    more = [{**one, "method": "a new one"} for one in lines if one["method"] == "hnn"]
    (legend,) = figure3.draw([*lines, *more]).legends
    assert legend.get_texts()[-1].get_text() == "a new one"


def test_levels_that_some_trials_lack_are_left_out(lines):
    short = {name: lines[0][name][:2] for name in ("levels", "coverage", "width", "interval_score")}
    (curve,) = figure3.curves_of([{**lines[0], **short}, lines[1]], "boston")
    assert curve.asked.tolist() == [0.5, 0.9]


def test_trials_without_a_common_level_are_refused(lines):
    with pytest.raises(ValueError, match=r"mc-dropout on boston have no level in common"):
        figure3.curves_of([{**lines[0], "levels": [0.1, 0.2, 0.3]}, lines[1]], "boston")


def test_without_results_on_the_six_tables_there_is_no_figure(lines):
    variant = [one for one in lines if one["data"] == "parkinsons by patient"]
    with pytest.raises(ValueError, match="Figure 3 needs results on one of crime"):
        figure3.draw(variant)


def test_both_files_are_written_the_same_every_time(lines, tmp_path):
    few = [one for one in lines if one["data"] == "boston" and one["trial"] < 2]
    first = [path.read_bytes() for path in figure3.write(few, tmp_path)]
    paths = figure3.write(few, tmp_path)
    assert [path.name for path in paths] == ["figure3.png", "figure3.svg"]
    assert [path.read_bytes() for path in paths] == first
    with Image.open(paths[0]) as picture:
        assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)
