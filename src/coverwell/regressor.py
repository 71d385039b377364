"""MatchedRegressor: its parameters, and how its two teams are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, is_dataclass, replace
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from coverwell.calibration import Calibration, Estimate
from coverwell.companions import FOREST, check_companions, fit_companions
from coverwell.copies import Copies
from coverwell.edges import EdgeRates, edge_copies, edge_rates
from coverwell.estimator import Coverage, IntervalRegressor, OnRound, Trained
from coverwell.groups import masked_copies
from coverwell.inputs.scaling import without_far_off
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.team import Network, network_from
from coverwell.options import Schedule, check_number, part_from, stored
from coverwell.paper.algorithm import History, Recipe, alternate, blend_weights, half_widths, out_of_fold_mean
from coverwell.paper.losses import IntervalLoss
from coverwell.paper.matching import Matching
from coverwell.predictor import FittedTeam, MatchedTeam, MeanTeam, combined
from coverwell.training.device import Settings, auto_batch_size, device_from
from coverwell.training.learner import Learner
from coverwell.training.rows import Altered, Rows

Array = NDArray[np.float64]
NetworkChoice = Network | Callable[[int, int], torch.nn.Module] | None

# What "auto" stands for where the network has no numbers of its own.
DEFAULTS: Mapping[str, float | int] = MappingProxyType(
    {"mean_epochs": 8, "interval_epochs": 4, "max_rounds": 6, "patience": 1, "learning_rate": 5e-3, "growth": 2.0}
)
# Tried out of fold on splits 100 to 102, in runs that are not stored; `make bench-selection` compares them.
MEAN_NETWORK = MLP(hidden=128, layers=3, dropout=0.0, bins=0, waves=8, scaled=True, activation="silu")
INTERVAL_NETWORK = replace(MEAN_NETWORK, hidden=64)
# Where scores still fall after the last round, F has learned what is smooth; bins learn steps and cells.
SECOND_NETWORK = MLP(hidden=128, layers=5, dropout=0.0, bins=16, scaled=True, activation="silu")
ROUNDS_BEFORE = 4  # of the first network, where a second may follow
SECOND_LONGER = 16  # times as many epochs, in its only round: after a second one parkinsons was worse
SECOND_ROWS = 1000, 10_000  # with fewer rows it gains little for the time it takes, with more it takes minutes
EMA_DECAY = 0.8


@dataclass(frozen=True)
class MatchedTraining:
    """How the two teams of each job are trained."""

    network: Network
    interval_network: Network
    recipe: Recipe
    both: bool  # whether F helps to shape the intervals
    settings: Settings
    start: Sequence[FittedTeam] = ()  # the teams that each job continues, if it does
    second: MatchedTraining | None = None  # of another kind of F, where the scores still fall after the last round

    def shortened(self) -> MatchedTraining:
        """A round of one epoch each, from the start: enough to see whether memory suffices."""
        once = replace(self.recipe, max_rounds=1, mean_epochs=1, interval_epochs=1, closing_rounds=0)
        return replace(self, recipe=once, start=(), second=None)

    def run(self, rows: Rows, on_round: OnRound) -> tuple[Trained, History]:
        """Run Algorithm 1 on all jobs at once and take the teams apart again."""
        rows = rows if rows.y.device == self.settings.device else rows.to(self.settings.device)
        F, I = self.learners(rows)
        units, size = [], rows.trains.shape[1]
        for job, team in enumerate(self.start):
            assert isinstance(team, MatchedTeam)  # what this estimator leaves
            F.start_from(slice(job * size, (job + 1) * size), team.mean_team)
            I.start_from(slice(job * size, (job + 1) * size), team.interval_team)
            units.append(team.unit)
        unit = torch.stack(units).to(rows.y) if units else None
        after_round = partial(on_round, partial(self.taken_apart, F, I, rows))
        history = alternate(F, I, self.recipe, repeat(rows), rows, after_round, start=unit)
        unit = history.best[1].unit
        if self.second is None or not history.going.any():
            return self.taken_apart(F, I, rows, unit), history
        trained, after = self.second.run(self.beside_a_second(F, rows), on_round)
        self.apart_again(F, rows, trained)
        if not history.going.all():  # jobs that had settled stay as they were
            first = self.taken_apart(F, I, rows, unit)
            for job in (~history.going).nonzero()[:, 0].tolist():
                trained.teams[job], trained.members[job] = first.teams[job], first.members[job]
        return trained, after.following(history)

    def beside_a_second(self, F: Learner, rows: Rows) -> Rows:
        """The rows with this F as one more companion."""
        n_members, matching = rows.trains.shape[1], self.recipe.matching
        found = out_of_fold_mean(F, rows, matching)[:, :, None]
        beside = found if rows.beside is None else torch.cat([rows.beside, found], dim=2)
        companions = []
        for job, (inputs, targets) in enumerate(zip(rows.inputs, rows.targets, strict=True)):
            team = F.average.deployed(slice(job * n_members, (job + 1) * n_members))
            before = rows.companions[job] if rows.companions else []
            companions.append([*before, MeanTeam(team, matching, inputs, targets)])
        return replace(rows, beside=beside, companions=companions)

    def apart_again(self, F: Learner, rows: Rows, trained: Trained) -> None:
        """Let the estimate of each member of a second team contain that of this F's member, not of its average.

        Both leave the same rows out, so ranks see how much an average over members errs less than one of them.
        """
        n_jobs, n_members, _ = rows.trains.shape
        average = out_of_fold_mean(F, rows, self.recipe.matching)
        alone = self.recipe.matching.mean(F.outputs(rows), rows.y.shape[-1]).unflatten(0, (n_jobs, n_members))
        for job, (team, estimate) in enumerate(zip(trained.teams, trained.members, strict=True)):
            if estimate is not None and team.weights is not None and estimate.contrast is not None:
                apart = (alone[job] - average[job])[:, : rows.lengths[job]].double().cpu().numpy()
                mean = estimate.mean + team.weights[-1].cpu().numpy() * apart
                contrast = estimate.contrast + apart / len(team.companions)
                trained.members[job] = replace(estimate, mean=mean, contrast=contrast)

    def learners(self, rows: Rows) -> tuple[Learner, Learner]:
        """Untrained F and I."""
        n_targets, n_levels = rows.y.shape[-1], rows.coverage.shape[-1]
        F = Learner(self.network, rows, self.recipe.matching.n_outputs(n_targets, n_levels), self.settings)
        # I emits one increment per target, side and level.
        I = Learner(self.interval_network, rows, 2 * n_targets * n_levels, self.settings, honest=True)
        return F, I

    def estimates_of_members(
        self, F: Learner, I: Learner, rows: Rows, unit: Tensor, *, left_out: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Each member's means and half-widths, for all rows or for those that it leaves out: (member, row, ...)."""
        matching, levels, of_mean = self.recipe.matching, rows.levels_of_members, F.outputs(rows, left_out=left_out)
        half_width = half_widths(I.outputs(rows, left_out=left_out), levels, rows.to_members(unit))
        if self.both:
            half_width = combined(matching, of_mean, half_width, levels)
        return matching.mean(of_mean, rows.y.shape[-1]), half_width

    def taken_apart(self, F: Learner, I: Learner, rows: Rows, unit: Tensor) -> Trained:
        """The teams of each job, and their members' outputs for its rows."""
        matching, (n_jobs, n_members, _) = self.recipe.matching, rows.trains.shape
        mean, width = self.estimates_of_members(F, I, rows, unit)
        mean = mean.unflatten(0, (n_jobs, n_members))
        weights, contrast = None, None
        if rows.beside is not None:
            share = rows.leaves_out / rows.leaves_out.sum(dim=1, keepdim=True).clamp_min(1)
            of_networks = torch.einsum("jmr,jmrt->jrt", share.to(mean), mean)
            weights, contrast = blend_weights(rows, of_networks), rows.beside.mean(dim=2)[:, None] - mean
            assert weights is not None  # there are companions
            beside = torch.einsum("jct,jrct->jrt", weights[:, 1:], rows.beside)
            mean = weights[:, None, :1] * mean + beside[:, None]
        mean = mean.double().cpu()
        width = width.unflatten(0, (n_jobs, n_members)).double().cpu()
        teams: list[FittedTeam] = []
        members: list[Estimate | None] = []
        for job, length in enumerate(rows.lengths):
            own = slice(job * n_members, (job + 1) * n_members)
            pair, of_unit = (F.average.deployed(own), I.average.deployed(own)), unit[job].double().cpu().numpy()
            levels, inputs, targets = rows.levels[job], rows.inputs[job], rows.targets[job]
            known: dict[str, Any] = {"both": self.both}
            if weights is not None:
                known |= {"companions": rows.companions[job], "weights": weights[job].double().cpu().numpy()}
            teams.append(MatchedTeam(*pair, matching, of_unit, levels, inputs, targets, rows.mirroring, **known))
            apart = None if contrast is None else contrast[job, :, :length].double().cpu().numpy()
            estimate = Estimate(mean[job, :, :length].numpy(), width[job, :, :length].numpy(), apart)
            members.append(None if rows.out_of_fold_view.literal else estimate)
        return Trained(teams, members)


