"""What fits a type hint, for every kind of hint that constructors have."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float64
from numpy.typing import NDArray

from coverwell import MLP, MatchedRegressor, SigmaFit
from coverwell.baselines import DeepEnsembleClassifier
from coverwell.hints import check_hints, fits, hints_of
from coverwell.options import STORED
from coverwell.paper.matching import Matching

FITTING = [
    (1, int),
    (True, int),
    (1, float),
    (0, bool),
    (None, float | None),
    ("a", Any),
    (MLP(), MLP | str),
    (SigmaFit(), Matching),
    ((0.5, 0.9), tuple[float, ...]),
    (("a", 1), tuple[str, int]),
    ([0.5], Sequence[float]),
    (len, Callable[[int], int]),
    (np.zeros(2), NDArray[np.float64]),
    (np.zeros(2, np.float32), NDArray[np.floating]),
    (np.zeros(2, bool), NDArray[Any]),
    (np.zeros((2, 3)), Float64[np.ndarray, "row column"]),
]
UNFIT = [
    (1.5, int),
    ("1", float),
    (1.5, bool),
    (None, float),
    (1, MLP | str),
    (MLP(), Matching),
    ([0.5], tuple[float, ...]),
    ((0.5, "a"), tuple[float, ...]),
    (("a",), tuple[str, int]),
    ("ab", Sequence[str]),
    (np.zeros(2), Sequence[float]),
    (3, Callable[[int], int]),
    ([0.0], NDArray[np.float64]),
    (np.zeros(2, np.int64), NDArray[np.float64]),
    (np.zeros(2), NDArray[np.float32]),
    (np.zeros(2), Float64[np.ndarray, "row column"]),
]


@pytest.mark.parametrize(("value", "hint"), FITTING)
def test_a_value_of_the_kind_fits(value, hint):
    assert fits(value, hint)


@pytest.mark.parametrize(("value", "hint"), UNFIT)
def test_any_other_does_not(value, hint):
    assert not fits(value, hint)


def test_axes_of_one_name_must_have_one_length():
    hints = {"prediction": Float64[np.ndarray, "row target"], "lower": Float64[np.ndarray, "row target level"]}
    check_hints("OutOfFold", {"prediction": np.zeros((4, 2)), "lower": np.zeros((4, 2, 3))}, hints)
    with pytest.raises(TypeError, match=r"OutOfFold\.lower must be .*row target level.*, got array"):
        check_hints("OutOfFold", {"prediction": np.zeros((4, 2)), "lower": np.zeros((5, 2, 3))}, hints)


def test_fields_that_a_dataclass_inherits_from_another_module_have_their_hints():
    assert hints_of(DeepEnsembleClassifier)["members"] is int


def test_the_hints_of_every_class_that_a_file_may_name_can_be_read():
    assert MatchedRegressor.__name__ in STORED
    for cls in STORED.values():
        hints_of(cls)
