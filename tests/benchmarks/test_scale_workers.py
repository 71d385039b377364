import pytest
import scale_workers


@pytest.mark.parametrize(("two", "word"), [(120.0, "reached"), (130.0, "MISSED")])
def test_two_workers_are_judged_beside_one(two, word):
    found = {"grid": "--trials 6", "seconds": {"Ray": {"1": 200.0, "2": two}}}
    assert f"Target for two workers of Ray: 1.6 times faster than one. {word}." in scale_workers.lines(found, "cpu")


def test_a_grid_that_is_too_short_is_not_judged():
    found = {"grid": "--trials 6", "seconds": {"processes": {"1": 20.0, "2": 10.0}, "Ray": {"1": 20.0, "2": 10.0}}}
    text = scale_workers.lines(found, "cpu")
    assert "Target" not in text
    assert "| times faster | 2.00 | 2.00 |" in text