# Parameters are the fields of a dataclass, as in all our estimators.
@stored
@dataclass(eq=False, repr=False)
class MatchedRegressor(IntervalRegressor):
    """Regression with a prediction interval for every row, from two teams of networks trained in turns.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    matching : "balanced", "sigma", "iqr", None or an object with `Matching`'s methods, default="balanced"
        How F's uncertainty is matched to I's widths; "sigma" and "iqr" are the paper's, "balanced" is Sigma Fit in
        which easy and hard rows weigh alike for the mean; None trains F on the squared error alone.
    network, interval_network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is a small smooth `MLP`. A given `network` also serves for the intervals if there is no
        `interval_network`. With a `ResNet18(...)`, X are images; see there for its settings.
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
    calibration : "local", "cross", "cv+", "split", None or an object such as `Split(size=0.3)`, default="local"
        How the learned intervals are stretched to the asked level; see `coverwell.calibration` for what each promises.
    hold_for : name or place of a column of X, or several, optional
        Coverage is held within each group of rows that have the same value there, not only on average; groups of few
        rows are drawn towards all rows. With several columns, for the groups of each. With "local", rows with the same
        gaps are such a group by themselves. Needs ranks that can be kept apart: "local", "cross" or "split".
    companions : sequence of "forest" and regressors, default=("forest",)
        Learners beside F, for tables. They are fitted on the same folds, and what they predict out of fold decides how
        much each counts in the prediction. A regressor is any with scikit-learn's `fit` and `predict`, also a pipeline;
        it sees the rows as numbers, with columns of text and dates encoded. With `()`, the networks are alone.
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
        1 shows what the fit is doing, and since when.

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
    worst_slices_ : tuple of WorstSlice
        Where these cover less than was asked, by one and two columns; empty for images.
    factor_ : ndarray (target, level) or None
        By how much the learned intervals are stretched.
    column_scales_ : ndarray (column,) or None
        What F looks at: its learned scale of each column, over the largest.
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

    coverage: Coverage = 0.9
    matching: str | Matching | None = "balanced"
    _: KW_ONLY
    network: NetworkChoice = None
    interval_network: NetworkChoice = None
    folds: Any = 5
    repeats: int | str = "auto"
    interval_loss: str | IntervalLoss = "quantile"
    shape: str = "both"
    calibration: Any = "local"
    hold_for: Any = None
    companions: Sequence[Any] = (FOREST,)
    schedule: Schedule | None = None
    warm_start: bool = False
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    holds_groups: ClassVar[bool] = True

    def check_params(self) -> None:
        for option, protocol in (("matching", Matching), ("interval_loss", IntervalLoss)):
            part_from(option, getattr(self, option), protocol)
        if self.shape not in ("both", "interval"):
            raise ValueError(f"shape must be 'both' or 'interval', got {self.shape!r}")
        calibration = self.chosen_calibration
        if self.folds is None and (calibration.ranks_out_of_fold or calibration.one_team_per_fold):
            way_out = "give folds=5, or calibration='split' or None"
            raise ValueError(f"calibration={calibration.name!r} needs folds, got folds=None; {way_out}")
        check_companions(self.companions)
        check_number("repeats", self.repeats, least=1, whole=True, or_auto=True)
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule(...) or None, got {self.schedule!r}")

    def set_params(self, **params: Any) -> MatchedRegressor:
        """Set parameters, also fields of options that are objects: `schedule__max_rounds=5`, for grid searches."""
        for name in [name for name in params if "__" in name]:
            option, _, field = name.partition("__")
            part = params.get(option, getattr(self, option, None))
            if option == "schedule":
                part = part or Schedule()
            elif option in ("matching", "interval_loss", "calibration"):
                part = part_from(option, part, object)
            if is_dataclass(part) and not isinstance(part, type):
                if field not in vars(part):
                    raise ValueError(f"Invalid parameter {name!r}: {option} has the fields {', '.join(vars(part))}")
                params[option] = replace(part, **{field: params.pop(name)})
        super().set_params(**params)
        return self

    def resolved_params(self) -> dict[str, Any]:
        schedule = (self.schedule or Schedule()).resolved(getattr(self.network, "defaults", {}), DEFAULTS)
        return {**super().resolved_params(), "schedule": schedule}

    @property
    def column_scales_(self) -> Array | None:
        """What F looks at: how far it stretches each column, over the largest; None where it does not learn that.

        The geometric mean over members, of the first team of networks that learns scales.
        """
        check_is_fitted(self)
        for team in self.predictor_.modules():
            if isinstance(team, MLPTeam) and team.column_scales is not None:
                scales = team.column_scales.log().mean(dim=0).exp()
                return (scales / scales.max()).cpu().numpy().astype(np.float64)
        return None

    def dealing(self, groups: NDArray[Any] | None, random_state: np.random.RandomState) -> dict[str, Any]:
        calibration = self.chosen_calibration
        # Where nobody is left out, or each row by a team of its own, "auto" means one member.
        once, defaults = self.folds is None or calibration.one_team_per_fold, getattr(self.network, "defaults", {})
        return {
            "folds": self.folds,
            "repeats": self.repeats if once or self.repeats != "auto" else defaults.get("repeats", "auto"),
            "calibration": calibration,
            "unit_range": part_from("interval_loss", self.interval_loss, IntervalLoss).unit_range,
        }

    def with_companions(self, rows: Rows) -> Rows:
        assert rows.given is not None  # rows of a fit know what they were made from
        X, y = rows.given
        if X.ndim != 2 or self.folds is None:
            return rows
        if self.chosen_calibration.holds_gaps and rows.given_weight is None:
            left_out = rows.leaves_out[0].any(dim=0).numpy()
            hidden, moved = masked_copies(self.source_, X, left_out, rows.seeds[0]), None
            if self.bounded_ is not False:
                moved = edge_copies(X, y, left_out, rows.seeds[0])
            rows = replace(rows, altered=Altered.joined([hidden, moved]))
        if not self.companions:
            return rows
        fitted, found = [], []
        for job, length in enumerate(tqdm(rows.lengths, disable=not self.verbose, desc="companions", unit="team")):
            seen = np.setdiff1d(np.arange(len(X)), rows.held_back[job])
            trains, leaves_out = (masks[job, :, :length].numpy() for masks in (rows.trains, rows.leaves_out))
            known = rows.units[job], rows.seeds[job] + job, rows.weight_of(seen), rows.altered
            modules, beside = fit_companions(
                self.companions, X[seen], without_far_off(y[seen]), trains, leaves_out, *known
            )
            fitted.append(modules)
            scaled = rows.targets[job](torch.from_numpy(beside)).to(rows.y)
            if rows.altered is not None:
                scaled, rows.altered.beside = scaled[:length], scaled[length:].double()
            found.append(torch.nn.functional.pad(scaled, (0, 0, 0, 0, 0, rows.y.shape[1] - length)))
        return replace(rows, beside=torch.stack(found), companions=fitted)

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        super().set_fitted(rows, trained, history, jobs, calibration)
        assert rows.given is not None  # rows of a fit know what they were made from
        for team in self.predictor_.fitted_teams:
            if team.shape is not None:
                team.copies = Copies.of(*rows.given, team.inputs, team.shape.grid, rows.given_weight)
                team.edges = self.edge_rates(rows, team, team.shape.grid)
                team.to(device_from(self.device))

    def edge_rates(self, rows: Rows, team: FittedTeam, levels: tuple[float, ...]) -> EdgeRates | None:
        """How much half-widths grow beyond the range of training."""
        altered, correction = rows.altered, self.predictor_.correction
        if altered is None or altered.estimate is None or correction.factor is None:
            return None
        assert rows.given is not None  # rows of a fit know what they were made from
        assert self.out_of_fold_ is not None  # what has made the estimate
        mean, spread = team.scaled(self.out_of_fold_.prediction), team.inputs.spread.cpu().numpy()
        factor = correction.factor[:, [correction.levels.index(level) for level in levels]].cpu().numpy()
        return edge_rates(altered, rows.given[0], mean, spread, factor, levels)

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> MatchedTraining:
        literal = self.folds is None
        schedule = (self.schedule or Schedule()).resolved(getattr(self.network, "defaults", {}), DEFAULTS)
        counts = schedule.max_rounds, schedule.mean_epochs, schedule.interval_epochs, schedule.patience
        max_rounds, mean_epochs, interval_epochs, patience = map(int, counts)
        batch_size = auto_batch_size(n_rows) if schedule.batch_size == "auto" else int(schedule.batch_size)
        matching = part_from("matching", self.matching, Matching)
        interval_loss = part_from("interval_loss", self.interval_loss, IntervalLoss)
        growth, rate = float(schedule.growth), float(schedule.learning_rate)
        ema_decay = 0.0 if literal or growth > 1 else EMA_DECAY
        recipe = Recipe(matching, interval_loss, max_rounds, mean_epochs, interval_epochs, patience, literal=literal)
        same = INTERVAL_NETWORK if self.network is None else self.network
        first = MatchedTraining(
            network=network_from(MEAN_NETWORK if self.network is None else self.network),
            interval_network=network_from(same if self.interval_network is None else self.interval_network),
            recipe=replace(recipe, growth=growth, closing_rounds=0) if growth > 1 else recipe,
            # Without ranks nothing would set the size of the combined shape.
            both=self.shape == "both" and self.chosen_calibration.name is not None,
            settings=Settings(max_rounds, batch_size, rate, ema_decay, device_from(self.device)),
            start=start,
        )
        own_choice = self.network is not None or (self.schedule or Schedule()).max_rounds != "auto" or growth == 1
        fewest, most = SECOND_ROWS
        if own_choice or not fewest <= n_rows <= most or start or not self.companions:
            return first
        longer = replace(
            first.recipe,
            mean_epochs=SECOND_LONGER * mean_epochs,
            interval_epochs=SECOND_LONGER * interval_epochs,
            max_rounds=1,
        )
        shorter = replace(first.recipe, max_rounds=min(max_rounds, ROUNDS_BEFORE))
        second = replace(first, network=SECOND_NETWORK, recipe=longer)
        return replace(first, recipe=shorter, second=second)


# Paper: nothing is left out, Eqs. 2 to 5 and 7 or 10 as printed (with means for sums), y in [0, 1], no calibration
# afterwards. The paper gives five linear layers, but neither their width nor the batch size.
AS_PUBLISHED: dict[str, Any] = {
    "matching": "sigma",
    "companions": (),
    "folds": None,
    "interval_loss": "paper",
    "shape": "interval",
    "calibration": None,
    "network": MLP(hidden=64, layers=5, dropout=0.0, bins=0),
    "schedule": Schedule(mean_epochs=10, interval_epochs=10, max_rounds=50, patience=6, learning_rate=1e-3, growth=1.0),
}
