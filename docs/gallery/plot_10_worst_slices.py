"""
Which rows are covered worst
============================

Coverage is an average over rows. In this synthetic table, the rents of old houses are much noisier than the others,
and the year of construction is not a feature. :func:`~coverwell.slices.slices_of` measures the coverage of parts of
the rows and ranks the worst, with the probability of seeing so few inside by chance.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from coverwell import MatchedRegressor, Schedule
from coverwell.plots import draw_slices
from coverwell.slices import slices_of

rng = np.random.default_rng(0)
n = 900
table = pd.DataFrame(
    {
        "area": rng.uniform(30, 150, n).round(),
        "rooms": rng.integers(1, 6, n),
        "district": rng.choice(["harbour", "hill", "north", "station"], n),
    }
)
built = rng.integers(1900, 2020, n)  # not a feature of the model
rent = 5 * table["area"] + 40 * table["rooms"] + rng.normal(scale=np.where(built < 1930, 150, 30), size=n)

train, test = np.arange(n) < 600, np.arange(n) >= 600
model = MatchedRegressor(coverage=0.9, schedule=Schedule(max_rounds=4), repeats=1, random_state=0).fit(
    table[train], rent[train]
)
inside = model.predict_interval(table[test]).contains(rent[test])
print(f"all {inside.size} new rows: coverage {inside.mean():.3f}")

# %%
# All rows together are covered about as requested; houses built before 1930 are not.

parts = slices_of(inside, table[test].assign(built=built[test]).to_dict("series"), asked=0.9)
figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
draw_slices(ax, parts, most=10)
