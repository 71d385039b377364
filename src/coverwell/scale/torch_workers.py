"""The processes of `torch.distributed` as workers that fit one model together (`coverwell.streaming.workers`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["TorchWorkers"]


@dataclass(frozen=True)
class TorchWorkers:
    """All processes of the default group, which must have been made: with gloo for CPUs, with nccl for GPUs.

    Parameters
    ----------
    device : torch.device
        Where tensors must be for the group; what comes from elsewhere goes there and back.
    """

    device: torch.device

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def size(self) -> int:
        return dist.get_world_size()

    def together(self, own: Tensor) -> Tensor:
        if self.size == 1:
            return own
        there = own.detach().to(self.device).contiguous()
        parts = [torch.empty_like(there) for _ in range(self.size)]
        dist.all_gather(parts, there)
        parts = [part.to(own.device) for part in parts]
        parts[self.rank] = own  # the gradient of the others' parts is theirs to compute
        return torch.cat(parts, dim=1)

    def summed(self, gradients: list[Tensor]) -> list[Tensor]:
        if self.size == 1:
            return gradients
        flat = torch.cat([gradient.flatten() for gradient in gradients]).to(self.device)
        dist.all_reduce(flat)  # each number is summed on one worker and sent to all: the same bits
        parts = flat.to(gradients[0].device).split([gradient.numel() for gradient in gradients])
        return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
