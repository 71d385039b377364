"""Minibatches, descent, device, threads and seed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.backends import cudnn
from torch.optim.adam import adam

from coverwell.errors import NonFiniteLossError
from coverwell.folds import Problem
from coverwell.networks.team import Team

__all__ = [
    "BestRound",
    "Learner",
    "Minibatches",
    "NonFiniteLossError",
    "device_from",
    "everywhere",
    "few_threads",
    "seeded",
    "spoken",
]

# Above this many rows a pass costs more than it teaches: an epoch is then this many random rows.
MOST_ROWS_PER_EPOCH = 20_000
# How many input numbers a network takes at a time when it speaks about all rows (few enough for the layers to stay in a
# processor's cache, many enough to keep a GPU busy), and at least how many rows.
CPU_CHUNK, GPU_CHUNK = 2**16, 2**22
FEWEST_ROWS = 64
# The largest key of a shuffle; whole numbers are sorted faster than floats.
LAST = 2**31 - 1
# Steps before the first capture, see `_Graphs`.
ORDINARY_STEPS = 3
# Floating-point operations of one step below which a second thread waits more than it works.
SMALL_STEP = 4e9


Step = Callable[[Tensor], Tensor]


class Minibatches:
    """Shuffled batches of row numbers, `(member, batch)`, each member from its own rows."""

    def __init__(self, trains: Bool[Tensor, "member row"], batch_size: int) -> None:
        self.trains = trains
        self.counts = trains.sum(dim=1, keepdim=True)
        self.rows_per_epoch = min(int(self.counts.max()), MOST_ROWS_PER_EPOCH)
        self.n_steps = -(-self.rows_per_epoch // batch_size)
        self.batch_size = -(-self.rows_per_epoch // self.n_steps)  # even batches: as few rows as can be come twice

    def epoch(self) -> Iterator[Int[Tensor, "member batch"]]:
        """Batches of equal size that pass once over the rows; a member with fewer rows starts over."""
        keys = torch.randint(LAST, self.trains.shape, dtype=torch.int32, device=self.trains.device)
        keys.masked_fill_(~self.trains, LAST)  # rows of others sort behind all of one's own
        order = keys.argsort(dim=1)
        places = torch.arange(self.n_steps * self.batch_size, device=order.device)
        rows = order.gather(1, places % self.counts)
        yield from rows.split(self.batch_size, dim=1)


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
        """Move the weights against their gradients, and forget the gradients."""
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
        self.forget_gradients()

    def forget_gradients(self) -> None:
        for weight in self.weights:
            weight.grad = None


class _Graphs:
    """Steps of descent that a GPU replays whole, in place of a hundred launches of small kernels each.

    A step is captured once for each of its losses. The very first steps are run as they are: libraries make their
    buffers then, which must not belong to a graph.
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
            self.optimizer.forget_gradients()  # what was recorded was never computed
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
    """A team in training: its weights, its optimizer, and the running average of its weights, which is what speaks.

    Paper: the average over epochs stands for a decaying learning rate, which alternating training has no end for.
    """

    def __init__(
        self, team: Team, problem: Problem, batches: Minibatches, *, learning_rate: float, memory: float
    ) -> None:
        self.team = team
        self.average = copy.deepcopy(team).eval().requires_grad_(False)
        self.problem = problem
        self.batches = batches
        self.memory = memory
        self.optimizer = Adam(team, learning_rate)
        self.n_epochs = 0
        self.graphs = _Graphs(self.optimizer) if team.capturable and _is_current_gpu(problem.y.device) else None

    def start_from(self, job: int, team: Team) -> None:
        """Let one job's members go on from those of a trained team."""
        size = self.problem.members_per_job
        members, before = slice(job * size, (job + 1) * size), team.state_of(slice(None))
        if _sizes(before) != _sizes(self.team.state_of(members)):
            raise ValueError(
                "warm_start goes on from networks of the same kind, size and outputs, but network or matching has "
                "changed; fit with warm_start=False"
            )
        for own in (self.team, self.average):
            own.set_state_of(members, before)
        self.n_epochs = math.ceil(1 / (1 - self.memory))  # nothing of the start is to be forgotten at once

    def descend(self, epochs: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Float[Tensor, " member"]:
        """Train for some epochs; `loss(outputs, rows)` gives one number per member. Returns the last epoch's mean."""
        self.team.train()
        step = self._step(loss) if self.graphs is None else self.graphs.replayed(self._step(loss))
        for _ in range(epochs):
            total = torch.zeros(self.team.n_members, device=self.problem.y.device)
            for rows in self.batches.epoch():
                total += step(rows)
            self._remember()
            if not torch.isfinite(total).all():
                raise NonFiniteLossError(
                    "the loss became NaN or infinite in training; lower learning_rate, or look for extreme values in X "
                    "or y"
                )
        return total / self.batches.n_steps

    def _step(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Step:
        def step(rows: Tensor) -> Tensor:
            inputs = self.problem.rows_of(self.problem.x, rows).to(self.problem.y.dtype)  # features are kept shorter
            per_member = loss(self.team(inputs), rows)
            per_member.sum().backward()  # Adam is elementwise: members do not touch each other
            self.optimizer.step()
            return per_member.detach()

        return step

    @torch.no_grad()
    def _remember(self) -> None:
        # The first epochs weigh equally, so that the random start is soon forgotten.
        self.n_epochs += 1
        new_share = max(1 - self.memory, 1 / self.n_epochs)
        for average, current in zip(self.average.parameters(), self.team.parameters(), strict=True):
            average.lerp_(current, new_share)
        # Running statistics of a batch norm belong to the weights beside them, so they are averaged alike.
        for kept, latest in zip(self.average.buffers(), self.team.buffers(), strict=True):
            if kept.is_floating_point():
                kept.lerp_(latest, new_share)
            else:
                kept.copy_(latest)

    @torch.no_grad()
    def says(self) -> Float[Tensor, "member row output"]:
        """What the averaged team says about every row of its job."""
        return everywhere(self.average, self.problem.x, self.problem.y.dtype)

    @torch.no_grad()
    def says_of_left_out(self) -> Float[Tensor, "member place output"]:
        """What the averaged team says about the rows that each member left out, see `Problem.left_out`."""
        problem, rows = self.problem, self.problem.left_out
        if problem.all_speak:  # about the same memory
            return self.says()
        parts = rows.split(_rows_at_a_time(self.average, problem.x), dim=1)
        said = (self.average(problem.rows_of(problem.x, part).to(problem.y.dtype)) for part in parts)
        return _joined(said, rows.shape[1])


class BestRound:
    """One network's state in its best round, job by job."""

    def __init__(self, learner: Learner, scale: Tensor) -> None:
        self.learner = learner
        self.team = copy.deepcopy(learner.average)
        self.score = torch.full_like(scale[:, 0], torch.inf)
        self.scale = scale.clone()

    def offer(self, score: Tensor, scale: Tensor, jobs: Tensor) -> Tensor:
        """Keep the present state of those of the jobs whose score is the lowest so far, and say which."""
        better = jobs & (score < self.score)
        size = self.learner.problem.members_per_job
        for job in better.nonzero()[:, 0].tolist():
            members = slice(job * size, (job + 1) * size)
            self.team.set_state_of(members, self.learner.average.state_of(members))
        self.score = torch.where(better, score, self.score)
        self.scale = torch.where(better[:, None], scale, self.scale)
        return better

    def restore(self) -> None:
        state = self.team.state_dict()
        self.learner.average.load_state_dict(state)
        self.learner.team.load_state_dict(state)


@torch.no_grad()
def everywhere(
    team: Team, x: Float[Tensor, "job row *input"], precision: torch.dtype | None = None
) -> Float[Tensor, "member row output"]:
    """A team's outputs for all rows, computed in chunks, each in the given precision; members are ordered by job."""
    n_rows = _rows_at_a_time(team, x)
    parts = (x[:, first : first + n_rows] for first in range(0, x.shape[1], n_rows))
    return _joined((team(team.for_members(part.to(precision or x.dtype))) for part in parts), x.shape[1])


def _rows_at_a_time(team: Team, x: Float[Tensor, "job row *input"]) -> int:
    chunk = CPU_CHUNK if x.device.type == "cpu" else GPU_CHUNK
    return max(FEWEST_ROWS, chunk // (team.n_members * team.weight_of_row(x[0, 0].numel())))


def _joined(parts: Iterator[Tensor], n_rows: int) -> Float[Tensor, "member row output"]:
    """Parts (member, row, output) one behind the other, in one place for all: kept apart they scatter the memory."""
    said, first = torch.empty(0), 0
    for part in parts:
        if first == 0:
            said = part.new_empty(len(part), n_rows, part.shape[-1])
        said[:, first : first + part.shape[1]] = part
        first += part.shape[1]
    return said


def spoken(team: Team, x: Float[Tensor, "job row *input"]) -> Float[Tensor, "member row output"]:
    """What a trained team says about all rows, computed in the precision that it speaks in, as float64."""
    return everywhere(team, x, team.precision).double()


def _sizes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def _is_current_gpu(device: torch.device) -> bool:
    """Whether a device is the GPU on whose streams torch works by itself; only there are steps captured."""
    return device.type == "cuda" and device.index in (None, torch.cuda.current_device())


def device_from(choice: str | torch.device) -> torch.device:
    """The device that is asked for; "auto" is CUDA where there is one."""
    if choice == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(choice)
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or another name that torch knows, got {choice!r}"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(choice)!r} is not available here; use device='cpu' or 'auto'")
    return device


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw everything inside from one seed, and leave the caller's random state as it was.

    On a GPU convolutions are also computed in an order that is always the same.
    """
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), _same_bits() if cuda else nullcontext():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed GPUs that are not ours
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def _same_bits() -> Iterator[None]:
    before = cudnn.deterministic
    cudnn.deterministic = True
    try:
        yield
    finally:
        cudnn.deterministic = before


@contextmanager
def few_threads(operations_per_step: float) -> Iterator[None]:
    """One thread for small steps, the caller's number for large ones; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if operations_per_step < SMALL_STEP else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
