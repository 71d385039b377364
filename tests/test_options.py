"""Options: short names, objects of a user's own, and limits of numbers."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pytest

from coverwell.options import STORED, check_count, check_number, named, part_from, stored


@runtime_checkable
class Grower(Protocol):
    def grow(self, value: float) -> float: ...


@named("growth", "twice")
@dataclass(frozen=True)
class Twice:
    factor: float = 2.0

    def grow(self, value: float) -> float:
        return self.factor * value


@named("growth", None)
class Still:
    def grow(self, value: float) -> float:
        return value


class Halving:
    """A user's own, without a name."""

    def grow(self, value: float) -> float:
        return value / 2


# Names and objects ---------------------------------------------------------------------------------------------------


def test_a_name_stands_for_an_object_with_its_defaults():
    assert part_from("growth", "twice", Grower) == Twice(2.0)
    assert isinstance(part_from("growth", None, Grower), Still)


@pytest.mark.parametrize("own", [Twice(3.0), Halving()])
def test_an_object_stays_as_it_is(own):
    assert part_from("growth", own, Grower) is own


def test_an_unknown_name_is_refused_with_the_known_ones():
    message = r"^growth must be one of 'twice', None, or an object such as Twice\(\), got 'thrice'$"
    with pytest.raises(ValueError, match=message):
        part_from("growth", "thrice", Grower)


@pytest.mark.parametrize("choice", [Twice, Halving, 3, True, 2.5], ids=str)
def test_a_class_or_an_object_without_the_methods_is_refused(choice):
    message = r"^growth must be a name or an object with the methods of .*Grower, got .*; pass an instance"
    with pytest.raises(TypeError, match=message):
        part_from("growth", choice, Grower)


def test_classes_that_model_files_may_name_are_entered_by_their_name():
    @stored
    class Kept:
        pass

    assert STORED.pop("Kept") is Kept
    assert STORED["Twice"] is Twice


# Numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_a_count_is_a_whole_number_of_at_least_one(value):
    check_count("members", value)


@pytest.mark.parametrize("value", [0, -3, 1.0, 2.5, True, "auto", None, math.nan])
def test_anything_else_is_no_count(value):
    with pytest.raises(ValueError, match=r"^members must be a whole number of at least 1, got "):
        check_count("members", value)


def test_a_number_may_be_auto_where_that_is_allowed():
    check_count("batch_size", "auto", or_auto=True)
    with pytest.raises(ValueError, match="batch_size must be 'auto' or a whole number of at least 1, got 'AUTO'"):
        check_count("batch_size", "AUTO", or_auto=True)
    check_number("rate", "auto", above=0.0, or_auto=True)
    with pytest.raises(ValueError, match="rate must be 'auto' or a positive number, got 0"):
        check_number("rate", 0, above=0.0, or_auto=True)


@pytest.mark.parametrize(
    ("limits", "good", "bad", "message"),
    [
        ({"above": 0.0}, 1e-9, (0, -1, math.nan, "much", None, True), "be a positive number"),
        ({"above": 2.0}, 2.1, (2, -1, math.nan, "much", None), "be a number above 2"),
        ({"least": 0.0}, 0, (-1e-9, math.nan, "much", None, False), "be a number of at least 0"),
        ({"least": 2, "whole": True}, 2, (1, 2.0, "two", None, True), "be a whole number of at least 2"),
        ({"above": 0.0, "below": 1.0}, 1 - 1e-9, (0, 1, 1.5, True, "half"), "lie strictly between 0 and 1"),
    ],
)
def test_a_number_outside_its_limits_is_refused_with_the_limits(limits, good, bad, message):
    check_number("rate", good, **limits)
    for value in bad:
        with pytest.raises(ValueError, match=f"^rate must {message}, got "):
            check_number("rate", value, **limits)
