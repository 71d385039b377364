"""Pictures; each function takes the matplotlib Axes to draw on, or None for new ones, and returns them.

matplotlib comes with the extra `plots`. Importing this package does not import it.
"""

from coverwell.plots.boxes import draw_box, inner_and_outer
from coverwell.plots.curves import draw_calibration_curve, draw_width_curve
from coverwell.plots.forecasts import draw_forecast, draw_rolling_coverage
from coverwell.plots.intervals import draw_intervals
from coverwell.plots.rounds import draw_rounds
from coverwell.plots.slices import draw_slices
from coverwell.plots.style import BAND, BAR, CENTRE, INSIDE, OTHER, OUTSIDE, PAPER, CurveStyle, legend_below

__all__ = [
    "BAND",
    "BAR",
    "CENTRE",
    "INSIDE",
    "OTHER",
    "OUTSIDE",
    "PAPER",
    "CurveStyle",
    "draw_box",
    "draw_calibration_curve",
    "draw_forecast",
    "draw_intervals",
    "draw_rolling_coverage",
    "draw_rounds",
    "draw_slices",
    "draw_width_curve",
    "inner_and_outer",
    "legend_below",
]
