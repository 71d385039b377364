"""Coverage in parts of the rows, the worst on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom

from coverwell.plots.style import BAR, CENTRE, INSIDE, OUTSIDE, axes_or_new, legend_below, percent
from coverwell.slices import BY_CHANCE, Slice, Slices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_slices"]

LONGEST_NAME = 40  # characters
BAND_HEIGHT = 0.7  # of the distance between two parts


def draw_slices(ax: Axes | None, slices: Slices, *, most: int = 20) -> Axes:
    """The coverage of each part of the rows with its 95 % confidence interval, the worst on top.

    First come those that fall short by more than chance, however many were looked at (see `Slices.worst`); they have a
    colour and a marker of their own. Behind each part a band shows where 19 of 20 parts of as many rows would lie if
    each row were inside with exactly the asked probability. The axis of coverage shows all of it, from 0 to 1.

    Parameters
    ----------
    ax : matplotlib Axes or None
        None makes a new figure. A quarter of an inch per part is enough.
    slices : Slices
        What `coverwell.slices.slices_of` found.
    most : int
        How many parts to draw at most.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from coverwell.slices import slices_of
    >>> found = slices_of([True, True, True, False], {"city": ["Rome", "Rome", "Oslo", "Oslo"]}, asked=0.9)
    >>> ax = draw_slices(Figure().subplots(), found)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['city: Oslo (2 rows)', 'city: Rome (2 rows)']
    """
    if most < 1 or not len(slices):
        raise ValueError(f"there must be a part to draw, got most={most!r} of {len(slices)}; cut the rows by a column")
    ax, shown = axes_or_new(ax), slices.worst(most)
    places = np.arange(len(shown))
    _draw_expected(ax, shown, slices.asked)
    ax.axvline(slices.asked, color=CENTRE, linewidth=0.8, zorder=1, label=f"asked, {percent(slices.asked)}")
    short = np.array([slices.chance(part) < BY_CHANCE for part in shown])
    within, beyond = "reached", f"reached, short by more than chance (of {len(slices)} slices)"
    for rows, label, colour, marker in ((~short, within, INSIDE, "o"), (short, beyond, OUTSIDE, "X")):
        if rows.any():
            chosen = [part for part, wanted in zip(shown, rows, strict=True) if wanted]
            _draw_reached(ax, places[rows].tolist(), chosen, label, colour, marker)
    ax.set_yticks(places, [_name(part) for part in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)  # downwards: the worst on top
    ax.set_xlim(0, 1.02)  # a marker at 1 is whole
    ax.set_xlabel("coverage, with 95 % confidence intervals")
    ax.spines[["top", "right"]].set_visible(False)
    return legend_below(ax, from_the_right=True)


def _draw_expected(ax: Axes, parts: Sequence[Slice], asked: float) -> None:
    n_rows = np.array([part.n_rows for part in parts])
    low, high = (binom.ppf(level, n_rows, asked) / n_rows for level in (BY_CHANCE / 2, 1 - BY_CHANCE / 2))
    label = f"where 19 of 20 lie if it is exactly {percent(asked)}"
    ax.barh(np.arange(len(parts)), high - low, left=low, height=BAND_HEIGHT, color=BAR, alpha=0.7, label=label)


def _draw_reached(ax: Axes, places: list[int], parts: Sequence[Slice], label: str, colour: str, marker: str) -> None:
    reached = np.array([part.coverage for part in parts])
    below = reached - [part.low for part in parts]
    above = [part.high for part in parts] - reached
    ax.errorbar(
        reached,
        places,
        xerr=[below, above],
        fmt=marker,
        markersize=5 if marker == "o" else 7,
        markeredgewidth=0,
        color=colour,
        elinewidth=1,
        zorder=3,
        label=label,
    )


def _name(part: Slice) -> str:
    """What the part is, cut to a length that leaves room for the picture."""
    name = f"{part.column}: {part.values}"
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."
    return f"{name} ({part.n_rows:,} {'row' if part.n_rows == 1 else 'rows'})"
