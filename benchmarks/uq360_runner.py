"""CPU seconds that one model of UQ360's AuxiliaryIntervalPredictor needs; run by speed.py in its own environment.

UQ360's built-in network has one hidden layer, so it is given five linear layers through its own `model_type="custom"`,
the two heads of its main network being one layer. Nothing of UQ360 is changed.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from uq360.algorithms.auxiliary_interval_predictor import AuxiliaryIntervalPredictor


def layers(sizes: list[int]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    parts = [part for before, after in pairwise(sizes) for part in (nn.Linear(before, after), nn.ReLU())]
    return parts[:-1]


class Main(nn.Sequential):
    """Mean and log-variance, as UQ360's main network gives them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = super().forward(x).chunk(2, dim=1)
        return mean, log_variance


def seconds_of_one_fit(X: np.ndarray, y: np.ndarray, settings: dict[str, int], seed: int) -> float:
    torch.manual_seed(seed)
    sizes = [X.shape[1], *[settings["hidden"]] * (settings["layers"] - 1)]
    model = AuxiliaryIntervalPredictor(
        model_type="custom",
        main_model=Main(*layers([*sizes, 2])),
        aux_model=nn.Sequential(*layers([*sizes, 1])),
        config={
            "batch_size": settings["batch_size"],
            "num_outer_iters": settings["rounds"],
            "num_main_iters": settings["epochs"],
            "num_aux_iters": settings["epochs"],
            "lr": 1e-3,
            "lambda_match": 0.5,
            "lambda_noise": 0.1,
            "lambda_sharpness": 0.3,
            "calibration_alpha": 0.9,
        },
        device="cpu",
        verbose=False,
    )
    started = time.process_time()
    model.fit(X, y)
    return time.process_time() - started


def main() -> None:
    """Print the CPU seconds of one fit of the table and with the settings given as arguments."""
    table, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    X, y = table["X"], table["y"][:, None]  # UQ360 compares y with outputs of shape (batch, 1)
    torch.set_num_threads(1)
    seconds_of_one_fit(X, y, {**settings, "rounds": 1, "epochs": 1}, seed=0)  # pays for what torch loads only once
    seconds = seconds_of_one_fit(X, y, settings, seed=settings["seed"])
    versions = {"uq360": version("uq360"), "torch": torch.__version__, "numpy": np.__version__}
    print(json.dumps({"seconds": seconds, "versions": versions}))


if __name__ == "__main__":
    main()
