"""Whole figures: a panel for each target, counts of all rows, and nothing cut off or covered."""

import numpy as np
import pytest
from coverwell.rounds import Round
from matplotlib.figure import Figure
from scipy.stats import norm

from coverwell import metrics
from coverwell.plots.figures import (
    Outcome,
    calibration_figure,
    intervals_figure,
    rounds_figure,
    save_figure,
    slices_figure,
    widths_figure,
)
from coverwell.slices import Slice, Slices

LEVELS = (0.5, 0.9)


def outcome(n_rows=300, names=("price",), *, n_ranked=1000, seed=0):
    """Normal targets with a spread that the intervals know."""
    rng = np.random.default_rng(seed)
    centre, spread = rng.normal(50, 10, (n_rows, len(names))), rng.uniform(0.1, 3, (n_rows, len(names)))
    reach = spread[..., None] * norm.ppf((1 + np.array(LEVELS)) / 2)
    y = centre + spread * rng.normal(size=centre.shape)
    bounds = (centre[..., None] - reach, centre[..., None] + reach)
    return Outcome(y, centre, *bounds, levels=LEVELS, target_names=names, n_ranked=n_ranked)


def rounds(n, *shape):
    """Rounds whose measures are 1, 2, ... for each target and level."""
    return [
        Round(
            rmse=(k + np.zeros(shape[:1]))[()],
            coverage=np.full(shape, 0.1 * k)[()],
            width=np.full(shape, 10.0 * k)[()],
            interval_score=1.0,
            mean_loss=1.0,
            interval_loss=1.0,
            seconds=0.1,
        )
        for k in range(1, n + 1)
    ]


def visible(figure):
    return [ax for ax in figure.axes if ax.get_visible()]


def texts_of(figure):
    """The boxes of titles, axis labels and legends that say something."""
    figure.draw_without_rendering()
    titles = [ax.title for ax in visible(figure)]
    labels = [axis.label for ax in visible(figure) for axis in (ax.xaxis, ax.yaxis)]
    written = [text for text in (*titles, *labels, *figure.texts) if text.get_text()]
    legends = [ax.get_legend() for ax in visible(figure) if ax.get_legend()] + figure.legends
    return [one.get_window_extent() for one in (*written, *legends)]


def test_the_title_counts_all_rows_and_says_that_a_sample_is_drawn():
    rows = outcome(300)
    figure = intervals_figure(rows, 0.9, most=50)
    (ax,) = figure.axes
    n_inside = int(((rows.lower[:, 0, 1] <= rows.y[:, 0]) & (rows.y[:, 0] <= rows.upper[:, 0, 1])).sum())
    expected = f"price: 50 of 300 rows are drawn; of all, {n_inside} of 300 inside, {n_inside / 3:.3g} % (asked 90 %)"
    assert ax.get_title().replace("\n", " ") == expected
    assert len(ax.collections[0].get_segments()) == 50


def test_without_a_sample_the_title_says_nothing_of_one():
    (ax,) = intervals_figure(outcome(20), 0.5).axes
    assert "drawn" not in ax.get_title()
    assert "of 20 inside" in ax.get_title()
    assert len(ax.collections[0].get_segments()) == 20


def test_the_same_seed_draws_the_same_rows():
    def places(seed):
        (ax,) = intervals_figure(outcome(), 0.9, most=30, seed=seed).axes
        return [segment[0, 1] for segment in ax.collections[0].get_segments()]

    assert places(1) == places(1)
    assert places(1) != places(2)


def test_a_sample_along_a_feature_keeps_rows_with_their_own_values():
    rows = outcome()
    feature = rows.prediction[:, 0] * 2
    (ax,) = intervals_figure(rows, 0.9, along=feature, along_name="twice", most=40).axes
    predictions = ax.lines[0].get_xydata()
    np.testing.assert_allclose(predictions[:, 0], 2 * predictions[:, 1])
    assert ax.get_xlabel() == "twice"


def test_rows_without_a_value_of_the_feature_are_counted_but_not_drawn():
    rows = outcome(20)
    feature = np.arange(20.0)
    feature[:3] = np.nan
    (ax,) = intervals_figure(rows, 0.9, along=feature, along_name="age").axes
    assert "17 of 20 rows are drawn (3 have no age); of all, " in ax.get_title().replace("\n", " ")
    assert "of 20 inside" in ax.get_title()
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(3, 20))


@pytest.mark.parametrize("nothing", [np.nan, np.datetime64("NaT", "D")])
def test_a_feature_that_is_missing_everywhere_is_refused(nothing):
    with pytest.raises(ValueError, match="age is missing in every row"):
        intervals_figure(outcome(20), 0.9, along=np.full(20, nothing), along_name="age")


def test_a_single_level_has_its_numbers_in_the_legend():
    rows = outcome()
    alone = Outcome(
        rows.y, rows.prediction, rows.lower[..., 1:], rows.upper[..., 1:], (0.9,), rows.target_names, rows.n_ranked
    )
    share = ((alone.lower[..., 0] <= rows.y) & (rows.y <= alone.upper[..., 0])).mean()
    labels = [text.get_text() for text in calibration_figure(alone).legends[0].get_texts()]
    assert f"reached: {100 * share:.3g} %" in labels
    labels = [text.get_text() for text in widths_figure(alone).legends[0].get_texts()]
    assert f"average width of the intervals: {(alone.upper - alone.lower).mean():.4g}" in labels


