"""What MatchedRegressor and MatchedClassifier share: their options, and how the two teams are trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
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

from coverwell.calibration import Estimate
from coverwell.checkpoint import Checkpoint
from coverwell.companions import check_companions, fit_companions
from coverwell.edges import edge_copies
from coverwell.estimator import CalibratedEstimator, OnRound, Trained
from coverwell.groups import masked_copies
from coverwell.inputs.scaling import without_far_off
from coverwell.networks.mlp import MLP, MLPTeam
from coverwell.networks.team import Network, network_from
from coverwell.options import Schedule, check_number, part_from
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
    kind_of_team: type[MatchedTeam] = MatchedTeam
    second: MatchedTraining | None = None  # of another kind of F, where the scores still fall after the last round
    checkpoint: Checkpoint | None = None

    def shortened(self) -> MatchedTraining:
        """A round of one epoch each, from the start: enough to see whether memory suffices."""
        once = replace(self.recipe, max_rounds=1, mean_epochs=1, interval_epochs=1, closing_rounds=0)
        return replace(self, recipe=once, start=(), second=None, checkpoint=None)

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
        kept = self.checkpoint
        history = alternate(F, I, self.recipe, repeat(rows), rows, after_round, start=unit, checkpoint=kept)
        unit = history.best[1].unit
        if self.second is None or not history.going.any():
            return self.taken_apart(F, I, rows, unit), history
        trained, after = replace(self.second, checkpoint=kept).run(self.beside_a_second(F, rows), on_round)
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
        # I emits one increment per target, side and level; a score of classes has one side.
        n_sides = 2 if rows.score is None else 1
        I = Learner(self.interval_network, rows, n_sides * rows.n_bounded * n_levels, self.settings, honest=True)
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
            known: dict[str, Any] = {"both": self.both} | ({} if rows.score is None else {"score": rows.score})
            if weights is not None:
                known |= {"companions": rows.companions[job], "weights": weights[job].double().cpu().numpy()}
            teams.append(self.kind_of_team(*pair, matching, of_unit, levels, inputs, targets, rows.mirroring, **known))
            apart = None if contrast is None else contrast[job, :, :length].double().cpu().numpy()
            estimate = Estimate(mean[job, :, :length].numpy(), width[job, :, :length].numpy(), apart)
            members.append(None if rows.out_of_fold_view.literal else estimate)
        return Trained(teams, members)


class MatchedEstimator(CalibratedEstimator):
    """An estimator whose two networks are trained in turns; its classes add the parameters."""

    matching: Any
    network: NetworkChoice
    interval_network: NetworkChoice
    folds: Any
    repeats: int | str
    interval_loss: str | IntervalLoss
    companions: Sequence[Any]
    schedule: Schedule | None
    warm_start: bool

    holds_groups: ClassVar[bool] = True
    resumable: ClassVar[bool] = True
    # The option whose names `matching` takes, parameters that are objects, and what a trained pair of teams becomes.
    kind_of_matching: ClassVar[str] = "matching"
    parts: ClassVar[tuple[str, ...]] = ("matching", "interval_loss", "calibration")
    kind_of_team: ClassVar[type[MatchedTeam]] = MatchedTeam
    adds_a_network: ClassVar[bool] = True  # a second kind of F, where scores still fall
    kind_of_companions: ClassVar[tuple[str, str]] = ("regressor", "predict")

    def check_params(self) -> None:
        part_from("matching", self.matching, Matching, names=self.kind_of_matching)
        part_from("interval_loss", self.interval_loss, IntervalLoss)
        calibration = self.chosen_calibration
        if self.folds is None and (calibration.ranks_out_of_fold or calibration.one_team_per_fold):
            way_out = "give folds=5, or calibration='split' or None"
            raise ValueError(f"calibration={calibration.name!r} needs folds, got folds=None; {way_out}")
        check_companions(self.companions, *self.kind_of_companions)
        check_number("repeats", self.repeats, least=1, whole=True, or_auto=True)
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule(...) or None, got {self.schedule!r}")

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also fields of options that are objects: `schedule__max_rounds=5`, for grid searches."""
        for name in [name for name in params if "__" in name]:
            option, _, field = name.partition("__")
            part = params.get(option, getattr(self, option, None))
            if option == "schedule":
                part = part or Schedule()
            elif option in self.parts:
                part = part_from(option, part, object, names=self.kind_of_matching if option == "matching" else option)
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
            targets = without_far_off(y[seen]) if rows.score is None else y[seen]
            modules, beside = fit_companions(
                self.companions, X[seen], targets, trains, leaves_out, *known, classes=rows.score is not None
            )
            fitted.append(modules)
            scaled = rows.targets[job](torch.from_numpy(beside)).to(rows.y)
            if rows.altered is not None:
                scaled, rows.altered.beside = scaled[:length], scaled[length:].double()
            found.append(torch.nn.functional.pad(scaled, (0, 0, 0, 0, 0, rows.y.shape[1] - length)))
        return replace(rows, beside=torch.stack(found), companions=fitted)

    def training_for(self, n_rows: int, start: Sequence[FittedTeam] = ()) -> MatchedTraining:
        literal = self.folds is None
        schedule = (self.schedule or Schedule()).resolved(getattr(self.network, "defaults", {}), DEFAULTS)
        counts = schedule.max_rounds, schedule.mean_epochs, schedule.interval_epochs, schedule.patience
        max_rounds, mean_epochs, interval_epochs, patience = map(int, counts)
        batch_size = auto_batch_size(n_rows) if schedule.batch_size == "auto" else int(schedule.batch_size)
        matching = part_from("matching", self.matching, Matching, names=self.kind_of_matching)
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
            both=getattr(self, "shape", None) == "both" and self.chosen_calibration.name is not None,
            kind_of_team=self.kind_of_team,
            settings=Settings(max_rounds, batch_size, rate, ema_decay, device_from(self.device)),
            start=start,
        )
        own_choice = self.network is not None or (self.schedule or Schedule()).max_rounds != "auto" or growth == 1
        fewest, most = SECOND_ROWS
        if own_choice or not fewest <= n_rows <= most or start or not (self.companions and self.adds_a_network):
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
