"""Where and how training steps run: device, seed, threads, optimizer, CUDA graphs, and too little memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor
from torch.backends import cudnn
from torch.optim.adam import adam

from coverwell.errors import NotEnoughMemoryError
from coverwell.networks.mlp import MLP
from coverwell.networks.team import Team

if TYPE_CHECKING:
    from coverwell.training.rows import Rows

Result = TypeVar("Result", covariant=True)
Step = Callable[[Tensor], Tensor]

ORDINARY_STEPS = 3  # before the first capture, see `CudaGraphs`
FEW_ROWS = 10_000  # below which one thread calibrates a model
SMALL_STEP = 4e9  # floating-point operations of one step below which a second thread waits more than it works
fused_adam = partial(
    adam, fused=True, amsgrad=False, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, maximize=False
)


def device_from(choice: str | torch.device) -> torch.device:
    """The device that is asked for; "auto" is CUDA where there is one."""
    if choice == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(choice)
    except RuntimeError:
        must = "device must be 'auto', 'cpu', 'cuda' or another name that torch knows"
        raise ValueError(f"{must}, got {choice!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(choice)!r} is not available here; use device='cpu' or 'auto'")
    return device


def side_by_side(run: Callable[[int], Result], places: range, n_threads: int) -> list[Result]:
    """What `run` gives for each place, in their order; with several threads, one place on each at a time."""
    if n_threads == 1 or len(places) == 1:
        return list(map(run, places))
    before = torch.get_num_threads()
    try:  # a new thread takes the number that was set last, so each says that it works alone
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, places))
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw everything inside from one seed, and leave the caller's random state as it was.

    On a GPU, convolutions also run in a fixed order.
    """
    cuda, before = [device] if device.type == "cuda" else [], cudnn.deterministic
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed GPUs that are not ours
        if cuda:
            cudnn.deterministic = True
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            cudnn.deterministic = before


@dataclass(frozen=True)
class Settings:
    """How every team of a fit is trained."""

    max_rounds: int
    batch_size: int
    learning_rate: float
    ema_decay: float
    device: torch.device


def auto_batch_size(n_rows: int) -> int:
    """Small batches for small tables, which otherwise see few steps an epoch."""
    return 64 if n_rows < 1000 else 128 if n_rows < 2500 else 256


class Adam:
    """Adam with torch's defaults (Kingma and Ba 2015), for all weights of a team in one call.

    The class in torch.optim gives the same bits, but loads torch's compiler when it is first made, which costs a second
    and 65 MB, and spends longer on each step.
    """

    def __init__(self, team: Team, learning_rate: float) -> None:
        self.weights: list[Tensor] = list(filter(attrgetter("requires_grad"), team.parameters()))
        self.means = list(map(torch.zeros_like, self.weights))
        self.squares = list(map(torch.zeros_like, self.weights))
        device = self.weights[0].device if self.weights else None
        # A tensor, so that a replayed step sees it change; a GPU's kernel takes it in single precision.
        precision = torch.float32 if device is not None and device.type == "cuda" else torch.float64
        self.learning_rate = torch.tensor(learning_rate, dtype=precision, device=device)
        self.n_steps = list(torch.zeros(len(self.weights), device=device).unbind())

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights against their gradients, and drop the gradients."""
        for weight in self.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        gradients = list(map(attrgetter("grad"), self.weights))
        fused_adam(self.weights, gradients, self.means, self.squares, [], self.n_steps, lr=self.learning_rate)
        for weight in self.weights:
            weight.grad = None


class CudaGraphs:
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
                with self._apart():
                    return step(rows)
            graph, input_rows, losses = captured
            input_rows.copy_(rows)
            graph.replay()
            return losses

        return replay

    def _captured(self, step: Step, rows: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None:
        graph, input_rows = torch.cuda.CUDAGraph(), rows.clone()
        try:
            with self._apart():
                graph.capture_begin(pool=self.pool)
                try:
                    losses = step(input_rows)
                finally:
                    graph.capture_end()
        except RuntimeError:
            for weight in self.optimizer.weights:
                weight.grad = None  # what was recorded was never computed
            self.n_ordinary = -1  # never again
            return None
        self.latest = graph
        return graph, input_rows, losses

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Work on a stream of its own, as capturing needs it."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


@runtime_checkable
class Trainable(Protocol[Result]):
    """How an estimator trains all jobs at once; `shortened` has as little training as shows whether it fits memory."""

    @property
    def settings(self) -> Any: ...

    @property
    def network(self) -> Any: ...

    def run(self, rows: Rows, on_round: Callable[..., None]) -> Result: ...

    def shortened(self) -> Trainable[Result]: ...


def few_threads(training: Trainable[Any], rows: Rows) -> AbstractContextManager[None]:
    """One thread while training steps are small, the caller's number for large ones; restored afterwards."""
    per_row = getattr(training.network, "operations_per_row", MLP().operations_per_row)  # a user's own: a guess
    n_networks = training.settings.batch_size * rows.trains.shape[0] * rows.trains.shape[1]
    return one_thread(6.0 * n_networks * float(per_row(rows.x[0, 0].numel())) < SMALL_STEP)


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """One thread, if wanted; the caller's number is restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_within_memory(training: Trainable[Result], rows: Rows, on_round: Callable[..., None]) -> Result:
    """What training the jobs gives; where memory is too short, the error says how many members would fit.

    Raises
    ------
    NotEnoughMemoryError
    """
    attempt, some, fits = training, rows, (0, 0)
    while True:
        try:
            trained = attempt.run(some, on_round if some is rows else lambda *_: None)
            if some is rows:
                return trained
            fits = some.n_jobs, some.members_per_job
            break
        except (RuntimeError, MemoryError) as error:  # a CPU's allocator has no error of its own
            known = isinstance(error, torch.OutOfMemoryError | MemoryError)
            if not known and "can't allocate memory" not in str(error):
                raise
        n_jobs, n_members = some.n_jobs, some.members_per_job
        if n_jobs * n_members == 1:
            break
        # Only here, where the error and the tensors that its traceback held are gone, can their memory be used again.
        gc.collect()
        if training.settings.device.type == "cuda":
            torch.cuda.empty_cache()
        halved = (n_jobs // 2, n_members) if n_jobs > 1 else (1, n_members // 2)
        attempt, some = training.shortened(), rows.few(*halved)
    device = training.settings.device
    memory = "this machine has free" if device.type == "cpu" else f"the {device.type} has free"
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        memory = f"{torch.cuda.get_device_name(device)} has ({total / 1e9:.1f} GB, {free / 1e9:.1f} GB free)"
    raise NotEnoughMemoryError(memory, rows.n_jobs, rows.members_per_job, fits)
