"""
A matching of your own
======================

With Sigma Fit, the mean network outputs a normal distribution, whose spread is matched to the width of the intervals.
For heavy-tailed noise, a Laplace distribution may fit better: its centre minimises the absolute error. A matching has
three methods, and a fourth, ``half_width``, if the distribution should help to shape the intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import stats
from torch.nn.functional import softplus

from coverwell import MatchedRegressor, Schedule, SigmaFit, metrics


class LaplaceFit:
    """F outputs the centre and spread of a Laplace distribution; the spread is matched to that of I's intervals."""

    def n_outputs(self, n_targets, n_levels):
        return 2 * n_targets

    def mean(self, outputs, n_targets):
        return outputs[..., :n_targets]  # (member, batch, target)

    def spread(self, outputs, n_targets):
        return softplus(outputs[..., n_targets:]) + 1e-3

    def half_width(self, outputs, n_targets, levels):
        one_side = self.spread(outputs, n_targets)[..., None] * -(1 - levels.coverage).log()[:, None, None, :]
        return torch.stack([one_side, one_side], dim=-2)  # (member, batch, target, side, level)

    def loss(self, outputs, y, target):
        n_targets = y.shape[-1]
        spread = self.spread(outputs, n_targets)
        likelihood = (y - self.mean(outputs, n_targets)).abs() / spread + spread.log()
        half_width = target.width / (2 * -(1 - target.coverage).log()[:, None, None, :])  # in spreads
        mismatch = (spread[..., None] - half_width).abs().mean(dim=-1)
        return (likelihood + 0.5 * mismatch).mean(dim=(1, 2))  # one number per member


# %%
# Student's t with four degrees of freedom, 400 training rows, 4000 test rows. With 400 rows, the coverage of a
# correctly calibrated fit varies by about 0.016 around 0.9: a single fit of each is not a comparison.


def distribution(X):
    """The distribution of y in each row: a wave plus Student's t with four degrees of freedom."""
    return stats.t(df=4, loc=np.sin(2 * np.pi * X[:, 0]), scale=0.2)


def draw(n, seed):
    """Inputs (n, 1) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, distribution(X).rvs(size=n, random_state=rng)


X, y = draw(400, seed=0)
X_new, y_new = draw(4000, seed=1)
models = {
    name: MatchedRegressor(
        coverage=0.9, matching=matching, schedule=Schedule(max_rounds=5), repeats=1, random_state=0
    ).fit(X, y)
    for name, matching in {"Sigma Fit": SigmaFit(), "Laplace": LaplaceFit()}.items()
}
for name, model in models.items():
    error = metrics.rmse(distribution(X_new).mean(), model.predict(X_new))
    lower, upper = model.predict_interval(X_new)
    score = metrics.interval_score(y_new, lower, upper, 0.9)
    reached = metrics.coverage(y_new, lower, upper)
    print(f"{name:10} error to the true mean {error:.3f}, coverage {reached:.3f}, interval score {score:.3f}")

# %%
# Both matchings, their intervals and the true mean.

grid = np.linspace(0, 1, 150)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    lower, upper = model.predict_interval(grid)
    ax.plot(X[:, 0], y, ".", color="0.6", markersize=3)
    ax.fill_between(grid[:, 0], lower, upper, color="#B5D7EC", alpha=0.8, label="90 % interval")
    ax.plot(grid[:, 0], model.predict(grid), color="#0072B2", label="prediction")
    ax.plot(grid[:, 0], distribution(grid).mean(), "--", color="#D55E00", linewidth=1, label="true mean")
    ax.set(title=name, xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(frameon=False, loc="lower left")