def test_the_calibration_figure_shows_what_was_reached_and_the_band_of_exact_ranks():
    rows = outcome()
    (ax,) = calibration_figure(rows).axes
    reached = metrics.calibration_curve(rows.y[:, 0], rows.lower[:, 0], rows.upper[:, 0], list(LEVELS))
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), np.stack([LEVELS, reached], axis=1))
    edges = {tuple(point) for point in ax.collections[0].get_paths()[0].vertices.tolist()}
    assert {(level, edge) for level in LEVELS for edge in metrics.coverage_band(level, 300, 1000)} <= edges


def test_without_known_ranks_the_band_is_binomial():
    # Of 10 rows with probability .5: P(at most 1) = .011, P(at most 2) = .055, P(at most 7) = .945, so 2 to 8 inside
    figure = calibration_figure(outcome(10, n_ranked=None))
    edges = {tuple(point) for point in figure.axes[0].collections[0].get_paths()[0].vertices.tolist()}
    assert {(0.5, 0.2), (0.5, 0.8)} <= edges


def test_widths_stand_beside_those_of_intervals_that_know_nothing_of_the_row():
    rows = outcome()
    (ax,) = widths_figure(rows, unit="EUR").axes
    equal, own = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(own, (rows.upper - rows.lower)[:, 0].mean(axis=0))
    reached = metrics.calibration_curve(rows.y[:, 0], rows.lower[:, 0], rows.upper[:, 0], list(LEVELS))
    np.testing.assert_allclose(equal[1], metrics.constant_width(rows.y[:, 0], rows.prediction[:, 0], reached[1]))
    assert ax.get_ylabel() == "average width (EUR)"
    assert ax.get_ylim()[0] == 0


def test_the_slices_figure_says_how_many_were_looked_at():
    parts = tuple(Slice("city", str(k), 50, 45) for k in range(30))
    (few,) = slices_figure({"price": Slices(0.9, parts)}, most=10).axes
    (all_,) = slices_figure({"price": Slices(0.9, parts)}, most=50).axes
    assert "the 10 worst of 30 slices" in few.get_title()
    assert "all 30 slices" in all_.get_title()


@pytest.mark.parametrize(
    ("shape", "levels", "names"),
    [
        ((), (0.9,), ("price",)),
        ((2,), (0.5, 0.9), ("price",)),
        ((2,), (0.9,), ("x", "y")),
        ((2, 2), LEVELS, ("x", "y")),
    ],
)
def test_rounds_of_any_shape_have_a_panel_for_each_target_and_measure(shape, levels, names):
    own = rounds(4, *shape)
    if names == ("price",):
        own = [Round(**{**vars(one), "rmse": float(np.ravel(one.rmse)[0])}) for one in own]
    figure = rounds_figure(own, level=0.9, levels=levels, target_names=names)
    drawn = [ax.lines[-1].get_ydata().tolist() for ax in figure.axes]
    np.testing.assert_allclose(drawn, [[1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [10, 20, 30, 40]] * len(names))


def test_axes_of_rounds_begin_at_zero_and_coverage_is_shown_up_to_one():
    error, coverage, width = rounds_figure(rounds(4), level=0.9, levels=(0.9,), target_names=("price",)).axes
    assert [ax.get_ylim()[0] for ax in (error, coverage, width)] == [0, 0, 0]
    assert coverage.get_ylim()[1] == 1
    assert list(coverage.lines[0].get_ydata()) == [0.9, 0.9]


@pytest.mark.parametrize("names", [("price",), ("left", "top", "width", "height")])
@pytest.mark.parametrize("kind", ["intervals", "calibration", "widths", "slices", "rounds"])
def test_texts_of_a_figure_stay_inside_it_and_apart(kind, names):
    rows, n = outcome(names=names), len(names)
    parts = Slices(0.9, tuple(Slice("city", f"level {k} with a long name", 50, 40) for k in range(25)))
    figure: Figure = {
        "intervals": lambda: intervals_figure(rows, 0.9, most=100, unit="EUR"),
        "calibration": lambda: calibration_figure(rows),
        "widths": lambda: widths_figure(rows, unit="EUR"),
        "slices": lambda: slices_figure(dict.fromkeys(names, parts)),
        "rounds": lambda: rounds_figure(
            rounds(4, *([n] if n > 1 else [])), level=0.9, levels=(0.9,), target_names=names, unit="EUR"
        ),
    }[kind]()
    boxes = texts_of(figure)
    assert len([ax for ax in visible(figure) if ax.get_title()]) == n * (3 if kind == "rounds" else 1)
    assert all(box.x0 >= 0 and box.y0 >= 0 for box in boxes)
    assert all(box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height for box in boxes)
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[k + 1 :])


@pytest.mark.parametrize("ending", [".png", ".svg", ".PDF"])
def test_a_figure_made_again_is_the_same_file(tmp_path, ending):
    files = [tmp_path / f"{name}{ending}" for name in "ab"]
    for file in files:
        save_figure(widths_figure(outcome(20)), file)
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_another_ending_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"ends in .png, .svg or .pdf; got 'figure.jpeg'"):
        save_figure(widths_figure(outcome(20)), tmp_path / "figure.jpeg")
    assert list(tmp_path.iterdir()) == []
