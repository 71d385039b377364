"""Figure 2: what its lines hold, that nothing is run twice, and that the picture shows what the lines say."""

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from coverwell.experiments import figure2, study
from coverwell.experiments.methods import methods_from
from coverwell.experiments.results import ResultsFileError, append, key_of, only_writer, read_results
from PIL import Image

from coverwell import fit_together

COMMITTED = Path(__file__).parents[2] / "reproduction" / "rounds.jsonl"
LEGEND = ["Sigma Fit, test rows", "Sigma Fit, own rows", "IQR Fit, test rows", "IQR Fit, own rows"]
every_method = pytest.mark.parametrize("slug", figure2.METHODS)


def run(path, **changes):
    assert figure2.run(path, **{"trials": 1, "data": ["auto mpg"], "device": "cpu", "quick": True} | changes) == []


def read(path):
    return read_results(path, fields=figure2.FIELDS)


@pytest.fixture(autouse=True)
def _data(shared_data, monkeypatch):
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))


@pytest.fixture(scope="module")
def one_trial(shared_data, tmp_path_factory):
    """The bytes of a results file with one quick trial of every method."""
    path = tmp_path_factory.mktemp("figure2") / "out" / "rounds.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERWELL_DATA", str(shared_data))
        run(path)
    return path.read_bytes()


@pytest.fixture
def path(one_trial, tmp_path):
    """A copy of the file with one trial."""
    copied = tmp_path / "rounds.jsonl"
    copied.write_bytes(one_trial)
    return copied


@pytest.fixture
def lines(path):
    return {line["method"]: line for line in read(path)}


def plain_model(slug):
    """The model of a line, not yet fitted, built without the figure's code."""
    (method,) = methods_from([slug])
    return method.build((0.9,), 0, "cpu", quick=True)[0].set_params(shape="interval")


def split_by_form(content):
    """The lines of a results file: as published, and by default."""
    texts = content.splitlines(keepends=True)
    return tuple([t for t in texts if (b"-published" in t) == published] for published in (True, False))


def by_hand(y, prediction, lower, upper):
    return {
        "rmse": math.sqrt(statistics.fmean((y - prediction) ** 2)),
        "coverage": statistics.fmean((lower <= y) & (y <= upper)),
        "width": statistics.fmean(upper - lower),
    }


# Lines.


def test_there_is_one_line_for_every_method_table_and_trial(lines, path):
    assert {key_of(line) for line in read(path)} == {(slug, "auto mpg", 0, (0.9,)) for slug in figure2.METHODS}
    for line in lines.values():
        assert set(line) == {*figure2.FIELDS, "seed"}
        assert list(line)[:6] == ["format", "method", "data", "trial", "seed", "levels"]
        assert (line["n_train"], line["n_test"], line["stack"], line["seed"]) == (313, 79, 1, 0)


def test_boston_and_parkinsons_are_asked_for_the_papers_levels():
    assert figure2.LEVEL_OF == {"boston": 0.95, "parkinsons": 0.99}


@every_method
def test_test_rows_and_own_rows_have_a_value_of_each_measure_for_each_round(lines, slug):
    for rows in ("test", "own"):
        assert list(lines[slug][rows]) == ["rmse", "coverage", "width"]
        for values in lines[slug][rows].values():
            assert len(values) == 3  # as many as a quick run has
            assert np.isfinite(values).all()


@pytest.mark.parametrize("slug", ["sigma-fit-published", "iqr-fit-published"])
def test_as_published_the_last_round_on_test_rows_is_what_a_model_fitted_without_looking_on_predicts(lines, slug):
    rows = study.rows_of("auto mpg", 0)
    model = plain_model(slug).fit(rows.X, rows.y)
    expected = by_hand(rows.y_test, model.predict(rows.X_test), *model.predict_interval(rows.X_test))
    assert {name: values[-1] for name, values in lines[slug]["test"].items()} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("slug", ["sigma-fit-published", "iqr-fit-published", "iqr-fit"])
def test_own_rows_are_the_rounds_of_a_model_fitted_without_looking_on(lines, slug):
    rows = study.rows_of("auto mpg", 0)
    model = plain_model(slug).fit(rows.X, rows.y)
    expected = {name: [float(np.squeeze(getattr(one, name))) for one in model.rounds_] for name in figure2.MEASURES}
    assert lines[slug]["own"] == expected


