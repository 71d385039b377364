"""
A network of your own
=====================

``network`` accepts a function that makes a ``torch.nn.Module`` from the numbers of inputs and outputs. It is called
once per member. This network has a periodic first layer, for a periodic target.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from coverwell import MatchedRegressor, Schedule
from coverwell.plots import legend_below

rng = np.random.default_rng(0)
X = rng.uniform(0, 4, (500, 1))
y = np.sin(2 * np.pi * X[:, 0]) + rng.normal(scale=0.1 + 0.2 * (X[:, 0] % 1))


class Waves(nn.Module):
    """Sines and cosines of learned frequencies, and two linear layers on them."""

    def __init__(self, n_features, n_outputs, n_waves=24):
        super().__init__()
        self.frequency = nn.Parameter(2 * torch.randn(n_features, n_waves))
        self.head = nn.Sequential(nn.Linear(2 * n_waves, 64), nn.ReLU(), nn.Linear(64, n_outputs))

    def forward(self, x):
        angle = torch.pi * x @ self.frequency  # (batch, wave)
        return self.head(torch.cat([angle.sin(), angle.cos()], dim=-1))


model = MatchedRegressor(coverage=0.9, network=Waves, schedule=Schedule(max_rounds=6), repeats=1, random_state=0).fit(
    X, y
)

# %%
# Inputs are scaled to mean 0 and standard deviation 1, and outputs are in scaled units too. The matching defines what
# they mean.

grid = np.linspace(0, 4, 400)[:, None]
lower, upper = model.predict_interval(grid)
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
ax.plot(X[:, 0], y, ".", color="0.6", markersize=4, label="training rows")
ax.fill_between(grid[:, 0], lower, upper, color="#B5D7EC", alpha=0.8, label="90 % interval")
ax.plot(grid[:, 0], model.predict(grid), color="#0072B2", label="prediction")
ax.set(xlabel="x", ylabel="y")
legend_below(ax)

# %%
# Out-of-fold scores:

last = model.rounds_[-1]
print(f"RMSE {last.rmse:.3f}, coverage {last.coverage:.3f}, mean width {last.width:.2f}")
