"""Two processes of torch.distributed, as Ray tasks: what they gather and sum, with numbers worked out by hand."""

import sys

import pytest
import torch
import torch.distributed as dist

from coverwell.scale import TorchWorkers
from coverwell.streaming.workers import Workers, of_first

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

X = ([1.0, 1.0], [0.0, 0.0])  # the rows of both workers


def missed(share):
    """A loss of a batch that is no mean over its rows, as the coverage terms are."""
    return (share - 0.5).square()


def met(rank, place):
    """What one of two workers sees: numbers that travel, and the gradients of a loss over the batch of both."""
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    try:
        workers = TorchWorkers(torch.device("cpu"))
        weight = torch.tensor(1.0, requires_grad=True)
        outputs = weight * torch.tensor([X[rank]])  # (member, own batch)
        batch = workers.together(outputs)
        missed(batch.mean()).backward(retain_graph=True)
        (of_batch,) = workers.summed([weight.grad])
        of_halves = torch.autograd.grad(missed(outputs.mean()), weight)
        first, second = workers.summed([torch.tensor([1.0, rank]), torch.tensor([[2.0], [3.0]])])
        return {
            "place": (workers.rank, workers.size, isinstance(workers, Workers)),
            "batch": batch.tolist(),
            "of batch": of_batch.item(),
            "of halves": workers.summed([of_halves[0]])[0].item() / 2,
            "summed": (first.tolist(), second.tolist()),
            "counted": workers.summed([torch.tensor([2**40 + rank])])[0].tolist(),
            "of first": of_first(workers, torch.tensor([[1.0 + rank], [5.0 - rank]])).tolist(),
        }
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(connected, tmp_path_factory):
    place = tmp_path_factory.mktemp("meeting") / "place"
    task = ray.remote(num_cpus=0)(met)
    return ray.get([task.remote(rank, place) for rank in range(2)], timeout=60)


def test_each_knows_its_place(both):
    assert [said["place"] for said in both] == [(0, 2, True), (1, 2, True)]


def test_a_batch_is_that_of_both_by_rank(both):
    assert [said["batch"] for said in both] == [[[1.0, 1.0, 0.0, 0.0]]] * 2


def test_coverage_is_that_of_the_whole_batch(both):
    # Half of the batch is inside, as is asked: nothing is to be learned. Each half by itself is 0.5 off, and the first
    # would learn 2 * 0.5 * 1 from that, the second nothing, since its inputs are zero: 0.5 on average.
    assert [said["of batch"] for said in both] == [0.0, 0.0]
    assert [said["of halves"] for said in both] == [0.5, 0.5]


def test_sums_keep_their_shapes_and_whole_numbers_stay_exact(both):
    assert [said["summed"] for said in both] == [([2.0, 1.0], [[4.0], [6.0]])] * 2
    assert [said["counted"] for said in both] == [[2**41 + 1]] * 2


def test_the_values_of_the_first_reach_all(both):
    assert [said["of first"] for said in both] == [[[1.0], [5.0]]] * 2
