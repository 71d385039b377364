"""Deep ensembles: several heteroscedastic networks from different starts (Lakshminarayanan et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.baselines.baseline import MixtureRegressor
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network

__all__ = ["DeepEnsembleRegressor"]


class DeepEnsembleRegressor(MixtureRegressor):
    """Several networks, each with a mean and a noise for every row, read as one normal law.

    Each holds out rows of its own to stop its training. There is no adversarial training.
    Parameters are those of `coverwell.baselines.baseline.BaselineRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = DeepEnsembleRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> total, doubt = model.predict_interval(X[:5]), model.predict_interval(X[:5], noise=False)
    >>> bool((doubt.width < total.width).all())
    True
    """

    NETWORK = MLP(hidden=128, dropout=0.1)

    def __init__(
        self,
        coverage: float | Sequence[float] | NDArray[np.float64] = 0.9,
        *,
        network: Network | Callable[[int, int], torch.nn.Module] | None = None,
        members: int = 5,
        validation_size: float = 0.1,
        calibration: str | None = None,
        calibration_size: float = 0.2,
        max_epochs: int = 400,
        patience: int = 60,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            coverage,
            network=network,
            members=members,
            validation_size=validation_size,
            calibration=calibration,
            calibration_size=calibration_size,
            max_epochs=max_epochs,
            patience=patience,
            batch_size=batch_size,
            learning_rate=learning_rate,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
