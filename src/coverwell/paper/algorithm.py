"""Algorithm 1 of the paper: the mean network F and the interval network I are trained in turns.

F learns the targets and matches its uncertainty to I's widths; I learns intervals around F. Whatever one network learns
from the other comes from members that did not train on the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from coverwell.networks.team import State
from coverwell.options import stored
from coverwell.paper.losses import Interval, Levels
from coverwell.paper.matching import Matching, MatchTarget
from coverwell.training.learner import BestState, Learner
from coverwell.training.rows import Rows

if TYPE_CHECKING:
    from coverwell.checkpoint import Checkpoint

PerJob = Float[Tensor, "job target level"]
PerTarget = Float[Tensor, "job target"]

# A residual scale of zero would make the sigmoid of Eq. 2 infinitely steep; targets are of order one here.
SMALLEST_SCALE = 1e-4
# Standard deviation over mean absolute deviation of a normal distribution; the latter is more robust to outliers.
SD_PER_MEAN_DEVIATION = 1.2533
# In rounds that grow, the share by which a score must fall for another round: F's squared error and I's pinball loss.
GAINS = 0.04, 0.05
# For classes F alone decides, and this share of the Brier score of a guess adds to its score: where nearly all rows are
# easy, a tenth of next to nothing is not worth a round.
OF_A_GUESS = 0.1
FASTER = 4.0  # the power to which the last fall counts for each round to come: rounds are longer and longer
FEWEST_STEPS = 200  # of F: with fewer a score that does not fall says little, as small tables have few an epoch
LONGEST = 64  # times as long as the first round
SUM_WEIGHT = 1e3
# What a history has learned beside its rounds.
STATE = "unit", "coverage", "least_alone", "going", "last_better", "n_rounds"


@dataclass(frozen=True)
class Recipe:
    """What the alternation needs to know beside the networks and the rows."""

    matching: Matching
    interval_loss: Callable[..., Tensor]  # an `IntervalLoss`
    max_rounds: int
    mean_epochs: int
    interval_epochs: int
    patience: int
    closing_rounds: int = 2
    growth: float = 1.0  # how many times longer each round is than the last; above 1, the learning rate falls within it
    literal: bool = False  # as published: losses in the unit of y, a stop when the training losses have settled


def alternate(
    F: Learner,
    I: Learner,
    recipe: Recipe,
    rounds: Iterator[Rows],
    evaluated: Rows,
    on_round: Callable[[History], None] = lambda history: None,
    *,
    start: PerTarget | None = None,
    checkpoint: Checkpoint | None = None,
) -> History:
    """Algorithm 1, until the out-of-fold scores of no job improve; both averaged teams end at their best round.

    `rounds` gives the rows of each round, without end: the same ones in memory, the next buffer of a stream. Every
    round is measured on the rows `evaluated`. For teams that continue an earlier training, `start` is the unit of their
    widths, and they are themselves a round that can be the best. A `checkpoint` keeps the state after every round, or
    has one to go on from; `rounds` then begins with the next.
    """
    annealed = recipe.growth > 1
    history = History(
        evaluated,
        (F, I),
        patience=recipe.patience,
        literal=recipe.literal,
        growth=recipe.growth,
        max_rounds=recipe.max_rounds,
    )
    resumed = checkpoint is not None and checkpoint.restore(history)
    if start is not None and not resumed:
        history.unit = start
    history.half_width = _out_of_fold_half_width(I, evaluated, history.unit)
    if start is not None and not resumed:
        alone = out_of_fold_mean(F, evaluated, recipe.matching)
        y_mean = blended(evaluated, alone, blend_weights(evaluated, alone))
        history.add(measure(evaluated, y_mean, history.half_width, alone))
    for number in range(len(history.rounds), recipe.max_rounds):
        if not history.going.any():
            break
        rows = next(rounds)
        mean_epochs, interval_epochs = (
            round(epochs * min(recipe.growth**number, LONGEST))
            for epochs in (recipe.mean_epochs, recipe.interval_epochs)
        )
        unit, same = history.unit, rows is evaluated
        half_width = history.half_width if same else _out_of_fold_half_width(I, rows, unit)  # I is frozen
        matched = mean_objective(recipe.matching, rows, half_width, history.coverage, unit)
        mean_loss = F.descend(rows, mean_epochs, matched, annealed=annealed)
        of_networks = out_of_fold_mean(F, rows, recipe.matching)  # F is frozen
        of_evaluated = of_networks if same else out_of_fold_mean(F, evaluated, recipe.matching)
        weights = blend_weights(evaluated, of_evaluated)
        evaluated_mean = blended(evaluated, of_evaluated, weights)
        y_mean = evaluated_mean if same else blended(rows, of_networks, weights)
        scale = residual_scale(evaluated, evaluated_mean)
        history.unit = unit if recipe.literal else scale
        covering = interval_objective(recipe, rows, y_mean, history.unit, scale)
        interval_loss = I.descend(rows, interval_epochs, covering, annealed=annealed)
        history.half_width = _out_of_fold_half_width(I, evaluated, history.unit)
        measures = measure(evaluated, evaluated_mean, history.half_width, of_evaluated)
        history.add(measures, (mean_loss, interval_loss))
        del rows, half_width, of_networks, y_mean, matched, covering  # before the next buffer of a stream is read
        if checkpoint is not None:
            checkpoint.keep(history)
        on_round(history)
    for best in history.best:
        best.restore()
    if not recipe.literal:
        _settle_intervals(F, I, recipe, rounds, history)
    return history


def _settle_intervals(F: Learner, I: Learner, recipe: Recipe, rounds: Iterator[Rows], history: History) -> None:
    """Train the best I a little more around the best F: the two come from different rounds."""
    evaluated, best = history.evaluated, history.best[1]
    of_evaluated = out_of_fold_mean(F, evaluated, recipe.matching)
    weights = blend_weights(evaluated, of_evaluated)
    y_mean = blended(evaluated, of_evaluated, weights)
    unit, scale = best.unit, residual_scale(evaluated, y_mean)
    best.score.fill_(torch.inf)
    for closing_round in range(recipe.closing_rounds + 1):
        if closing_round > 0:
            rows, unit = next(rounds), scale
            y_rows = y_mean
            if rows is not evaluated:
                y_rows = blended(rows, out_of_fold_mean(F, rows, recipe.matching), weights)
            I.descend(rows, recipe.interval_epochs, interval_objective(recipe, rows, y_rows, scale, scale))
            del rows, y_rows  # before the next buffer of a stream is read
        best.offer(measure(evaluated, y_mean, _out_of_fold_half_width(I, evaluated, unit)).scores[1], unit)
    best.restore()


def mean_objective(
    matching: Matching, rows: Rows, half_width: Tensor, empirical_coverage: PerJob, scale: PerTarget
) -> Callable[[Tensor, Tensor], Tensor]:
    """F's loss on a batch (Eq. 7 or 10), with I's half-widths held fixed."""
    width = half_width.sum(dim=-2)  # (job, row, target, side, level) -> (job, row, target, level)
    # Rows that no member leaves out, as the first of TimeSeriesSplit, get the average width.
    width = torch.where(rows.out_of_fold_view.some[..., None, None], width, rows.mean_out_of_fold(width)[:, None])
    fixed = {
        "empirical_coverage": rows.to_members(empirical_coverage),
        "coverage": rows.to_members(rows.coverage),
        "scale": rows.to_members(scale),
    }

    def objective(outputs: Tensor, batch: Tensor) -> Tensor:
        target = MatchTarget(width=rows.batch_of(width, batch), **fixed)
        return matching.loss(outputs, rows.batch_of(rows.y, batch), target)

    return objective


def interval_objective(
    recipe: Recipe, rows: Rows, y_mean: Tensor, unit: PerTarget, scale: PerTarget
) -> Callable[[Tensor, Tensor], Tensor]:
    """I's loss on a batch (Eq. 5), with F's means held fixed. Widths are in `unit`, losses in `scale`."""
    levels, (values, middle) = rows.levels_of_members, rows.bounded(y_mean)
    unit, scale = rows.to_members(unit), rows.to_members(scale)

    def objective(outputs: Tensor, batch: Tensor) -> Tensor:
        centre = rows.batch_of(middle, batch)
        below, above = half_widths(outputs, levels, unit).unbind(dim=-2)
        interval = Interval(centre[..., None] - below, centre[..., None] + above)
        return recipe.interval_loss(rows.batch_of(values, batch), centre, interval, levels.coverage, scale=scale)

    return objective


def half_widths(outputs: Tensor, levels: Levels, unit: Tensor) -> Tensor:
    """Distances of the bounds below and above the mean, delta_l and delta_u, from I's outputs.

    The outputs are increments from each level to the next one outwards, so intervals are nested by construction. An
    output of zero gives the normal half-width for residuals of the given unit.

    Where there is one increment for both sides, as for scores of classes, the half-widths are the same.

    Shape: outputs `(member, batch, output)`, unit `(member, target)`; result `(member, batch, target, side, level)`.
    """
    n_levels, n_targets = levels.z.shape[-1], unit.shape[-1]
    n_sides = outputs.shape[-1] // (n_targets * n_levels)
    steps = torch.diff(levels.z, prepend=torch.zeros_like(levels.z[:, :1]), dim=-1)
    start = torch.log(torch.expm1(steps))  # softplus(start) = steps
    increments = softplus(outputs.unflatten(-1, (n_targets, n_sides, n_levels)) + start[:, None, None, None, :])
    half_width = unit[:, None, :, None, None] * increments.cumsum(dim=-1)
    return half_width if n_sides == 2 else half_width.expand(*half_width.shape[:-2], 2, n_levels)


def out_of_fold_mean(F: Learner, rows: Rows, matching: Matching) -> Float[Tensor, "job row target"]:
    """F's prediction for each row, averaged over members that did not train on it."""
    return rows.out_of_fold(matching.mean(F.outputs(rows, left_out=True), rows.y.shape[-1]))


