"""Figure 5: nine pictures by rule, boxes to one scale, and photographs only where nobody publishes them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from coverwell.experiments import figure5
from coverwell.experiments.boxes_data import box_problem


@pytest.fixture(scope="module")
def drawn(box_line):
    figure = figure5.draw(box_line("sigma-fit"))
    figure.draw_without_rendering()
    return figure


def test_nine_pictures_are_shown_with_their_numbers_and_widths(drawn):
    titles = [ax.get_title() for ax in drawn.axes]
    assert titles == [
        *("image 0: 2.5 %", "image 1: 3.0 %", "image 2: 3.5 %"),
        *("image 100: 15.0 %", "image 101: 15.5 %", "image 102: 16.0 %"),
        *("image 200: 75.0 %", "image 201: 75.5 %", "image 202: 76.0 %"),
    ]
    assert [ax.get_ylabel().splitlines()[0] for ax in drawn.axes[::3]] == ["narrowest", "median", "widest"]


def test_a_pixel_is_as_long_in_all_panels_and_y_runs_downwards(drawn):
    spans = {tuple(np.round(np.diff(ends)[0], 6) for ends in (ax.get_xlim(), ax.get_ylim())) for ax in drawn.axes}
    ((across, down),) = spans
    assert across == -down
    boxes = [ax.get_window_extent() for ax in drawn.axes]
    assert len({(round(box.width, 3), round(box.height, 3)) for box in boxes}) == 1


def test_the_legend_stands_once_and_the_rule_is_told(drawn):
    (legend,) = drawn.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["true box", "predicted box", "inner box", "outer box"]
    (note,) = [text.get_text().replace("\n", " ") for text in drawn.texts]
    assert "the 3 with the narrowest, the 3 with the middle and the 3 with the widest intervals" in note
    assert "Sigma Fit, 95 % asked" in note
    assert "The photographs are not ours to print" in note


def test_nothing_overlaps_the_note(drawn):
    top_of_note = drawn.texts[0].get_window_extent().y1
    extents = [ax.get_tightbbox() for ax in drawn.axes]
    assert min(extent.y0 for extent in extents) > top_of_note
    assert min(extent.x0 for extent in extents) >= 0


def test_equal_lines_give_equal_bytes(box_lines, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        names = [path.name for path in figure5.write(box_lines, folder)]
    assert names == ["figure5.png", "figure5.svg"]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_default_method_and_its_first_seed_are_shown(box_line):
    lines = [box_line("small"), box_line("sigma-fit", 2), box_line("sigma-fit", 1), box_line("hnn")]
    chosen = figure5._chosen(lines)
    assert (chosen["method"], chosen["trial"]) == ("sigma-fit", 1)
    assert figure5._chosen([box_line("hnn"), box_line("small")])["method"] == "small"
    with pytest.raises(ValueError, match="Figure 5 needs results of sigma-fit or small"):
        figure5._chosen([box_line("hnn")])


def test_photographs_go_to_a_folder_that_git_passes_over(box_line, tmp_path):
    asked = []

    def photograph(number):
        asked.append(number)
        return np.zeros((8, 8, 3))

    (path,) = figure5.write_photographs([box_line("sigma-fit")], tmp_path, photograph)
    assert path == tmp_path / "photographs" / "figure5.png"
    assert "*" in (path.parent / ".gitignore").read_text().splitlines()
    assert sorted(asked) == [0, 1, 2, 100, 101, 102, 200, 201, 202]


def test_a_photograph_is_found_by_its_number_and_lies_upright():
    problem = box_problem(generated=True)
    photograph = figure5.photographs_of(problem)
    number = int(problem.test.image_ids[3])
    seen = photograph(number)
    assert seen.shape == (400, 400, 3)
    left, top, width, height = (400 * problem.test.fractions[3]).astype(int)
    assert seen[top + height // 2, left + width // 2].min() > 0.5
    with pytest.raises(ValueError, match="image 999 is not among the test pictures of generated pictures"):
        photograph(999)
