"""How many members train in a second: our stack beside the loop that a user would write, also as one CUDA graph.

The loop has one `nn.Sequential` and one Adam for each member. All ways train the same networks on the same rows, which
lie on the device, with the same loss, precision, learning rate and batches, shuffled in the same way. The loop has the
faster of torch's Adams (`fused=True`). Its graph is one step of all members and is captured before the clock starts;
ours is captured anew in every turn, as in a fit, and also keeps averages of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from machine import Work, fastest, seconds_of, three_digits
from stacks import SEED, Stack
from torch import Tensor, nn

from coverwell import MLP, MatchedRegressor
from coverwell.paper.algorithm import interval_objective, mean_objective
from coverwell.training.device import auto_batch_size
from coverwell.training.learner import Objective
from coverwell.training.rows import Batches, Rows

LEARNING_RATE = 1e-3
ORDINARY_STEPS = 3  # before a capture: libraries make their buffers then
TIMES_FASTER = 20.0  # target on a GPU, for the case below
CHECKED = {"hidden": 128, "members": 75}
STACK, STACK_OF_LAUNCHES, LOOP, LOOP_AS_GRAPH = "stack", "stack, not captured", "loop", "loop, one CUDA graph"
LOSS_OF_F, LOSS_OF_I = "stack, with F's loss (Sigma Fit)", "stack, with I's loss"


@dataclass(frozen=True)
class Case:
    """Networks that train side by side: how many, of what size, on what."""

    members: int
    hidden: int
    batch_size: int
    rows: int
    features: int = 20
    layers: int = 5

    @property
    def network(self) -> MLP:
        return MLP(self.hidden, self.layers, dropout=0.0, bins=0)

    @property
    def sizes(self) -> list[int]:
        """Numbers that come out of each layer, the inputs first."""
        return [self.features, *[self.hidden] * (self.layers - 1), 1]


@dataclass(frozen=True)
class Sizes:
    """How much is measured; epochs are those of one turn."""

    members: tuple[int, ...] = (5, 25, 75)
    hidden: int = 128
    rows: int = 2_000
    batch_sizes: tuple[int, ...] = (64, auto_batch_size(2_000))
    turns: int = 5
    stack_epochs: int = 10  # as a turn of Algorithm 1 has
    loop_epochs: int = 1

    @property
    def cases(self) -> list[Case]:
        return [Case(m, self.hidden, batch, self.rows) for batch in self.batch_sizes for m in self.members]


FULL = {"cuda": Sizes(), "cpu": Sizes(turns=3, stack_epochs=1)}
QUICK = Sizes(members=(2,), hidden=4, rows=40, batch_sizes=(8,), turns=1, stack_epochs=1)


# The stack -----------------------------------------------------------------------------------------------------------


def random_rows(case: Case, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(case.rows, case.features, generator=generator)
    noise = torch.randn(case.rows, 1, generator=generator)
    return x.to(device), (x[:, :1].sin() + 0.5 * x[:, 1:2] + 0.2 * noise).to(device)


def stack_of(case: Case, device: torch.device, *, outputs: int = 1) -> Stack:
    x, y = random_rows(case, device)
    return Stack.of(case.network, x, y, case.members, batch_size=case.batch_size, outputs=outputs)


def losses_of_a_round(rows: Rows) -> dict[str, Objective]:
    """The losses that F and I have in a fit with the default settings, with made-up outputs of the other network."""
    recipe = MatchedRegressor(0.9).training_for(rows.y.shape[1]).recipe
    half_width = rows.y.new_ones(*rows.y.shape, 2, 1)  # (job, row, target, side, level)
    unit = rows.y.new_ones(rows.n_jobs, 1)
    return {
        LOSS_OF_F: mean_objective(recipe.matching, rows, half_width, rows.coverage[:, None, :], unit),
        LOSS_OF_I: interval_objective(recipe, rows, torch.zeros_like(rows.y), unit, unit),
    }


# What a user would write ---------------------------------------------------------------------------------------------


class Loop:
    """Networks of torch's own layers, with an Adam each, trained one after the other."""

    def __init__(self, case: Case, device: torch.device, *, capturable: bool = False) -> None:
        torch.manual_seed(SEED)
        self.case = case
        self.x, self.y = random_rows(case, device)
        self.models = [plain_network(case.sizes).to(device) for _ in range(case.members)]
        self.optimizers = [
            torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=True, capturable=capturable)
            for model in self.models
        ]
        everyone = torch.ones(case.members, case.rows, dtype=torch.bool, device=device)
        self.batches = Batches(everyone, case.batch_size)
        self.batches_of_one = Batches(everyone[:1], case.batch_size)

    def train(self, epochs: int) -> None:
        for member in range(self.case.members):
            for _ in range(epochs):
                for rows in self.batches_of_one.epoch():
                    self.step(member, rows[0])

    def step(self, member: int, rows: Tensor) -> None:
        loss = nn.functional.mse_loss(self.models[member](self.x[rows]), self.y[rows])
        loss.backward()
        self.optimizers[member].step()
        self.optimizers[member].zero_grad()

    @torch.no_grad()
    def error(self) -> float:
        """The mean squared error on all rows, averaged over the members."""
        return float(torch.stack([(model(self.x) - self.y).square().mean() for model in self.models]).mean())


