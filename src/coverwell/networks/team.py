"""Teams: networks that train side by side, one per fold and repeat, stacked or as separate modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

State = dict[str, Tensor]


class Team(nn.Module):
    """A stack of members; every parameter and buffer has the member axis first.

    Shape: input `(member, batch, ...)`, output `(member, batch, output)`.
    """

    n_members: int
    recipe: Network | None = None  # what a model file names; None for modules of the user's
    sizes: tuple[tuple[int, ...], int]  # of one input, and the number of outputs; known once a team has learned
    shares_inputs = False  # whether deployed members compute what they can from the same memory
    capturable = False  # whether a training step may be recorded and replayed on a GPU: no choices made on the CPU
    precision = torch.float64  # in which a trained team predicts

    def adapt(self, inputs: Float[Tensor, "job row ..."], valid: Bool[Tensor, "job row"]) -> None:
        """Set what a network reads off its training inputs, by default nothing; members are ordered by job."""

    def weight_of_row(self, n_inputs: int) -> int:
        """The memory that one row needs outside training, in input numbers of an MLP."""
        return n_inputs

    def for_members(self, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row *input"]:
        """Rows of each job, given to all of its members."""
        # Deployed members of one job look at the same memory: what comes first is computed once for all of them.
        if len(x) == 1 and self.shares_inputs and not self.training and x.dtype == self.precision:
            return x.expand(self.n_members, *x.shape[1:])
        return x.repeat_interleave(self.n_members // len(x), dim=0)

    def deployed(self, members: slice = slice(None)) -> Team:
        """A copy of some members on the CPU, ready to predict: in its precision, without gradients."""
        copied: dict[int, Any] = {}  # what deepcopy finds here it does not copy again
        for weight in self.parameters():
            copied[id(weight)] = nn.Parameter(weight.detach()[members].cpu().clone(), requires_grad=False)
        for buffer in self.buffers():
            copied[id(buffer)] = buffer[members].cpu().clone()
        team = copy.deepcopy(self, copied)
        team.n_members = len(range(self.n_members)[members])
        return team.to(team.precision).eval()

    @torch.no_grad()
    def copy_from(self, other: Team, members: slice, others: slice = slice(None)) -> None:
        """Let some members have the parameters and buffers of some of another team."""
        own, state = self.state_dict(), other.state_dict()
        for name, value in own.items():
            value[members] = state[name][others].to(value)


class LoopTeam(Team):
    """Members that are modules of their own, run one after the other.

    Shape: input `(member, batch, ...)`, output `(member, batch, output)`; each module maps `(batch, ...)` to
    `(batch, output)`.
    """

    def __init__(self, modules: Sequence[nn.Module], n_outputs: int) -> None:
        super().__init__()
        self.n_members, self.n_outputs, self.members = len(modules), n_outputs, nn.ModuleList(modules)

    def forward(self, x: Float[Tensor, "member batch *input"]) -> Float[Tensor, "member batch output"]:
        outputs = [module(rows) for module, rows in zip(self.members, x, strict=True)]
        for output in outputs:
            if not isinstance(output, Tensor) or output.shape != (x.shape[1], self.n_outputs):
                got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                must = f"the network must map (batch, ...) to (batch, {self.n_outputs})"
                way_out = f"let its last layer have n_outputs = {self.n_outputs} units"
                raise ValueError(f"{must}, for {x.shape[1]} rows it gave {got}; {way_out}")
        return torch.stack(outputs)

    def for_members(self, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row *input"]:
        # Members that run one after the other can look at the same memory.
        return x.expand(self.n_members, *x.shape[1:]) if len(x) == 1 else super().for_members(x)

    def deployed(self, members: slice = slice(None)) -> Team:
        modules = nn.ModuleList(copy.deepcopy(module).cpu() for module in self.members[members])
        team = copy.deepcopy(self, {id(self.members): modules})
        team.n_members = len(modules)
        return team.to(team.precision).eval().requires_grad_(False)

    def copy_from(self, other: Team, members: slice, others: slice = slice(None)) -> None:
        assert isinstance(other, LoopTeam)
        for module, source in zip(self.members[members], other.members[others], strict=True):
            module.load_state_dict(source.state_dict())


@runtime_checkable
class Network(Protocol):
    """A recipe from which untrained teams are built, before the number of inputs and outputs is known."""

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team: ...


@runtime_checkable
class ImageNetwork(Network, Protocol):
    """A recipe whose teams are built on features of images under frozen layers, its trunk.

    The trunk maps (batch, 3, size, size) in [0, 1] to the input shape of `build`. The recipe may have `defaults`: a
    mapping from names of parameters to the numbers that "auto" stands for.
    """

    size: int  # side of the square to which images are squeezed
    mirror: str | None  # what mirroring does to the targets ("same", "boxes"); None for no mirror images
    cache: str | None  # folder in which features are kept; None for a temporary file

    def trunk(self) -> nn.Module: ...


@dataclass(frozen=True)
class FactoryNetwork:
    """A user's own factory `(n_features, n_outputs) -> nn.Module`, called once per member."""

    factory: Callable[[int, int], nn.Module]

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        modules: list[Any] = [self.factory(input_shape[0], n_outputs) for _ in range(n_members)]
        if odd := [type(module).__name__ for module in modules if not isinstance(module, nn.Module)]:
            raise TypeError(f"network must give a torch.nn.Module when called, got {odd[0]}")
        return LoopTeam(modules, n_outputs)


def network_from(choice: Network | Callable[[int, int], nn.Module]) -> Network:
    """The network itself, or a user's factory wrapped into one.

    Parameters
    ----------
    choice : Network or callable
        A recipe such as `MLP()`, or a function of the numbers of features and outputs that gives a new module.
    """
    if isinstance(choice, Network) and not isinstance(choice, type):
        return choice
    if callable(choice) and not isinstance(choice, nn.Module):
        return FactoryNetwork(choice)
    got = "a module: every member needs one of its own" if isinstance(choice, nn.Module) else repr(choice)
    must = "a recipe such as MLP(...) or a function (n_features, n_outputs) -> nn.Module"
    raise TypeError(f"network must be {must}, got {got}")
