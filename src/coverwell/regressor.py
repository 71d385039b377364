"""MatchedRegressor: what it is told, and how its two teams are built, run and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.algorithm import Recipe, Record
from coverwell.ensemble import Ensemble, PairTraining, TrainedJob
from coverwell.estimator import Groups, IntervalRegressor, auto_batch_size, check_count, check_number, check_share
from coverwell.held_out import OutOfFold, out_of_fold_of
from coverwell.losses import interval_loss, quantile_interval_loss
from coverwell.matching import Matching, matching_from
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network, PictureNetwork, network_from
from coverwell.picture_inputs import picture_recipe
from coverwell.preparation import Plan, Prepared
from coverwell.rounds import Round
from coverwell.training import device_from

__all__ = ["AS_PUBLISHED", "MatchedRegressor", "Round"]

Array = NDArray[np.float64]
NetworkChoice = Network | Callable[[int, int], torch.nn.Module] | None

CALIBRATIONS = ("cross", "cv+", "split", None)
# What "auto" stands for where the network has no numbers of its own.
USUAL: Mapping[str, float] = MappingProxyType(
    {"mean_epochs": 10, "interval_epochs": 10, "max_rounds": 100, "patience": 6, "learning_rate": 1e-3}
)
# Chosen by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection.md).
MEAN_NETWORK = MLP(hidden=128, dropout=0.1)
INTERVAL_NETWORK = MLP(hidden=128, dropout=0.2)
WEIGHT_MEMORY = 0.8


class MatchedRegressor(IntervalRegressor):
    """Regression with a prediction interval for every row, from two teams of networks trained in turns.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    matching : "sigma", "iqr", None or an object with `Matching`'s methods, default="sigma"
        How F's uncertainty is matched to I's widths; None trains F on the squared error alone.
    network, interval_network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is an `MLP` with piecewise-linear inputs. A given `network` also serves for the intervals
        if there is no `interval_network`. With a `ResNet18(...)`, X are pictures; see there for its settings.
    folds : int, scikit-learn splitter or None, default=5
        Who trains on what; None is the paper's literal training, where nobody is left out.
    repeats : int or "auto", default="auto"
        How many members leave each row out; "auto" takes more on small tables, and 2 for pictures.
    interval_loss : "quantile" or "paper", default="quantile"
        What shapes the widths: the pinball loss, or Eqs. 3 and 4.
    shape : "both" or "interval", default="both"
        Where intervals are wide and where narrow: as both networks say (the geometric mean of I's reach and that of F's
        own matched uncertainty), or as I says alone. Only I is trained to cover, so with `calibration=None` it is I
        alone, and so it is with IQR Fit.
    calibration : "cross", "cv+", "split" or None, default="cross"
        How the learned intervals are stretched to the asked level; see `coverwell.calibration` for what each promises.
    calibration_size : float, default=0.2
        Share of the rows (of the groups, if given) that "split" keeps for its ranks.
    noise_weight, sharpness_weight : float
        beta_n and beta_s of Eq. 5, for `interval_loss="paper"`.
    steepness : float, default=40.0
        eta of Eq. 2, in units of the squared residual scale.
    mean_epochs, interval_epochs : int or "auto", default="auto"
        Epochs of F and of I in each round, n_m and n_c. Here and below, "auto" is what the network's recipe has as its
        `usual` numbers, such as `ResNet18.usual`; for others 10 each.
    max_rounds : int or "auto", default="auto"
        At most so many rounds; 100.
    patience : int or "auto", default="auto"
        Rounds without a better out-of-fold score after which training stops; 6.
    batch_size : int or "auto", default="auto"
        By the number of rows.
    learning_rate : float or "auto", default="auto"
        1e-3.
    warm_start : bool, default=False
        Whether another call of `fit` goes on from the networks and units that the last one left, for data that have
        grown. What members left out is honest only if no row changes its fold: give such `folds`.
    device : str, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState or None
        Same seed, device, thread count and versions: same bits.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    rounds_ : list of Round
        One record per round.
    ensembles_ : list of Ensemble
        The trained teams: one, or one per fold for "cv+".
    out_of_fold_ : OutOfFold or None
        What the members that left a training row out say about it.
    factor_ : ndarray (target, level) or None
        By how much the learned intervals are stretched.
    trunk_ : torch.nn.Module
        The frozen layers that pictures are seen through, with a network that takes pictures.
    columns_ : Columns
        How columns of a data frame with named columns become numbers.
    n_features_in_, feature_names_in_, target_names_ : what was fitted; of pictures, the targets alone.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = MatchedRegressor(coverage=0.8, max_rounds=2, repeats=1, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    def __init__(
        self,
        coverage: float | Sequence[float] | Array = 0.9,
        matching: str | Matching | None = "sigma",
        *,
        network: NetworkChoice = None,
        interval_network: NetworkChoice = None,
        folds: Any = 5,
        repeats: int | str = "auto",
        interval_loss: str = "quantile",
        shape: str = "both",
        calibration: str | None = "cross",
        calibration_size: float = 0.2,
        noise_weight: float = 0.1,
        sharpness_weight: float = 0.3,
        steepness: float = 40.0,
        mean_epochs: int | str = "auto",
        interval_epochs: int | str = "auto",
        max_rounds: int | str = "auto",
        patience: int | str = "auto",
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.coverage = coverage
        self.matching = matching
        self.network = network
        self.interval_network = interval_network
        self.folds = folds
        self.repeats = repeats
        self.interval_loss = interval_loss
        self.shape = shape
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.noise_weight = noise_weight
        self.sharpness_weight = sharpness_weight
        self.steepness = steepness
        self.mean_epochs = mean_epochs
        self.interval_epochs = interval_epochs
        self.max_rounds = max_rounds
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self, groups: Groups, random_state: np.random.RandomState) -> Plan:
        return Plan(
            levels=self._fitted_levels,
            folds=self.folds,
            # Where nobody is left out, or each by a team of its own, one member is all that is meant.
            repeats=self.repeats if self.folds is None or self.calibration == "cv+" else self._usual("repeats"),
            calibration=self.calibration,
            calibration_size=self.calibration_size,
            unit_range=self.interval_loss == "paper",
        )

    def _check_choices(self) -> None:
        matching_from(self.matching)
        if self.interval_loss not in ("quantile", "paper"):
            raise ValueError(f"interval_loss must be 'quantile' or 'paper', got {self.interval_loss!r}")
        if self.shape not in ("both", "interval"):
            raise ValueError(f"shape must be 'both' or 'interval', got {self.shape!r}")
        if self.calibration not in CALIBRATIONS:
            raise ValueError(f"calibration must be one of {CALIBRATIONS}, got {self.calibration!r}")
        if self.folds is None and self.calibration in ("cross", "cv+"):
            raise ValueError(
                f"calibration={self.calibration!r} needs folds, got folds=None; give folds=5, or calibration='split' "
                "or None"
            )
        check_share("calibration_size", self.calibration_size)
        for name in ("mean_epochs", "interval_epochs", "max_rounds", "patience", "repeats", "batch_size"):
            check_count(name, getattr(self, name), or_auto=True)
        for name in ("learning_rate", "steepness"):
            check_number(name, getattr(self, name), above=0.0, or_auto=name == "learning_rate")
        for name in ("noise_weight", "sharpness_weight"):
            check_number(name, getattr(self, name), least=0.0)

    def _usual(self, name: str) -> Any:
        value = super()._usual(name)
        return USUAL.get(name, value) if isinstance(value, str) and value == "auto" else value

    def _picture_network(self) -> PictureNetwork | None:
        """The recipe, if it is one for pictures; that of the intervals must then see the same ones."""
        network, other = super()._picture_network(), self.interval_network
        if other is None:
            return network
        if (picture_recipe(other) is None) != (network is None):
            raise ValueError(
                "network and interval_network must both take pictures or both take tables, got "
                f"{self.network!r} and {other!r}; leave interval_network out to have the same twice"
            )
        for name in ("size", "mirror", "weights") if network is not None else ():
            mine, yours = getattr(network, name, None), getattr(other, name, None)
            if mine != yours:
                raise ValueError(
                    f"network and interval_network must have the same {name}, since they see the same features, got "
                    f"{mine!r} and {yours!r}"
                )
        return network

    @property
    def _both(self) -> bool:
        """Whether F has a say in the shape; without ranks nothing would set the size of what comes out."""
        return self.shape == "both" and self.calibration is not None

    def _training(self, n_rows: int) -> PairTraining:
        literal, batch_size = self.folds is None, self._usual("batch_size")
        mean_network = MEAN_NETWORK if self.network is None else self.network
        same = INTERVAL_NETWORK if self.network is None else self.network
        interval_network = same if self.interval_network is None else self.interval_network
        recipe = Recipe(
            matching=matching_from(self.matching),
            interval_loss=self._bound_interval_loss(),
            max_rounds=int(self._usual("max_rounds")),
            mean_epochs=int(self._usual("mean_epochs")),
            interval_epochs=int(self._usual("interval_epochs")),
            patience=int(self._usual("patience")),
            literal=literal,
        )
        return PairTraining(
            mean_network=network_from(mean_network),
            interval_network=network_from(interval_network),
            recipe=recipe,
            both=self._both,
            batch_size=auto_batch_size(n_rows) if batch_size == "auto" else int(batch_size),
            learning_rate=float(self._usual("learning_rate")),
            memory=0.0 if literal else WEIGHT_MEMORY,
            device=device_from(self.device),
        )

    def _bound_interval_loss(self) -> Any:
        if self.interval_loss == "quantile":
            return partial(quantile_interval_loss, steepness=self.steepness)
        return partial(
            interval_loss,
            noise_weight=self.noise_weight,
            sharpness_weight=self.sharpness_weight,
            steepness=self.steepness,
        )

    def _ensemble(self, trained: TrainedJob, prepared: Prepared, job: int) -> Ensemble:
        return Ensemble(
            trained.mean_team,
            trained.interval_team,
            matching_from(self.matching),
            self._fitted_levels,
            trained.scale.double().numpy(),
            prepared.inputs[job],
            prepared.targets[job],
            both=self._both,
            mirroring=prepared.mirroring,
        )

    def _finish(
        self, prepared: Prepared, trained: list[TrainedJob], ensembles: list[Ensemble], record: Record, jobs: slice
    ) -> None:
        super()._finish(prepared, trained, ensembles, record, jobs)
        self.out_of_fold_: OutOfFold | None = None
        if self.folds is not None:
            device = device_from(self.device)
            self.out_of_fold_ = out_of_fold_of(prepared, trained[0].said, ensembles, self._stretch, device)


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
