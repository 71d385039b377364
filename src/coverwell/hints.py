"""Whether values are what type hints say, so that a model file can hold nothing that its classes do not expect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from inspect import signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, no_type_check

import numpy as np
from jaxtyping import jaxtyped

SHOWN = 60  # characters of a value in an error
KNOWN: dict[type[Any], dict[str, Any]] = {}  # hints of constructors that were asked for
NUMBERS = {bool: Integral, int: Integral, float: Real}  # what users give for these: 1 for true, 0 for 0.0


def hints_of(cls: type[Any]) -> dict[str, Any]:
    """What each argument of a constructor must be."""
    if cls not in KNOWN:
        # A dataclass may inherit fields of another module, which knows their types.
        hints = get_type_hints(cls if is_dataclass(cls) else cls.__init__)
        KNOWN[cls] = {name: hints.get(name, Any) for name in signature(cls).parameters}
    return KNOWN[cls]


def check_hints(what: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise unless the values are what the hints say; axes of arrays that have one name must have one length."""
    with jaxtyped("context"):
        for name, value in values.items():
            if not fits(value, hints.get(name, Any)):
                raise TypeError(f"{what}.{name} must be {hints[name]}, got {shown(value)}")


@no_type_check  # tests give checked functions axes of their own, and these are those of the caller
def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a hint says, item by item."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is np.ndarray:
        (kind,) = get_args(parts[1])
        return isinstance(value, np.ndarray) and (kind is Any or np.issubdtype(value.dtype, kind))
    if origin is tuple and parts[1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(fits, value, parts))
    if origin in (tuple, list, Sequence, Iterable):
        kind = list | tuple if origin in (Sequence, Iterable) else origin
        return isinstance(value, kind) and all(fits(item, parts[0]) for item in value)
    if origin is Callable:
        return callable(value)
    found: bool = isinstance(value, NUMBERS.get(hint, origin or hint))
    return found


def shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
