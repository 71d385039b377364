"""Graphs in the making."""

import numpy as np
import pytest
from coverwell.export.graph import Graph, Input, needed


@pytest.fixture
def computed(run_file, tmp_path):
    """What a graph of one input x of float64, (row, size), computes."""

    def compute(make, x, n_columns):
        graph = Graph()
        value = make(graph, graph.input(Input("x", np.float64, x.shape[1:], "numbers")))
        model = graph.model({"y": (value, [n_columns])}, {"key": "told"}, "a test")
        (tmp_path / "graph.onnx").write_bytes(model.SerializeToString())
        return run_file(tmp_path / "graph.onnx", {"x": x})["y"]

    return compute


def test_softplus_neither_overflows_nor_loses_small_numbers(computed):
    x = np.array([[-800.0, -20.0, 0.0, 3.0, 800.0]])
    np.testing.assert_allclose(computed(lambda g, v: g.softplus(v), x, 5), np.logaddexp(0, x), rtol=1e-7)


def test_equal_constants_are_kept_once():
    graph = Graph()
    first, again, other = (graph.constant(np.array(values)) for values in ([1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]]))
    assert first == again != other
    assert len(graph.constants) == 2


def test_a_slice_may_run_backwards(computed):
    x = np.arange(6.0).reshape(2, 3)
    turned = computed(lambda g, v: g.sliced(v, -1, -(2**63 - 1), axis=1, step=-1), x, 3)
    np.testing.assert_array_equal(turned, x[:, ::-1])


def test_a_row_with_a_number_that_is_not_finite_is_spoiled(computed):
    x = np.array([[1.0, 2.0], [np.nan, 2.0], [1.0, -np.inf]])
    spoiling = computed(lambda g, v: g.nan_unless_finite(v, 2), x, 1)
    np.testing.assert_array_equal(spoiling, [[0.0], [np.nan], [np.nan]])


def test_a_package_that_is_absent_is_told_with_the_extra_that_brings_it():
    with pytest.raises(ImportError, match=r"needs no_such; install the extra `onnx`: pip install 'coverwell\[onnx\]'"):
        needed("no_such")