def _out_of_fold_half_width(I: Learner, rows: Rows, unit: Tensor) -> Float[Tensor, "job row target side level"]:
    """I's half-widths for each row, averaged over members that did not train on it."""
    levels = rows.levels_of_members
    return rows.out_of_fold(half_widths(I.outputs(rows, left_out=True), levels, rows.to_members(unit)))


def blend_weights(rows: Rows, of_networks: Float[Tensor, "job row target"]) -> Float[Tensor, "job part target"] | None:
    """The weights of the networks and of each companion that give the lowest out-of-fold squared error.

    None is negative, and they sum to one. None where there are no companions.
    """
    if rows.beside is None:
        return None
    some, parts = rows.out_of_fold_view.some, torch.cat([of_networks[:, :, None], rows.beside], dim=2)
    weights = parts.new_empty(len(parts), *parts.shape[2:])
    every = list(range(parts.shape[-1]))
    for job in range(len(parts)):
        # Classes have the same weights, so that their probabilities sum to one.
        for targets in [[target] for target in every] if rows.score is None else [every]:
            own, y = (values[job, some[job]][..., targets].double().cpu().numpy() for values in (parts, rows.y))
            if rows.weight is not None:
                root = rows.weight[job, some[job]].sqrt().cpu().numpy()
                own, y = own * root[:, None, None], y * root[:, None]
            own = own.transpose(0, 2, 1).reshape(-1, own.shape[1])  # (row and target, part)
            weights[job][:, targets] = torch.from_numpy(simplex_weights(own, y.ravel())).to(weights)[:, None]
    return weights if rows.workers is None else rows.workers.of_first(weights)