def test_by_default_test_rows_are_measured_with_the_intervals_of_i_in_each_round_without_ranks(lines):
    rows, seen = study.rows_of("auto mpg", 0), []

    def look(present):
        ((ensemble,),) = present
        said = ensemble.estimate(rows.X_test, torch.device("cpu"))
        below, above = said.reach[:, 0, :, 0].T
        seen.append(by_hand(rows.y_test, said.mean[:, 0], said.mean[:, 0] - below, said.mean[:, 0] + above))

    fit_together([plain_model("sigma-fit")], [(rows.X, rows.y, None)], on_round=look)
    for name, values in lines["sigma-fit"]["test"].items():
        assert values == pytest.approx([one[name] for one in seen], rel=1e-9)


# Running.


def test_a_second_run_does_nothing(path, capsys):
    before = path.read_bytes(), path.stat().st_mtime_ns
    run(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert capsys.readouterr().err == ""


def test_only_what_is_missing_is_added(one_trial, path):
    published, default = split_by_form(one_trial)
    kept = b"".join(default)
    path.write_bytes(kept + published[0][:50])  # killed in the middle of a line
    run(path)
    assert path.read_bytes().startswith(kept)
    added = read(path)[2:]
    for line, before in zip(added, map(json.loads, published), strict=True):
        assert key_of(line) == key_of(before)
        assert (line["test"], line["own"]) == (before["test"], before["own"])


def test_trials_that_are_added_are_one_stack_and_leave_the_others_as_they_are(one_trial, path):
    _, default = split_by_form(one_trial)
    there = [{**json.loads(text), "trial": trial} for text in default for trial in (1, 2)]  # need not be run
    append(path, there)
    before = path.read_bytes()
    run(path, trials=3)
    assert path.read_bytes().startswith(before)
    added = read(path)[4 + len(there) :]
    published = ("sigma-fit-published", "iqr-fit-published")
    assert [key_of(line)[:3] for line in added] == [(slug, "auto mpg", trial) for slug in published for trial in (1, 2)]
    assert {line["stack"] for line in added} == {2}
    assert len({line["test"]["rmse"][-1] for line in added}) == len(added)
    assert len({line["own"]["width"][-1] for line in added}) == len(added)


def test_a_second_command_on_the_same_file_is_refused(path):
    pytest.importorskip("fcntl")
    with only_writer(path), pytest.raises(ResultsFileError, match="another command is writing"):
        run(path, trials=2)


# The picture.


def made_up(slug, data, trial, curve):
    """A line whose curves are this one on test rows, and half of it on the networks' own."""
    test, own = ({name: [by * value for value in curve] for name in figure2.MEASURES} for by in (1.0, 0.5))
    return {"method": slug, "data": data, "trial": trial, "test": test, "own": own, "device": "made up"}


@pytest.fixture(scope="module")
def two_tables():
    """Two trials of every method on two tables; the second trial ends one round earlier."""
    return [
        made_up(slug, data, trial, [size * place * value for value in curve])
        for place, slug in enumerate(figure2.METHODS, start=1)
        for data, size in (("boston", 1.0), ("red wine", 10.0))
        for trial, curve in enumerate([[0.4, 0.3, 0.1], [0.2, 0.2]])
    ]


@pytest.fixture(scope="module")
def figure(two_tables):
    drawn = figure2.draw(two_tables)
    drawn.draw_without_rendering()
    return drawn


def panels(figure):
    """The axes as they lie: (row, column)."""
    return np.array(figure.axes).reshape(-1, 3)


def horizontal_lines(ax):
    """The heights of lines across the whole panel."""
    return [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]


def curve_of(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found.get_xdata().tolist(), found.get_ydata().tolist()


def test_every_table_has_two_rows_of_three_panels_with_labels(figure):
    axes = panels(figure)
    assert axes.shape == (4, 3)
    assert [ax.get_ylabel() for ax in axes[:, 0]] == [
        f"{data},\n{form}" for data in ("red wine", "boston") for form in ("by default", "as published")
    ]
    for number, row in enumerate(axes):
        level, unit = (0.9, "quality points") if number < 2 else (0.95, "thousand dollars")
        titles = [f"RMSE ({unit})", f"coverage, asked {level}", f"width ({unit})"]
        assert [ax.get_title() for ax in row] == titles
        assert {ax.get_xlabel() for ax in row} == {"round"}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == LEGEND


def test_the_asked_level_is_a_line_across_in_panels_of_coverage_alone(figure):
    for row, level in zip(panels(figure), (0.9, 0.9, 0.95, 0.95), strict=True):
        rmse, coverage, width = (horizontal_lines(ax) for ax in row)
        assert set(coverage) == {level}
        assert rmse == width == []


def test_curves_are_means_over_the_trials_round_by_round(figure):
    for row, first, factor in ((0, "Sigma Fit", 10.0), (3, "IQR Fit", 4.0)):  # by default, red wine; published, boston
        for ax in panels(figure)[row]:
            rounds, means = curve_of(ax, f"{first}, test rows")
            assert rounds == [1, 2]  # what both trials have
            assert means == pytest.approx([0.3 * factor, 0.25 * factor])
            rounds, means = curve_of(ax, f"{first}, own rows")
            assert rounds == [1, 2, 3]
            assert means == pytest.approx([0.15 * factor, 0.125 * factor, 0.05 * factor])


def test_both_forms_of_a_table_have_the_same_axes_and_widths_begin_at_zero(figure):
    axes = panels(figure)
    for above, below in ((axes[0], axes[1]), (axes[2], axes[3])):
        assert [ax.get_ylim() for ax in above] == [ax.get_ylim() for ax in below]
    assert {ax.get_ylim()[0] for ax in axes[:, 2]} == {0.0}
    for ax in axes.flat:
        low, high = ax.get_ylim()
        assert all(low <= value <= high for line in ax.lines for value in line.get_ydata() if math.isfinite(value))


def test_no_two_panels_overlap_with_their_labels_and_nothing_leaves_the_picture(figure):
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])
    (legend,) = figure.legends
    for box in (*boxes, legend.get_window_extent(), figure._supxlabel.get_window_extent()):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_the_note_says_how_many_trials_and_where_they_ran(figure):
    assert "Means over 2 trials" in figure._supxlabel.get_text()
    assert "ran on made up" in figure._supxlabel.get_text()


