"""What the baselines share: one network, or several, trained until the loss on held-out rows no longer falls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.utils.validation import check_is_fitted

from coverwell.baselines.laws import Law, NormalLaw
from coverwell.baselines.voices import EPOCHS_PER_ROUND, TrainedVoices, Voices, VoiceTraining
from coverwell.estimator import Groups, IntervalRegressor, auto_batch_size, check_count, check_number, check_share
from coverwell.held_out import Stretch
from coverwell.intervals import PredictionInterval
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import Network, Team, network_from
from coverwell.preparation import Plan, Prepared
from coverwell.training import device_from

__all__ = ["BaselineRegressor", "MixtureRegressor", "SampledRegressor"]

Array = NDArray[np.float64]

# Of the running average of the weights, as in MatchedRegressor.
WEIGHT_MEMORY = 0.8


# Parameters are the fields of dataclasses: each method adds its own to those that all have.
@dataclass(eq=False, repr=False)
class BaselineRegressor(IntervalRegressor):
    """A network whose outputs are a law for every row; a share of the rows is held out to stop its training.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        None is an `MLP` with piecewise-linear inputs. With a `ResNet18(...)`, X are pictures.
    members : int
        How many networks are trained side by side and read as one. Each holds out rows of its own; all stop together,
        by the average loss on them.
    validation_size : float, default=0.1
        Share of the rows (of the groups, if given) that each member holds out to stop the training.
    calibration : "split" or None, default=None
        None gives the method's own interval, "split" stretches it by the ranks of rows that touched nothing before.
    calibration_size : float, default=0.2
        Share of the rows (of the groups, if given) that "split" keeps for its ranks.
    max_epochs : int, default=400
    patience : int, default=60
        Epochs without a lower loss on the held-out rows after which training stops.
    batch_size : int or "auto", default="auto"
    learning_rate : float or "auto", default="auto"
        "auto" is the rate that was chosen for the method; with a `ResNet18`, its usual one.
    device : str, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState or None
        Same seed, device, thread count and versions: same bits.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    rounds_ : list of Round
        One record per ten epochs, measured on the held-out rows.
    factor_ : ndarray (target, level)
        By how much the intervals are stretched.
    columns_ : Columns
        How columns of a data frame with named columns become numbers.
    n_features_in_, feature_names_in_, target_names_ : what was fitted; of pictures, the targets alone.
    """

    LAW: ClassVar[Law]
    # Chosen for each method by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection-baselines.md).
    # Paper: five linear layers without a code of the inputs for every method; some methods need other sizes to be at
    # their best.
    NETWORK: ClassVar[MLP]
    LEARNING_RATE: ClassVar[float] = 1e-3

    coverage: float | Sequence[float] | Array = 0.9
    _: KW_ONLY
    network: Network | Callable[[int, int], torch.nn.Module] | None = None
    members: int = 1
    validation_size: float = 0.1
    calibration: str | None = None
    calibration_size: float = 0.2
    max_epochs: int = 400
    patience: int = 60
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def _check_choices(self) -> None:
        if self.calibration not in ("split", None):
            raise ValueError(f"calibration must be 'split' or None, got {self.calibration!r}")
        for name in ("members", "max_epochs", "patience"):
            check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size, or_auto=True)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)
        for name in ("validation_size", "calibration_size"):
            check_share(name, getattr(self, name))

    def _plan(self, groups: Groups, random_state: np.random.RandomState) -> Plan:
        if groups is not None and len(np.unique(groups)) < 2:
            raise ValueError("whole groups are held out to stop the training, which needs at least 2 groups, got 1")
        seed = random_state.randint(2**31 - 1)
        return Plan(
            levels=self._fitted_levels,
            folds=_HeldOut(self.members, self.validation_size, seed),
            repeats=1,
            calibration=self.calibration,
            calibration_size=self.calibration_size,
            unit_range=False,
        )

    def _network(self) -> Network:
        return self.NETWORK if self.network is None else network_from(self.network)

    def _training(self, n_rows: int) -> VoiceTraining:
        batch_size, learning_rate = self._usual("batch_size"), self._usual("learning_rate")
        return VoiceTraining(
            network=self._network(),
            law=self.LAW,
            max_rounds=-(-self.max_epochs // EPOCHS_PER_ROUND),
            patience=-(-self.patience // EPOCHS_PER_ROUND),
            batch_size=auto_batch_size(n_rows) if batch_size == "auto" else int(batch_size),
            learning_rate=self.LEARNING_RATE if learning_rate == "auto" else float(learning_rate),
            memory=WEIGHT_MEMORY,
            device=device_from(self.device),
        )

    def _ensemble(self, trained: TrainedVoices, prepared: Prepared, job: int) -> Voices:
        return Voices(
            trained.team,
            self.LAW,
            self._fitted_levels,
            prepared.inputs[job],
            prepared.targets[job],
            n_samples=getattr(self, "n_samples", 1),
            seed=prepared.seed,
            mirroring=prepared.mirroring,
        )

    def _team(self) -> Team:
        check_is_fitted(self)
        team: Team = self.ensembles_[0].team
        return team


@dataclass(frozen=True)
class _HeldOut:
    """A splitter: for every member some rows, or whole groups, that it does not train on."""

    members: int
    size: float
    seed: int

    def split(
        self, X: NDArray[Any], y: None = None, groups: Groups = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        n, what = (len(X), "rows") if groups is None else (len(np.unique(groups)), "groups")
        if math.ceil(self.size * n) >= n:
            raise ValueError(
                f"validation_size must leave {what} to train on, {self.size} holds out all {n} (beside those that "
                f"calibration='split' keeps); give a smaller share, or more {what}"
            )
        kind = ShuffleSplit if groups is None else GroupShuffleSplit
        yield from kind(self.members, test_size=self.size, random_state=self.seed).split(X, groups=groups)


@dataclass(eq=False, repr=False, kw_only=True)
class MixtureRegressor(BaselineRegressor):
    """A baseline of several voices, each a normal law: their noise, and their doubt, can be read apart."""

    LAW: ClassVar[Law] = NormalLaw()

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float | Sequence[float] | Array | None = None,
        *,
        joint: bool = False,
        noise: bool = True,
    ) -> PredictionInterval:
        """The interval for each row; unpacks into lower and upper bounds.

        Parameters
        ----------
        X : array-like or data frame (n, feature)
        coverage : float or sequence of float, optional
            Some of the fitted levels; all that were asked for if None.
        joint : bool
            Boxes that contain all targets of a row together, in place of one interval per target.
        noise : bool, default=True
            False gives the second reading: how far the voices disagree about the mean (the epistemic part), without
            the noise of the observations. It is not calibrated, and says nothing about where a target lies.
        """
        check_is_fitted(self)
        if joint and not noise:
            raise ValueError("joint=True needs ranks, and the reading without noise has none; leave joint out")
        as_it_is = Stretch(factor=np.ones((len(self.target_names_), len(self._fitted_levels))))
        wanted, stretch = self._wanted(coverage), self._stretch if noise else as_it_is
        return self._interval(X, wanted, stretch, self._estimates(X, noise=noise), joint=joint)


@dataclass(eq=False, repr=False, kw_only=True)
class SampledRegressor(MixtureRegressor):
    """A baseline whose network is itself random, and is sampled for a prediction."""

    KINDS: ClassVar[tuple[type[MLP | LSTM | ResNet18], ...]] = (MLP, LSTM)  # of networks that it makes random

    n_samples: int = 50

    def _check_choices(self) -> None:
        super()._check_choices()
        check_count("n_samples", self.n_samples)
        self._chosen()

    def _chosen(self) -> MLP | LSTM | ResNet18:
        """The network that is asked for; one of another kind has no layers that could be made random."""
        network: Any = self.NETWORK if self.network is None else self.network
        if not isinstance(network, self.KINDS):
            known = ", ".join(f"{kind.__name__}(...)" for kind in self.KINDS)
            raise ValueError(f"network must be one of {known}, whose layers are made random here, got {network!r}")
        return network
