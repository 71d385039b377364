"""What the baselines share, and those that need nothing else: heteroscedastic and quantile networks, deep ensembles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.utils.validation import check_is_fitted

from coverwell.baselines.training import (
    EPOCHS_PER_ROUND,
    BaselineTeam,
    BaselineTraining,
    NormalHead,
    OutputHead,
    QuantileHead,
)
from coverwell.calibration import Correction, Split, Uncalibrated
from coverwell.estimator import CalibratedEstimator, Coverage, IntervalRegressor
from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import Network, network_from
from coverwell.options import check_count, check_number, stored
from coverwell.prediction import PredictionInterval
from coverwell.predictor import FittedTeam, Predictor
from coverwell.training.device import Settings, auto_batch_size, device_from

EMA_DECAY = 0.8  # of the running average of the weights, as in MatchedRegressor


@dataclass(eq=False, repr=False)
class BaselineEstimator(CalibratedEstimator):
    """A network with an output head; a share of the rows is held out to stop its training.

    Parameters
    ----------
    network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        None is an `MLP` with piecewise-linear inputs. With a `ResNet18(...)`, X are images.
    members : int
        How many networks are trained side by side and averaged. Each holds out rows of its own; all stop together, by
        the average loss on them.
    validation_size : float, default=0.1
        Share of the rows (of the groups, if given) that each member holds out to stop the training.
    calibration : "split", None or `Split(size=...)`, default=None
        None gives the method's own interval, "split" stretches it by the ranks of rows that touched nothing before. Of
        classes, None gives the smallest set whose probabilities sum to at least the level, "split" the classes that are
        likely enough by those ranks, the likeliest in any case.
    max_epochs : int, default=400
    patience : int, default=60
        Epochs without a lower loss on the held-out rows after which training stops.
    batch_size : int or "auto", default="auto"
    learning_rate : float or "auto", default="auto"
        "auto" is the rate that was chosen for the method; with a `ResNet18`, that of its `defaults`.
    coverage, device, random_state, verbose
        As in `MatchedRegressor` or `MatchedClassifier`, as are the attributes; `rounds_` has one record per ten epochs.
    """

    HEAD: ClassVar[OutputHead]
    # Chosen for each method by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection-baselines.md).
    # Paper: five linear layers without a code of the inputs for every method; some need other sizes to do their best.
    NETWORK: ClassVar[MLP] = MLP(hidden=128, dropout=0.1)
    LEARNING_RATE: ClassVar[float] = 1e-3
    KIND_OF_TEAM: ClassVar[type[BaselineTeam]] = BaselineTeam
    n_samples = 1  # a field of methods whose networks are random

    coverage: Coverage = 0.9
    _: KW_ONLY
    network: Network | Callable[[int, int], torch.nn.Module] | None = None
    members: int = 1
    validation_size: float = 0.1
    calibration: str | Split | Uncalibrated | None = None
    max_epochs: int = 400
    patience: int = 60
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def check_params(self) -> None:
        if self.calibration not in ("split", None) and not isinstance(self.calibration, Split | Uncalibrated):
            raise ValueError(f"calibration must be 'split', Split(size=...) or None, got {self.calibration!r}")
        for name in ("members", "max_epochs", "patience"):
            check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size, or_auto=True)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)
        check_number("validation_size", self.validation_size, above=0.0, below=1.0)

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        if groups is not None and len(np.unique(groups)) < 2:
            raise ValueError("whole groups are held out to stop the training, which needs at least 2 groups, got 1")
        held_out = _HeldOut(self.members, self.validation_size, random_state.randint(2**31 - 1))
        return {"folds": held_out, "repeats": 1, "calibration": self.chosen_calibration, "unit_range": False}

    def trained_network(self) -> Network:
        """The recipe of the networks that are trained."""
        return network_from(self.NETWORK if self.network is None else self.network)

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> BaselineTraining:
        params, device = self.resolved_params(), device_from(self.device)
        batch_size = auto_batch_size(n_rows) if params["batch_size"] == "auto" else int(params["batch_size"])
        rate = self.LEARNING_RATE if params["learning_rate"] == "auto" else float(params["learning_rate"])
        max_rounds, patience = (math.ceil(n / EPOCHS_PER_ROUND) for n in (self.max_epochs, self.patience))
        settings = Settings(max_rounds, batch_size, rate, EMA_DECAY, device)
        return BaselineTraining(
            self.trained_network(), self.HEAD, settings, patience, self.n_samples, self.KIND_OF_TEAM
        )


class BaselineRegressor(BaselineEstimator, IntervalRegressor):
    """A baseline that predicts numbers."""


@dataclass(frozen=True)
class _HeldOut:
    """A splitter: for every member some rows, or whole groups, that it does not train on."""

    members: int
    size: float
    seed: int

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        n, what = (len(X), "rows") if groups is None else (len(np.unique(groups)), "groups")
        if math.ceil(self.size * n) >= n:
            raise ValueError(
                f"validation_size must leave {what} to train on, {self.size} holds out all {n} (beside those that "
                f"calibration='split' keeps); give a smaller share, or more {what}"
            )
        kind = ShuffleSplit if groups is None else GroupShuffleSplit
        yield from kind(self.members, test_size=self.size, random_state=self.seed).split(X, groups=groups)


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class HeteroscedasticRegressor(BaselineRegressor):
    """A network that emits the mean and the standard deviation of a normal distribution (Nix and Weigend 1994).

    It is trained by maximum likelihood, and has no doubt about itself. Parameters are those of `BaselineEstimator`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80)
    >>> model = HeteroscedasticRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:5]).lower.shape
    (5,)
    """

    HEAD = NormalHead()


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class NeuralQuantileRegressor(BaselineRegressor):
    """A network that emits the median, which is the prediction, and both ends of every level, which never cross.

    It is trained by the pinball loss (Koenker and Bassett 1978; Tagasovska and Lopez-Paz 2019). With
    `calibration="split"` this is conformalized quantile regression (Romano et al. 2019), in its scaled form.
    Parameters are those of `BaselineEstimator`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80)
    >>> model = NeuralQuantileRegressor(coverage=[0.5, 0.8], max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:5]).lower.shape
    (5, 2)
    """

    HEAD = QuantileHead()
    LEARNING_RATE = 2e-3


@dataclass(eq=False, repr=False, kw_only=True)
class MixtureRegressor(BaselineRegressor):
    """A baseline of several networks with normal heads, whose noise and disagreement can be separated."""

    HEAD = NormalHead()

    def predict_interval(
        self, X: Any, coverage: Coverage | None = None, *, joint: bool = False, noise: bool = True
    ) -> PredictionInterval:
        """The interval for each row; unpacks into lower and upper bounds.

        Parameters
        ----------
        X, coverage, joint : as in `MatchedRegressor.predict_interval`
        noise : bool, default=True
            False shows how far the networks disagree about the mean (the epistemic part), without the noise of the
            observations. It is not calibrated, and does not say where a target lies.
        """
        if noise:
            return super().predict_interval(X, coverage, joint=joint)
        check_is_fitted(self)
        if joint:
            raise ValueError("joint=True needs ranks, which intervals without noise do not have; leave joint out")
        wanted, levels = self.fitted_coverage(coverage), self.predictor_.levels
        as_they_are = Predictor(levels, [], Correction(levels, levels, np.ones((len(self.target_names_), len(levels)))))
        return self.interval(X, wanted, *as_they_are.bounds(self.estimates(X, noise=False)))


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class DeepEnsembleRegressor(MixtureRegressor):
    """Several heteroscedastic networks, combined into one normal distribution (Lakshminarayanan et al. 2017).

    There is no adversarial training. Parameters are those of `BaselineEstimator`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80)
    >>> model = DeepEnsembleRegressor(coverage=0.8, max_epochs=20, random_state=0).fit(X, y)
    >>> bool((model.predict_interval(X, noise=False).width < model.predict_interval(X).width).all())
    True
    """

    members: int = 5


@dataclass(eq=False, repr=False, kw_only=True)
class Sampled(BaselineEstimator):
    """A baseline whose networks are random, and are sampled for a prediction."""

    KINDS: ClassVar[tuple[type[MLP | LSTM | ResNet18], ...]] = (MLP, LSTM)  # networks that it can make random

    n_samples: int = 50

    def plain_network(self) -> MLP | LSTM | ResNet18:
        """The network that is made random."""
        network: Any = self.NETWORK if self.network is None else self.network
        if not isinstance(network, self.KINDS):
            known = ", ".join(f"{kind.__name__}(...)" for kind in self.KINDS)
            raise ValueError(f"network must be one of {known}, whose layers are made random here, got {network!r}")
        return network

    def check_params(self) -> None:
        super().check_params()
        check_count("n_samples", self.n_samples)
        self.plain_network()


class SampledRegressor(Sampled, MixtureRegressor):
    """A sampled baseline that predicts numbers."""
