"""Options: names for parts, checks of numbers, levels and how many rows they need, and the schedule of training.

A decorator enters a class, so that a string can stand for it and a model file can restore it.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

Class = TypeVar("Class", bound=type[Any])

STORED: dict[str, type[Any]] = {}  # every class that a model file may name
MARGIN = 1e-6  # levels closer to 0 or 1 than this are the same in float32
NAMED: dict[str, dict[str | None, type[Any]]] = {}  # option -> short name -> class


def stored(cls: Class) -> Class:
    """Enter a class that model files may name: an estimator, or one whose constructor's arguments are attributes."""
    STORED[cls.__name__] = cls
    return cls


def named(option: str, name: str | None) -> Callable[[Class], Class]:
    """Enter a class that a short name stands for in one option of an estimator, and that model files may name.

    The class keeps it as `name`.
    """

    def enter(cls: Class) -> Class:
        NAMED.setdefault(option, {})[name], cls.name = cls, name
        return stored(cls)

    return enter


def part_from(option: str, choice: Any, protocol: type[Any], *, names: str | None = None) -> Any:
    """The object that a name stands for, with its defaults; an object that follows the protocol stays as it is.

    `names` is the option under which the names are entered, if it is another.
    """
    known = NAMED[names or option]
    if choice is None or isinstance(choice, str):
        if choice not in known:
            names = ", ".join(repr(name) for name in known)
            example = f"{next(iter(known.values())).__name__}()"
            raise ValueError(f"{option} must be one of {names}, or an object such as {example}, got {choice!r}")
        return known[choice]()
    if isinstance(choice, type) or not isinstance(choice, protocol):
        raise TypeError(
            f"{option} must be a name or an object with the methods of {protocol.__module__}.{protocol.__name__}, got "
            f"{choice!r}; pass an instance, not a class"
        )
    return choice


def check_number(
    name: str,
    value: Any,
    *,
    above: float | int | None = None,
    least: float | int | None = None,
    below: float | int | None = None,
    whole: bool = False,
    or_auto: bool = False,
    words: tuple[str, ...] = (),
) -> None:
    """Raise unless the value is a number within its limits, one of these words, or "auto" where that is allowed."""
    words += ("auto",) * or_auto
    if isinstance(value, str) and value in words:
        return
    is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if is_number and not (
        (above is not None and not value > above)
        or (least is not None and not value >= least)
        or (below is not None and not value < below)
    ):
        return
    what, auto = "a whole number" if whole else "a number", f"{', '.join(map(repr, words))} or " if words else ""
    below = None if below == math.inf else below
    if above is not None and below is not None:
        must = f"lie strictly between {above:g} and {below:g}"
    elif least is not None and below is not None:
        must = f"lie in [{least:g}, {below:g})"
    elif above is not None:
        must = f"be {auto}a positive number" if above == 0 else f"be {auto}{what} above {above:g}"
    else:
        must = f"be {auto}{what} of at least {least:g}"
    raise ValueError(f"{name} must {must}, got {value!r}")


def check_share(name: str, value: Any) -> None:
    """Raise unless the value lies strictly between 0 and 1."""
    check_number(name, value, above=0.0, below=1.0)


def check_count(name: str, value: Any, *, or_auto: bool = False) -> None:
    """Raise unless the value is a whole number of at least 1, or "auto" where that is allowed."""
    check_number(name, value, least=1, whole=True, or_auto=or_auto)


def coverage_rank(asked: float, n_train: int) -> int:
    """The rank k = ceil((n_train + 1) asked) of the score that covers a new row with at least this probability.

    Counted from 1, at most the number of ranked scores. `asked` is read as the decimal it prints: 0.55 of 100 is 55,
    though in floating point it is a little more.

    Examples
    --------
    >>> coverage_rank(0.9, n_train=9), coverage_rank(0.55, n_train=99)
    (9, 55)
    """
    check_number("asked", asked, above=0.0, below=1.0)
    check_number("n_train", n_train, least=1, whole=True)
    share = Fraction(str(round(float(asked), 12)))
    rank = max(1, math.ceil((n_train + 1) * share))  # a share that rounds to 0 still has rank 1
    if rank > n_train:
        needed = "more than 10^12" if share == 1 else str(fewest_for(asked))
        raise ValueError(
            f"coverage {asked!r} by ranks needs at least {needed} rows, got {n_train}: give more rows or ask for less"
        )
    return rank


