import pytest
import scale_floors
import torch
from hypothesis import given, settings
from hypothesis.strategies import integers, lists
from scale_floors import bytes_moved, multiply_adds
from scale_training import Case, plain_network

CPU = torch.device("cpu")
SIZES = lists(integers(1, 9), min_size=2, max_size=5)


def test_multiply_adds_of_a_small_network_worked_out_by_hand():
    """2 inputs, 3 hidden, 1 output, 4 rows: 4 x (6 + 3) forward, as many for the weights, 4 x 3 for the hidden."""
    assert multiply_adds([2, 3, 1], 4) == 36 + 36 + 12


def test_bytes_of_a_small_network_worked_out_by_hand():
    """13 weights read and written in four kinds; 4 x 2 inputs and 4 targets read; 4 x (3 + 1) outputs, both ways."""
    assert bytes_moved([2, 3, 1], 4) == 4 * (8 * 13 + 8 + 4 + 2 * 16)


@given(sizes=SIZES, n_rows=integers(1, 9))
@settings(deadline=None)
def test_multiply_adds_are_those_that_torch_counts(sizes, n_rows):
    """A twin: torch's own counter of the products of a forward and a backward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    network, x = plain_network(sizes), torch.zeros(n_rows, sizes[0])
    with FlopCounterMode(display=False) as counter:
        network(x).sum().backward()
    assert 2 * multiply_adds(sizes, n_rows) == counter.get_total_flops()


def test_the_floors_of_the_case_that_is_judged_are_those_of_the_data_sheet():
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
    assert case["seconds"] > 0 < case["seconds of the step alone"]
    assert case["floors"] is None  # we have no data sheet of this processor
    assert set(case["measured floors"]) == {"arithmetic", "memory"}
    assert scale_floors.ratio(case, "measured floors") > 0
    assert "no data sheet" in scale_floors.lines(found, "cpu")
