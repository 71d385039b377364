"""MatchedRegressor: its parameters, and how its two teams are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.calibration import Calibration, Estimate, average_out_of_fold, out_of_fold_members, widen_outwards
from coverwell.estimator import (
    Coverage,
    IntervalRegressor,
    OnRound,
    Trained,
    auto_batch_size,
    check_count,
    check_number,
)
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Network, network_from
from coverwell.paper.algorithm import History, Recipe, Round, alternate, half_widths, n_interval_outputs
from coverwell.paper.losses import IntervalLoss, Levels
from coverwell.paper.matching import Matching
from coverwell.predictor import FittedTeam, MatchedTeam, Predictor, combined
from coverwell.registry import part_from, stored
from coverwell.training.device import device_from
from coverwell.training.learner import Learner, Settings
from coverwell.training.rows import Rows

__all__ = ["MatchedRegressor", "OutOfFold", "Round", "Schedule"]

Array = NDArray[np.float64]
NetworkChoice = Network | Callable[[int, int], torch.nn.Module] | None

# What "auto" stands for where the network has no numbers of its own.
DEFAULTS: Mapping[str, float] = MappingProxyType(
    {"mean_epochs": 10, "interval_epochs": 10, "max_rounds": 100, "patience": 6, "learning_rate": 1e-3}
)
# Chosen by out-of-fold scores on splits 100 to 104 (benchmarks/results/selection.md).
MEAN_NETWORK = MLP(hidden=128, dropout=0.1)
INTERVAL_NETWORK = MLP(hidden=128, dropout=0.2)
EMA_DECAY = 0.8


@stored
@dataclass(frozen=True)
class Schedule:
    """How long and in which steps F and I train.

    "auto" is the number that the network's recipe has in its `defaults`, such as `ResNet18.defaults`, and otherwise the
    one named here.

    Parameters
    ----------
    mean_epochs, interval_epochs : int or "auto"
        Epochs of F and of I in each round, n_m and n_c in the paper; 10.
    max_rounds : int or "auto"
        At most so many rounds; 100.
    patience : int or "auto"
        Rounds without a better out-of-fold score after which training stops; 6.
    batch_size : int or "auto"
        By the number of rows.
    learning_rate : float or "auto"
        1e-3.

    Examples
    --------
    >>> Schedule(max_rounds=20).resolved({"patience": 4}).patience
    4
    """

    mean_epochs: int | str = "auto"
    interval_epochs: int | str = "auto"
    max_rounds: int | str = "auto"
    patience: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"

    def __post_init__(self) -> None:
        for name in ("mean_epochs", "interval_epochs", "max_rounds", "patience", "batch_size"):
            check_count(name, getattr(self, name), or_auto=True)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)

    def resolved(self, *defaults: Mapping[str, float]) -> Schedule:
        """The same with numbers for "auto", from the first of these defaults that has one."""
        numbers = {
            name: next(known[name] for known in defaults if name in known)
            for name, value in vars(self).items()
            if value == "auto" and any(name in known for known in defaults)
        }
        return replace(self, **numbers)


@stored
@dataclass(frozen=True)
class OutOfFold:
    """Predictions (row, target) and bounds (row, target, level) for the training rows, by members that left them out.

    A row's own target has not trained its prediction. The bounds are stretched as the deployed ones are (for "cv+" not
    at all), but fewer members are averaged than are deployed, so they cover a little less. Rows that nobody left out,
    or that were kept for the ranks of "split", are NaN.
    """

    prediction: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, rows: Rows, members: Estimate, predictor: Predictor) -> OutOfFold:
        """From the outputs of each member for its rows; for "cv+", from the team that left a row out."""
        assert rows.given is not None  # rows of a fit know what they were made from
        X, y = rows.given
        factor = predictor.correction.factor
        if factor is None:
            pairs = zip(rows.held_back, predictor.fitted_teams, strict=True)
            parts = [(places, team.estimate(X[places])) for places, team in pairs]
        else:
            parts = [_averaged(rows, members)]
        prediction = np.full(y.shape, np.nan)
        lower = np.full((*y.shape, len(predictor.levels)), np.nan)
        upper = lower.copy()
        scale = 1.0 if factor is None else factor.cpu().numpy()
        for places, estimate in parts:
            prediction[places] = estimate.mean
            below, above = scale * estimate.half_width[..., 0, :], scale * estimate.half_width[..., 1, :]
            bounds = (estimate.mean[..., None] - below, estimate.mean[..., None] + above)
            lower[places], upper[places] = (b.numpy() for b in widen_outwards(*map(torch.from_numpy, bounds)))
        return cls(prediction, lower, upper)


def _averaged(rows: Rows, members: Estimate) -> tuple[NDArray[np.intp], Estimate]:
    """The rows that some member left out, and the average of those members' estimates, in the user's units."""
    _, members, leaves_out = out_of_fold_members(rows, members)
    estimate, scaling = average_out_of_fold(members, leaves_out), rows.targets[0]
    mean = scaling.inverse(torch.from_numpy(estimate.mean)).numpy()
    some = leaves_out.any(axis=0)
    places = np.setdiff1d(np.arange(len(rows.given[0])), rows.held_back[0])  # type: ignore[index]
    return places[some], Estimate(mean[some], (estimate.half_width * scaling.spread.numpy()[:, None, None])[some])


@dataclass(frozen=True)
class MatchedTraining:
    """How the two teams of each job are trained."""

    network: Network
    interval_network: Network
    recipe: Recipe
    both: bool  # whether F helps to shape the intervals
    settings: Settings
    start: Sequence[FittedTeam] = ()  # the teams that each job continues, if it does

    @property
    def device(self) -> torch.device:
        return self.settings.device

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    @property
    def max_rounds(self) -> int:
        return self.recipe.max_rounds

    def shortened(self) -> MatchedTraining:
        """A round of one epoch each, from the start: enough to see whether memory suffices."""
        once = replace(self.recipe, max_rounds=1, mean_epochs=1, interval_epochs=1, closing_rounds=0)
        return replace(self, recipe=once, start=())

    def run(self, rows: Rows, on_round: OnRound) -> tuple[Trained, History]:
        """Run Algorithm 1 on all jobs at once and take the teams apart again."""
        rows = rows.to(self.device)
        F, I = self.learners(rows)  # noqa: E741
        unit = self._start(F, I, rows)

        def after_round(history: History) -> None:
            on_round(history, lambda: self.taken_apart(F, I, rows, history.unit))

        history = alternate(F, I, self.recipe, repeat(rows), rows, after_round, start=unit)
        return self.taken_apart(F, I, rows, history.best_unit), history

    def learners(self, rows: Rows) -> tuple[Learner, Learner]:
        """Untrained F and I."""
        n_mean, n_interval = self._n_outputs(rows)
        return (
            Learner.of(self.network, rows, n_mean, self.settings),
            Learner.of(self.interval_network, rows, n_interval, self.settings, honest=True),
        )

    def _n_outputs(self, rows: Rows) -> tuple[int, int]:
        n_targets, n_levels = rows.y.shape[-1], rows.coverage.shape[-1]
        return self.recipe.matching.n_outputs(n_targets, n_levels), n_interval_outputs(n_targets, n_levels)

    def _start(self, F: Learner, I: Learner, rows: Rows) -> torch.Tensor | None:  # noqa: E741
        """Put trained teams in place, and give the unit of their widths."""
        if not self.start:
            return None
        units = []
        for job, team in enumerate(self.start):
            assert isinstance(team, MatchedTeam)  # what this estimator leaves
            members = slice(job * rows.members_per_job, (job + 1) * rows.members_per_job)
            F.start_from(members, team.mean_team)
            I.start_from(members, team.interval_team)
            units.append(team.unit)
        return torch.stack(units).to(rows.y)

    def members(
        self, of_mean: torch.Tensor, of_interval: torch.Tensor, rows: Rows, unit: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Each member's means and half-widths, from the outputs of both networks, (member, row, ...)."""
        levels = Levels.of(rows.to_members(rows.coverage))
        half_width = half_widths(of_interval, levels, rows.to_members(unit))
        if self.both:
            half_width = combined(self.recipe.matching, of_mean, half_width, levels)
        return self.recipe.matching.mean(of_mean, rows.y.shape[-1]), half_width

    def taken_apart(self, F: Learner, I: Learner, rows: Rows, unit: torch.Tensor) -> Trained:  # noqa: E741
        """The teams of each job, and their members' outputs for its rows."""
        means, half_width = (
            rows.by_job(values).double().cpu().numpy()
            for values in self.members(F.outputs(rows), I.outputs(rows), rows, unit)
        )
        members: list[Estimate | None] = [
            Estimate(m[:, :n], h[:, :n]) for m, h, n in zip(means, half_width, rows.lengths, strict=True)
        ]
        return Trained([self._team(F, I, rows, unit, job) for job in range(rows.n_jobs)], members)

    def _team(self, F: Learner, I: Learner, rows: Rows, unit: torch.Tensor, job: int) -> MatchedTeam:  # noqa: E741
        members = slice(job * rows.members_per_job, (job + 1) * rows.members_per_job)
        (n_mean, n_interval), shape = self._n_outputs(rows), tuple(rows.x.shape[2:])
        return MatchedTeam(
            F.members_of(members, self.network, shape, n_mean),
            I.members_of(members, self.interval_network, shape, n_interval),
            self.recipe.matching,
            unit[job].double().cpu().numpy(),
            rows.levels[job],
            rows.inputs[job],
            rows.targets[job],
            rows.mirroring,
            both=self.both,
        )


