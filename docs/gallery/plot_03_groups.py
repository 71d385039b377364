"""
Rows that belong together
=========================

Forty machines with ten measurements each. Every machine has its own level, which is not a column. But one column, the
hours in use, identifies the machine. Intervals for *new* machines must be wider than for further measurements of
known machines. ``groups=`` declares which rows belong together.
"""

import matplotlib.pyplot as plt
import numpy as np

from coverwell import MatchedRegressor, Schedule, metrics

rng = np.random.default_rng(0)


def measurements(n_machines):
    """Rows of load and hours in use, their target, and the machine of each row."""
    machine = np.repeat(np.arange(n_machines), 10)
    level, hours = rng.normal(size=n_machines), rng.uniform(size=n_machines)
    load = rng.uniform(size=len(machine))
    y = 2 * np.sin(3 * load) + level[machine] + rng.normal(scale=0.3, size=len(machine))
    return np.column_stack([load, hours[machine]]), y, machine


X, y, machine = measurements(40)
X_new, y_new, machine_new = measurements(40)
settings = {"coverage": 0.9, "schedule": Schedule(max_rounds=4), "repeats": 1, "random_state": 0}
grouped = MatchedRegressor(**settings).fit(X, y, groups=machine)
ungrouped = MatchedRegressor(**settings).fit(X, y)

# %%
# Without groups, rows of one machine are on both sides of every fold, and the intervals are calibrated on machines
# that the networks know.

for name, model in {"with groups": grouped, "without": ungrouped}.items():
    lower, upper = model.predict_interval(X_new)
    reached, width = metrics.coverage(y_new, lower, upper), metrics.average_width(lower, upper)
    print(f"{name:12} new machines covered {reached:.2f}, mean width {width:.1f}")

# %%
# The coverage of each new machine. Even with groups, coverage is an average over machines, not a promise for each.

figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
for model, name, colour, marker in ((grouped, "with groups", "#0072B2", "o"), (ungrouped, "without", "#D55E00", "X")):
    inside = model.predict_interval(X_new).contains(y_new)
    by_machine = np.sort([inside[machine_new == number].mean() for number in range(40)])
    ax.plot(range(1, 41), by_machine, marker, color=colour, label=f"{name}: mean {inside.mean():.2f}")
ax.axhline(0.9, color="0.3", linewidth=0.8)
ax.set(xlabel="new machine, from the worst covered to the best", ylabel="share of its rows inside", ylim=(-0.05, 1.05))
ax.legend(frameon=False, loc="lower right")
