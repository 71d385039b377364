"""
Boxes in images
===============

The model locates a bright patch on noise: left, top, width and height. The trunk of the ResNet-18 has random weights
and the images are tiny, so the boxes are rough and the intervals wide, as they should be. The guide to images shows
the call for real photographs.
"""

import matplotlib.pyplot as plt
import numpy as np

from coverwell import MatchedRegressor, ResNet18, Schedule, metrics
from coverwell.plots import draw_box

rng = np.random.default_rng(0)
SIDE, N = 32, 120
sides = rng.uniform(0.3, 0.6, (N, 2))
boxes = np.hstack([rng.uniform(size=(N, 2)) * (1 - sides), sides])  # left, top, width, height in fractions
images = rng.uniform(0, 0.4, (N, 3, SIDE, SIDE))
for image, (left, top, width, height) in zip(images, np.rint(boxes * SIDE).astype(int), strict=True):
    image[:, top : top + height, left : left + width] += 0.5

network = ResNet18(weights=None, size=SIDE, mirror="boxes")
schedule = Schedule(max_rounds=2, mean_epochs=5, interval_epochs=3)
settings = {"folds": 2, "repeats": 1, "schedule": schedule, "random_state": 0}
model = MatchedRegressor(coverage=0.9, network=network, **settings).fit(images[:90], boxes[:90])

# %%
# Each of the four numbers has its own interval; ``joint=True`` gives wider ones, meant to hold for all four numbers
# of an image at once.

new, truth = images[90:], boxes[90:]
interval, joint = model.predict_interval(new), model.predict_interval(new, joint=True)
print("each separately:", np.round(metrics.coverage(truth, *interval), 2))
together, jointly = metrics.joint_coverage(truth, *interval), metrics.joint_coverage(truth, *joint)
print(f"all four together: {together:.2f}, with joint=True {jointly:.2f}")

# %%
# If the intervals hold, the box lies between the inner and the outer one.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, k in zip(axes, (0, 1, 2), strict=True):
    draw_box(
        ax,
        interval.lower[k] * SIDE,
        interval.upper[k] * SIDE,
        prediction=model.predict(new[k : k + 1])[0] * SIDE,
        truth=truth[k] * SIDE,
        size=(SIDE, SIDE),
        image=new[k].transpose(1, 2, 0),
    )
    ax.axis("off")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
