"""
Intervals around another forecaster
===================================

You have a forecaster that you trust and want intervals around its forecasts. :class:`~coverwell.LiveCalibrator` only
needs the forecasts and the observed values. Here the forecaster is scikit-learn's ridge regression on the last day;
any other works too.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from coverwell import LiveCalibrator, PredictionInterval
from coverwell.metrics import rolling_coverage
from coverwell.plots import draw_forecast, draw_rolling_coverage, legend_below

rng = np.random.default_rng(0)
hours = np.arange(3000)
spread = np.where(hours < 2000, 2.0, 4.0) * (1 + 0.5 * np.sin(2 * np.pi * hours / 24))
load = 100 + 20 * np.sin(2 * np.pi * hours / 24) + spread * rng.normal(size=3000)

past = np.lib.stride_tricks.sliding_window_view(load, 24)[:-1]  # (time, 24 hours before)
truth = load[24:]
model = Ridge().fit(past[:800], truth[:800])
forecast = model.predict(past)

# %%
# Start from errors on hours that the model was not fitted to. They also determine the rate: how fast the width
# follows the misses.

known, n_known = slice(800, 1400), 1400
live = LiveCalibrator.from_residuals(truth[known] - forecast[known], coverage=0.9)
print(f"rate {live.rate}, first width {2 * live.factor:.1f}")

bounds = []
for prediction, value in zip(forecast[n_known:], truth[n_known:], strict=True):
    bounds.append([float(bound[0]) for bound in live.interval(prediction)])
    live.update(value)
lower, upper = np.array(bounds).T
print(f"requested miss rate 0.10, measured {live.missed:.3f}; last width {2 * live.factor:.1f}")

# %%
# The noise doubles at hour 2000. Top: the week around it. Bottom: the coverage over the whole period, live and with a
# fixed width.

came = truth[n_known:]
half = np.quantile(np.abs(truth[known] - forecast[known]), 0.9)
time = hours[24 + n_known :]
week = (time >= 2000 - 84) & (time < 2000 + 84)
figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 7), layout="constrained")
interval = PredictionInterval(lower[week], upper[week], coverage=0.9)
draw_forecast(top, time[week], interval, prediction=forecast[n_known:][week], y=came[week])
top.set(xlabel="hour", ylabel="load")
legend_below(top)
draw_rolling_coverage(
    bottom, time[199:], rolling_coverage((lower <= came) & (came <= upper), 200), asked=0.9, label="live"
)
fixed = np.abs(came - forecast[n_known:]) <= half
bottom.plot(time[199:], rolling_coverage(fixed, 200), "--", color="#00805C", label="fixed width")
bottom.set(xlabel="hour", ylabel="coverage of the last 200 hours", ylim=(0.5, 1))
legend_below(bottom)
