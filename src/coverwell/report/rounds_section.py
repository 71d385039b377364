"""How error, coverage and width changed from round to round of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coverwell.baselines.voices import EPOCHS_PER_ROUND
from coverwell.plots.style import percent
from coverwell.report.charts import rounds_spec
from coverwell.report.page import Block, Chart, Section
from coverwell.report.wording import counted, number, share
from coverwell.rounds import Round

__all__ = ["rounds_section"]


def rounds_section(
    model: Any, levels: Sequence[float], shown: Mapping[int, str], *, target_key: str = "target"
) -> Section:
    """The record of a fitted regressor: three charts for each level of the shown targets, named by their place."""
    rounds: list[Round] = model.rounds_
    shape = (len(rounds), len(model.target_names_), -1)  # (round, target, level); of errors (round, target, 1)
    rmse = np.array([one.rmse for one in rounds]).reshape(shape)
    coverage = np.array([one.coverage for one in rounds]).reshape(shape)
    width = np.array([one.width for one in rounds]).reshape(shape)
    blocks: list[Block] = []
    for option, (target, name) in enumerate(shown.items()):
        of_rmse = rmse[:, target, 0].tolist()
        told = f"{name}: error by round, {number(of_rmse[-1])} after the last."
        blocks.append(Chart(rounds_spec("RMSE", len(rounds)), _records(of_rmse), told, when={target_key: option}))
        for level, asked in enumerate(levels):
            when = {target_key: option, "level": level}
            shares, widths = coverage[:, target, level].tolist(), width[:, target, level].tolist()
            told = (
                f"Coverage by round, {share(shares[-1])} after the last; the dashed line is the asked {percent(asked)}."
            )
            blocks.append(
                Chart(rounds_spec("coverage", len(rounds), share=True), _records(shares, asked), told, when=when)
            )
            told = f"Mean width by round, {number(widths[-1])} after the last."
            blocks.append(Chart(rounds_spec("mean width", len(rounds)), _records(widths), told, when=when))
    on = "the training rows" if getattr(model, "folds", 0) is None else "training rows that the networks had left out"
    epochs = f" of {EPOCHS_PER_ROUND} epochs" if rounds[0].interval_loss is None else ""  # of a single network
    lead = (
        f"Training went through {counted(len(rounds), 'round')}{epochs}. Measured on {on}; coverage and width are "
        "those of the learned intervals, before calibration."
    )
    return Section("rounds", "Training", lead, blocks, beside=True)


def _records(values: list[float], asked: float | None = None) -> list[dict[str, Any]]:
    return [{"round": number, "value": value, "asked": asked} for number, value in enumerate(values, start=1)]
