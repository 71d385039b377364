"""Whole figures: a panel for each target, counts of all rows, and nothing cut off or covered."""

from copy import copy

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

from coverwell import MLP, MatchedRegressor, Schedule, metrics
from coverwell.description import ModelDescription
from coverwell.evaluation import ClassOutcome, Outcome
from coverwell.paper.algorithm import Round
from coverwell.plots import figures

LEVELS = (0.5, 0.9)


def outcome(n_rows=300, names=("price",), **more):
    """Normal targets with a spread that the intervals know."""
    rng = np.random.default_rng(0)
    centre, spread = rng.normal(50, 10, (n_rows, len(names))), rng.uniform(0.1, 3, (n_rows, len(names)))
    half_width = spread[..., None] * norm.ppf((1 + np.array(LEVELS)) / 2)
    y = centre + spread * rng.normal(size=centre.shape)
    bounds = (centre[..., None] - half_width, centre[..., None] + half_width)
    return Outcome(y, centre, *bounds, LEVELS, names, **{"n_ranked": 1000, **more})


@pytest.fixture(scope="module")
def described():
    """A model whose record of training is replaced below."""
    X = np.random.default_rng(0).normal(size=(40, 1))
    made = MatchedRegressor(network=MLP(hidden=4), folds=2, repeats=1, schedule=Schedule(max_rounds=1))
    return ModelDescription(made.fit(X, X[:, 0]))


def trained(described, levels, names, shape=()):
    """Four rounds whose measures are 1, 2, 3, 4 for each target and level, in units of 1, 0.1 and 10."""
    targets = shape[:1] if len(names) > 1 else ()
    rounds = [
        Round(
            rmse=np.full(targets, float(k))[()],
            coverage=np.full(shape, 0.1 * k)[()],
            width=np.full(shape, 10.0 * k)[()],
            **dict.fromkeys(("interval_score", "mean_loss", "interval_loss", "seconds"), 1.0),
        )
        for k in range(1, 5)
    ]
    made = copy(described)
    made.rounds, made.levels, made.target_names = rounds, levels, names
    return made


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


def title_of(ax):
    return ax.get_title().replace("\n", " ")


def test_the_title_counts_all_rows_and_says_whether_a_sample_is_drawn():
    view = outcome(300).view(0, 1)
    (ax,) = figures.intervals_figure(outcome(300), 1, most=50).axes
    n_inside = int(view.inside.sum())
    inside = f"{n_inside} of 300 inside, {n_inside / 3:.3g} % (asked 90 %)"
    assert title_of(ax) == f"price: 50 of 300 rows are drawn; of all, {inside}"
    assert len(ax.collections[0].get_segments()) == 50
    (whole,) = figures.intervals_figure(outcome(300), 1, most=300).axes
    assert title_of(whole) == f"price: {inside}"


def test_a_sample_along_a_feature_keeps_rows_with_their_own_values_and_depends_on_the_seed():
    rows = outcome()

    def places(seed):
        twice = rows.prediction[:, 0] * 2
        (ax,) = figures.intervals_figure(rows, 1, along=twice, along_name="twice", most=40, seed=seed).axes
        x, y = ax.lines[0].get_xydata().T
        np.testing.assert_allclose(x, 2 * y)
        return x.tolist()

    assert places(1) == places(1) != places(2)


def test_rows_without_a_value_of_the_feature_are_counted_but_not_drawn():
    feature = np.r_[[np.nan] * 3, np.arange(3.0, 20.0)]
    (ax,) = figures.intervals_figure(outcome(20), 1, along=feature, along_name="age").axes
    assert "17 of 20 rows are drawn (3 have no age); of all, " in title_of(ax)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(3, 20))


@pytest.mark.parametrize("nothing", [np.nan, np.datetime64("NaT", "D")])
def test_a_feature_that_is_missing_everywhere_is_refused(nothing):
    with pytest.raises(ValueError, match="age is missing in every row"):
        figures.intervals_figure(outcome(20), 1, along=np.full(20, nothing), along_name="age")


def test_the_calibration_figure_shows_coverage_and_the_band_of_exact_ranks_or_the_binomial_one():
    (ax,) = figures.calibration_figure(outcome()).axes
    reached = [view.inside.mean() for view in outcome().views]
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), np.stack([LEVELS, reached], axis=1))
    assert {(level, edge) for level in LEVELS for edge in metrics.coverage_band(level, 300, 1000)} <= edges_of(ax)
    # Of 10 rows with probability .5: P(at most 1) = .011, P(at most 2) = .055, P(at most 7) = .945, so 2 to 8 inside
    assert {(0.5, 0.2), (0.5, 0.8)} <= edges_of(figures.calibration_figure(outcome(10, n_ranked=None)).axes[0])


