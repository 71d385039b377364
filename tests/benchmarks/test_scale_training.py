import pytest
import scale_floors
import scale_training
import torch
from hypothesis import given, settings
from hypothesis.strategies import integers, lists
from numpy.testing import assert_allclose
from scale_floors import bytes_moved, multiply_adds
from scale_training import Case, Loop, LoopAsGraph, plain_network, stack_of

CPU = torch.device("cpu")
CASE = Case(members=3, hidden=6, batch_size=10, rows=40, features=4, layers=3)


def give_the_start_of(stack, loop):
    """Let the networks of a loop begin where the members of a stack do."""
    for member, model in enumerate(loop.models):
        linears = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
        for linear, stacked in zip(linears, stack.learner.team.layers, strict=True):
            linear.weight.data.copy_(stacked.weight[member].T)
            linear.bias.data.copy_(stacked.bias[member, 0])


def capturable_in_name_alone():
    """The loop that is to be a graph; torch's Adam is capturable on a GPU alone."""
    loop = LoopAsGraph(CASE, CPU)
    for optimizer in loop.optimizers:
        for group in optimizer.param_groups:
            group["capturable"] = False
    return loop


def train_on(batches, loop):
    for rows in batches:
        for member in range(CASE.members):
            loop.step(member, rows[member])


@pytest.mark.parametrize(
    ("loop_of", "train"),
    [
        (lambda: Loop(CASE, CPU), lambda loop, batches: train_on(batches, loop)),
        (capturable_in_name_alone, lambda loop, batches: loop.train(1)),
    ],
    ids=["loop", "loop, one CUDA graph"],
)
def test_loop_and_stack_train_the_same_networks_alike_on_the_same_batches(loop_of, train):
    stack, loop = stack_of(CASE, CPU), loop_of()
    give_the_start_of(stack, loop)
    start = loop.error()
    torch.manual_seed(1)
    batches = list(stack.batches.epoch())
    torch.manual_seed(1)
    stack.descend(stack.squared_error, epochs=1)
    torch.manual_seed(1)
    train(loop, batches)
    assert len(batches) == 4
    assert loop.error() < start
    assert_allclose(loop.error(), scale_training.error_of_stack(stack), rtol=1e-5)
    for member, model in enumerate(loop.models):
        assert_allclose(model[0].weight.detach().T, stack.learner.team.layers[0].weight[member].detach(), atol=1e-5)


@pytest.mark.parametrize("name", [scale_training.LOSS_OF_F, scale_training.LOSS_OF_I])
def test_the_losses_of_a_round_are_those_that_a_fit_has_and_can_be_trained_on(name):
    stack = stack_of(CASE, CPU, outputs=2)
    losses = scale_training.losses_of_a_round(stack.rows)
    assert len(losses) == 2
    first = stack.descend(losses[name], epochs=1)
    assert (stack.descend(losses[name], epochs=400) < first).all()


def test_multiply_adds_and_bytes_of_a_small_network_worked_out_by_hand():
    # 2 inputs, 3 hidden, 1 output, 4 rows: 4 x (6 + 3) forward, as many for the weights, 4 x 3 for the hidden.
    assert multiply_adds([2, 3, 1], 4) == 36 + 36 + 12
    # 13 weights read and written in four kinds; 4 x 2 inputs and 4 targets read; 4 x (3 + 1) outputs, both ways.
    assert bytes_moved([2, 3, 1], 4) == 4 * (8 * 13 + 8 + 4 + 2 * 16)


@given(sizes=lists(integers(1, 9), min_size=2, max_size=5), n_rows=integers(1, 9))
@settings(deadline=None)
def test_multiply_adds_are_those_that_torch_counts(sizes, n_rows):
    """A twin: torch's own counter of the products of a forward and a backward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    network, x = plain_network(sizes), torch.zeros(n_rows, sizes[0])
    with FlopCounterMode(display=False) as counter:
        network(x).sum().backward()
    assert 2 * multiply_adds(sizes, n_rows) == counter.get_total_flops()


def test_the_floors_of_the_case_with_a_target_are_those_of_the_data_sheet():
    """600,832 multiply-adds a row of one network in FP32: 1024 rows take 18.4 microseconds at 67 TFLOP/s."""
    case = Case(members=75, hidden=256, batch_size=1024, rows=1024)
    sheet = scale_floors.DATA_SHEETS["H200"]
    rates = {"operations": sheet.operations["FP32"], "bytes": sheet.bytes_moved}
    found = scale_floors.floors(case, rates, case.members * bytes_moved(case.sizes, case.batch_size))
    assert found["arithmetic"] == pytest.approx(75 * 18.37e-6, rel=1e-3)
    assert found["memory"] == pytest.approx(75 * 3.12e-6, rel=1e-2)


def test_a_quick_measurement_has_a_step_beside_floors_by_measured_rates():
    found = scale_floors.measure(CPU, quick=True)
    (case,) = found["cases"]
    assert case["floors"] is None  # we have no data sheet of this processor
    assert scale_floors.ratio(case, "measured floors") > 0
    assert "no data sheet" in scale_floors.lines(found, "cpu")
