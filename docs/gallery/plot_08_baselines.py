"""
Baselines side by side
======================

The methods that the paper compares with have the same interface. Here are four of them and Sigma Fit on one split of
the diabetes table, 442 rows. It shows how to compare, not which method is better. The README has twenty splits of six
tables.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from coverwell import MatchedRegressor, Schedule, metrics
from coverwell.baselines import (
    DeepEnsembleRegressor,
    HeteroscedasticRegressor,
    MCDropoutRegressor,
    NeuralQuantileRegressor,
)

X, y = load_diabetes(return_X_y=True)
train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)

models = {
    "Sigma Fit": MatchedRegressor(coverage=0.9, schedule=Schedule(max_rounds=5), repeats=1, random_state=0),
    "Deep Ensemble": DeepEnsembleRegressor(coverage=0.9, max_epochs=40, random_state=0),
    "Heteroscedastic": HeteroscedasticRegressor(coverage=0.9, max_epochs=40, random_state=0),
    "Quantiles": NeuralQuantileRegressor(coverage=0.9, max_epochs=40, random_state=0),
    "MC Dropout": MCDropoutRegressor(coverage=0.9, max_epochs=40, random_state=0),
}

print(f"{'':16} RMSE  coverage  width  interval score")
reached, scores = {}, {}
for name, model in models.items():
    model.fit(X[train], y[train])
    lower, upper = model.predict_interval(X[test])
    reached[name] = metrics.coverage(y[test], lower, upper)
    scores[name] = metrics.interval_score(y[test], lower, upper, 0.9)
    error, width = metrics.rmse(y[test], model.predict(X[test])), metrics.average_width(lower, upper)
    print(f"{name:16} {error:4.1f}  {reached[name]:8.3f}  {width:5.0f}  {scores[name]:14.0f}")

# %%
# Coverage next to the expected range for 89 rows if intervals are right, and the interval score: the width plus a
# penalty for every miss.

names = list(models)[::-1]
low, high = metrics.coverage_band(0.9, len(test), len(train))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
left.axvspan(low, high, color="#B5D7EC", alpha=0.7, label="expected if right")
left.plot([reached[name] for name in names], names, "o", color="#0072B2")
left.set(xlabel="coverage (requested: 0.9)", xlim=(min(0.7, *reached.values()) - 0.02, 1.0))
left.legend(frameon=False, loc="lower left")
right.barh(names, [scores[name] for name in names], color="#0072B2")
right.set(xlabel="interval score (lower is better)")