@stored
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
        if there is no `interval_network`. With a `ResNet18(...)`, X are images; see there for its settings.
    folds : int, scikit-learn splitter or None, default=5
        Who trains on what; None is the paper's literal training, where nobody is left out.
    repeats : int or "auto", default="auto"
        How many members leave each row out; "auto" takes more on small tables, and 2 for images.
    interval_loss : "quantile", "paper", `QuantileLoss(...)` or `PaperLoss(...)`, default="quantile"
        What shapes the widths: the pinball loss, or Eqs. 3 and 4. The objects carry the weights.
    shape : "both" or "interval", default="both"
        Which network decides where intervals are wide and where narrow: both (the geometric mean of I's half-width and
        that of F's own matched uncertainty), or I alone. Only I is trained to cover, so with `calibration=None`, and
        with IQR Fit, it is always I alone.
    calibration : "cross", "cv+", "split", None or an object such as `Split(size=0.3)`, default="cross"
        How the learned intervals are stretched to the asked level; see `coverwell.calibration` for what each promises.
    schedule : Schedule, optional
        How long and in which steps the networks train; None is `Schedule()`.
    warm_start : bool, default=False
        Whether another call of `fit` continues from the networks and units that the last one left, for data that have
        grown. Out-of-fold outputs stay honest only if no row changes its fold: give `folds` that ensure it.
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
    predictor_ : Predictor
        The trained networks with their scalings and calibration, as one `torch.nn.Module`.
    source_ : InputSource
        How X becomes rows; it holds the frozen layers of a network for images.
    out_of_fold_ : OutOfFold or None
        Predictions and bounds for the training rows, by members that left them out.
    factor_ : ndarray (target, level) or None
        By how much the learned intervals are stretched.
    columns_ : Columns or None
        How columns of a data frame with named columns become numbers.
    n_features_in_, feature_names_in_, target_names_ : what was fitted; for images, the targets alone.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = MatchedRegressor(coverage=0.8, schedule=Schedule(max_rounds=2), repeats=1, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    def __init__(
        self,
        coverage: Coverage = 0.9,
        matching: str | Matching | None = "sigma",
        *,
        network: NetworkChoice = None,
        interval_network: NetworkChoice = None,
        folds: Any = 5,
        repeats: int | str = "auto",
        interval_loss: str | IntervalLoss = "quantile",
        shape: str = "both",
        calibration: Any = "cross",
        schedule: Schedule | None = None,
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
        self.schedule = schedule
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def check_params(self) -> None:
        for option, protocol in (("matching", Matching), ("interval_loss", IntervalLoss)):
            part_from(option, getattr(self, option), protocol)
        if self.shape not in ("both", "interval"):
            raise ValueError(f"shape must be 'both' or 'interval', got {self.shape!r}")
        calibration = self.chosen_calibration
        if self.folds is None and calibration.name in ("cross", "cv+"):
            raise ValueError(
                f"calibration={calibration.name!r} needs folds, got folds=None; give folds=5, or calibration='split' "
                "or None"
            )
        check_count("repeats", self.repeats, or_auto=True)
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule(...) or None, got {self.schedule!r}")

    def resolved_params(self) -> dict[str, Any]:
        return {**super().resolved_params(), "schedule": self.resolved_schedule}

    @property
    def resolved_schedule(self) -> Schedule:
        """The schedule with numbers for "auto"."""
        return (self.schedule or Schedule()).resolved(getattr(self.network, "defaults", {}), DEFAULTS)

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        calibration = self.chosen_calibration
        # Where nobody is left out, or each row by a team of its own, "auto" means one member.
        once = self.folds is None or calibration.one_team_per_fold
        return {
            "folds": self.folds,
            "repeats": self.repeats if once else self.default_of("repeats", self.repeats),
            "calibration": calibration,
            "unit_range": part_from("interval_loss", self.interval_loss, IntervalLoss).unit_range,
        }

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> MatchedTraining:
        literal, schedule = self.folds is None, self.resolved_schedule
        same = INTERVAL_NETWORK if self.network is None else self.network
        recipe = Recipe(
            matching=part_from("matching", self.matching, Matching),
            interval_loss=part_from("interval_loss", self.interval_loss, IntervalLoss),
            max_rounds=int(schedule.max_rounds),
            mean_epochs=int(schedule.mean_epochs),
            interval_epochs=int(schedule.interval_epochs),
            patience=int(schedule.patience),
            literal=literal,
        )
        settings = Settings(
            batch_size=auto_batch_size(n_rows) if schedule.batch_size == "auto" else int(schedule.batch_size),
            learning_rate=float(schedule.learning_rate),
            ema_decay=0.0 if literal else EMA_DECAY,
            device=device_from(self.device),
        )
        return MatchedTraining(
            network=network_from(MEAN_NETWORK if self.network is None else self.network),
            interval_network=network_from(same if self.interval_network is None else self.interval_network),
            recipe=recipe,
            # Without ranks nothing would set the size of the combined shape.
            both=self.shape == "both" and self.chosen_calibration.name is not None,
            settings=settings,
            start=start,
        )

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        super().set_fitted(rows, trained, history, jobs, calibration)
        self.out_of_fold_: OutOfFold | None = None
        if self.folds is not None and trained.members[0] is not None:
            self.out_of_fold_ = OutOfFold.of(rows, trained.members[0], self.predictor_)
