import pytest
import scale_training
import torch
from numpy.testing import assert_allclose
from scale_training import Case, Loop, LoopAsGraph, stack_of

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
