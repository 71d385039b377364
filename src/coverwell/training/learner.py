"""A team in training: steps of descent, the running average of its weights, and its best state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam

from coverwell.errors import NonFiniteLossError
from coverwell.networks.team import Network, Team
from coverwell.training.rows import Rows

__all__ = ["BestState", "Learner", "Settings", "outputs_of", "rows_at_a_time"]

# How many input numbers a network takes at a time outside training (few enough for the layers to stay in a processor's
# cache, many enough to keep a GPU busy), and at least how many rows.
CPU_CHUNK, GPU_CHUNK = 2**16, 2**22
FEWEST_ROWS = 64
# Steps before the first capture, see `_Graphs`.
ORDINARY_STEPS = 3

Step = Callable[[Tensor], Tensor]
Objective = Callable[[Tensor, Tensor], Float[Tensor, " member"]]


@dataclass(frozen=True)
class Settings:
    """How every team of a fit is trained."""

    batch_size: int
    learning_rate: float
    ema_decay: float
    device: torch.device


class Adam:
    """Adam with torch's defaults (Kingma and Ba 2015), for all weights of a team in one call.

    The class in torch.optim gives the same bits, but loads torch's compiler when it is first made, which costs a second
    and 65 MB, and spends longer on each step.
    """

    def __init__(self, team: Team, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.weights: list[Tensor] = [weight for weight in team.parameters() if weight.requires_grad]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]
        self.n_steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights against their gradients, and drop the gradients."""
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        adam(
            self.weights,
            gradients,
            self.means,
            self.squares,
            [],
            self.n_steps,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        self.drop_gradients()

    def drop_gradients(self) -> None:
        for weight in self.weights:
            weight.grad = None


class _Graphs:
    """Steps of descent that a GPU replays whole, instead of launching a hundred small kernels for each.

    A step is captured once for each of its losses. The very first steps run normally: libraries allocate buffers
    then, which must not belong to a graph.
    """

    def __init__(self, optimizer: Adam) -> None:
        self.optimizer = optimizer
        self.n_ordinary = ORDINARY_STEPS
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        self.latest: torch.cuda.CUDAGraph | None = None  # a pool lives as long as one of its graphs

    def replayed(self, step: Step) -> Step:
        """The same step, replayed; one that cannot be captured, such as with a user's own loss, stays as it is."""
        captured: tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None = None

        def replay(rows: Tensor) -> Tensor:
            nonlocal captured
            if captured is None and self.n_ordinary == 0:
                captured = self._captured(step, rows)
            if captured is None:
                self.n_ordinary -= self.n_ordinary > 0
                return self._apart(lambda: step(rows))
            graph, input_rows, losses = captured
            input_rows.copy_(rows)
            graph.replay()
            return losses

        return replay

    def _captured(self, step: Step, rows: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None:
        graph, input_rows = torch.cuda.CUDAGraph(), rows.clone()

        def capture() -> Tensor:
            graph.capture_begin(pool=self.pool)
            try:
                return step(input_rows)
            finally:
                graph.capture_end()

        try:
            losses = self._apart(capture)
            self.latest = graph
            return graph, input_rows, losses
        except RuntimeError:
            self.optimizer.drop_gradients()  # what was recorded was never computed
            self.n_ordinary = -1  # never again
            return None

    def _apart(self, work: Callable[[], Tensor]) -> Tensor:
        """Run something on a stream of its own, as capturing needs it."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return result


class Learner:
    """A team in training: its weights, its optimizer, and the running average of its weights, which predicts.

    It owns no rows: every call is given those it is about.

    Paper: the average over epochs stands for a decaying learning rate, because alternating training has no set end.
    """

    def __init__(self, team: Team, settings: Settings, *, honest: bool = False) -> None:
        self.team = team
        self.average = copy.deepcopy(team).eval().requires_grad_(False)
        self.settings = settings
        self.honest = honest  # whether it learns from rows with out-of-fold residuals alone, as I does
        self.optimizer = Adam(team, settings.learning_rate)
        self.n_epochs = 0
        captured = team.capturable and _is_current_gpu(settings.device)
        self.graphs = _Graphs(self.optimizer) if captured else None

    @classmethod
    def of(cls, network: Network, rows: Rows, n_outputs: int, settings: Settings, *, honest: bool = False) -> Learner:
        """A new team for all jobs, adapted to its rows."""
        n_members = rows.n_jobs * rows.members_per_job
        team = network.build(n_members, tuple(rows.x.shape[2:]), n_outputs).to(rows.y.device)
        team.adapt(rows.x, rows.valid)
        return cls(team, settings, honest=honest)

    def start_from(self, members: slice, team: Team) -> None:
        """Let some members continue from those of a trained team."""
        before = team.state_of(slice(None))
        if _sizes(before) != _sizes(self.team.state_of(members)):
            raise ValueError(
                "warm_start goes on from networks of the same kind, size and outputs, but network or matching has "
                "changed; fit with warm_start=False"
            )
        for own in (self.team, self.average):
            own.set_state_of(members, before)
        self.n_epochs = math.ceil(1 / (1 - self.settings.ema_decay))  # keep the start in the average

    def descend(self, rows: Rows, epochs: int, objective: Objective) -> Float[Tensor, " member"]:
        """Train for some epochs; `objective(outputs, batch)` gives one number per member. Returns the last mean loss."""
        self.team.train()
        batches = rows.batches(self.settings.batch_size, epochs, honest=self.honest)
        step = self._step(rows, objective)
        if self.graphs is not None and rows.workers.size == 1:  # what passes between workers is not replayed
            step = self.graphs.replayed(step)
        for _ in range(epochs):
            total = torch.zeros(self.team.n_members, device=rows.y.device)
            for batch in batches.epoch():
                total += step(batch)
            self._update_average()
            if not torch.isfinite(total).all():
                raise NonFiniteLossError(
                    "the loss became NaN or infinite in training; lower learning_rate, or look for extreme values in X "
                    "or y"
                )
        if rows.workers.size > 1:
            self._agree(rows)
        return total / batches.n_steps

    def _step(self, rows: Rows, objective: Objective) -> Step:
        def step(batch: Tensor) -> Tensor:
            inputs = rows.at(rows.x, batch).to(rows.y.dtype)  # image features are stored in fewer bits
            per_member = objective(rows.workers.together(self.team(inputs)), batch)
            per_member.sum().backward()  # Adam is elementwise: members do not touch each other
            if rows.workers.size > 1:
                self._share_gradients(rows)
            self.optimizer.step()
            return per_member.detach()

        return step

    def _share_gradients(self, rows: Rows) -> None:
        learning = [weight for weight in self.optimizer.weights if weight.grad is not None]
        gradients = rows.workers.summed([weight.grad for weight in learning if weight.grad is not None])
        for weight, gradient in zip(learning, gradients, strict=True):
            weight.grad = gradient

    @torch.no_grad()
    def _agree(self, rows: Rows) -> None:
        """Take the first worker's weights: unlike processors may round a step differently, and that would grow."""
        own = [*self.team.parameters(), *self.average.parameters()]
        first = rows.workers.of_first(torch.cat([weight.flatten() for weight in own]))
        for weight, values in zip(own, first.split([weight.numel() for weight in own]), strict=True):
            weight.copy_(values.view_as(weight))

    @torch.no_grad()
    def _update_average(self) -> None:
        # The first epochs weigh equally, so that the random start soon fades.
        self.n_epochs += 1
        new_share = max(1 - self.settings.ema_decay, 1 / self.n_epochs)
        for average, current in zip(self.average.parameters(), self.team.parameters(), strict=True):
            average.lerp_(current, new_share)
        # Running statistics of a batch norm belong to the weights beside them, so they are averaged alike.
        for kept, latest in zip(self.average.buffers(), self.team.buffers(), strict=True):
            if kept.is_floating_point():
                kept.lerp_(latest, new_share)
            else:
                kept.copy_(latest)

    def outputs(self, rows: Rows) -> Float[Tensor, "member row output"]:
        """The averaged team's outputs for every row of its job."""
        return outputs_of(self.average, rows.x, rows.y.dtype)

    @torch.no_grad()
    def left_out_outputs(self, rows: Rows) -> Float[Tensor, "member place output"]:
        """The averaged team's outputs for the rows that each member leaves out, see `Rows.left_out`."""
        if rows.all_left_out:  # all members look at the same memory
            return self.outputs(rows)
        parts = rows.left_out.split(rows_at_a_time(self.average, rows.x[0]), dim=1)
        outputs = (self.average(rows.at(rows.x, part).to(rows.y.dtype)) for part in parts)
        return _joined(outputs, rows.left_out.shape[1])

    def members_of(self, members: slice, network: Network, input_shape: tuple[int, ...], n_outputs: int) -> Team:
        """Some members as a team of their own, ready to predict on the CPU."""
        size = members.stop - members.start
        with torch.random.fork_rng(devices=[]):  # a new team draws its start, which must not change the training
            team = (self.team.recipe or network).build(size, input_shape, n_outputs)
        team.set_state_of(slice(None), self.average.state_of(members))
        team.sizes = input_shape, n_outputs
        return team.deployed()


class BestState:
    """One network's state in its best round, job by job."""

    def __init__(self, learner: Learner, unit: Tensor) -> None:
        self.learner = learner
        self.team = copy.deepcopy(learner.average)
        self.score = torch.full_like(unit[:, 0], torch.inf)
        self.unit = unit.clone()

    def offer(self, score: Tensor, unit: Tensor, jobs: Tensor | None = None) -> Tensor:
        """Keep the present state of those of the jobs whose score is the lowest so far, and say which."""
        better = score < self.score if jobs is None else jobs & (score < self.score)
        size = self.team.n_members // len(score)
        for job in better.nonzero()[:, 0].tolist():
            members = slice(job * size, (job + 1) * size)
            self.team.set_state_of(members, self.learner.average.state_of(members))
        self.score = torch.where(better, score, self.score)
        self.unit = torch.where(better[:, None], unit, self.unit)
        return better

    def restore(self) -> None:
        state = self.team.state_dict()
        self.learner.average.load_state_dict(state)
        self.learner.team.load_state_dict(state)


@torch.no_grad()
def outputs_of(
    team: Team, x: Float[Tensor, "job row *input"], precision: torch.dtype
) -> Float[Tensor, "member row output"]:
    """A team's outputs for all rows, computed in chunks, each in the given precision; members are ordered by job."""
    n_rows = rows_at_a_time(team, x[0])
    parts = (x[:, first : first + n_rows] for first in range(0, x.shape[1], n_rows))
    return _joined((team(team.for_members(part.to(precision))) for part in parts), x.shape[1])


def rows_at_a_time(team: Team, x: Float[Tensor, "row *input"]) -> int:
    """How many rows a team takes at a time outside training."""
    chunk = CPU_CHUNK if x.device.type == "cpu" else GPU_CHUNK
    return max(FEWEST_ROWS, chunk // (team.n_members * team.weight_of_row(x[0].numel())))


def _joined(parts: Iterable[Tensor], n_rows: int) -> Float[Tensor, "member row output"]:
    """Parts (member, row, output) behind one another, in one place for all: kept apart they scatter the memory."""
    outputs, first = torch.empty(0), 0
    for part in parts:
        if first == 0:
            outputs = part.new_empty(len(part), n_rows, part.shape[-1])
        outputs[:, first : first + part.shape[1]] = part
        first += part.shape[1]
    return outputs


def _sizes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def _is_current_gpu(device: torch.device) -> bool:
    """Whether a device is the GPU on whose streams torch works by itself; only there are steps captured."""
    return device.type == "cuda" and device.index in (None, torch.cuda.current_device())
