"""Tables as text: digits, alignment, and CSV that a machine reads back."""

import csv
import io

import pytest

from reproduction.tables import typeset
from reproduction.tables.typeset import Estimate, Target, mean_of_seeds, number, with_error


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123456, "0.01235"), (2.0, "2.000"), (999.96, "1000"), (1234.5, "1234"), (0.0, "0.000"), (-1.5, "-1.500")],
)
def test_a_number_has_four_digits_and_no_exponent(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (0.13696, 0.0041, "0.1370 (0.0041)"),
        (3.1004, 0.38, "3.10 (0.38)"),
        (123.4, 12.3, "123 (12)"),
        (1234.5, 456.7, "1234 (457)"),
        (2.0, 0.0, "2.000"),
    ],
)
def test_a_mean_is_printed_to_the_second_digit_of_its_error(mean, error, text):
    assert with_error(Estimate(mean, error, 5)) == with_error(Estimate(mean, error, 5), of=5) == text
    assert with_error(Estimate(mean, error, 5), of=6) == f"{text} [5]"


def test_csv_reads_back_with_empty_fields_for_what_a_record_lacks():
    text = typeset.csv("name mean fine", [{"name": "a, b", "mean": 1 / 3, "fine": True}, {"name": "c", "mean": None}])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0] == {"name": "a, b", "mean": "0.3333333", "fine": "yes"}
    assert rows[1] == {"name": "c", "mean": "", "fine": ""}
    with pytest.raises(ValueError, match="other"):
        typeset.csv("name", [{"other": 1}])


def test_an_estimate_is_the_mean_over_seeds_with_its_standard_error():
    found = mean_of_seeds([100.0, 101.0, 102.0])
    assert (found.mean, found.error, found.trials) == (101.0, pytest.approx(1 / 3**0.5), 3)
    assert mean_of_seeds([2.0]) == Estimate(2.0, None, 1)
    assert mean_of_seeds([]) is None


@pytest.mark.parametrize(
    ("value", "at_least", "strictly", "held"),
    [
        (0.954 - 0.95, False, False, True),  # a rounding error above 0.004 is 0.004
        (0.0041, False, False, False),
        (0.004, False, True, False),
        (0.0039, True, False, False),
        (0.95 - 0.946, True, False, True),
    ],
)
def test_a_bound_that_is_met_exactly_is_held_unless_it_is_strict(value, at_least, strictly, held):
    assert Target("", "", 0.004, at_least, strictly).holds(value, 0.004) is held