def test_a_method_that_has_no_results_is_left_out(two_tables):
    alone = figure2.draw([line for line in two_tables if line["method"].startswith("sigma-fit")])
    assert [text.get_text() for text in alone.legends[0].get_texts()] == LEGEND[:2]


def test_variants_of_a_table_have_panels_and_the_units_of_the_table():
    axes = panels(figure2.draw([made_up("sigma-fit", "parkinsons by patient", 0, [0.4, 0.3])]))
    assert axes.shape == (2, 3)
    assert axes[0, 1].get_title() == "coverage, asked 0.9"
    assert axes[0, 0].get_title() == f"RMSE ({figure2.summary.UNITS['parkinsons']})"


def test_without_results_there_is_no_figure(tmp_path):
    with pytest.raises(ValueError, match="needs results by round, got none; run the command first"):
        figure2.write([], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_both_files_are_written_the_same_every_time(path, tmp_path):
    paths = figure2.write(read(path), path.parent)
    assert paths == [path.parent / "figure2.png", path.parent / "figure2.svg"]
    assert sorted(path.parent.iterdir()) == [*paths, path]
    again = figure2.write(read(path), tmp_path / "again")
    assert [one.read_bytes() for one in again] == [one.read_bytes() for one in paths]
    with Image.open(paths[0]) as picture:
        assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_the_committed_results_can_be_drawn_and_give_the_same_files_every_time(tmp_path):
    committed = read_results(COMMITTED, fields=figure2.FIELDS, version=None)
    for line in committed:
        lengths = {len(line[rows][name]) for rows in ("test", "own") for name in figure2.MEASURES}
        assert len(lengths) == 1, key_of(line)
        assert lengths.pop() <= (50 if line["method"].endswith("-published") else 40)
    tables = {line["data"] for line in committed}
    assert panels(figure2.draw(committed)).shape == (2 * len(tables), 3)
    first, second = (figure2.write(committed, tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
