"""Numeric inputs encoded by where they fall between quantile edges."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = ["PiecewiseLinear"]


class PiecewiseLinear(nn.Module):
    """Each column beside its piecewise-linear code: 1 for every bin it has passed, a fraction in the bin it is in.

    The edges are quantiles of the training column (Gorishniy et al. 2022, "On Embeddings for Numerical Features in
    Tabular Deep Learning"). Columns with few distinct values have fewer bins; the others stay zero.

    Shape: input `(member, batch, feature)`, output `(member, batch, feature * (1 + bins))`.
    """

    start: Tensor
    slope: Tensor

    def __init__(self, n_members: int, n_features: int, bins: int) -> None:
        super().__init__()
        self.bins = bins
        self.n_outputs = n_features * (1 + bins)
        self.register_buffer("start", torch.zeros(n_members, 1, n_features, bins))
        self.register_buffer("slope", torch.zeros(n_members, 1, n_features, bins))

    @torch.no_grad()
    def adapt(self, inputs: Float[Tensor, "job row feature"], valid: Bool[Tensor, "job row"]) -> None:
        """Take the edges from each job's training rows."""
        shares = torch.linspace(0, 1, self.bins + 1, dtype=inputs.dtype, device=inputs.device)
        members_per_job = self.start.shape[0] // inputs.shape[0]
        for job, (rows, real) in enumerate(zip(inputs, valid, strict=True)):
            edges = _column_quantiles(rows[real], shares)  # (edge, feature)
            span = edges.diff(dim=0)
            slope = torch.where(span > 0, 1 / span.clamp_min(torch.finfo(span.dtype).tiny), 0.0)
            members = slice(job * members_per_job, (job + 1) * members_per_job)
            self.start[members] = edges[:-1].T
            self.slope[members] = slope.T

    @property
    def is_shared(self) -> bool:
        """Whether all members have the same edges, as those of one job have."""
        return all(bool((edges == edges[:1]).all()) for edges in (self.start, self.slope))

    def forward(
        self, x: Float[Tensor, "member batch feature"], members: slice = slice(None)
    ) -> Float[Tensor, "member batch code"]:
        code = ((x[..., None] - self.start[members]) * self.slope[members]).clamp_(
            0, 1
        )  # (member, batch, feature, bin)
        return torch.cat([x, code.flatten(start_dim=2)], dim=-1)


def _column_quantiles(
    rows: Float[Tensor, "row feature"], shares: Float[Tensor, " edge"]
) -> Float[Tensor, "edge feature"]:
    """Observed values at the given shares of each column (torch.quantile refuses more than 16 million numbers)."""
    ordered = rows.sort(dim=0).values
    return ordered[(shares * (len(rows) - 1)).round().long()]