def simplex_weights(parts: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-negative weights with sum one of the columns of parts (row, part) that come closest to y (row,)."""
    from scipy.optimize import nnls

    # A last row, heavy enough to be met, holds the sum at one.
    size = SUM_WEIGHT * max(float(np.linalg.norm(parts)), 1.0)
    found, _ = nnls(np.vstack([parts, np.full(parts.shape[1], size)]), np.append(y, size))
    found = (found / found.sum()).round(12)  # without the dust of parts that do not count
    weights: NDArray[np.float64] = found / found.sum()
    return weights


def blended(rows: Rows, of_networks: Tensor, weights: Tensor | None) -> Float[Tensor, "job row target"]:
    """The networks' prediction and the companions', weighted."""
    if weights is None or rows.beside is None:
        return of_networks
    return torch.einsum("jpt,jrpt->jrt", weights, torch.cat([of_networks[:, :, None], rows.beside], dim=2))


def residual_scale(rows: Rows, y_mean: Tensor) -> PerTarget:
    """A robust standard deviation of the out-of-fold residuals, or of scores of classes above zero."""
    values, middle = rows.bounded(y_mean)
    deviation = rows.mean_out_of_fold((values - middle).abs())
    return (SD_PER_MEAN_DEVIATION * deviation).clamp_min(SMALLEST_SCALE)


@dataclass(frozen=True)
class Measures:
    """How networks do on rows they did not train on (unless literal), for every job.

    `interval_score` is the pinball loss of both bounds: the score times (1 - asked) / 2, so that levels weigh alike. Of
    classes, `rmse` is the root of the Brier score, and the others are about the score of the true class.
    `scores` are what the best state of each network is chosen by.
    """

    rmse: PerTarget
    coverage: PerJob
    width: PerJob
    interval_score: PerJob
    scores: tuple[Float[Tensor, " job"], ...]
    alone: Float[Tensor, " job"] | None = None  # the score of F without companions


def measure(rows: Rows, y_mean: Tensor, half_width: Tensor, of_networks: Tensor | None = None) -> Measures:
    """Measures of out-of-fold means (job, row, target) and half-widths (job, row, target, side, level)."""
    values, middle = rows.bounded(y_mean)
    residual = (values - middle)[..., None]  # (job, row, target, level)
    below, above = half_width.unbind(dim=-2)
    inside = (-below <= residual) & (residual <= above)
    missed = (residual - above).clamp_min(0) + (-below - residual).clamp_min(0)
    width = below + above
    tail = (1 - rows.coverage)[:, None, None, :] / 2
    average = rows.mean_out_of_fold
    rmse = average(squared_error(rows, y_mean)).sqrt()
    coverage, mean_width = average(inside.to(residual.dtype)), average(width)
    score = average(tail * width + missed)
    if rows.workers is not None:  # all workers take the same decisions
        rmse, coverage, mean_width, score = map(rows.workers.of_first, (rmse, coverage, mean_width, score))
    scores = rmse.square().mean(dim=1), score.mean(dim=(1, 2))
    alone = scores[0] if of_networks is None else average(squared_error(rows, of_networks)).mean(dim=1)
    return Measures(rmse, coverage, mean_width, score, scores, alone)


def squared_error(rows: Rows, y_mean: Tensor) -> Float[Tensor, "job row target"]:
    """Of each target; of classes all together, the Brier score."""
    squared = (rows.y - y_mean).square()
    return squared if rows.score is None else squared.sum(dim=-1, keepdim=True)


class History:
    """The rounds of every job: what was measured, the best state of F and I, or of a baseline's team, when to stop."""

    def __init__(
        self,
        evaluated: Rows,
        learners: Sequence[Learner],
        *,
        patience: int,
        literal: bool = False,
        growth: float = 1.0,
        max_rounds: int = 0,
    ) -> None:
        n_jobs, n_targets = len(evaluated.y), evaluated.n_bounded
        self.evaluated, self.patience, self.literal, self.growth = evaluated, patience, literal, growth
        self.max_rounds = max_rounds
        self.unit = evaluated.y.new_ones(n_jobs, n_targets)  # of the widths; y starts with its own spread
        self.coverage = evaluated.coverage[:, None, :].expand(-1, n_targets, -1)  # so gamma starts at 1 / z(asked)
        self.half_width = self.unit.new_empty(0)  # of I for the rows `evaluated`
        self.best = list(map(BestState, learners, repeat(self.unit)))
        self.least_alone = torch.full_like(self.unit[:, 0], torch.inf)
        self.going = torch.ones(n_jobs, dtype=torch.bool, device=self.unit.device)  # jobs that have not settled
        self.last_better = torch.zeros(n_jobs, dtype=torch.long, device=self.unit.device)
        self.n_rounds = torch.zeros_like(self.last_better)
        self.rounds: list[Measures] = []
        self.losses: list[Float[Tensor, "job network"]] = []
        self.seconds: list[float] = []
        self.started = time.perf_counter()
        self.gains, self.floor = GAINS, torch.zeros_like(self.unit[:, 0])
        if evaluated.score is not None:
            guess = evaluated.mean_out_of_fold(evaluated.y)[:, None]
            self.floor = OF_A_GUESS * evaluated.mean_out_of_fold(squared_error(evaluated, guess))[:, 0]
            self.gains = GAINS[0], 1.0  # which no score of I reaches

    def add(self, measures: Measures, losses: Sequence[Tensor] = ()) -> None:
        """Note one round (without losses, the start), keep each network at its best, and see which jobs go on."""
        if losses:
            self.rounds.append(measures)
            self.losses.append(torch.stack(list(losses), dim=1).unflatten(0, (len(self.unit), -1)).mean(dim=1))
            self.seconds.append(time.perf_counter() - self.started)
            self.started = time.perf_counter()
            self.n_rounds += self.going
        self.coverage = measures.coverage
        for best, score, gain in zip(self.best, measures.scores, self.gains, strict=False):
            latest_first = torch.full_like(score, -len(self.rounds))
            clearly = self.clearly_lower(score, best.score, gain) if self.growth > 1 else True
            better = best.offer(latest_first if self.literal else score, self.unit, self.going) & clearly
            self.last_better = torch.where(better, len(self.rounds), self.last_better)
        if self.growth > 1 and measures.alone is not None:
            # F alone, falling like this or somewhat faster, may in the last round be better than what is deployed now.
            fall = measures.alone / self.least_alone
            in_the_end = measures.alone * fall ** (FASTER * (self.max_rounds - len(self.rounds)))
            promises = self.clearly_lower(measures.alone, self.least_alone, self.gains[0])
            promises &= in_the_end < measures.scores[0]
            early = self.best[0].learner.n_steps < FEWEST_STEPS
            self.last_better = torch.where(self.going & (promises | early), len(self.rounds), self.last_better)
            self.least_alone = torch.minimum(self.least_alone, measures.alone)
        if not self.literal:
            self.going = self.going & (len(self.rounds) - self.last_better < self.patience)
        elif len(self.losses) > 3:  # as published: all training losses moved less than 1 % over the last 3 rounds
            before, now = self.losses[-4], self.losses[-1]
            self.going = self.going & ~((now - before).abs() < 0.01 * before.abs()).all(dim=1)

    def clearly_lower(self, score: Tensor, before: Tensor, gain: float) -> Tensor:
        return score < (1 - gain) * before - gain * self.floor

    @property
    def seconds_to_come(self) -> float | None:
        """About how long the next round takes, by the latest; None where none is to follow."""
        n = len(self.rounds)
        if not self.seconds or n >= self.max_rounds or not self.going.any():
            return None
        latest, following = (min(self.growth**number, LONGEST) for number in (n - 1, n))
        return self.seconds[-1] * following / latest

    def state(self) -> State:
        """All that the next round depends on but for random numbers, the tensors themselves."""
        parts: dict[str, State] = {"": {name: getattr(self, name) for name in STATE}}
        for number, best in enumerate(self.best):
            parts |= {f"best.{number}.": best.state(), f"learner.{number}.": best.learner.state()}
        for number, (measures, losses) in enumerate(zip(self.rounds, self.losses, strict=True)):
            own = {name: value for name, value in vars(measures).items() if isinstance(value, Tensor)}
            parts[f"round.{number}."] = {**own, "scores": torch.stack(measures.scores), "losses": losses}
        state = {f"{part}{name}": value for part, values in parts.items() for name, value in values.items()}
        return {**state, "seconds": torch.tensor(self.seconds, dtype=torch.float64)}

    def load_state(self, state: State) -> None:
        def part(prefix: str) -> State:
            return {n.removeprefix(prefix): value for n, value in state.items() if n.startswith(prefix)}

        for name in STATE:
            setattr(self, name, state[name].to(self.unit.device))
        for number, best in enumerate(self.best):
            best.load_state(part(f"best.{number}."))
            best.learner.load_state(part(f"learner.{number}."))
        self.seconds = state["seconds"].tolist()
        for number in range(len(self.seconds)):
            own = {name: value.to(self.unit.device) for name, value in part(f"round.{number}.").items()}
            self.losses.append(own.pop("losses"))
            self.rounds.append(Measures(scores=tuple(own.pop("scores")), **own))

    def following(self, first: History) -> History:
        """This history, of a second training of what had not settled, with the rounds of the first before its own."""
        self.rounds, self.losses = first.rounds + self.rounds, first.losses + self.losses
        self.seconds, self.n_rounds = first.seconds + self.seconds, first.n_rounds + first.going * self.n_rounds
        return self

    def described(self, jobs: slice, rows: Rows, *, one_target: bool, one_level: bool) -> list[Round]:
        """The rounds of the model that these jobs belong to, in its units, averaged over jobs that had not settled."""
        spread = torch.stack(list(map(attrgetter("spread"), rows.targets))).cpu().numpy()[..., None]  # (job, target, 1)
        spread = spread[:, : rows.n_bounded]  # one of all classes
        of_score = spread / ((1 - np.array(rows.levels[0])) / 2)
        units = {"rmse": spread[..., 0], "coverage": 1.0, "width": spread, "interval_score": of_score}
        n_rounds = self.n_rounds[jobs].cpu().numpy()
        described = []
        for number, measures in enumerate(self.rounds[: n_rounds.max()]):
            going = n_rounds > number
            values: dict[str, Any] = {}
            for name, unit in units.items():
                mean = (getattr(measures, name)[jobs].double().cpu().numpy() * unit)[going].mean(axis=0)
                mean = mean[..., 0] if one_level and name != "rmse" else mean  # (target,) or (target, level)
                mean = mean[0] if one_target else mean
                values[name] = float(mean) if mean.ndim == 0 else mean
            losses = [*self.losses[number][jobs].double().cpu().numpy()[going].mean(axis=0).tolist(), None]
            described.append(
                Round(**values, mean_loss=losses[0], interval_loss=losses[1], seconds=self.seconds[number])
            )
        return described


@stored
@dataclass(frozen=True)
class Round:
    """One round of training, measured on rows that the members did not train on, in the target's units.

    Coverage, width and score are those of the interval that I learns, before calibration and before F helps to shape
    it. With `folds=None` nobody is left out, and the measures are those of the training rows. A baseline has no second
    network, so no `interval_loss`, and its rounds are ten epochs each.

    Each number is a float, or an array over targets (`rmse`) or over targets and levels where there are several. Of
    classes, `rmse` is the root of the Brier score, and coverage, width and score are those of the score of the true
    class, with the threshold and its negative for bounds.
    """

    rmse: float | NDArray[np.float64]
    coverage: float | NDArray[np.float64]
    width: float | NDArray[np.float64]
    interval_score: float | NDArray[np.float64]
    mean_loss: float
    interval_loss: float | None
    seconds: float
