"""
A live forecast under drift
===========================

An hourly series whose noise doubles half way through the test period. Static intervals cover too little from there
on. Live intervals widen after misses and narrow after hits, and return to the requested level.
"""

import matplotlib.pyplot as plt
import numpy as np

from coverwell import LSTM, MatchedForecaster, PredictionInterval, Schedule, metrics
from coverwell.plots import CurveStyle, draw_forecast, draw_rolling_coverage, legend_below

rng = np.random.default_rng(0)
hours = np.arange(2400)
noise = rng.normal(size=2400) * np.where(hours < 1600, 1.0, 2.0)
series = 10 * np.sin(2 * np.pi * hours / 24) + 0.01 * hours + noise
fitted = 800

settings = {"network": LSTM(hidden=12, layers=1), "schedule": Schedule(max_rounds=2), "folds": 3, "random_state": 0}
forecaster = MatchedForecaster(coverage=0.9, past=24, **settings).fit(series[:fitted])
backtest = forecaster.backtest(series)  # forecast, see the value, adjust the width, move on
for name, scores in {"static": backtest.scores(static=True), "live": backtest.scores()}.items():
    print(f"{name:6} coverage {scores['coverage']:.3f}, mean width {scores['width']:.1f}", end=", ")
    print(f"interval score {scores['interval_score']:.1f}")

# %%
# The coverage of the last 200 hours, static and live.

y = backtest.y[:, 0]
inside = (backtest.static_lower[:, 0, 0] <= y) & (y <= backtest.static_upper[:, 0, 0])
ends = np.asarray(backtest.index)[199:]
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
draw_rolling_coverage(ax, ends, backtest.rolling_coverage(200), asked=0.9, label="live")
static = CurveStyle(colour="#00805C", dash="--")
draw_rolling_coverage(ax, ends, metrics.rolling_coverage(inside, 200), asked=0.9, label="static", style=static)
ax.axvline(1600, color="0.5", linewidth=0.8, linestyle=":")
ax.set(xlabel="hour", ylabel="coverage of the last 200 hours")
legend_below(ax)

# %%
# The days around the change, at hour 1600.

around = slice(1600 - fitted - 60, 1600 - fitted + 120)
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
draw_forecast(
    ax,
    np.asarray(backtest.index)[around],
    PredictionInterval(backtest.lower[around, 0, 0], backtest.upper[around, 0, 0], coverage=0.9),
    prediction=backtest.prediction[around, 0],
    y=y[around],
    static=PredictionInterval(backtest.static_lower[around, 0, 0], backtest.static_upper[around, 0, 0], coverage=0.9),
)
ax.set(xlabel="hour", ylabel="value")
legend_below(ax)
