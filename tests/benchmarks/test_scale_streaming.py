import pytest
import scale_streaming
import torch


@pytest.fixture(scope="module")
def quick_run():
    return scale_streaming.measure(torch.device("cpu"), quick=True)


@pytest.mark.slow
def test_a_quick_run_measures_both_sizes(quick_run):
    assert [one["rows"] for one in quick_run] == list(scale_streaming.QUICK_SIZES)
    for one in quick_run:
        assert one["members"] == scale_streaming.MEMBERS
        assert one["peak megabytes"] >= one["megabytes before"] > 0
        assert 0 < one["CPU seconds of a sweep"] < one["CPU seconds"]


@pytest.mark.slow
def test_targets_are_judged_by_the_numbers(quick_run):
    small = {**quick_run[0], "CPU seconds of a sweep": 29.0, "peak megabytes": 500.0}
    text = scale_streaming.lines([small, {**quick_run[1], "peak megabytes": 700.0}], "cpu")
    assert "one sweep over 600 rows 30 s: reached" in text
    assert "take 1.40 times the memory of 600, target 1.5: reached" in text
    slow = {**small, "CPU seconds of a sweep": 31.0}
    text = scale_streaming.lines([slow, {**quick_run[1], "peak megabytes": 800.0}], "cpu")
    assert text.count("MISSED") == 2


@pytest.mark.slow
def test_beside_a_gpu_the_clock_counts_and_no_target_of_a_cpu_is_judged(quick_run):
    on_gpu = [{**one, "clock seconds": 12.0, "megabytes on the GPU": 345.0} for one in quick_run]
    text = scale_streaming.lines(on_gpu, "cuda")
    assert "clock seconds of the fit" in text
    assert text.count("| 12 |") == text.count("| 345 |") == len(on_gpu)
    assert "Target" not in text
