"""What baselines for classes share, and those that need nothing else: deep ensembles and temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.baselines.baseline import BaselineEstimator
from coverwell.baselines.training import BaselineTeam, Combined, OfNetworks, OutputHead, Outputs, PerRow
from coverwell.calibration import Calibration
from coverwell.classifier import SetClassifier
from coverwell.estimator import Trained
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Team
from coverwell.options import stored
from coverwell.paper.algorithm import History
from coverwell.paper.losses import Levels, Values, z_score
from coverwell.paper.scores import Adaptive, LeastLikely, Probabilities, Score, Scores
from coverwell.predictor import FittedTeam
from coverwell.probabilities import Calibrator, Temperature, fitted
from coverwell.sets import TeamOfClasses
from coverwell.training.device import device_from
from coverwell.training.rows import Rows

Array = NDArray[np.float64]
TIE = 1e-11  # where likelier classes have just the level, the set is complete: more than the rounding of scores


@stored
@dataclass(frozen=True)
class LikelierMass:
    """The probability of all likelier classes: at most the level for those of the smallest set that has the level.

    As a normal quantile, in which levels between known ones are linear, so that all sets are exact. No ONNX file can
    compute that; there, levels are as they are.
    """

    normal: bool = True

    name: ClassVar[str | None] = "likelier mass"

    def of(self, probability: Probabilities) -> Scores:
        mass = (Adaptive().of(probability) - probability + TIE).clamp(0, 1 - torch.finfo(probability.dtype).eps)
        return z_score(mass) if self.normal else mass


@stored
@dataclass(frozen=True)
class ClassHead:
    """A logit for each class, trained on the cross-entropy. Thresholds are the levels, as normal quantiles."""

    def n_outputs(self, n_targets: int, n_levels: int) -> int:
        return n_targets

    def losses(self, outputs: Outputs, y: Values, levels: Levels) -> PerRow:
        return -(y * outputs.log_softmax(dim=-1)).sum(dim=-1)

    def combined(self, outputs: OfNetworks, levels: Levels, *, noise: bool) -> Combined:
        """The average of the networks' probabilities."""
        p = outputs.softmax(dim=-1).mean(dim=1)
        return p, levels.z[:, None, None, None].expand(-1, p.shape[1], 1, 2, -1).expand(len(p), -1, -1, -1, -1)


@stored
class BaselineClassTeam(TeamOfClasses, BaselineTeam):
    """A trained team and its head, for classes."""

    def __init__(
        self,
        team: Team,
        head: OutputHead,
        coverage: Sequence[float] | Array,
        inputs: Scaling,
        targets: Scaling,
        mirroring: Mirroring | None = None,
        *,
        score: Score,
        n_samples: int = 1,
        seed: int = 0,
        calibrator: Calibrator | None = None,
    ) -> None:
        super().__init__(team, head, coverage, inputs, targets, mirroring, n_samples=n_samples, seed=seed)
        self.score, self.calibrator, self.thresholds, self.by_class = score, calibrator, None, None

    def for_export(self) -> FittedTeam:
        exported = super().for_export()
        if isinstance(exported, BaselineClassTeam) and self.score == LikelierMass():
            exported.score, exported.z = LikelierMass(normal=False), exported.coverage
        return exported


class BaselineClassifier(BaselineEstimator, SetClassifier):
    """A baseline that predicts classes."""

    HEAD = ClassHead()
    # A lower Brier score than five layers on nine of ten tables, in runs that are not stored: rows left out of the
    # training rows of splits 100 and 101.
    NETWORK = MLP(hidden=128, layers=3, dropout=0.1)
    KIND_OF_TEAM = BaselineClassTeam

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        score = LikelierMass() if self.chosen_calibration.name is None else LeastLikely()
        return {**super().dealing(groups, random_state), "score": score}


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class DeepEnsembleClassifier(BaselineClassifier):
    """Several networks whose probabilities are averaged (Lakshminarayanan et al. 2017).

    There is no adversarial training. Parameters are those of `BaselineEstimator`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = DeepEnsembleClassifier(coverage=0.9, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:5]).shape
    (5, 3)
    """

    members: int = 5


@stored
@dataclass(eq=False, repr=False, kw_only=True)
class TemperatureScalingClassifier(BaselineClassifier):
    """One network whose logits are divided by a temperature that its held-out rows have taught (Guo et al. 2017).

    Parameters are those of `BaselineEstimator`; there is one member.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = TemperatureScalingClassifier(coverage=0.9, max_epochs=20, random_state=0).fit(X, y)
    >>> model.temperature_ > 0
    True
    """

    def check_params(self) -> None:
        super().check_params()
        if self.members != 1:
            way_out = "take DeepEnsembleClassifier for more"
            raise ValueError(f"members must be 1, whose temperature is learned, got {self.members}; {way_out}")

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        (team,), held_out = trained.teams[jobs], rows.leaves_out[0].cpu().numpy()
        assert isinstance(team, BaselineClassTeam)
        assert rows.given is not None  # rows of a fit know what they were made from
        if rows.mirroring is not None:
            held_out = rows.mirroring.own(held_out, axis=1)
        X, y = rows.given
        places = np.setdiff1d(np.arange(len(y)), rows.held_back[0])[held_out[0]]
        p = team.to(device_from(self.device)).estimate(X[places]).mean
        team.calibrator = fitted(Temperature, p, y[places], rows.weight_of(places))
        super().set_fitted(rows, trained, history, jobs, calibration)

    @property
    def temperature_(self) -> float:
        """What logits are divided by."""
        (team,) = self.predictor_.fitted_teams
        assert isinstance(team, BaselineClassTeam)
        assert team.calibrator is not None  # of every fit
        return float((-team.calibrator.values[0]).exp())
