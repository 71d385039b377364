"""Teams whose members are laws over networks: training draws from them, prediction samples them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from coverwell.losses import PerMember
from coverwell.networks.mlp import MLP, MLPTeam, StackedLinear
from coverwell.networks.team import Team

__all__ = ["RandomTeam", "fixed_team", "repeated", "speaking"]


@runtime_checkable
class RandomTeam(Protocol):
    """What a team of random networks offers beside a team's own methods."""

    def penalty(self) -> PerMember:
        """How far each member's law lies from its prior, in nats."""
        ...

    def sample(self, n_samples: int, generator: torch.Generator) -> Team:
        """Some networks from each member's law, as a team ordered by member.

        A sample is the same network for all rows, so that what a row is told does not depend on the rows beside it.
        """
        ...


def repeated(values: Tensor, n_samples: int) -> Tensor:
    """Values per member, given to each of its samples: (member, ...) -> (member * sample, ...)."""
    return values.repeat_interleave(n_samples, dim=0)


def speaking(linear: StackedLinear, rate: float | Tensor, n_samples: int, generator: torch.Generator) -> Tensor:
    """A random 0 for this share of a layer's inputs and 1 for the others, (member * sample, input, 1)."""
    n_members, n_inputs, _ = linear.weight.shape
    # Drawn on the CPU: the same networks on every device.
    drawn = torch.rand(n_members * n_samples, n_inputs, 1, generator=generator, dtype=torch.float64)
    return (drawn.to(linear.weight.device) >= rate).to(linear.weight)


@torch.no_grad()
def fixed_team(like: MLPTeam, layers: list[tuple[Tensor, Tensor]]) -> MLPTeam:
    """Networks with these weights (sample, input, output) and biases (sample, 1, output), coding inputs as `like` does.

    Samples are ordered by the member that they were drawn from.
    """
    recipe = MLP(hidden=like.mlp.hidden, layers=like.mlp.layers, dropout=0.0, bins=like.mlp.bins)
    n_samples, n_outputs = len(layers[0][0]), layers[-1][0].shape[-1]
    with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
        team = MLPTeam(recipe, n_samples, like.n_features, n_outputs)
    state = {name: repeated(code, n_samples // like.n_members) for name, code in like.named_buffers()}
    for place, (weight, bias) in enumerate(layers):
        state |= {f"linears.{place}.weight": weight, f"linears.{place}.bias": bias}
    team.load_state_dict(state, assign=True)
    return team.eval().requires_grad_(False)
