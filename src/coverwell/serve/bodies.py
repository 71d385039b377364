"""What a request holds: the columns that a model needs, as JSON or CSV, each value checked.

Every bad field is found, not only the first; the answer names the first few of them.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

from coverwell.errors import TableFileError
from coverwell.inputs.columns import Column
from coverwell.inputs.frames import ISO_TIME
from coverwell.serve.models import ServedModel
from coverwell.tables import UTF8, TableFile, as_kind, needed_polars, unreadable

if TYPE_CHECKING:
    import polars as pl

MOST_NAMED = 20  # bad fields in an answer
MOST_LETTERS = 60  # of a value in an answer
MOST_COLUMNS = 10_000
HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")  # no text of UTF-8, but JSON can spell it
ABSENT, WRONG = object(), object()
MUST = {"numbers": "be a finite number", "booleans": "be true or false", "text": "be text"}
REQUEST = Path("request.csv")  # the name in messages
Read = Callable[[Column, Any, bool], tuple[Any, list[int]]]


@dataclass(frozen=True)
class BadField:
    """A value that cannot be used; the row is counted from 1, and None if all rows are meant."""

    row: int | None
    column: str | None
    must: str
    got: str

    def __str__(self) -> str:
        places = (f"row {self.row}" if self.row else "", f"column {self.column}" if self.column is not None else "")
        return f"{', '.join(filter(None, places))} must {self.must}, got {self.got}"


class RefusedError(Exception):
    """A request that cannot be answered: the status, and what stands in the answer."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.content = status, {"error": message, **more}


@dataclass(frozen=True)
class Limits:
    """What a request may hold at most."""

    bytes: int = 2**24
    rows: int = 100_000

    def check_rows(self, count: int) -> None:
        if count > self.rows:
            raise RefusedError(413, f"a request may hold {self.rows:,} rows at most, got {count:,}; send several")
        if not count:
            raise RefusedError(422, "a request must hold at least one row, got none")