def fewest_for(level: float) -> int:
    """How many rows must be ranked for a level below one to have a rank.

    Examples
    --------
    >>> fewest_for(0.9)
    9
    """
    share = Fraction(str(round(float(level), 12)))
    return math.ceil(share / (1 - share))


def check_enough_rows(n: int, levels: tuple[float, ...], what: str) -> None:
    """Raise unless this many rows have a rank for the outermost level."""
    try:
        coverage_rank(max(levels), n)
    except ValueError as error:
        raise ValueError(f"{what}: {error}, or fit with calibration=None") from None


def levels_from(coverage: Any) -> tuple[float, ...]:
    """The asked levels as floats, in the order they were asked for."""
    values = tuple(coverage) if np.ndim(coverage) else (coverage,)
    if not values:
        raise ValueError("coverage must hold at least one level, got an empty sequence")
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < 1:  # type: ignore[operator]
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {value!r}")
        if not MARGIN <= float(value) <= 1 - MARGIN:
            raise ValueError(f"coverage must lie at least {MARGIN:g} from 0 and 1, got {value!r}")
    if len(set(values)) < len(values):
        raise ValueError(f"coverage must not hold a level twice, got {values}")
    return tuple(map(float, values))


def random_state_from(choice: Any) -> np.random.RandomState:
    """The generator that a `random_state` stands for."""
    from sklearn.utils import check_random_state

    try:
        state: np.random.RandomState = check_random_state(choice)
    except ValueError as error:  # numpy's names no parameter
        raise ValueError(f"random_state must be None, a RandomState or a whole number: {error}") from None
    return state


@stored
@dataclass(frozen=True)
class Schedule:
    """How long and in which steps F and I train.

    "auto" is the number that the network's recipe has in its `defaults`, such as `ResNet18.defaults`, and otherwise the
    one named here.

    Parameters
    ----------
    mean_epochs, interval_epochs : int or "auto"
        Epochs of F and of I in the first round, n_m and n_c in the paper; 8 and 4.
    max_rounds : int or "auto"
        At most so many rounds; 6.
    patience : int or "auto"
        Rounds without a better out-of-fold score after which training stops; 1.
    batch_size : int or "auto"
        By the number of rows.
    learning_rate : float or "auto"
        5e-3.
    growth : float or "auto"
        How many times longer each round is than the one before, up to 64 times the first; 2. Within such a round the
        learning rate falls to zero, and a score must be clearly better to count. With 1, rounds are equally long and
        the rate is constant.

    Examples
    --------
    >>> Schedule(max_rounds=20).resolved({"patience": 4}).patience
    4
    """

    mean_epochs: int | str = "auto"
    interval_epochs: int | str = "auto"
    max_rounds: int | str = "auto"
    patience: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    growth: float | str = "auto"

    def __post_init__(self) -> None:
        for name in ("mean_epochs", "interval_epochs", "max_rounds", "patience", "batch_size"):
            check_number(name, getattr(self, name), least=1, whole=True, or_auto=True)
        check_number("learning_rate", self.learning_rate, above=0.0, or_auto=True)
        check_number("growth", self.growth, least=1, or_auto=True)

    def resolved(self, *defaults: Mapping[str, float | int]) -> Schedule:
        """The same with numbers for "auto", from the first of these defaults that has one."""
        numbers, known = {}, ChainMap(*map(dict, defaults))
        for name, value in vars(self).items():
            numbers[name] = known.get(name, value) if value == "auto" else value
        return Schedule(**numbers)
