"""A team of which every member trains on every row: what is timed beside networks that train one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coverwell.networks.team import Network
from coverwell.paper.losses import squared_error_loss
from coverwell.training.device import Settings
from coverwell.training.learner import Learner, Objective
from coverwell.training.rows import Batches, Rows

SEED = 0


@dataclass(frozen=True)
class Stack:
    """A team in training, and its rows."""

    learner: Learner
    rows: Rows

    @classmethod
    def of(
        cls, network: Network, x: Tensor, y: Tensor, n_members: int, *, batch_size: int, outputs: int | None = None
    ) -> Stack:
        """Untrained members for rows that lie on a device; as many outputs as targets by default."""
        torch.manual_seed(SEED)
        everyone = torch.ones(1, n_members, len(y), dtype=torch.bool, device=y.device)
        rows = Rows(x[None], y[None], everyone, everyone, torch.tensor([[0.9]], device=y.device))
        settings = Settings(max_rounds=1, batch_size=batch_size, learning_rate=1e-3, ema_decay=0.8, device=y.device)
        return cls(Learner(network, rows, outputs or y.shape[1], settings), rows)

    @property
    def batches(self) -> Batches:
        return self.rows.batches(self.learner.settings.batch_size, 1, honest=False)

    def descend(self, objective: Objective, epochs: int) -> Tensor:
        return self.learner.descend(self.rows, epochs, objective)

    def squared_error(self, outputs: Tensor, batch: Tensor) -> Tensor:
        return squared_error_loss(self.rows.at(self.rows.y, batch), outputs)
