"""Fully connected networks, all members stacked into batched matrix products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from coverwell.networks.team import Team
from coverwell.options import check_number, stored

Rows = Float[Tensor, "member batch feature"]

SCALE_SPEED = 6.0
MOST_WAVES = 256  # of all columns together: wide tables have fewer of each
FREQUENCY = 0.1  # standard deviation of the first frequencies, in cycles per standard deviation of a column


class StackedLinear(nn.Module):
    """One linear layer per member, started as `torch.nn.Linear` starts.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    def __init__(self, n_members: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_inputs)
        self.weight = nn.Parameter(torch.empty(n_members, n_inputs, n_outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_members, 1, n_outputs).uniform_(-bound, bound))

    def forward(
        self, x: Rows, gain: float = 1.0, scale: Float[Tensor, "member feature"] | None = None
    ) -> Float[Tensor, "member batch output"]:
        weight = self.weight if scale is None else self.weight * scale[..., None]
        if len(x) == 1 or x.stride(0) != 0:  # members look at memory of their own
            return torch.baddbmm(self.bias, x, weight, alpha=gain)
        side_by_side = weight.transpose(0, 1).flatten(start_dim=1)  # (feature, member and output)
        wide = torch.addmm(self.bias.flatten(), x[0], side_by_side, alpha=gain)  # one product for all members
        return cast(Tensor, wide.unflatten(1, (len(x), -1)).transpose(0, 1))


class PiecewiseLinear(nn.Module):
    """Each column beside its piecewise-linear code: 1 for every bin it has passed, a fraction in the bin it is in.

    The edges are quantiles of the training column (Gorishniy et al. 2022, "On Embeddings for Numerical Features in
    Tabular Deep Learning"). Columns with few distinct values have fewer bins; the others stay zero.

    Shape: input `(member, batch, feature)`, output `(member, batch, feature * (1 + bins))`.
    """

    def __init__(self, n_members: int, n_features: int, bins: int) -> None:
        super().__init__()
        self.bins, self.n_outputs = bins, n_features * (1 + bins)
        self.start = nn.Buffer(torch.zeros(n_members, 1, n_features, bins))
        self.slope = nn.Buffer(torch.zeros_like(self.start))

    @torch.no_grad()
    def adapt(self, inputs: Float[Tensor, "job row feature"], valid: Bool[Tensor, "job row"]) -> None:
        """Take the edges from each job's training rows."""
        shares = torch.linspace(0, 1, self.bins + 1, dtype=inputs.dtype, device=inputs.device)
        members_per_job = self.start.shape[0] // inputs.shape[0]
        for job, (rows, real) in enumerate(zip(inputs, valid, strict=True)):
            # Observed values at these shares: torch.quantile refuses more than 16 million numbers.
            ordered = rows[real].sort(dim=0).values
            edges = ordered[(shares * (len(ordered) - 1)).round().long()]  # (edge, feature)
            span = edges.diff(dim=0)
            slope = torch.where(span > 0, 1 / span.clamp_min(torch.finfo(span.dtype).tiny), 0.0)
            members = slice(job * members_per_job, (job + 1) * members_per_job)
            self.start[members] = edges[:-1].T
            self.slope[members] = slope.T

    def forward(self, x: Rows, members: slice = slice(None)) -> Float[Tensor, "member batch code"]:
        # (member, batch, feature, bin)
        code = ((x[..., None] - self.start[members]) * self.slope[members]).clamp_(0, 1)
        return torch.cat([x, code.flatten(start_dim=2)], dim=-1)


class Waves(nn.Module):
    """Cosines of each column, with learned frequencies and phases: smooth where bins have edges.

    Shape: input `(member, batch, feature)`, output `(member, batch, feature * waves)`.
    """

    def __init__(self, n_members: int, n_features: int, waves: int) -> None:
        super().__init__()
        shape = n_members, 1, n_features, waves
        frequency, phase = torch.empty(shape), torch.empty(shape)
        if not frequency.is_meta:  # nothing is drawn before a file is read: torch would load its compiler to do so
            frequency, phase = 2 * math.pi * FREQUENCY * torch.randn(shape), math.pi * (2 * torch.rand(shape) - 1)
        self.frequency, self.phase = nn.Parameter(frequency), nn.Parameter(phase)

    def forward(self, x: Rows) -> Float[Tensor, "member batch code"]:
        return torch.addcmul(self.phase, x[..., None], self.frequency).cos().flatten(start_dim=2)


