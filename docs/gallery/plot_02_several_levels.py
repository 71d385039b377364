"""
Several levels
==============

One fit gives nested intervals for several levels. The example uses scikit-learn's diabetes table: disease progression
after a year, from ten measurements of 442 patients.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from coverwell import MatchedRegressor, Schedule, metrics
from coverwell.plots import draw_calibration_curve, draw_width_curve, legend_below

X, y = load_diabetes(return_X_y=True)
train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
levels = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]

model = MatchedRegressor(coverage=levels, schedule=Schedule(max_rounds=6), repeats=1, random_state=0).fit(
    X[train], y[train]
)
lower, upper = model.predict_interval(X[test])  # (row, level)
assert (np.diff(lower, axis=1) <= 0).all()  # nested: a higher level reaches at least as far
assert (np.diff(upper, axis=1) >= 0).all()

# %%
# Measured against requested coverage. The band contains nine out of ten samples of this size if the intervals are
# right. Widths are in points of disease progression.

reached = metrics.calibration_curve(y[test], lower, upper, levels)
bands = np.array([metrics.coverage_band(level, len(test), len(train)) for level in levels])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
draw_calibration_curve(left, levels, reached, label="Sigma Fit", band=tuple(bands.T), band_label="expected if right")
draw_width_curve(right, levels, (upper - lower).mean(axis=0), unit="points")
legend_below(left)

# %%
# The six intervals of twelve patients; the darkest is the lowest level.

figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
order = np.argsort(model.predict(X[test[:12]]))
shades = plt.colormaps["Blues"](np.linspace(0.9, 0.2, len(levels)))
for level, shade, width, low, high in zip(
    levels, shades, np.linspace(14, 5, len(levels)), lower.T, upper.T, strict=True
):
    ax.vlines(
        range(12), low[:12][order], high[:12][order], color=shade, linewidth=width, zorder=-level, label=f"{level:.0%}"
    )
ax.plot(range(12), y[test[:12]][order], "o", color="#D55E00", label="observed")
ax.set(xlabel="patient, from the lowest prediction to the highest", ylabel="disease progression", xticks=[])
legend_below(ax)
