"""What a fit leaves: networks, scalings and the calibration's correction as one `nn.Module`, ready to predict."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import Correction, Estimate, average_out_of_fold
from coverwell.copies import Copies
from coverwell.edges import EdgeRates
from coverwell.groups import GroupFactors
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.local import LocalShape
from coverwell.networks.mlp import MLPTeam
from coverwell.networks.team import Team
from coverwell.options import stored
from coverwell.paper.algorithm import half_widths
from coverwell.paper.losses import Levels, z_score
from coverwell.paper.matching import Matching
from coverwell.prediction import PredictedDistribution, Prediction, central_shares
from coverwell.training.device import side_by_side
from coverwell.training.learner import outputs_of
from coverwell.training.rows import Altered, as_tensor
from coverwell.trees import Trees

Array = NDArray[np.float64]
# How far F's own half-width may lie from I's, as a factor.
FARTHEST = 10.0
# Rows predicted at a time; of images, as many as have so many numbers.
ROWS_AT_A_TIME = 8192
NUMBERS_AT_A_TIME = 2**25
# How many numbers CV+ holds at a time.
CV_PLUS_NUMBERS = 2**24


class FittedTeam(nn.Module):
    """One trained team in the user's units: scale the rows, run the networks, average, scale back.

    Shape: input `(row, ...)`, outputs `(row, target)` and `(row, target, side, level)`.
    """

    coverage: Tensor
    z: Tensor
    weights: Tensor | None  # of the networks and each companion, (part, target)
    in_chunks = True  # few rows at a time, which is faster; an exported graph takes all of them

    def __init__(
        self,
        coverage: Sequence[float] | Array,
        inputs: Scaling,
        targets: Scaling,
        mirroring: Mirroring | None = None,
        *,
        companions: Sequence[nn.Module] = (),
        weights: Array | None = None,
        shape: LocalShape | None = None,
        copies: Copies | None = None,
        groups: Sequence[GroupFactors] = (),
        edges: EdgeRates | None = None,
    ) -> None:
        super().__init__()
        self.companions, self.shape, self.copies = nn.ModuleList(companions), shape, copies
        self.edges = edges
        self.groups = nn.ModuleList(groups)
        self.register_buffer("weights", None if weights is None else torch.as_tensor(weights))
        self.inputs, self.targets = copy.deepcopy(inputs), copy.deepcopy(targets)  # a team moves to its own device
        self.mirroring = mirroring
        levels = torch.tensor(np.reshape(coverage, (1, -1)), dtype=torch.float64)
        self.register_buffer("coverage", levels, persistent=False)
        self.register_buffer("z", z_score(levels), persistent=False)  # ONNX cannot compute it

    @property
    def levels(self) -> Levels:
        return Levels(self.coverage, self.z)

    @property
    def group_factors(self) -> list[GroupFactors]:
        return [part for part in self.groups if isinstance(part, GroupFactors)]

    def hold(self, factors: Sequence[GroupFactors]) -> None:
        """Multiply half-widths by factors of groups, too."""
        self.groups.extend(factors)

    @property
    def n_members(self) -> int:
        """How many networks a team has."""
        raise NotImplementedError

    @property
    def in_threads(self) -> bool:
        """Whether threads may predict side by side: code of the user's may not bear it, and a GPU gains nothing."""
        return False

    def scaled_estimate(self, x: Tensor, *, noise: bool) -> tuple[Tensor, Tensor]:
        """Means of all rows and half-widths of the images themselves, for scaled rows, in scaled units."""
        raise NotImplementedError

    def estimates_of_members(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each member's means and half-widths, (member, row, ...), as in `scaled_estimate`."""
        raise NotImplementedError

    def forward(
        self, rows: Tensor, noise: bool = True
    ) -> tuple[Float[Tensor, "row target"], Float[Tensor, "row target side level"]]:
        x = self.inputs(rows if self.mirroring is None else self.mirroring.flat(rows))
        mean, half_width = self.scaled_estimate(x, noise=noise)
        mean = self.targets.inverse(mean)
        mean = mean if self.mirroring is None else self.mirroring.merged(mean)
        contrast = torch.zeros_like(mean)
        if self.weights is not None:
            parts = torch.stack([mean, *[companion(rows).to(mean) for companion in self.companions]])
            contrast = parts[1:].mean(dim=0) - mean  # (part, row, target) -> (row, target)
            mean = (self.weights[:, None] * parts).sum(dim=0)
        half_width = self.shaped(rows, mean, half_width, contrast)
        if self.copies is not None and self.shape is not None:
            seen, targets = self.copies(rows)
            sure = seen[:, None] & torch.tensor([level <= self.copies.level for level in self.shape.grid]).to(seen)
            mean = torch.where(seen[:, None], targets, mean)
            half_width = torch.where(sure[:, None, None], 0.0, half_width)
        return mean, half_width

    def shaped(self, rows: Tensor, mean: Tensor, half_width: Tensor, contrast: Tensor) -> Tensor:
        """Half-widths, given in scaled units, in the user's, with the shape of a local calibration if there is one."""
        spread = self.targets.spread
        if self.shape is not None:
            half_width = self.shape(rows, self.targets(mean), half_width, contrast / spread)
        for factors in self.groups:
            half_width = half_width * factors(rows)
        if self.edges is not None:
            half_width = half_width + self.edges(self.inputs, rows)
        return half_width * spread[:, None, None]

    @torch.no_grad()
    def estimate(self, X: NDArray[Any], *, noise: bool = True) -> Estimate:
        """Mean and half-widths for rows in the user's units; of rows on disk, only a part is in memory at a time."""
        step = ROWS_AT_A_TIME if X.ndim == 2 else max(1, NUMBERS_AT_A_TIME // X[0].size)
        device = self.coverage.device
        parts = [self(as_tensor(X[i : i + step]).to(device), noise) for i in range(0, len(X), step)]
        mean, half_width = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return Estimate(mean, half_width)

    @torch.no_grad()
    def out_of_fold(self, altered: Altered, leaves_out: NDArray[np.bool_]) -> Estimate:
        """What leaves a row out (member, row) says of its altered copy, in scaled units, unshaped."""
        rows = torch.from_numpy(altered.X).to(self.coverage)
        mean, half_width = (part.cpu().numpy() for part in self.estimates_of_members(self.inputs(rows)))
        left_out = leaves_out[:, altered.copy_of]
        networks = average_out_of_fold(Estimate(mean, half_width), left_out)
        if self.weights is None or altered.beside is None:
            return networks
        beside = list(altered.beside.unbind(dim=1))
        for team in self.companions[len(beside) :]:  # a first team of networks
            assert isinstance(team, MeanTeam)
            means = Estimate(team.of_members(rows).cpu().numpy(), half_width)
            beside.append(torch.from_numpy(average_out_of_fold(means, left_out).mean))
        parts, weights = torch.stack(beside).numpy(), self.weights.cpu().numpy()  # (companion, copy, target)
        mean = weights[0] * networks.mean + np.einsum("ct,crt->rt", weights[1:], parts)
        return Estimate(mean, networks.half_width, parts.mean(axis=0) - networks.mean)

    def run(self, team: Team, x: Tensor) -> Float[Tensor, "member row output"]:
        """A team's outputs, computed in its precision, as float64."""
        if self.in_chunks:
            return outputs_of(team, x[None], team.precision).double()
        outputs: Tensor = team(team.for_members(x[None].to(team.precision)))
        return outputs.double()

    def for_export(self) -> FittedTeam:
        """This team, or one that predicts the same and draws no random numbers, which no graph can."""
        return self

    def against(self, X: NDArray[Any], y: Array) -> tuple[Array, Estimate]:
        """Targets and the estimate of their rows, both in the user's units, in scaled units."""
        estimate, spread = self.estimate(X), self.targets.spread.cpu().numpy()
        return self.scaled(y), Estimate(self.scaled(estimate.mean), estimate.half_width / spread[:, None, None])

    def scaled(self, y: Array) -> Array:
        """Targets in scaled units."""
        scaled: Array = self.targets(torch.from_numpy(y).to(self.coverage.device)).cpu().numpy()
        return scaled


@stored
class MatchedTeam(FittedTeam):
    """A mean team and an interval team; their averages are the prediction and its half-widths."""

    unit: Tensor

    def __init__(
        self,
        mean_team: Team,
        interval_team: Team,
        matching: Matching,
        unit: Array,
        coverage: Sequence[float] | Array,
        inputs: Scaling,
        targets: Scaling,
        mirroring: Mirroring | None = None,
        *,
        both: bool = False,
        companions: Sequence[nn.Module] = (),
        weights: Array | None = None,
        shape: LocalShape | None = None,
        copies: Copies | None = None,
        groups: Sequence[GroupFactors] = (),
        edges: EdgeRates | None = None,
    ) -> None:
        known: dict[str, Any] = {"shape": shape, "copies": copies, "groups": groups, "edges": edges}
        super().__init__(coverage, inputs, targets, mirroring, companions=companions, weights=weights, **known)
        self.mean_team, self.interval_team = mean_team, interval_team
        self.matching, self.both = matching, both
        self.register_buffer("unit", torch.tensor(np.reshape(unit, -1), dtype=torch.float64))

    @property
    def n_members(self) -> int:
        return self.mean_team.n_members

    @property
    def in_threads(self) -> bool:
        networks = self.mean_team, self.interval_team
        own = all(isinstance(companion, Trees | MeanTeam) for companion in self.companions)
        return own and all(isinstance(team, MLPTeam) for team in networks) and self.unit.device.type == "cpu"

    def scaled_estimate(self, x: Tensor, *, noise: bool) -> tuple[Tensor, Tensor]:
        mean, half_width = self.estimates_of_members(x)
        return mean.mean(dim=0), half_width.mean(dim=0)

    def estimates_of_members(self, x: Tensor) -> tuple[Tensor, Tensor]:
        of_mean = self.run(self.mean_team, x)
        own = slice(None) if self.mirroring is None else slice(None, None, 2)  # images without their mirror images
        of_interval = self.run(self.interval_team, x[own])
        half_width = half_widths(of_interval, self.levels, self.unit[None])
        if self.both:
            half_width = combined(self.matching, of_mean[:, own], half_width, self.levels)
        return self.matching.mean(of_mean, len(self.unit)), half_width


@stored
class MeanTeam(nn.Module):
    """The average prediction of a team of F, in the user's units: a first team as the companion of a second one."""

    def __init__(self, mean_team: Team, matching: Matching, inputs: Scaling, targets: Scaling) -> None:
        super().__init__()
        self.mean_team, self.matching = mean_team, matching
        self.inputs, self.targets = copy.deepcopy(inputs), copy.deepcopy(targets)

    def forward(self, rows: Tensor) -> Float[Tensor, "row target"]:
        mean: Tensor = self.targets.inverse(self.of_members(rows).mean(dim=0))
        return mean

    def of_members(self, rows: Tensor) -> Float[Tensor, "member row target"]:
        """The prediction of each member, in scaled units."""
        x, team = self.inputs(rows)[None], self.mean_team
        whole = torch.compiler.is_compiling()  # an exported graph takes all rows at once
        outputs = team(team.for_members(x.to(team.precision))) if whole else outputs_of(team, x, team.precision)
        return self.matching.mean(outputs.double(), len(self.targets.centre))


def combined(matching: Matching, of_mean: Tensor, half_width: Tensor, levels: Levels) -> Tensor:
    """The geometric mean of I's half-widths and F's own, member by member; I's alone where F has none of its own.

    The two networks err in different places, and ranks set the size afterwards. F's half-width counts within a factor
    of `FARTHEST` of I's, because that of a user's own strategy may be anything.

    Shape: of_mean `(member, batch, output)`, half_width and result `(member, batch, target, side, level)`.
    """
    own_half_width = getattr(matching, "half_width", None)
    if own_half_width is None:
        return half_width
    own = own_half_width(of_mean, half_width.shape[2], levels)
    if own.shape != half_width.shape:
        raise ValueError(
            f"the matching's half_width must have the shape {tuple(half_width.shape)} (member, batch, target, side, "
            f"level), got {tuple(own.shape)}; without a half_width of its own, I alone shapes the intervals"
        )
    shaped: Tensor = (half_width * own.clamp(half_width / FARTHEST, half_width * FARTHEST)).sqrt()
    return shaped


@stored
class Predictor(nn.Module):
    """All teams of a fit (one, or one per fold for CV+) and the correction that calibrates their intervals.

    Shape: input `(row, ...)` as the model's `InputSource` gives it; outputs mean `(row, target)`, lower and upper
    `(row, target, level)`.
    """

    def __init__(self, levels: tuple[float, ...], teams: Sequence[FittedTeam], correction: Correction) -> None:
        super().__init__()
        self.levels = levels
        self.teams = nn.ModuleList(teams)
        self.correction = correction

    @property
    def fitted_teams(self) -> list[FittedTeam]:
        return [team for team in self.teams if isinstance(team, FittedTeam)]

    @property
    def inputs(self) -> Scaling:
        """How rows are scaled, with the range that all teams have seen together."""
        first, *others = (team.inputs for team in self.fitted_teams)
        return functools.reduce(Scaling.widened, others, first)

    def forward(self, rows: Tensor, joint: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        means, half_widths = zip(*(team(rows) for team in self.teams), strict=True)
        lower, upper = self.correction(list(means), list(half_widths), self.levels, joint)
        return torch.stack(means).mean(dim=0), lower, upper

    def output_shapes(self, n_rows: int) -> list[tuple[int, ...]]:
        """The shapes of what `forward` returns."""
        n_targets = len(self.fitted_teams[0].targets.centre)
        return [(n_rows, n_targets), *[(n_rows, n_targets, len(self.levels))] * 2]

    def moved(self, device: torch.device) -> Predictor:
        """This predictor on a device, at no cost if it is there."""
        return self if all(part.device == device for part in self.buffers()) else self.to(device)

    def copied_to(self, device: torch.device) -> Predictor:
        """This predictor if it is on the device, else a copy there; this one stays where it is."""
        tensors = [*self.parameters(), *self.buffers()]
        if all(tensor.device == device for tensor in tensors):
            return self
        moved: dict[int, Any] = {}
        for tensor in tensors:
            there = tensor.detach().to(device)
            moved[id(tensor)] = nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there
        return copy.deepcopy(self, moved)

    def estimates(self, X: NDArray[Any], *, noise: bool = True) -> list[Estimate]:
        """Each team's mean and half-widths, before calibration."""
        return [team.estimate(X, noise=noise) for team in self.fitted_teams]

    def prediction(
        self,
        X: NDArray[Any],
        levels: Sequence[float] | None = None,
        shares: Sequence[float] | Array = (),
        *,
        joint: bool = False,
    ) -> Prediction:
        """Predictions, bounds of the asked levels or of others, and quantiles at some shares, part by part."""

        n_levels, n_targets = len(self.levels if levels is None else levels), self.fitted_teams[0].targets.shape
        ends = [(), (n_levels,), (n_levels,), *([(len(shares),)] if len(shares) else [])]
        # One place for all parts: kept apart they scatter the memory.
        whole = [np.empty((len(X), *n_targets, *end)) for end in ends]

        def part(first: int) -> None:
            own = slice(first, first + ROWS_AT_A_TIME)
            found = self.calibrated(self.estimates(X[own]), levels, shares, joint=joint)
            for place, values in zip(whole, found, strict=True):
                place[own] = values

        n_threads = torch.get_num_threads() if all(team.in_threads for team in self.fitted_teams) else 1
        side_by_side(part, range(0, max(len(X), 1), ROWS_AT_A_TIME), n_threads)
        return Prediction(*whole)

    def calibrated(
        self,
        estimates: Sequence[Estimate],
        levels: Sequence[float] | None = None,
        shares: Sequence[float] | Array = (),
        *,
        joint: bool = False,
    ) -> list[Array]:
        """The arrays of a `Prediction`, from estimates of some rows."""
        bounds = self.bounds(estimates, levels, joint=joint)
        return [_mean(estimates), *bounds, *([self.quantiles(estimates, shares)] if len(shares) else [])]

    def bounds(
        self, estimates: Sequence[Estimate], levels: Sequence[float] | None = None, *, joint: bool = False
    ) -> tuple[Array, Array]:
        """Calibrated bounds (row, target, level) of the asked levels, or of any up to the highest that is known."""
        known = self.correction.levels
        if levels is None or set(levels) <= set(self.levels):
            lower, upper = self._ranked(estimates, self.levels, joint=joint)
            places = slice(None) if levels is None else [self.levels.index(level) for level in levels]
            return lower[..., places], upper[..., places]
        if max(levels) > known[-1]:
            raise ValueError(
                f"coverage must be at most {known[-1]:g}, the highest level that this fit has ranks for, got "
                f"{max(levels):g}; fit with more rows, or with this level in coverage=[...]"
            )
        lower, upper = self._ranked(estimates, known, joint=joint, moved=False)
        centre = _mean(estimates)[..., None]
        # Linear in the normal quantile, from the prediction outwards.
        at, wanted = (z_score(torch.tensor([0.0, *one], dtype=torch.float64)).numpy() for one in (known, levels))
        matrix = np.stack([np.interp(wanted[1:], at, row) for row in np.eye(len(at))])
        lower, upper = (np.concatenate([centre, side], axis=-1) @ matrix for side in (lower, upper))
        if (atoms := self.correction.atoms) is not None:
            rising = np.argsort(levels)
            sides = atoms(*(torch.from_numpy(side[..., rising]).to(atoms.reach.device) for side in (lower, upper)))
            lower, upper = (side.cpu().numpy()[..., np.argsort(rising)] for side in sides)
        return lower, upper

    def quantiles(self, estimates: Sequence[Estimate], shares: Sequence[float] | Array) -> Array:
        """Quantiles (row, target, share) at any share: the ends of intervals, and exponential tails beyond the last."""
        lower, upper = self._ranked(estimates, self.correction.levels)
        below, above = central_shares(self.correction.levels)
        values = np.concatenate([lower[..., ::-1], upper], axis=-1)
        return PredictedDistribution(np.concatenate([below[::-1], above]), values).quantile(shares)

    def _ranked(
        self, estimates: Sequence[Estimate], levels: tuple[float, ...], *, joint: bool = False, moved: bool = True
    ) -> tuple[Array, Array]:
        """Calibrated bounds (row, target, level) of levels that the correction knows."""
        n_rows, n_scores = len(estimates[0].mean), sum(len(part) for part in self.correction.scores)
        step = max(1, CV_PLUS_NUMBERS // n_scores) if n_scores else max(n_rows, 1)
        device = next(self.correction.buffers()).device
        parts = []
        for i in range(0, max(n_rows, 1), step):
            means = [torch.from_numpy(estimate.mean[i : i + step]).to(device) for estimate in estimates]
            widths = [torch.from_numpy(estimate.half_width[i : i + step]).to(device) for estimate in estimates]
            parts.append(self.correction(means, widths, levels, joint, moved))
        lower, upper = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return lower, upper


def _mean(estimates: Sequence[Estimate]) -> Array:
    mean: Array = np.mean([estimate.mean for estimate in estimates], axis=0)
    return mean
