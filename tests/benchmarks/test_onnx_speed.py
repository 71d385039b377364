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


def test_the_page_about_exports_quotes_what_is_stored():
    page = " ".join((BENCHMARKS.parent / "docs" / "export.md").read_text().split())
    table, series, pictures = read(BENCHMARKS / "results", "onnx.json")["found"]
    faster = {
        (name, rows): ways["onnxruntime"] / ways["torch"]
        for name, case in (("table", table), ("series", series))
        for rows, ways in case["batches"].items()
    }
    assert (
        f"one at a time {faster['table', '1']:.0f} times the rows per second of torch, 10,000 at a time "
        f"{faster['table', '10000']:.1f} times" in page
    )
    assert f"{faster['series', '1']:.0f} and {faster['series', '10000']:.1f} times" in page
    assert f"by {pictures['largest difference']:.1e} standard deviations" in page
    for ways in (table["batches"]["100"], table["batches"]["10000"]):
        assert 1.5 < ways["onnxruntime"] / ways["onnxruntime, float64"] < 3  # "twice as fast"


def test_the_committed_text_comes_from_the_committed_numbers():
    folder = BENCHMARKS / "results"
    assert (folder / "onnx.md").read_text() == onnx_speed.report(read(folder, "onnx.json"))
