"""What teams say about rows they did not train on, and how far that makes their intervals stretch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.calibration import (
    Estimate,
    average,
    cross_factor,
    cross_scores,
    cv_plus_bounds,
    rank_factor,
    stretch_scores,
)
from coverwell.inputs.scaling import Inputs, TargetScaler
from coverwell.intervals import widen_outwards
from coverwell.preparation import Prepared

__all__ = ["OutOfFold", "Speaker", "Stretch", "out_of_fold_of", "stretch_of"]

Array = NDArray[np.float64]


@runtime_checkable
class Speaker(Protocol):
    """What is left of a trained job: it speaks about rows in the user's units."""

    @property
    def coverage(self) -> tuple[float, ...]: ...

    @property
    def inputs(self) -> Inputs: ...

    @property
    def targets(self) -> TargetScaler: ...

    def to(self, device: torch.device) -> None:
        """Move the networks to a device."""
        ...

    def estimate(self, X: NDArray[Any], device: torch.device) -> Estimate:
        """Mean and reach for these rows."""
        ...


@dataclass(frozen=True)
class Stretch:
    """By how much learned intervals are stretched: factors, or for CV+ the scores of each team's left-out rows.

    Attributes
    ----------
    factor : array (target, level) or None
    joint_factor : array (target, level) or None
        The same for boxes that contain all targets of a row together.
    scores : list of arrays (row, target, level) or None
    """

    factor: Array | None = None
    joint_factor: Array | None = None
    scores: list[Array] | None = None

    def bounds(self, estimates: list[Estimate], levels: tuple[float, ...], *, joint: bool) -> tuple[Array, Array]:
        """Bounds (row, target, level), each level containing the one inside it."""
        if self.scores is not None:
            scores = [s.max(axis=1, keepdims=True) if joint else s for s in self.scores]
            return widen_outwards(*cv_plus_bounds(estimates, scores, levels))
        assert self.factor is not None  # a stretch has either factors or scores
        if joint and self.joint_factor is None and len(self.factor) > 1:
            raise ValueError("joint=True needs ranks over all targets together; fit with a calibration other than None")
        factor = self.joint_factor if joint and self.joint_factor is not None else self.factor
        return widen_outwards(*estimates[0].bounds(factor))


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


def stretch_of(
    calibration: str | None,
    prepared: Prepared,
    said: Estimate | None,
    ensembles: Sequence[Speaker],
    device: torch.device,
) -> Stretch:
    """The stretch that a calibration gives; see `coverwell.calibration` for what each promises.

    `said` is what each member of the first job says about its rows, in scaled units; "cross" ranks it.
    """
    levels = ensembles[0].coverage
    job = prepared.jobs[0]
    if calibration is None:
        return Stretch(factor=np.ones((prepared.y.shape[1], len(levels))))
    if calibration == "cross":
        assert said is not None  # estimators that offer "cross" keep it
        own = prepared.mirroring.own
        said = prepared.mirroring.together_scaled(said, prepared.targets[0])
        scores = cross_scores(own(job.y, axis=0).double().numpy(), said, own(job.speaks, axis=1).numpy())
        factor = cross_factor(scores, levels)
        return Stretch(factor, factor * cross_factor(scores.joint(factor), levels))
    held_out = [
        _scores(ensemble, prepared.X[rows], prepared.y[rows], device)
        for rows, ensemble in zip(prepared.ranked, ensembles, strict=True)
    ]
    if calibration == "cv+":
        return Stretch(scores=held_out)
    # The largest score as it is: in units of the factor it would depend on the rows that are ranked.
    joint = np.broadcast_to(held_out[0].max(axis=1, keepdims=True), held_out[0].shape)
    return Stretch(rank_factor(held_out[0], levels), rank_factor(joint, levels))


def _scores(ensemble: Speaker, X: NDArray[Any], y: Array, device: torch.device) -> Array:
    """Scores of these rows, taken in scaled units, where the smallest reach that counts does not depend on y's unit."""
    estimate, scaler = ensemble.estimate(X, device), ensemble.targets
    scaled = Estimate(scaler.transform(estimate.mean), estimate.reach / scaler.spread[:, None, None])
    return stretch_scores(scaler.transform(y), scaled)


def out_of_fold_of(
    prepared: Prepared, said: Estimate, ensembles: Sequence[Speaker], stretch: Stretch, device: torch.device
) -> OutOfFold:
    """What the members that left a row out say about it; for "cv+", the team that left it out."""
    if stretch.scores is not None:
        pairs = zip(prepared.ranked, ensembles, strict=True)
        parts = [(rows, ensemble.estimate(prepared.X[rows], device)) for rows, ensemble in pairs]
    else:
        parts = [_said_out_of_fold(prepared, said)]
    n_rows, n_targets = prepared.y.shape
    prediction = np.full((n_rows, n_targets), np.nan)
    lower = np.full((n_rows, n_targets, len(ensembles[0].coverage)), np.nan)
    upper = lower.copy()
    for rows, estimate in parts:
        prediction[rows] = estimate.mean
        lower[rows], upper[rows] = widen_outwards(*estimate.bounds(1.0 if stretch.factor is None else stretch.factor))
    return OutOfFold(prediction, lower, upper)


def _said_out_of_fold(prepared: Prepared, members: Estimate) -> tuple[NDArray[np.intp], Estimate]:
    """The rows that somebody left out, and the average of what those say, in the user's units."""
    mirroring, scaler = prepared.mirroring, prepared.targets[0]
    speaks = mirroring.own(prepared.jobs[0].speaks.numpy(), axis=1)
    said = average(mirroring.together_scaled(members, scaler), speaks)
    heard = speaks.any(axis=0)
    rows = np.setdiff1d(np.arange(len(prepared.X)), prepared.ranked[0])
    reach = said.reach * scaler.spread[:, None, None]
    return rows[heard], Estimate(scaler.inverse(said.mean)[heard], reach[heard])
