"""
A first interval
================

A curve whose noise grows from left to right. We fit 400 points, request 90 % intervals, and count how many of 400 new
points are inside. The distribution behind the data is known, so we can compare the intervals with the true ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from coverwell import MatchedRegressor, Schedule, metrics
from coverwell.plots import draw_intervals


def distribution(X):
    """The distribution of y in each row: normal around a wave, the spread growing sixfold from left to right."""
    return stats.norm(loc=np.sin(2 * np.pi * X[:, 0]), scale=0.1 + 0.5 * X[:, 0])


def draw(n, seed):
    """Inputs (n, 1) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, distribution(X).rvs(size=n, random_state=rng)


X, y = draw(400, seed=0)
X_new, y_new = draw(400, seed=1)

model = MatchedRegressor(coverage=0.9, schedule=Schedule(max_rounds=6), repeats=1, random_state=0).fit(X, y)
lower, upper = model.predict_interval(X_new)

# %%
# Coverage is the share of new points inside. With 400 points it varies even if the intervals are right; the band
# shows by how much.

low, high = metrics.coverage_band(0.9, n_test=400, n_train=400)
print(f"requested 0.9, measured {metrics.coverage(y_new, lower, upper):.3f}, expected {low:.3f} to {high:.3f}")
true_lower, true_upper = distribution(X_new).interval(0.9)
print(f"mean width {metrics.average_width(lower, upper):.2f}, true {metrics.average_width(true_lower, true_upper):.2f}")

# %%
# The learned interval is narrow where there is little noise and wide where there is a lot.

grid = np.linspace(0, 1, 200)[:, None]
lower, upper = model.predict_interval(grid)
true_lower, true_upper = distribution(grid).interval(0.9)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(X_new[:, 0], y_new, ".", color="0.5", markersize=4, label="new points")
ax.fill_between(grid[:, 0], lower, upper, color="#B5D7EC", alpha=0.8, label="90 % interval")
ax.plot(grid[:, 0], model.predict(grid), color="#0072B2", label="prediction")
ax.plot(grid[:, 0], true_lower, "--", color="#D55E00", linewidth=1, label="true 90 % interval")
ax.plot(grid[:, 0], true_upper, "--", color="#D55E00", linewidth=1)
ax.set(xlabel="x", ylabel="y")
ax.legend(frameon=False, loc="lower left")

# %%
# :func:`~coverwell.plots.draw_intervals` draws rows of any table side by side, from the lowest prediction to the
# highest.

few = slice(0, 80)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
draw_intervals(ax, model.predict_interval(X_new[few]), prediction=model.predict(X_new[few]), y=y_new[few])
