import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch

from coverwell.folds import Problem
from coverwell.networks.mlp import MLP
from coverwell.streaming.row_hash import N_LANES
from coverwell.streaming.workers import ALONE, Alone, LaneBatches, SharedLearner, SharedProblem, lanes_of

N_ROWS, N_MEMBERS, BATCH = 800, 3, 64


class Meeting:
    """Where two threads lay down what they have, and see what the other has."""

    def __init__(self):
        self.barrier, self.laid = threading.Barrier(2, timeout=60), {}

    def exchange(self, rank, things):
        self.laid[rank] = things
        self.barrier.wait()
        both = [self.laid[0], self.laid[1]]
        self.barrier.wait()  # nobody lays down the next before both have seen these
        return both


@dataclass(frozen=True)
class OneOfTwo:
    """A worker in a thread of its own."""

    rank: int
    meeting: Meeting
    size: int = 2

    def together(self, own):
        parts = self.meeting.exchange(self.rank, own.detach())
        parts[self.rank] = own
        return torch.cat(parts, dim=1)

    def summed(self, gradients):
        return [one + other for one, other in zip(*self.meeting.exchange(self.rank, gradients), strict=True)]


def table():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N_ROWS, 4, generator=generator)
    y = x[:, :1].sin() + 0.1 * torch.randn(N_ROWS, 1, generator=generator)
    fold = torch.randint(N_MEMBERS, (N_ROWS,), generator=generator)
    lanes = torch.randint(N_LANES, (N_ROWS,), generator=generator)
    return x, y, fold == torch.arange(N_MEMBERS)[:, None], lanes


def batches_of(trains, lanes, own, *, epochs=1, batch_size=BATCH, longest=None):
    if longest is None:
        longest = max(int(trains[:, lanes == lane].sum(dim=1).max()) for lane in range(N_LANES))
    return LaneBatches(trains, lanes, own=own, longest=longest, batch_size=batch_size, epochs=epochs, seed=7)


def soft_coverage(problem):
    """A loss that is no mean over rows: a batch's share of rows near the prediction, off by its target."""

    def loss(outputs, rows):
        near = torch.sigmoid(20 * (0.3 - (outputs - problem.rows_of(problem.y, rows)).abs()))
        return (near.mean(dim=(1, 2)) - 0.9).abs() + (outputs - problem.rows_of(problem.y, rows)).square().mean((1, 2))

    return loss


def trained(workers):
    """The weights of a small team after two epochs, by this worker."""
    x, y, left_out, lanes = table()
    longest = max(int((~left_out)[:, lanes == lane].sum(dim=1).max()) for lane in range(N_LANES))
    own = torch.isin(lanes, torch.tensor(list(lanes_of(workers))))
    problem = Problem(x[None, own], y[None, own], ~left_out[None][..., own], left_out[None][..., own], torch.ones(1, 1))
    team = MLP(hidden=8, bins=0, dropout=0.0).build(N_MEMBERS, (4,), 1)
    generator = torch.Generator().manual_seed(1)  # of its own: threads share the usual one
    with torch.no_grad():
        for weight in team.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    learner = SharedLearner(team, problem, learning_rate=1e-2, memory=0.5, workers=workers)
    learner.batches = batches_of(problem.trains[0], lanes[own], lanes_of(workers), longest=longest)
    losses = learner.descend(2, soft_coverage(SharedProblem.of(problem, workers)))
    return losses, {name: value.clone() for name, value in team.state_dict().items()}


def test_two_workers_learn_what_one_learns():
    meeting = Meeting()
    with ThreadPoolExecutor(2) as threads:
        (losses_of_two, first), (_, second) = threads.map(trained, [OneOfTwo(0, meeting), OneOfTwo(1, meeting)])
    losses, weights = trained(ALONE)
    torch.testing.assert_close(losses_of_two, losses, rtol=0, atol=1e-4)
    for name, value in weights.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-4)


def agreed(worker):
    """The weights of a worker, started from numbers of its own, after it has agreed with the other."""
    x, y, left_out, _ = table()
    problem = Problem(x[None], y[None], ~left_out[None], left_out[None], torch.ones(1, 1))
    team = MLP(hidden=2, layers=2, bins=0).build(N_MEMBERS, (4,), 1)
    with torch.no_grad():
        for weight in team.parameters():
            weight.fill_(1.0 + worker.rank)
    learner = SharedLearner(team, problem, learning_rate=1e-2, memory=0.5, workers=worker)
    learner.agree()
    return [*learner.team.parameters(), *learner.average.parameters()]


def test_workers_agree_on_the_weights_of_the_first():
    meeting = Meeting()
    with ThreadPoolExecutor(2) as threads:
        for weights in threads.map(agreed, [OneOfTwo(0, meeting), OneOfTwo(1, meeting)]):
            assert all((weight == 1.0).all() for weight in weights)


@pytest.mark.parametrize(("size", "own"), [(1, range(8)), (2, range(4, 8)), (8, range(1, 2))])
def test_workers_share_the_lanes(size, own):
    assert lanes_of(Alone(rank=int(size > 1), size=size)) == own


def test_a_number_of_workers_that_does_not_divide_the_lanes_is_refused():
    with pytest.raises(ValueError, match="must divide 8, got 3; take 1, 2, 4 or 8"):
        lanes_of(Alone(size=3))


def test_batches_of_half_the_lanes_are_half_of_the_batches():
    _, _, left_out, lanes = table()
    trains = ~left_out
    whole = list(batches_of(trains, lanes, range(8)).epoch())
    halves = [list(batches_of(trains, lanes, own).epoch()) for own in (range(4), range(4, 8))]
    for batch, first, second in zip(whole, *halves, strict=True):
        assert torch.equal(batch, torch.cat([first, second], dim=1))


def test_an_epoch_of_few_rows_gives_every_member_its_rows_and_no_others():
    _, _, left_out, lanes = table()
    batches = batches_of(~left_out, lanes, range(8))
    for epoch in range(2):
        rows = torch.cat(list(batches.epoch()), dim=1)
        for member in range(N_MEMBERS):
            assert set(rows[member].tolist()) == set((~left_out[member]).nonzero()[:, 0].tolist()), epoch


def test_batches_have_an_equal_share_of_every_lane():
    _, _, left_out, lanes = table()
    for batch in batches_of(~left_out, lanes, range(8)).epoch():
        for rows in batch:
            assert lanes[rows].bincount(minlength=8).unique().numel() == 1


def test_a_round_of_many_rows_passes_over_them_once():
    n_rows, epochs = 60_000, 3
    lanes = torch.arange(n_rows) % 8
    trains = torch.ones(1, n_rows, dtype=torch.bool)
    batches = batches_of(trains, lanes, range(8), epochs=epochs, batch_size=256, longest=n_rows // 8)
    rows = torch.cat([batch for _ in range(epochs) for batch in batches.epoch()], dim=1)[0]
    times = rows.bincount(minlength=n_rows)
    assert times.min() == 1
    assert len(rows) - n_rows <= epochs * 8 * batches.n_steps  # to make batches even
    assert times.max() <= 2


def test_a_member_without_rows_is_told():
    _, _, left_out, lanes = table()
    with pytest.raises(ValueError, match="every member needs rows to train on in every buffer"):
        batches_of(torch.zeros_like(left_out), lanes, range(8), longest=1)
