"""The protocol of every table study: levels, splits, and the method as published."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from coverwell.networks.mlp import MLP

__all__ = ["AS_PUBLISHED", "LEVELS", "random_split", "split_by_group"]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
TEST_SHARE = 0.2

# Paper: nothing is left out, Eqs. 2 to 5 and 7 or 10 as printed (with means for sums), y in [0, 1], no calibration
# afterwards. The paper gives five linear layers, but neither their width nor the batch size.
AS_PUBLISHED: dict[str, Any] = {
    "folds": None,
    "interval_loss": "paper",
    "shape": "interval",
    "calibration": None,
    "network": MLP(hidden=64, layers=5, dropout=0.0, bins=0),
    "mean_epochs": 10,
    "interval_epochs": 10,
    "max_rounds": 50,
}

Rows = NDArray[np.intp]


def random_split(n_rows: int, split: int) -> tuple[Rows, Rows]:
    """Training and test rows, 80 to 20, of the split with this number.

    Parameters
    ----------
    n_rows : int
        Rows of the table.
    split : int
        0 to 19 are reported on, 100 to 104 are for choosing settings.
    """
    train, test = next(ShuffleSplit(1, test_size=TEST_SHARE, random_state=split).split(np.empty((n_rows, 0))))
    return train, test


def split_by_group(groups: NDArray[Any], split: int) -> tuple[Rows, Rows]:
    """Training and test rows with whole groups on either side, 80 to 20 of the groups.

    Parameters
    ----------
    groups : array (row,)
        Which group each row belongs to.
    split : int
        As in `random_split`.
    """
    splitter = GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=split)
    train, test = next(splitter.split(np.empty((len(groups), 0)), groups=groups))
    return train, test
