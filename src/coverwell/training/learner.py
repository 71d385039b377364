"""A team in training: steps of descent, the running average of its weights, and its best state."""

import copy
import math
from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.errors import NonFiniteLossError
from coverwell.networks.team import Network, State, Team
from coverwell.training.device import Adam, CudaGraphs, Settings
from coverwell.training.rows import Rows, Workers

# How many input numbers a network takes at a time outside training (few enough for the layers to stay in a processor's
# cache, many enough to keep a GPU busy), and at least how many rows.
CPU_CHUNK, GPU_CHUNK = 2**16, 2**22
FEWEST_ROWS = 64

Objective = Callable[[Tensor, Tensor], Float[Tensor, " member"]]


class Learner:
    """A team in training: its weights, its optimizer, and their running average, which predicts. It owns no rows.

    Paper: the average over epochs stands for a decaying learning rate, because alternating training has no set end.
    """

    def __init__(
        self, network: Network, rows: Rows, n_outputs: int, settings: Settings, *, honest: bool = False
    ) -> None:
        self.settings = settings
        self.honest = honest  # whether it learns from rows with out-of-fold residuals alone, as I does
        n_members = rows.trains.shape[0] * rows.trains.shape[1]
        self.team = network.build(n_members, tuple(rows.x.shape[2:]), n_outputs).to(rows.y.device)
        self.team.sizes = tuple(rows.x.shape[2:]), n_outputs
        self.team.adapt(rows.x, (rows.trains | rows.leaves_out).any(dim=1))
        self.average = copy.deepcopy(self.team).eval().requires_grad_(False)
        self.optimizer = Adam(self.team, settings.learning_rate)
        self.n_epochs = self.n_steps = 0
        # Steps are captured on the GPU on whose streams torch works by itself.
        on_gpu = settings.device.type == "cuda" and settings.device.index in (None, torch.cuda.current_device())
        captured = self.team.capturable and on_gpu
        self.graphs = CudaGraphs(self.optimizer) if captured else None

    def start_from(self, members: slice, team: Team) -> None:
        """Let some members continue from those of a trained team."""
        now, before = (one.state_dict() for one in (self.team.deployed(members), team))
        if {name: value.shape for name, value in now.items()} != {name: value.shape for name, value in before.items()}:
            raise ValueError(
                "warm_start goes on from networks of the same kind, size and outputs, but network or matching has "
                "changed; fit with warm_start=False"
            )
        self.team.copy_from(team, members)
        self.average.copy_from(team, members)
        self.n_epochs = math.ceil(1 / (1 - self.settings.ema_decay))  # keep the start in the average

    def state(self) -> State:
        """All that further training depends on, the tensors themselves."""
        adam, state = self.optimizer, {"counts": torch.tensor([self.n_epochs, self.n_steps])}
        for kind, values in (("means", adam.means), ("squares", adam.squares), ("steps", adam.n_steps)):
            state |= {f"{kind}.{number}": value for number, value in enumerate(values)}
        for kind, team in (("team", self.team), ("average", self.average)):
            state |= {f"{kind}.{name}": value for name, value in team.state_dict().items()}
        return state | {"learning_rate": adam.learning_rate}

    def load_state(self, state: State) -> None:
        self.n_epochs, self.n_steps = state["counts"].tolist()
        for name, value in self.state().items():
            value.copy_(state[name])

    def descend(
        self, rows: Rows, epochs: int, objective: Objective, *, annealed: bool = False
    ) -> Float[Tensor, " member"]:
        """Train for some epochs; `objective(outputs, batch)` gives one number per member. Returns the mean loss.

        If `annealed`, the learning rate falls to zero along a cosine.
        """
        self.team.train()
        batches = rows.batches(self.settings.batch_size, epochs, honest=self.honest)

        def step(batch: Tensor) -> Tensor:
            outputs = self.team(rows.at(rows.x, batch).to(rows.y.dtype))  # image features are stored in fewer bits
            per_member = objective(outputs if rows.workers is None else rows.workers.together(outputs), batch)
            per_member.sum().backward()  # Adam is elementwise: members do not touch each other
            if rows.workers is not None:
                learning = [weight for weight in self.optimizer.weights if weight.grad is not None]
                gradients = rows.workers.summed([cast(Tensor, weight.grad) for weight in learning])
                for weight, gradient in zip(learning, gradients, strict=True):
                    weight.grad = gradient
            self.optimizer.step()
            return per_member.detach()

        # What passes between workers is not replayed.
        run = step if self.graphs is None or rows.workers is not None else self.graphs.replayed(step)
        rate, n_steps = self.settings.learning_rate, epochs * batches.n_steps
        for epoch in range(epochs):
            total = torch.zeros(self.team.n_members, device=rows.y.device)
            for step_number, batch in enumerate(batches.epoch(), start=epoch * batches.n_steps):
                if annealed:
                    self.optimizer.learning_rate.fill_(rate * (1 + math.cos(math.pi * step_number / n_steps)) / 2)
                total += run(batch)
            # The first epochs weigh equally, so that the random start soon fades.
            self.n_epochs += 1
            new_share = max(1 - self.settings.ema_decay, 1 / self.n_epochs)
            with torch.no_grad():
                for average, current in zip(self.average.parameters(), self.team.parameters(), strict=True):
                    average.lerp_(current, new_share)
                # Running statistics of a batch norm belong to the weights beside them, so they are averaged alike.
                for kept, latest in zip(self.average.buffers(), self.team.buffers(), strict=True):
                    kept.lerp_(latest, new_share) if kept.is_floating_point() else kept.copy_(latest)
            if not torch.isfinite(total).all():
                way_out = "lower learning_rate, or look for extreme values in X or y"
                raise NonFiniteLossError(f"the loss became NaN or infinite in training; {way_out}")
        self.n_steps += n_steps
        if rows.workers is not None:
            self._agree(rows.workers)
        return total / batches.n_steps

    @torch.no_grad()
    def _agree(self, workers: Workers) -> None:
        """Take the first worker's weights: unlike processors may round a step differently, and that would grow."""
        own = [*self.team.parameters(), *self.average.parameters()]
        first = workers.of_first(torch.cat([weight.flatten() for weight in own]))
        for weight, values in zip(own, first.split([weight.numel() for weight in own]), strict=True):
            weight.copy_(values.view_as(weight))

    def outputs(self, rows: Rows, *, left_out: bool = False) -> Float[Tensor, "member place output"]:
        """The averaged team's outputs for every row of its job, or for those that each member leaves out."""
        # Where nobody is left out, all members look at the same memory.
        view = rows if left_out and not rows.out_of_fold_view.literal else None
        return outputs_of(self.average, rows.x, rows.y.dtype, view)


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
            self.team.copy_from(self.learner.average, members, members)
        self.score = torch.where(better, score, self.score)
        self.unit = torch.where(better[:, None], unit, self.unit)
        return better

    def state(self) -> State:
        return {"score": self.score, "unit": self.unit} | {f"team.{n}": v for n, v in self.team.state_dict().items()}

    def load_state(self, state: State) -> None:
        self.score, self.unit = state["score"].to(self.score), state["unit"].to(self.unit)
        self.team.load_state_dict({name: state[f"team.{name}"] for name in self.team.state_dict()})

    def restore(self) -> None:
        state = self.team.state_dict()
        self.learner.average.load_state_dict(state)
        self.learner.team.load_state_dict(state)


@torch.no_grad()
def outputs_of(
    team: Team, x: Float[Tensor, "job row *input"], precision: torch.dtype, rows: Rows | None = None
) -> Float[Tensor, "member place output"]:
    """A team's outputs for all x, or for the rows that each member leaves out, computed in chunks."""
    chunk = CPU_CHUNK if x.device.type == "cpu" else GPU_CHUNK
    step = max(FEWEST_ROWS, chunk // (team.n_members * team.weight_of_row(x[0, 0].numel())))
    places = x if rows is None else rows.out_of_fold_view.left_out
    outputs, n_rows = torch.empty(0), places.shape[1]
    for first in range(0, n_rows, step):
        part = places[:, first : first + step]
        taken = team.for_members(part.to(precision)) if rows is None else rows.at(x, part).to(precision)
        found = team(taken)
        if first == 0:  # one place for all parts: kept apart they scatter the memory
            outputs = found.new_empty(len(found), n_rows, found.shape[-1])
        outputs[:, first : first + step] = found
    return outputs