class LoopAsGraph(Loop):
    """The same loop, one step of all members captured as one CUDA graph."""

    def __init__(self, case: Case, device: torch.device) -> None:
        super().__init__(case, device, capturable=True)
        self.rows = torch.zeros(case.members, self.batches.batch_size, dtype=torch.long, device=device)
        self.replay = captured(self.step_of_all, device)

    def step_of_all(self) -> None:
        for member in range(self.case.members):
            self.step(member, self.rows[member])

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for rows in self.batches.epoch():
                self.rows.copy_(rows)
                self.replay()


def plain_network(sizes: list[int]) -> nn.Sequential:
    layers = [part for before, after in pairwise(sizes) for part in (nn.Linear(before, after), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def captured(work: Work, device: torch.device) -> Callable[[], object]:
    """Work on a GPU as one graph to replay; elsewhere the work itself."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(ORDINARY_STEPS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):  # where the first steps were: gradients belong to a stream
        work()
    return graph.replay


# Measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A way to train all members for some epochs, how many of them one turn has, and how well it has learned."""

    train: Callable[[int], object]
    epochs: int
    error: Callable[[], float] | None = None


def ways_to_train(case: Case, sizes: Sizes, device: torch.device) -> dict[str, Way]:
    stack, loop = stack_of(case, device), Loop(case, device)
    ways = {
        STACK: Way(partial(stack.descend, stack.squared_error), sizes.stack_epochs, partial(error_of_stack, stack)),
        LOOP: Way(loop.train, sizes.loop_epochs, loop.error),
    }
    if device.type == "cuda":
        launches = stack_of(case, device)
        launches.learner.graphs = None
        ways[STACK_OF_LAUNCHES] = Way(
            partial(launches.descend, launches.squared_error),
            sizes.loop_epochs,
            partial(error_of_stack, launches),
        )
        graph = LoopAsGraph(case, device)
        ways[LOOP_AS_GRAPH] = Way(graph.train, sizes.stack_epochs, graph.error)
    for name, loss in losses_of_a_round(stack.rows).items():
        ways[name] = Way(partial(stack_of(case, device, outputs=2).descend, loss), sizes.stack_epochs)
    return ways


@torch.no_grad()
def error_of_stack(stack: Stack) -> float:
    team, rows = stack.learner.team, stack.rows
    return float((team(team.for_members(rows.x)) - rows.y).square().mean())


def seconds_per_epoch(ways: dict[str, Way], device: torch.device, turns: int) -> dict[str, Any]:
    """The fastest turn of each way, after one short turn that is not timed."""
    before = {name: way.error() for name, way in ways.items() if way.error}
    for way in ways.values():
        way.train(1)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(seconds_of(partial(way.train, way.epochs), device) / way.epochs)
    times = {name: fastest(seconds) for name, seconds in found.items()}
    for name, error in before.items():
        after = ways[name].error
        times[name] |= {"error before": error, "error after": after() if after else None}
    return times


def measure(device: torch.device, *, quick: bool) -> list[dict[str, Any]]:
    """Member-epochs per second of each way, case by case."""
    sizes = QUICK if quick else FULL[device.type]
    found = []
    for case in sizes.cases:
        times = seconds_per_epoch(ways_to_train(case, sizes, device), device, sizes.turns)
        for way in times.values():
            way["member-epochs per second"] = case.members / way["seconds"]
        found.append({**asdict(case), "turns": sizes.turns, "ways": times})
    return found


# The report ----------------------------------------------------------------------------------------------------------


def times_faster(case: dict[str, Any], other: str = LOOP) -> float:
    """By how much the stack trains more members in a second than another way."""
    return float(case["ways"][other]["seconds"] / case["ways"][STACK]["seconds"])


def lines(found: list[dict[str, Any]], device: str) -> str:
    first = found[0]
    ways = list(first["ways"])
    text = [
        "### Member-epochs per second",
        "",
        f"Epochs of one member per second. {first['layers']} linear layers of width {first['hidden']}, "
        f"{first['features']} features, {first['rows']:,} rows per member; squared error unless noted. *Loop*: "
        "`nn.Sequential` and `torch.optim.Adam` for each member, one after the other. In brackets: relative to the "
        "loop.",
        "",
        "| batch | members | " + " | ".join(ways) + " |",
        "|" + "---|" * (len(ways) + 2),
    ]
    for case in found:
        loop = case["ways"][LOOP]["seconds"]
        cells = [
            f"{three_digits(way['member-epochs per second'])} ({loop / way['seconds']:.1f})"
            for way in case["ways"].values()
        ]
        text.append(f"| {case['batch_size']} | {case['members']} | " + " | ".join(cells) + " |")
    return "\n".join(text) + (verdicts(found) if device == "cuda" else "")


def verdicts(found: list[dict[str, Any]]) -> str:
    assessed = [case for case in found if {name: case[name] for name in CHECKED} == CHECKED]
    words = [
        f"{times_faster(case):.1f} with a batch of {case['batch_size']}: "
        f"{'reached' if times_faster(case) >= TIMES_FASTER else 'MISSED'}"
        for case in assessed
    ]
    if not words:
        return ""
    return (
        f"\n\nTarget for hidden {CHECKED['hidden']} and {CHECKED['members']} members: {TIMES_FASTER:g} times the loop. "
        + "; ".join(words)
        + "."
    )
