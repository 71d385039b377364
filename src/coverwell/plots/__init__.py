"""Figures. Each function takes the matplotlib Axes to draw on, or None for new ones, and returns them.

matplotlib comes with the extra `plots`. Importing this package does not import it.
"""

from coverwell.plots.boxes import draw_box, inner_and_outer
from coverwell.plots.chart import COLOURS, CurveStyle, legend_below
from coverwell.plots.charts import (
    draw_calibration_curve,
    draw_forecast,
    draw_intervals,
    draw_rolling_coverage,
    draw_rounds,
    draw_slices,
    draw_width_curve,
)
from coverwell.plots.classes import draw_confusion, draw_reliability, draw_set_sizes

BAND, BAR, CENTRE, PAPER = COLOURS["band"], COLOURS["bar"], COLOURS["centre"], COLOURS["paper"]
INSIDE, OTHER, OUTSIDE = COLOURS["inside"], COLOURS["other"], COLOURS["outside"]

__all__ = ["BAND", "BAR", "CENTRE", "INSIDE", "OTHER", "OUTSIDE", "PAPER", "CurveStyle", "draw_box"]
__all__ += ["draw_calibration_curve", "draw_forecast", "draw_intervals", "draw_rolling_coverage", "draw_rounds"]
__all__ += ["draw_slices", "draw_width_curve", "inner_and_outer", "legend_below"]
__all__ += ["draw_confusion", "draw_reliability", "draw_set_sizes"]
