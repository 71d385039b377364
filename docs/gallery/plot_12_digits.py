"""
Sets of classes
===============

Handwritten digits, of which only 300 are there to learn from. :class:`~coverwell.MatchedClassifier` gives every new
digit a set: one class where it is sure, several where it is not.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from coverwell import MatchedClassifier, Schedule, metrics
from coverwell.errors import ConstantDataWarning, ExtrapolationWarning

X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, train_size=300, stratify=y, random_state=0)
warnings.simplefilter("ignore", ConstantDataWarning)  # pixels in the corners are always white
warnings.simplefilter("ignore", ExtrapolationWarning)  # and some new digits have ink there

model = MatchedClassifier([0.9, 0.95, 0.98], schedule=Schedule(max_rounds=2), repeats=1, random_state=0).fit(X, y)

# %%
# Where more digits are recognised than asked for, sets of one class cover more. With ``allow_empty=True`` the coverage
# is near what was asked, at the price of sets that hold nothing.

print(f"accuracy {model.score(X_new, y_new):.3f}")
for level in (0.9, 0.95, 0.98):
    sets, bare = (model.predict_set(X_new, level, allow_empty=empty) for empty in (False, True))
    reached, without = sets.contains(y_new).mean(), bare.contains(y_new).mean()
    print(f"asked {level}: coverage {reached:.3f} with {sets.size.mean():.2f} classes, {without:.3f} with empty sets")

# %%
# Digits with two classes or more in their set at 98 %, and the digit that was meant.

sets = model.predict_set(X_new, 0.98)
unsure = np.flatnonzero(sets.size > 1)[:10]
figure, panels = plt.subplots(2, 5, figsize=(9, 4.4), layout="constrained")
for panel, row, found in zip(panels.flat, unsure, model.predict_set(X_new[unsure], 0.98).to_list(), strict=True):
    panel.imshow(X_new[row].reshape(8, 8), cmap="gray_r")
    listed = " ".join(map(str, found))
    panel.set_title(f"{{{listed}}}", fontsize=9, color="#0072B2" if y_new[row] in found else "#D55E00")
    panel.set(xlabel=f"meant: {y_new[row]}", xticks=[], yticks=[])

# %%
# The probabilities: how often the likeliest class is right, next to what it was said to be. Chance alone makes some
# distance.

probability = model.predict_proba(X_new)
found = metrics.reliability(y_new, probability)
error, expected = metrics.reliability_error(y_new, probability), metrics.expected_reliability_error(probability)
print(f"mean distance {error:.3f}, {expected:.3f} by chance")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot([0, 1], [0, 1], color="0.3", linewidth=0.8)
left.plot(found.confidence, found.accuracy, "o", color="#0072B2")
left.set(xlabel="probability of the likeliest class", ylabel="share of these rows that have it")
by_size = metrics.coverage_by_set_size(sets.contains(y_new), sets.size)
right.bar(list(map(str, by_size)), [reached for reached, _ in by_size.values()], color="#56B4E9")
for place, (reached, n_rows) in enumerate(by_size.values()):
    right.annotate(f"{n_rows}", (place, reached), ha="center", va="bottom", fontsize=8)
right.axhline(0.98, color="0.3", linewidth=0.8)
right.set(xlabel="classes in the set at 98 %", ylabel="coverage", ylim=(0, 1.1))
