"""Names for parts. A decorator enters a class, so that a string can stand for it and a model file can restore it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["STORED", "named", "part_from", "stored"]

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
