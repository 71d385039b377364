import pytest
import scale_billion


def fit(rows, seconds, rounds):
    own = {"rows": rows, "CPU seconds": seconds, "rounds": rounds, "rounds of a sweep": rows // 250_000}
    own |= {"CPU seconds of a sweep": 3.0 * rows / 250_000, "peak megabytes": 1000.0, "megabytes before": 300.0}
    return {**own, "megabytes of files": rows / 2**13, "members": 5}


STREAMED = [fit(1_000_000, 5 * 3.0 + 1.0 + 2.0, 5), fit(10_000_000, 8 * 3.0 + 1.0 + 20.0, 8)]
ROWS = [
    {"number": number, "rounds": 2, "CPU seconds": 10 + 2 * number * 3.6e-6, "peak megabytes": 400 + number / 2**10}
    for number in (10**5, 10**6)
]


def test_the_passes_of_a_streamed_fit_grow_and_its_rounds_do_not():
    """Three seconds a round; one second of start; two microseconds a row of passes."""
    cost = scale_billion.streamed(STREAMED)
    assert cost["hours of the passes"] == pytest.approx(2000 / 3600)
    assert cost["hours of the rounds"] == pytest.approx(300 / 3600)
    assert cost["hours of a sweep"] == pytest.approx(12_000 / 3600)
    assert cost["terabytes of files"] == pytest.approx(0.128)  # 128 bytes a row
    assert cost["gigabytes of memory"] == pytest.approx(1.048576)


def test_memory_of_a_fit_in_memory_grows_by_its_slope():
    cost = scale_billion.in_memory(ROWS)
    assert cost["hours"] == pytest.approx(1.0)  # 3.6 microseconds a row and round
    assert cost["terabytes"] == pytest.approx(1.024)  # a kilobyte a row


def test_the_words_say_that_they_are_an_extrapolation_and_nothing_where_nothing_was_measured():
    both = scale_billion.lines({"rows": {"found": ROWS}, "streaming": {"found": STREAMED}})
    assert both.startswith("Extrapolated from measured slopes, not measured.")
    assert "1.02 TB of memory and 1 hours a round" in both
    assert "rounds see a share of the rows" not in scale_billion.lines({"rows": {"found": ROWS}})
    assert scale_billion.lines({}) == ""
