"""Figure 5 of the paper: true and predicted boxes, and the boxes between which the intervals say that they lie."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell.experiments.boxes_data import GENERATED, BoxProblem
from coverwell.experiments.boxes_methods import COVERAGE, PICTURED
from coverwell.experiments.boxes_study import EXAMPLES
from coverwell.experiments.boxes_summary import title
from coverwell.experiments.results import Line
from coverwell.experiments.typeset import DPI, write_figure
from coverwell.files import new_file
from coverwell.inputs.images import images_of
from coverwell.plots import draw_box

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PHOTOGRAPHS", "draw", "photographs_of", "write", "write_photographs"]

Pixels = NDArray[Any]
Photograph = Callable[[int], Pixels]  # of an image's number

PHOTOGRAPHS = "photographs"  # the folder of what must not be published
NAME = "figure5"
WIDTH, LEGEND_HEIGHT, NOTE_HEIGHT, ROW_HEIGHT = 7.5, 0.5, 1.25, 2.35  # inches
FONT_SIZE, TICK_SIZE = 8.0, 7.0  # points
PHOTOGRAPH_SIDE = 400  # pixels


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write the figure without photographs, as PNG and SVG. Raises ImportError without matplotlib."""
    return write_figure(draw(_chosen(lines)), folder, NAME)


def write_photographs(lines: Iterable[Line], folder: Path, photograph: Photograph) -> list[Path]:
    """Write the figure on the photographs, as PNG, into a folder that git passes over."""
    figure = draw(_chosen(lines), photograph)
    kept_out = folder / PHOTOGRAPHS / ".gitignore"
    with new_file(kept_out) as file:
        file.write(b"# The photographs remain their photographers'.\n*\n")
    path = folder / PHOTOGRAPHS / f"{NAME}.png"
    with new_file(path) as file:
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return [path]


def photographs_of(problem: BoxProblem) -> Photograph:
    """How the figure gets a test picture by its number, squeezed to a square: (height, width, 3) in [0, 1]."""
    place = {int(number): at for at, number in enumerate(problem.test.image_ids)}
    pictures = images_of(problem.test.images)

    def photograph(number: int) -> Pixels:
        if number not in place:
            raise ValueError(f"image {number} is not among the test pictures of {problem.data}; name the same --shards")
        seen: Pixels = pictures.read(place[number], PHOTOGRAPH_SIDE).permute(1, 2, 0).numpy()
        return seen

    return photograph


def _chosen(lines: Iterable[Line]) -> Line:
    """The first seed of the first method that is pictured."""
    own = {(line["method"], line["trial"]): line for line in lines if "examples" in line}
    for method in PICTURED:
        trials = sorted(trial for slug, trial in own if slug == method.slug)
        if trials:
            return own[method.slug, trials[0]]
    named = " or ".join(method.slug for method in PICTURED)
    raise ValueError(f"Figure 5 needs results of {named}, got none; run the study with them first")


def draw(line: Line, photograph: Photograph | None = None) -> Figure:
    """The figure: a row each for the narrowest, the middle and the widest intervals."""
    import matplotlib
    from matplotlib.figure import Figure  # extra `plots`; no pyplot, so no window and no global state

    examples = line["examples"]
    n_columns = max(len(examples[name]) for name in EXAMPLES)
    height = ROW_HEIGHT * len(EXAMPLES) + LEGEND_HEIGHT + NOTE_HEIGHT
    with matplotlib.rc_context({"font.size": FONT_SIZE, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, height))
        # Places by hand: a solver of layouts may differ in the last digit from one run to the next.
        places = {"left": 0.1, "right": 0.985, "top": 1 - LEGEND_HEIGHT / height, "bottom": NOTE_HEIGHT / height}
        grid = figure.add_gridspec(len(EXAMPLES), n_columns, **places, wspace=0.2, hspace=0.2)
        for row, name in enumerate(EXAMPLES):
            for column, example in enumerate(examples[name]):
                ax = figure.add_subplot(grid[row, column])
                _draw_example(ax, example, photograph)
                if column == 0:
                    ax.set_ylabel(f"{name}\npixels")
                if row == len(EXAMPLES) - 1:
                    ax.set_xlabel("pixels")
        _to_one_scale(figure)
        _add_legend(figure)
        _add_note(figure, line, with_photographs=photograph is not None)
    return figure


def _draw_example(ax: Axes, example: Line, photograph: Photograph | None) -> None:
    draw_box(
        ax,
        np.array(example["lower"]),
        np.array(example["upper"]),
        prediction=np.array(example["prediction"]),
        truth=np.array(example["truth"]),
        size=np.array(example["size"]),
        picture=None if photograph is None else photograph(example["image_id"]),
    )
    ax.set_title(f"image {example['image_id']}: {example['width_percent']:.1f} %", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=TICK_SIZE)


def _to_one_scale(figure: Figure) -> None:
    """Let all panels show squares of one size, so that an inch is as many pixels in each of them."""
    limits = [(ax, np.array(ax.get_xlim()), np.array(ax.get_ylim())) for ax in figure.axes]
    span = max(float(np.ptp(ends)) for _, *both in limits for ends in both)
    for ax, x, y in limits:
        ax.set_xlim(x.min(), x.min() + span)
        ax.set_ylim(y.min() + span, y.min())


def _add_legend(figure: Figure) -> None:
    found: dict[str, Artist] = {}
    for ax in figure.axes:
        found |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    labels = {"true": "true box", "predicted": "predicted box", "inner": "inner box", "outer": "outer box"}
    handles = {text: found[name] for name, text in labels.items() if name in found}
    figure.legend(list(handles.values()), list(handles), loc="upper center", ncols=len(handles), frameon=False)


def _add_note(figure: Figure, line: Line, *, with_photographs: bool) -> None:
    n_shown = len(line["examples"][EXAMPLES[0]])
    made_up = " These numbers mean nothing: pictures of our own making." if line["data"] == GENERATED else ""
    alone = "" if with_photographs else " The photographs are not ours to print: boxes alone."
    note = (
        f"{title(line['method'])}, {100 * COVERAGE:.0f} % asked of each of x, y, w and h; ran on {line['device']}, "
        f"seed {line['seed']}. Of the {line['n_test']} test pictures, the {n_shown} with the narrowest, the {n_shown} "
        f"with the middle and the {n_shown} with the widest intervals: number of the image, and mean width of its "
        "four intervals in per cent of its sides. Inner box: what all boxes within the four intervals have in common "
        "(none where they have nothing). Outer box: the smallest that holds them all, cut at the edge of the picture."
        f"{alone} All to one scale.{made_up}"
    )
    figure.text(0.5, 0.008, textwrap.fill(note, 135), fontsize="small", ha="center", va="bottom")
