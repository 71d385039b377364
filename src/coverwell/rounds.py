"""The record of Algorithm 1 as users read it: one `Round` per round, in the target's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.algorithm import Record
from coverwell.inputs.scaling import TargetScaler

__all__ = ["Round", "rounds_of"]


@dataclass(frozen=True)
class Round:
    """One round of Algorithm 1, measured on rows that the members did not train on, in the target's units.

    Coverage, width and score are those of the interval that I learns, before ranks and before F has a say in its shape.

    With `folds=None` nobody is left out, and the measures are those of the training rows. A baseline has no second
    network, so no `interval_loss`, and its rounds are ten epochs each.

    Each number is a float, or an array over targets (`rmse`) or over targets and levels where there are several.
    """

    rmse: Any
    coverage: Any
    width: Any
    interval_score: Any
    mean_loss: float
    interval_loss: float | None
    seconds: float


def rounds_of(
    record: Record,
    jobs: slice,
    targets: list[TargetScaler],
    levels: tuple[float, ...],
    *,
    one_target: bool,
    one_level: bool,
) -> list[Round]:
    """The rounds of the model that these jobs belong to, averaged over those that had not settled."""
    spread = np.stack([scaler.spread for scaler in targets])  # (job, target)
    tail = (1 - np.array(levels)) / 2

    def read(values: Any, going: NDArray[np.bool_], unit: Any = 1.0) -> Any:
        mean = (values[jobs].double().cpu().numpy() * unit)[going].mean(axis=0)  # (target,) or (target, level)
        mean = mean[..., 0] if one_level and mean.ndim == 2 else mean
        mean = mean[0] if one_target else mean
        return float(mean) if mean.ndim == 0 else mean

    rounds = []
    for number, (measures, losses) in enumerate(zip(record.rounds, record.losses, strict=True)):
        going = np.array(record.n_rounds[jobs]) > number
        if not going.any():
            break
        loss = losses[jobs].double().cpu().numpy()[going].mean(axis=0)  # (network,)
        rounds.append(
            Round(
                rmse=read(measures.rmse, going, spread),
                coverage=read(measures.coverage, going),
                width=read(measures.width, going, spread[..., None]),
                interval_score=read(measures.score, going, spread[..., None] / tail),
                mean_loss=float(loss[0]),
                interval_loss=float(loss[1]) if len(loss) > 1 else None,
                seconds=record.seconds[number],
            )
        )
    return rounds
