"""
Rows that belong together
=========================

Forty machines, ten measurements of each. A machine has a level of its own that no column tells, except that one
column says how long it has been in use, by which machines can be told apart. Intervals for *new* machines must be
wider than for more measurements of machines that were seen. ``groups=`` tells which rows belong together.
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
told = MatchedRegressor(**settings).fit(X, y, groups=machine)
untold = MatchedRegressor(**settings).fit(X, y)

# %%
# Without groups, rows of one machine stand on both sides of every fold, and the intervals are judged on machines that
# the networks know.

for name, model in {"groups told": told, "not told": untold}.items():
    lower, upper = model.predict_interval(X_new)
    reached, width = metrics.coverage(y_new, lower, upper), metrics.average_width(lower, upper)
    print(f"{name:12} new machines covered {reached:.2f}, mean width {width:.1f}")

# %%
# The coverage of each new machine. Even with groups told it is a promise about the average machine, not about each.

figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
for model, name, colour, marker in ((told, "groups told", "#0072B2", "o"), (untold, "not told", "#D55E00", "X")):
    inside = model.predict_interval(X_new).contains(y_new)
    by_machine = np.sort([inside[machine_new == number].mean() for number in range(40)])
    ax.plot(range(1, 41), by_machine, marker, color=colour, label=f"{name}: mean {inside.mean():.2f}")
ax.axhline(0.9, color="0.3", linewidth=0.8)
ax.set(xlabel="new machine, from the worst covered to the best", ylabel="share of its rows inside", ylim=(-0.05, 1.05))
ax.legend(frameon=False, loc="lower right")
