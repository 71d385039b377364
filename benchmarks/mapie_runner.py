"""CPU seconds of MAPIE's CV+ around a network of torch's; run by scale_peers.py in UQ360's environment.

The network is what a user would put into scikit-learn: torch's layers, one Adam, a loop over batches. MAPIE trains one
for each fold and one on all rows; its intervals have one width for all rows.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from mapie.regression import CrossConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from torch import nn
from uq360_runner import layers

FOLDS = 5


class Network(RegressorMixin, BaseEstimator):
    """A fully connected network behind scikit-learn's face."""

    n_fits = 0  # of all copies: MAPIE trains clones

    def __init__(self, hidden: int, n_layers: int, batch_size: int, epochs: int) -> None:
        self.hidden = hidden
        self.n_layers = n_layers
        self.batch_size = batch_size
        self.epochs = epochs

    def fit(self, X: np.ndarray, y: np.ndarray) -> Network:
        Network.n_fits += 1
        x, targets = (torch.as_tensor(values, dtype=torch.float32) for values in (X, y[:, None]))
        self.model_ = nn.Sequential(*layers([x.shape[1], *[self.hidden] * (self.n_layers - 1), 1]))
        optimizer = torch.optim.Adam(self.model_.parameters(), 1e-3, fused=True)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(x)).split(self.batch_size):
                loss = nn.functional.mse_loss(self.model_(x[rows]), targets[rows])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return self

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> np.ndarray:
        outputs: np.ndarray = self.model_(torch.as_tensor(X, dtype=torch.float32))[:, 0].numpy()
        return outputs


def seconds_of_one_fit(X: np.ndarray, y: np.ndarray, settings: dict[str, Any], epochs: int) -> tuple[float, int]:
    """CPU seconds, and how many networks were trained in them."""
    Network.n_fits = 0
    network = Network(settings["hidden"], settings["layers"], settings["batch_size"], epochs)
    model = CrossConformalRegressor(network, confidence_level=0.9, method="plus", cv=FOLDS)
    started = time.process_time()
    model.fit_conformalize(X, y)
    return time.process_time() - started, Network.n_fits


def main() -> None:
    """Print the CPU seconds of one fit of the table and with the settings given as arguments."""
    table, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    X, y = table["X"], table["y"]
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    seconds_of_one_fit(X, y, settings, epochs=1)  # pays for what torch loads only once
    seconds, n_networks = seconds_of_one_fit(X, y, settings, epochs=settings["rounds"] * settings["epochs"])
    versions = {"mapie": version("mapie"), "scikit-learn": version("scikit-learn"), "torch": torch.__version__}
    print(json.dumps({"seconds": seconds, "networks": n_networks, "versions": versions}))


if __name__ == "__main__":
    main()
