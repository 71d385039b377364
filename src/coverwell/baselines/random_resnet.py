"""ResNet-18 tails with random heads: a sample is a head of its own on the layer 4 of its member."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.networks.resnet import ResNet18, ResNet18Tail, ResNet18Team
from coverwell.networks.team import Team

__all__ = ["SampledTails", "heads_of", "tails_of"]

Weights = Float[Tensor, "head output channel"]
Biases = Float[Tensor, "head output"]


class SampledTails(Team):
    """Fixed tails, several of each member of a team, whose layer 4 speaks once for all of them.

    Shape: input `(member, batch, 256, height, width)`, with the members of the team; output `(sample, batch, output)`,
    where samples are ordered by member.

    Parameters
    ----------
    team : ResNet18Team
        Its layers 4 are shared, not copied: samples are of use until it trains on.
    weights, biases : Tensor
        The heads, as many of each member, ordered by member.
    """

    capturable = ResNet18Team.capturable
    precision = ResNet18Team.precision

    def __init__(self, team: ResNet18Team, weights: Weights, biases: Biases) -> None:
        super().__init__()
        self.n_members, n_outputs = biases.shape
        self.n_samples = self.n_members // team.n_members
        # One wide head for all samples of a member: their tails are then tails like any others.
        wide_weights, wide_biases = (
            heads.unflatten(0, (team.n_members, self.n_samples)).flatten(1, 2) for heads in (weights, biases)
        )
        tails = [_with_head(*parts) for parts in zip(tails_of(team), wide_weights, wide_biases, strict=True)]
        self.tails = ResNet18Team(ResNet18(dropout=0.0, weights=None), tails, self.n_samples * n_outputs)
        self.eval().requires_grad_(False)

    def weight_of_row(self, n_inputs: int) -> int:
        return max(1, self.tails.weight_of_row(n_inputs) // self.n_samples)

    def for_members(self, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row *input"]:
        """Rows of each job, given once to the samples of each member."""
        return self.tails.for_members(x)

    def forward(self, x: Float[Tensor, "member batch 256 height width"]) -> Float[Tensor, "sample batch output"]:
        said: Tensor = self.tails(x)  # (member, batch, sample of the member * output)
        by_sample: Tensor = said.unflatten(-1, (self.n_samples, -1))
        return by_sample.movedim(2, 1).flatten(0, 1)


def heads_of(team: ResNet18Team) -> tuple[Weights, Biases]:
    """The heads of all members."""
    tails = tails_of(team)
    return torch.stack([tail.fc.weight for tail in tails]), torch.stack([tail.fc.bias for tail in tails])


def tails_of(team: ResNet18Team) -> list[ResNet18Tail]:
    """The members of a team, known as what they are."""
    return [tail for tail in team.members if isinstance(tail, ResNet18Tail)]


def _with_head(
    tail: ResNet18Tail, weight: Float[Tensor, "output channel"], bias: Float[Tensor, " output"]
) -> ResNet18Tail:
    """A tail on the same numbers, but with another head and without dropout."""
    with torch.device("meta"):  # the weights are given: nothing is drawn, or even allocated
        other = ResNet18Tail(len(bias))
    other.load_state_dict({**tail.state_dict(), "fc.weight": weight, "fc.bias": bias}, assign=True)
    return other