class MLPTeam(Team):
    """Linear layers, with an activation and dropout between them, for all members at once.

    Shape: input `(member, batch, feature)`, output `(member, batch, output)`.
    """

    capturable = True
    shares_inputs = True

    def __init__(self, recipe: MLP, n_members: int, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.n_members, self.recipe = n_members, recipe
        self.rate, self.smooth = recipe.dropout, recipe.activation == "silu"
        self.code = PiecewiseLinear(n_members, n_features, recipe.bins) if recipe.bins else None
        n_waves = min(recipe.waves, max(1, MOST_WAVES // n_features))
        self.waves = Waves(n_members, n_features, n_waves) if n_waves else None
        # A log scale that moves as many times faster than a weight.
        self.log_scale = nn.Parameter(torch.zeros(n_members, n_features)) if recipe.scaled else None
        self.codes = [n for n in (recipe.bins, n_waves) if n]  # numbers beside each column
        n_inputs = n_features * (1 + sum(self.codes))
        sizes = [n_inputs, *[recipe.hidden] * (recipe.layers - 1), n_outputs]
        self.linears = nn.ModuleList(map(partial(StackedLinear, n_members), sizes, sizes[1:]))

    @property
    def layers(self) -> list[StackedLinear]:
        """The linear layers, from the inputs to the outputs."""
        return [layer for layer in self.linears if isinstance(layer, StackedLinear)]

    @property
    def column_scales(self) -> Float[Tensor, "member feature"] | None:
        """By how much each member stretches each column; None where it does not learn that."""
        return None if self.log_scale is None else torch.exp(SCALE_SPEED * self.log_scale)

    def adapt(self, inputs: Float[Tensor, "job row feature"], valid: Bool[Tensor, "job row"]) -> None:
        if self.code:
            self.code.adapt(inputs, valid)

    def fold(self) -> None:
        """Fold the factors of columns and of dropped units into the weights, which then predict alone."""
        if (scale := self.input_scales) is not None:
            self.layers[0].weight.mul_(scale[..., None])
        for layer in self.layers[1:]:
            layer.weight.mul_(1 - self.rate)
        self.log_scale, self.rate = None, 0.0

    @property
    def input_scales(self) -> Float[Tensor, "member input"] | None:
        """The factor of each input of the first layer: columns, then their codes."""
        scale = self.column_scales
        if scale is None:
            return None
        return torch.cat([scale, *(scale.repeat_interleave(n, dim=1) for n in self.codes)], dim=1)

    def forward(self, x: Rows) -> Float[Tensor, "member batch output"]:
        n_members, precision = len(x), self.layers[0].weight.dtype
        columns = x
        if x.stride(0) == 0:  # members of one job, which have the same edges, look at the same memory
            x = x[:1]
        x = self.code(x, slice(len(x))) if self.code else x  # before any cast: bins may be narrower than float32
        x = x.to(precision).expand(n_members, -1, -1)
        if self.waves:
            x = torch.cat([x, self.waves(columns.to(precision))], dim=-1)
        *hidden, last = self.layers
        gain, scale = 1.0, self.input_scales  # of the first layer's weights, which are fewer than its inputs
        for linear in hidden:
            x, scale = self.activated(linear(x, gain, scale)), None
            gain = 1.0 if self.training else 1 - self.rate  # for the units that dropout would remove
        return cast(Tensor, last(x, gain, scale))

    def activated(self, x: Tensor) -> Tensor:
        """The units of a hidden layer; in training, some are dropped."""
        dropping = self.training and self.rate > 0
        if self.smooth:
            x = torch.nn.functional.silu(x)
            return x * kept_units(x, self.rate) if dropping else x
        if dropping:
            with torch.no_grad():  # ReLU passes no gradient where it gives zero: dropout needs none of its own
                x.mul_(kept_units(x, self.rate))
        return x.relu_()


def kept_units(x: Tensor, rate: float) -> Tensor:
    """A random 0 for this share of the units and 1 for the others; on the CPU from 16 random bits a unit."""
    if x.device.type != "cpu":
        return torch.rand_like(x).ge_(rate)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform on -32768 .. 32767
    # Written as floats at once: multiplying by them is vectorised, filling by a mask of booleans is not.
    n_dropped = min(round(rate * 2**16), 2**16 - 1)
    return torch.ge(bits, n_dropped - 2**15, out=torch.empty_like(x))


@stored
@dataclass(frozen=True)
class MLP:
    """Recipe of a fully connected network for tables.

    Parameters
    ----------
    hidden : int
        Width of the hidden layers.
    layers : int
        Number of linear layers; the paper has 5.
    dropout : float
        Share of hidden units dropped in training.
    bins : int
        Bins of the piecewise-linear code of each numeric column; 0 for the column alone.
    waves : int
        Cosines of each column, with learned frequencies, beside the column and its bins; fewer in wide tables.
    scaled : bool
        Whether each column, with its bins and waves, is stretched by a learned factor: networks that look at few of
        many columns learn sooner to ignore the others.
    activation : "relu" or "silu"
        What stands between the layers: "silu" is smooth, and so are the functions it learns.

    Examples
    --------
    >>> import torch
    >>> team = MLP(hidden=8, bins=0).build(n_members=3, input_shape=(4,), n_outputs=2)
    >>> team(torch.zeros(3, 10, 4)).shape
    torch.Size([3, 10, 2])
    """

    hidden: int = 128
    layers: int = 5
    dropout: float = 0.1
    bins: int = 16
    waves: int = 0
    scaled: bool = False
    activation: str = "relu"

    def __post_init__(self) -> None:
        for name, least in (("hidden", 1), ("layers", 1), ("bins", 0), ("waves", 0)):
            check_number(name, getattr(self, name), least=least, whole=True)
        check_number("dropout", self.dropout, least=0, below=1)
        if self.activation not in ("relu", "silu"):
            raise ValueError(f"activation must be 'relu' or 'silu', got {self.activation!r}")

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        return MLPTeam(self, n_members, input_shape[0], n_outputs)

    def operations_per_row(self, n_inputs: int) -> float:
        """Roughly the multiplications of one pass."""
        return float(
            self.hidden * (n_inputs * (1 + self.bins) + min(n_inputs * self.waves, MOST_WAVES) + 3 * self.hidden)
        )
