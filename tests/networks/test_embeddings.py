import numpy as np
import pytest
import torch
from coverwell.networks.embeddings import PiecewiseLinear
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

cells = st.floats(-5, 5, width=32)


def adapted(columns, *, bins, n_members=1):
    """A code whose edges come from one job with these rows, (row, feature)."""
    rows = torch.as_tensor(columns, dtype=torch.float32)
    code = PiecewiseLinear(n_members, rows.shape[1], bins)
    code.adapt(rows[None], torch.ones(1, len(rows), dtype=torch.bool))
    return code


def numpy_code(x, edges):
    """The code of the values x by these edges: 1 for a bin passed, a fraction within, 0 before; 0 in an empty bin."""
    low, high = edges[:-1], edges[1:]
    span = np.where(high > low, high - low, 1.0)
    return np.where(high > low, np.clip((np.asarray(x)[:, None] - low) / span, 0, 1), 0.0)


def test_the_code_by_hand():
    code = adapted([[0.0], [1.0], [2.0], [3.0], [4.0]], bins=2)  # edges 0, 2, 4
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 9.0]).reshape(1, -1, 1)
    expected = [[-1, 0, 0], [0, 0, 0], [1, 0.5, 0], [2, 1, 0], [3, 1, 0.5], [4, 1, 1], [9, 1, 1]]
    assert_array_equal(code(x)[0], expected)


def test_all_columns_come_first_and_then_their_codes_one_by_one():
    code = adapted([[0.0, 10.0], [1.0, 20.0], [2.0, 40.0]], bins=2)  # edges 0, 1, 2 and 10, 20, 40
    assert code.n_outputs == 6
    assert_array_equal(code(torch.tensor([[[1.5, 15.0]]]))[0, 0], [1.5, 15.0, 1.0, 0.5, 0.5, 0.0])


@given(
    column=arrays(np.float32, 13, elements=cells),
    x=arrays(np.float32, 6, elements=cells),
    bins=st.sampled_from([1, 3, 4]),
)
def test_the_code_is_that_of_numpy_with_order_statistics_for_edges(column, x, bins):
    code = adapted(column[:, None], bins=bins)
    edges = np.sort(column)[:: 12 // bins].astype(np.float64)  # 12 steps between 13 rows
    outputs = code(torch.as_tensor(x).reshape(1, -1, 1))[0].numpy()
    span = np.diff(edges)
    assert_array_equal(outputs[:, 0], x)
    assert_allclose(outputs[:, 1:], numpy_code(x, edges), atol=1e-5 + 1e-6 / span[span > 0].min(initial=1.0))


def test_edges_are_the_nearest_observed_quantiles():
    column = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    code = adapted(column[:, None], bins=16)
    nearest = np.quantile(column, np.linspace(0, 1, 17), method="nearest")
    assert_array_equal(code.start[0, 0, 0], nearest[:-1])
    assert_allclose(code.slope[0, 0, 0], 1 / np.diff(nearest), rtol=1e-5)


@given(column=arrays(np.float32, 20, elements=cells), x=arrays(np.float32, 8, elements=cells))
def test_the_code_is_between_zero_and_one_and_rises_with_the_value(column, x):
    outputs = adapted(column[:, None], bins=5)(torch.as_tensor(np.sort(x)).reshape(1, -1, 1))[0, :, 1:]
    assert (outputs >= 0).all()
    assert (outputs <= 1).all()
    assert (outputs.diff(dim=0) >= 0).all()


def test_about_the_same_share_of_training_rows_lies_in_every_bin():
    column = np.random.default_rng(1).lognormal(size=801).astype(np.float32)
    outputs = adapted(column[:, None], bins=8)(torch.as_tensor(column).reshape(1, -1, 1))[0, :, 1:]
    passed = (outputs > 1 - 1e-6).sum(dim=0)
    assert_array_equal(passed, 801 - 100 * np.arange(1, 9))  # 800 steps of rank, 100 in each bin


def test_a_constant_column_has_no_code():
    code = adapted([[3.0]] * 10, bins=4)
    outputs = code(torch.tensor([2.0, 3.0, 4.0]).reshape(1, -1, 1))
    assert_array_equal(outputs[0], [[2, 0, 0, 0, 0], [3, 0, 0, 0, 0], [4, 0, 0, 0, 0]])


def test_a_column_of_two_values_has_one_bin():
    code = adapted([[0.0]] * 6 + [[1.0]] * 3, bins=4)  # edges 0, 0, 0, 1, 1
    outputs = code(torch.tensor([0.0, 0.25, 1.0]).reshape(1, -1, 1))[0, :, 1:]
    assert_array_equal(outputs, [[0, 0, 0, 0], [0, 0, 0.25, 0], [0, 0, 1, 0]])


def test_values_that_lie_as_close_as_floats_can_give_a_finite_code():
    tiny = np.float32(np.finfo(np.float32).tiny)
    outputs = adapted([[0.0], [tiny], [1.0]], bins=2)(torch.tensor([0.0, tiny, 0.5, 3e38]).reshape(1, -1, 1))
    assert torch.isfinite(outputs).all()
    assert_array_equal(outputs[0, :, 1], [0, 1, 1, 1])


def test_fewer_rows_than_bins_give_fewer_bins():
    outputs = adapted([[0.0], [1.0]], bins=8)(torch.tensor([0.0, 0.5, 1.0]).reshape(1, -1, 1))[0, :, 1:]
    assert_array_equal(outputs.sum(dim=1), [0.0, 0.5, 1.0])


def test_the_members_of_a_job_share_its_edges_and_other_jobs_have_their_own():
    code = PiecewiseLinear(n_members=4, n_features=1, bins=2)
    jobs = torch.tensor([[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]]).reshape(2, 3, 1)
    code.adapt(jobs, torch.ones(2, 3, dtype=torch.bool))
    outputs = code(torch.full((4, 1, 1), 5.0))[:, 0, 1:]
    assert_array_equal(outputs, [[1, 1], [1, 1], [0.5, 0], [0.5, 0]])


def test_rows_of_padding_do_not_move_the_edges():
    rows = torch.randn(1, 50, 3)
    alone, padded = PiecewiseLinear(2, 3, 8), PiecewiseLinear(2, 3, 8)
    alone.adapt(rows, torch.ones(1, 50, dtype=torch.bool))
    padded.adapt(torch.cat([rows, torch.full((1, 30, 3), 99.0)], dim=1), torch.arange(80)[None] < 50)
    assert_array_equal(padded.start, alone.start)
    assert_array_equal(padded.slope, alone.slope)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_code_has_the_precision_of_the_team(dtype):
    code = adapted(np.random.default_rng(2).normal(size=(30, 2)), bins=4).to(dtype)
    outputs = code(torch.zeros(1, 3, 2, dtype=dtype))
    assert outputs.dtype == dtype
    assert outputs.shape == (1, 3, 10)


def test_edges_are_kept_with_the_weights_but_are_not_trained():
    code = adapted([[0.0], [1.0], [2.0]], bins=2)
    assert list(code.parameters()) == []
    assert set(code.state_dict()) == {"start", "slope"}
    other = PiecewiseLinear(1, 1, 2)
    other.load_state_dict(code.state_dict())
    x = torch.randn(1, 9, 1)
    assert_array_equal(other(x), code(x))


def test_the_given_inputs_are_not_changed():
    code = adapted([[0.0], [1.0], [2.0]], bins=2)
    x = torch.tensor([[[5.0], [-5.0]]])
    code(x)
    assert_array_equal(x, [[[5.0], [-5.0]]])
