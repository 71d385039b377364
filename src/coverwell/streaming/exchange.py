"""What workers that fit one model together tell each other about the parts of a table that each of them has read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from coverwell.tables import needed_polars
from coverwell.training.rows import Workers

if TYPE_CHECKING:
    import polars as pl


def rows_of_each(workers: Workers | None, own: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors (row, ...) of every worker, by rank; the rows of one worker are as many in each, as those of none."""
    if workers is None:
        return [list(own)]
    counts: list[int] = workers.together(torch.tensor([[len(own[0])]]))[0].tolist()
    by_tensor = []
    for rows in own:
        padded = rows.new_zeros(1, max(counts), *rows.shape[1:])
        padded[0, : len(rows)] = rows
        by_tensor.append(workers.together(padded)[0].split(max(counts)) if max(counts) else [rows] * len(counts))
    return [[rows[rank][:count] for rows in by_tensor] for rank, count in enumerate(counts)]


def frames_of_each(workers: Workers | None, own: pl.DataFrame) -> list[pl.DataFrame]:
    """The frames of all workers, by rank."""
    if workers is None:
        return [own]
    content = torch.frombuffer(bytearray(own.write_ipc(None).getvalue()), dtype=torch.uint8)
    polars = needed_polars()
    return [polars.read_ipc(io.BytesIO(bytes(found.numpy()))) for (found,) in rows_of_each(workers, [content])]