def edges_of(ax):
    return {tuple(point) for point in ax.collections[0].get_paths()[0].vertices.tolist()}


def test_widths_stand_beside_those_of_intervals_that_know_nothing_of_the_row():
    rows = outcome()
    (ax,) = figures.widths_figure(rows, unit="EUR").axes
    equal, own = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(own, (rows.upper - rows.lower)[:, 0].mean(axis=0))
    reached = rows.views[1].inside.mean()
    np.testing.assert_allclose(equal[1], metrics.constant_width(rows.y[:, 0], rows.prediction[:, 0], reached))
    assert ax.get_ylabel() == "average width (EUR)"


@pytest.mark.parametrize(
    ("shape", "levels", "names"),
    [((), (0.9,), ("price",)), ((2,), LEVELS, ("price",)), ((2,), (0.9,), ("x", "y")), ((2, 2), LEVELS, ("x", "y"))],
)
def test_rounds_of_any_shape_have_a_panel_for_each_target_and_measure(described, shape, levels, names):
    figure = figures.rounds_figure(trained(described, levels, names, shape), len(levels) - 1)
    drawn = [ax.lines[-1].get_ydata().tolist() for ax in figure.axes]
    np.testing.assert_allclose(drawn, [[1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [10, 20, 30, 40]] * len(names))
    assert {ax.get_ylim()[0] for ax in figure.axes} == {0}
    assert figure.axes[1].get_ylim()[1] == 1
    assert list(figure.axes[1].lines[0].get_ydata()) == [0.9, 0.9]


@pytest.mark.parametrize("names", [("price",), ("left", "top", "width", "height")])
@pytest.mark.parametrize("kind", ["intervals", "calibration", "widths", "slices", "rounds"])
def test_texts_of_a_figure_stay_inside_it_and_apart(described, kind, names):
    n, city = len(names), np.array([f"level {k} with a long name" for k in range(25)])
    rows = outcome(names=names, groups={"city": np.tile(city, 12)})
    figure: Figure = {
        "intervals": lambda: figures.intervals_figure(rows, 1, most=100, unit="EUR"),
        "calibration": lambda: figures.calibration_figure(rows),
        "widths": lambda: figures.widths_figure(rows, unit="EUR"),
        "slices": lambda: figures.slices_figure(rows, 1),
        "rounds": lambda: figures.rounds_figure(
            trained(described, (0.9,), names, (n,) if n > 1 else ()), 0, unit="EUR"
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
        figures.save_figure(figures.widths_figure(outcome(20)), file)
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def class_outcome(n_rows=200):
    """Rows of two classes whose probabilities are right; the sets of 90 % hold both where neither is likely."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, n_rows)
    y = np.where(rng.random(n_rows) < p, "yes", "no")
    probability = np.stack([1 - p, p], axis=1)
    return ClassOutcome(y, probability, (probability > 0.1)[..., None], np.array(["no", "yes"]), (0.9,), ("kept",))


def test_figures_of_classes_say_in_their_titles_what_was_reached():
    rows = class_outcome()
    (view,), n_inside = rows.views, rows.views[0].inside.sum()
    reached = f"{n_inside} of 200 inside, {100 * n_inside / 200:g} % (asked 90 %)"
    drawn = [figures.reliability_figure(rows), figures.sizes_figure(rows, 0), figures.classes_figure(rows, 0)]
    titles = [" ".join(figure.axes[0].get_title().split()) for figure in drawn]
    error, chance = (rows.scores[name] for name in ("reliability_error", "expected_reliability_error"))
    assert titles[0] == f"kept, 200 rows: error {error:.3f}, by chance {chance:.3f}"
    assert titles[1] == f"kept: sets of {view.size.mean():.2f} classes on average; {reached}"
    assert titles[2] == f"kept: percentage of rows whose set holds the class; {reached}"


def test_rounds_of_classes_show_thresholds_which_are_half_the_widths(described):
    made = trained(described, (0.9,), ("kept",))
    made.classes = ("no", "yes")
    axes = figures.rounds_figure(made, 0).axes
    assert [ax.get_title() for ax in axes[::2]] == ["root of the Brier score", "average threshold"]
    assert axes[2].lines[-1].get_ydata().tolist() == [5.0, 10.0, 15.0, 20.0]