def frame_of_json(body: bytes, model: ServedModel, limits: Limits) -> tuple[pl.DataFrame, str]:
    """The rows, and whether they came as "rows" or as "columns"."""
    match _parsed(body):
        case {"rows": list() as rows, **others} if not others:
            limits.check_rows(len(rows))
            return _checked(_gathered(rows, model.columns), model, _of_json, "null"), "rows"
        case {"columns": dict() as given, **others} if not others:
            lengths = {len(values) if isinstance(values, list) else -1 for values in given.values()}
            if len(lengths) > 1 or -1 in lengths:
                raise RefusedError(422, "columns must be lists of one length, with a value or null for each row")
            limits.check_rows(max(lengths, default=0))
            lists = {c.name: given.get(c.name, _no_column(c.name, given)) for c in model.columns}
            return _checked(lists, model, _of_json, "null"), "columns"
    shapes = '{"rows": [{column: value, ...}, ...]} or {"columns": {column: [value, ...], ...}}'
    raise RefusedError(422, f"the body must be {shapes}; /openapi.json has an example")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body must be UTF-8 text, but byte {error.start} is not") from None
    except RecursionError:
        raise RefusedError(400, "the body must be JSON of a few levels, but is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits is one, too
        raise RefusedError(400, f"the body must be valid JSON, but is not: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _gathered(rows: list[Any], columns: Sequence[Column]) -> dict[str, Any]:
    """The values of each column; what is absent in all rows is a bad field of its own."""
    must = "be an object of columns"
    if bad := [BadField(n, None, must, shown(row)) for n, row in enumerate(rows, 1) if not isinstance(row, dict)]:
        _refuse(bad, len(bad))
    values = {column.name: [row.get(column.name, ABSENT) for row in rows] for column in columns}
    return {name: v if any(one is not ABSENT for one in v) else _no_column(name, rows[0]) for name, v in values.items()}


def _no_column(name: str, given: Sequence[str] | dict[str, Any]) -> BadField:
    close = difflib.get_close_matches(name, list(given)[:MOST_COLUMNS], n=1)
    return BadField(None, name, "be given", "no such column" + (f"; did you mean {close[0]!r}?" if close else ""))


def _checked(given: Mapping[str, Any], model: ServedModel, read: Read, gap: str) -> pl.DataFrame:
    """The columns as a frame; raises with all bad fields."""
    bad, n_bad, series = list[BadField](), 0, []
    for column in model.columns:
        values = given[column.name]
        if isinstance(values, BadField):
            bad.append(values)
            n_bad += 1
            continue
        found, wrong = read(column, values, model.fills_gaps)
        must = _must(column) + (f", or {gap} where it is missing" if model.fills_gaps else "")
        bad += [BadField(place + 1, column.name, must, shown(values[place])) for place in wrong[:MOST_NAMED]]
        n_bad += len(wrong)
        series.append(found)
    if bad:
        _refuse(bad, n_bad)
    frame: pl.DataFrame = needed_polars().DataFrame(series)
    return frame


def _must(column: Column) -> str:
    if column.kind != "times":
        return MUST[column.kind]
    offset = "without a time zone, as 2025-03-20 or 2025-03-20T14:30"
    return f"be a date and time {offset if column.zone is None else 'with an offset, as 2025-03-20T14:30+01:00'}"


def _refuse(bad: list[BadField], n_bad: int) -> NoReturn:
    bad = sorted(bad, key=lambda field: field.row or 0)[:MOST_NAMED]
    more = f" (and {n_bad - 1} more bad field{'s' * (n_bad > 2)})" if n_bad > 1 else ""
    raise RefusedError(422, f"{bad[0]}{more}", fields=[asdict(field) for field in bad], n_fields=n_bad)


def _of_json(column: Column, values: list[Any], fills_gaps: bool) -> tuple[pl.Series | None, list[int]]:
    """Values of JSON as a series, or None, and the places of those that are wrong."""
    polars, zone = needed_polars(), None if column.zone is None else ZoneInfo(column.zone)
    readers: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "numbers": (_number, polars.Float64),
        "booleans": (lambda value: value if isinstance(value, bool) else WRONG, polars.Boolean),
        "text": (_text, polars.String),
        "times": (lambda value: _time(value, zone), polars.Datetime("us", column.zone)),
    }
    read, dtype = readers[column.kind]
    found = [None if value is None and fills_gaps else read(value) for value in values]
    wrong = [place for place, value in enumerate(found) if value is WRONG]
    return None if wrong else polars.Series(column.name, found, dtype=dtype), wrong


def _of_text(column: Column, texts: pl.Series, fills_gaps: bool, *, decimal: str) -> tuple[pl.Series | None, list[int]]:
    """The same for texts."""
    values = as_kind(column.kind, texts, decimal)
    if column.kind == "times":
        return _of_json(column, values.to_list(), fills_gaps)
    wrong = unreadable(texts, values)
    if column.kind == "numbers":
        wrong = wrong | values.is_infinite().fill_null(False)
    return values, (wrong if fills_gaps else wrong | values.is_null()).arg_true().to_list()


def _number(value: Any) -> Any:
    if type(value) not in (int, float):  # true and false are no numbers
        return WRONG
    try:
        number = float(value)
    except OverflowError:
        return WRONG
    return number if math.isfinite(number) else WRONG


def _text(value: Any) -> Any:
    return value if isinstance(value, str) and not HALF_OF_A_PAIR.search(value) else WRONG


def _time(value: Any, zone: ZoneInfo | None) -> Any:
    """ISO 8601, with an offset if the column has a time zone, and otherwise without."""
    if not isinstance(value, str) or not ISO_TIME.fullmatch(value):
        return WRONG
    try:
        moment = datetime.fromisoformat(value)
        if (moment.tzinfo is None) != (zone is None):
            return WRONG
        return moment if zone is None else moment.astimezone(UTC).astimezone(zone)
    except (ValueError, OverflowError):  # no such day, or one before the year 1
        return WRONG


def frame_of_csv(body: bytes, model: ServedModel, limits: Limits, delimiter: str, decimal: str) -> pl.DataFrame:
    """The rows of a text with a header, read as `coverwell predict` reads a file."""
    if (n_lines := body.count(b"\n")) > limits.rows + 1:
        raise RefusedError(413, f"a request may hold {limits.rows:,} rows at most, got {n_lines:,} lines; send several")
    try:
        table = TableFile(REQUEST, delimiter, decimal, content=body)
        header = next(csv.reader(io.StringIO(body[: 2**20].decode(UTF8, "replace")), delimiter=delimiter), [])
        if len(header) > MOST_COLUMNS:
            raise RefusedError(413, f"a table may have {MOST_COLUMNS:,} columns at most, got {len(header):,}")
        names = _names_in_csv(table, model)
        with warnings.catch_warnings():  # of blank lines
            warnings.simplefilter("ignore")
            rows = table.read(list(names))
    except (TableFileError, csv.Error) as error:
        message = re.sub(r"--(delimiter|decimal) ", r"\1=", " ".join(str(error).split()))
        raise RefusedError(400, re.sub(r"say how it was saved, .*, or save", "save", message)) from None
    limits.check_rows(len(rows))
    texts = rows.rename(names).to_dict()
    return _checked(texts, model, partial(_of_text, decimal=decimal), "empty")


def _names_in_csv(table: TableFile, model: ServedModel) -> dict[str, str]:
    """The columns of the text that are needed, and what the model calls them."""
    wanted = [column.name for column in model.columns]
    if model.is_named or set(wanted) <= set(table.columns):
        if bad := [_no_column(name, table.columns) for name in wanted if name not in table.columns]:
            _refuse(bad, len(bad))
        return dict(zip(wanted, wanted, strict=True))
    others = [name for name in table.columns if name not in model.targets]
    if len(others) != len(wanted):
        must = f"the model was fitted without column names on {len(wanted)} columns"
        has = f"the table has {len(others)} beside the targets"
        raise RefusedError(422, f"{must}, but {has}; send just these, in order")
    return dict(zip(others, wanted, strict=True))


def shown(value: Any) -> str:
    """A value in a message, as JSON writes it where it is short."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return repr(value if len(value) <= MOST_LETTERS else f"{value[:MOST_LETTERS]}...")
        case _ if value is ABSENT:
            return "no such column"
    try:
        text = json.dumps(value)
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."
