"""Options: names for parts, and checks of numbers.

A decorator enters a class, so that a string can stand for it and a model file can restore it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

__all__ = ["STORED", "check_count", "check_number", "check_share", "named", "part_from", "stored"]

Class = TypeVar("Class", bound=type[Any])

STORED: dict[str, type[Any]] = {}  # every class that a model file may name
NAMED: dict[str, dict[str | None, type[Any]]] = {}  # option -> short name -> class


def stored(cls: Class) -> Class:
    """Enter a class that model files may name: an estimator, or one whose constructor's arguments are attributes.

    A file holds the arguments, each read from the attribute of the same name.
    """
    STORED[cls.__name__] = cls
    return cls


def named(option: str, name: str | None) -> Callable[[Class], Class]:
    """Enter a class that a short name stands for in one option of an estimator, and that model files may name.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @named("example", "twice")
    ... @dataclass(frozen=True)
    ... class Twice:
    ...     factor: float = 2.0
    >>> part_from("example", "twice", Twice)
    Twice(factor=2.0)
    """

    def enter(cls: Class) -> Class:
        NAMED.setdefault(option, {})[name] = cls
        return stored(cls)

    return enter


def part_from(option: str, choice: Any, protocol: type[Any]) -> Any:
    """The object that a name stands for, with its defaults; an object that follows the protocol stays as it is."""
    known = NAMED[option]
    if choice is None or isinstance(choice, str):
        if choice not in known:
            names = ", ".join(repr(name) for name in known)
            raise ValueError(f"{option} must be one of {names}, or an object such as {_example(known)}, got {choice!r}")
        return known[choice]()
    if isinstance(choice, type) or not isinstance(choice, protocol):
        raise TypeError(
            f"{option} must be a name or an object with the methods of {protocol.__module__}.{protocol.__name__}, got "
            f"{choice!r}; pass an instance, not a class"
        )
    return choice


def _example(known: dict[str | None, type[Any]]) -> str:
    return f"{next(iter(known.values())).__name__}()"


def check_number(
    name: str,
    value: Any,
    *,
    above: float | int | None = None,
    least: float | int | None = None,
    below: float | int | None = None,
    whole: bool = False,
    or_auto: bool = False,
) -> None:
    """Raise unless the value is a number within its limits, or "auto" where that is allowed."""
    if or_auto and isinstance(value, str) and value == "auto":
        return
    is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if is_number and not (
        (above is not None and not value > above)
        or (least is not None and not value >= least)
        or (below is not None and not value < below)
    ):
        return
    what, auto = "a whole number" if whole else "a number", "'auto' or " if or_auto else ""
    if above is not None and below is not None:
        must = f"lie strictly between {above:g} and {below:g}"
    elif above is not None:
        must = "be a positive number" if above == 0 else f"be {what} above {above:g}"
    else:
        must = f"be {auto}{what} of at least {least:g}"
    raise ValueError(f"{name} must {must}, got {value!r}")


def check_share(name: str, value: Any) -> None:
    """Raise unless the value lies strictly between 0 and 1."""
    check_number(name, value, above=0.0, below=1.0)


def check_count(name: str, value: Any, *, or_auto: bool = False) -> None:
    """Raise unless the value is a whole number of at least 1, or "auto" where that is allowed."""
    check_number(name, value, least=1, whole=True, or_auto=or_auto)
