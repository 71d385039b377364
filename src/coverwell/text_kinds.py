"""Columns of a text file as what they are: numbers or booleans, or text.

It is decided in one place (`kinds_of` says which, `typed` does it), so that a column is read in the same way when a
model is fitted and when it is asked. Dates stay text: `coverwell.inputs.columns` reads them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coverwell.errors import DecimalCommaWarning
from coverwell.table_files import COMMA, PARQUET, POINT, TableFileError, needed_polars, shortened

if TYPE_CHECKING:
    import polars as pl

__all__ = ["DecimalCommaWarning", "Kind", "check_finite", "kinds_of", "typed", "warn_of_decimal_commas"]

# Texts that stand for no value; the empty text does so by itself.
MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "None", "?")
NOTHING = [*MISSING, ""]
WITH_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")


class Kind(Enum):
    """What the texts of a column are."""

    WHOLE = "whole numbers"
    NUMBER = "numbers"
    BOOLEAN = "true or false"
    TEXT = "text"


def kinds_of(frame: pl.DataFrame, *, decimal: str = POINT) -> dict[str, Kind]:
    """What the texts of each column are, judged by all rows."""
    texts = needed_polars().String
    return {name: _kind_of(frame[name], decimal) for name in frame.columns if frame[name].dtype == texts}


def typed(
    frame: pl.DataFrame, kinds: Mapping[str, Kind], *, path: Path, first_row: int = 0, decimal: str = POINT
) -> pl.DataFrame:
    """The frame with text columns turned into what they are said to be; values that are not are an error.

    `first_row` is how many rows of the file come before the frame, for messages.
    """
    polars = needed_polars()
    if path.suffix.lower() == PARQUET:
        return frame  # it says itself what its columns are
    changed = []
    for name, kind in kinds.items():
        texts = frame[name]
        if texts.dtype != polars.String:
            continue
        values = _as(kind, texts, decimal)
        if odd := _odd(texts, values):
            row, text = odd
            raise TableFileError(
                f"column {name} must hold {kind.value}, but row {first_row + row + 1} of {path} has "
                f"{shortened(text)!r}; {_way_out(kind, text, decimal)}"
            )
        changed.append(values)
    return frame.with_columns(changed)


def warn_of_decimal_commas(frame: pl.DataFrame, *, path: Path) -> None:
    """Warn of columns of text in which every value has, or could have, a decimal comma."""
    pattern = f"^(?:{WITH_DECIMAL_COMMA.pattern}|[+-]?[0-9]+)$"
    found = []
    for column in frame:
        if column.dtype != needed_polars().String:
            continue
        texts = column.drop_nulls().str.strip_chars()
        if texts.str.contains(COMMA, literal=True).any() and texts.str.contains(pattern).all():
            found.append(column.name)
    if found:
        warnings.warn(
            f"{', '.join(found)} of {path} may hold numbers with a decimal comma, and is read as text; if so, give "
            "--decimal ,",
            DecimalCommaWarning,
            stacklevel=2,
        )


def check_finite(
    frame: pl.DataFrame, *, path: Path, rows: Sequence[int] | NDArray[np.intp], what: str = "column"
) -> None:
    """Raise if a number is infinite; `rows` has the place of each row in the file, counted from 0."""
    for column in frame:
        if column.dtype.is_float() and (endless := column.is_infinite()).any():
            row = int(rows[int(endless.fill_null(value=False).arg_true()[0])]) + 1
            raise TableFileError(
                f"{what} {column.name} must hold finite numbers, but row {row} of {path} is infinite; mend it, or "
                "leave it empty where the value is missing"
            )


def _kind_of(texts: pl.Series, decimal: str) -> Kind:
    for kind in (Kind.WHOLE, Kind.NUMBER, Kind.BOOLEAN):
        if _odd(texts, _as(kind, texts, decimal)) is None:
            return kind
    return Kind.TEXT


def _as(kind: Kind, texts: pl.Series, decimal: str) -> pl.Series:
    """The values; null where there is none, or where the text is not of the kind."""
    polars = needed_polars()
    stripped = texts.str.strip_chars()
    match kind:
        case Kind.WHOLE:
            return stripped.cast(polars.Int64, strict=False)
        case Kind.NUMBER:
            return _with_points(stripped, decimal).cast(polars.Float64, strict=False).fill_nan(None)
        case Kind.BOOLEAN:
            known = {"true": True, "false": False}
            return stripped.str.to_lowercase().replace_strict(known, default=None, return_dtype=polars.Boolean)
        case Kind.TEXT:
            return stripped.set(stripped.is_in(NOTHING), None)


def _with_points(texts: pl.Series, decimal: str) -> pl.Series:
    """Texts of numbers as Python writes them; null where a point may stand between thousands."""
    if decimal == POINT:
        return texts
    return texts.set(texts.str.contains(POINT, literal=True), None).str.replace(COMMA, POINT, literal=True)


def _way_out(kind: Kind, text: str, decimal: str) -> str:
    if kind is Kind.NUMBER and decimal == POINT and WITH_DECIMAL_COMMA.fullmatch(text.strip()):
        return "if that is a decimal comma, give --decimal ,"
    return "mend it, or leave it empty where the value is missing"


def _odd(texts: pl.Series, values: pl.Series) -> tuple[int, str] | None:
    """Place and text of the first that became nothing without standing for nothing."""
    if values.null_count() == texts.null_count():
        return None
    odd = (values.is_null() & texts.is_not_null() & ~texts.str.strip_chars().is_in(NOTHING)).arg_true()
    return (odd[0], texts[odd[0]]) if len(odd) else None
