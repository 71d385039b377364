"""
Noise that is not symmetric
===========================

Waiting times, costs and claims err to one side: often a little less than expected, now and then much more. The
interval network learns the half-widths below and above the prediction separately. With ``shape="interval"`` it alone
shapes the intervals. By default, the uncertainty of the mean network contributes too; it is a normal distribution,
which is symmetric.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from coverwell import MatchedRegressor, Schedule, metrics


def distribution(X):
    """The distribution of y in each row: a wave plus gamma noise, less skewed and wider to the right."""
    return stats.gamma(a=1 + 4 * X[:, 0], loc=np.sin(2 * np.pi * X[:, 0]), scale=0.2)


def draw(n, seed):
    """Inputs (n, 1) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, distribution(X).rvs(size=n, random_state=rng)


X, y = draw(400, seed=0)
grid = np.linspace(0, 1, 150)[:, None]
true_lower, true_upper = distribution(grid).interval(0.9)

models = {
    shape: MatchedRegressor(coverage=0.9, shape=shape, schedule=Schedule(max_rounds=4), repeats=1, random_state=0).fit(
        X, y
    )
    for shape in ("both", "interval")
}

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, (shape, model) in zip(axes, models.items(), strict=True):
    lower, upper = model.predict_interval(grid)
    ax.plot(X[:, 0], y, ".", color="0.6", markersize=3, label="training rows")
    ax.fill_between(grid[:, 0], lower, upper, color="#B5D7EC", alpha=0.8, label="90 % interval")
    ax.plot(grid[:, 0], model.predict(grid), color="#0072B2", label="prediction")
    ax.plot(grid[:, 0], true_lower, "--", color="#D55E00", linewidth=1, label="true interval")
    ax.plot(grid[:, 0], true_upper, "--", color="#D55E00", linewidth=1)
    ax.set(title=f'shape="{shape}"', xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(frameon=False, loc="lower left", fontsize=9)

# %%
# The distribution is known, so the misses on each side can be computed exactly; 0.05 on each side would be even.

for shape, model in models.items():
    lower, upper = model.predict_interval(grid)
    below, above = distribution(grid).cdf(lower).mean(), 1 - distribution(grid).cdf(upper).mean()
    X_new, y_new = draw(2000, seed=1)
    score = metrics.interval_score(y_new, *model.predict_interval(X_new), 0.9)
    print(f"{shape:9} misses below {below:.3f}, above {above:.3f}; interval score {score:.2f}")
