import json
from pathlib import Path

import onnx_speed
import onnxruntime
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The folder in which a quick run wrote."""
    folder = tmp_path_factory.mktemp("results")
    onnx_speed.main(["--quick", "--out", str(folder)])
    return folder


def read(folder, name="onnx-quick.json"):
    return json.loads((folder / name).read_text())


@pytest.mark.slow
def test_a_quick_run_measures_every_kind_both_ways_and_compares_their_bounds(quick_run):
    results = read(quick_run)
    assert [case["about"].split(":")[0] for case in results["found"]] == ["table", "series", "pictures"]
    for case, most in zip(results["found"], (1e-5, 1e-5, 1e-3), strict=True):
        assert 0 < case["largest difference"] < most
        for ways in case["batches"].values():
            assert {"torch", "onnxruntime"} <= set(ways)
            assert all(rate > 0 for rate in ways.values())
    assert results["environment"]["versions"]["onnxruntime"] == onnxruntime.__version__


@pytest.mark.slow
def test_the_text_is_written_from_the_numbers_and_nothing_else_is_left(quick_run):
    assert (quick_run / "onnx-quick.md").read_text() == onnx_speed.report(read(quick_run))
    assert sorted(path.name for path in quick_run.iterdir()) == ["onnx-quick.json", "onnx-quick.md"]


def test_the_committed_text_comes_from_the_committed_numbers():
    folder = BENCHMARKS / "results"
    assert (folder / "onnx.md").read_text() == onnx_speed.report(read(folder, "onnx.json"))
