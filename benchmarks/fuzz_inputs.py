"""Random tables, targets, levels and files, most of them odd in some way."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import polars as pl
import torch

from coverwell.cli import main

Generator = np.random.Generator
SIZES = 0, 1, 2, 3, 5, 12, 30, 60, 100
NAMES = "a", "b", "rooms", "age", "y", "", " ", "Öl", "a=b", 'quote"d', "new\nline", "y_lower_0.9", "class"
WORDS = (
    "gas",
    "Öl",
    "",
    " ",
    "NA",
    "null",
    "1,5",
    "20/03/2025",
    "2025-03-20",
    "1e400",
    "nan",
    "inf",
    "=1+1",
    "<b>",
    "🏠",
)


def some(values: Any) -> Callable[[Generator, int], Any]:
    return lambda rng, n: [values[place] for place in rng.integers(len(values), size=n)]


def gappy(rng: Generator, n: int) -> Any:
    return np.where(rng.random(n) < rng.random(), np.nan, rng.normal(size=n))


def spiked(rng: Generator, n: int) -> Any:
    values = rng.normal(size=n)
    values[rng.random(n) < 0.1] = rng.choice([1e12, -1e12, 1e150, 1e308, 1e-308, np.inf, -np.inf, np.nan])
    return values


COLUMNS: tuple[Callable[[Generator, int], Any], ...] = (
    lambda rng, n: rng.normal(size=n),
    lambda rng, n: rng.normal(size=n) * 10.0 ** rng.integers(-300, 300),
    lambda rng, n: rng.normal(size=n) * 10.0 ** rng.integers(-3, 4) + 10.0 ** rng.integers(0, 16),
    lambda rng, n: rng.integers(0, 5, n),
    lambda rng, n: rng.integers(-(2**62), 2**62, n),
    lambda rng, n: rng.integers(0, 2**63, n).astype(np.uint64) * 2,
    lambda rng, n: rng.integers(0, 2, n).astype(bool),
    lambda rng, n: np.full(n, rng.choice([0.0, 1.0, 1e300, np.nan, np.inf])),
    lambda rng, n: rng.normal(size=n).astype(rng.choice([np.float16, np.float32])),
    lambda rng, n: np.array(rng.integers(0, 3, n), dtype=np.int8),
    gappy,
    spiked,
    some(WORDS),
    some(("crow", "rook", "wren")),
    some(("gas", None)),
    some((1, "1", None, 2.5, True)),
    some((None,)),
    some(([1], [2])),
    some((b"a", b"b")),
    some((1 + 2j, 3j)),
    some((datetime.date(2024, 2, 29), datetime.date(1, 1, 1), datetime.date(9999, 12, 31))),
    some((datetime.timedelta(days=1), datetime.timedelta(0))),
    some((np.nan, "a", pd.NaT)),
    lambda rng, n: [f"id{place}" for place in range(n)],
    lambda rng, n: pd.date_range("2024-01-01", periods=n, freq="7h"),
    lambda rng, n: pd.date_range("2024-10-26", periods=n, freq="h", tz="Europe/Berlin"),
    lambda rng, n: pd.date_range("1700-01-01", periods=n, freq="D"),
    lambda rng, n: pd.period_range("2024-01", periods=n, freq="M"),
    lambda rng, n: pd.array(rng.choice([1, 2, None], n), dtype="Int64"),
    lambda rng, n: pd.array(rng.choice([True, None], n), dtype="boolean"),
    lambda rng, n: pd.Categorical(rng.choice(["x", "y", "z"], n), categories=["x", "y"]),
    lambda rng, n: pd.arrays.SparseArray(rng.integers(0, 2, n)),
)


def chosen(rng: Generator, values: Any) -> Any:
    """One of some values, as it is."""
    return values[int(rng.integers(len(values)))]


def column(rng: Generator, n: int) -> Any:
    return chosen(rng, COLUMNS if rng.random() < 0.7 else COLUMNS[:4])(rng, n)


def frame(rng: Generator, n: int) -> pd.DataFrame:
    names = rng.choice(NAMES if rng.random() < 0.3 else NAMES[:5], size=int(rng.integers(0, 5)), replace=False)
    found = pd.DataFrame({str(name): column(rng, n) for name in names}, index=range(n))
    if rng.random() < 0.05 and len(names) > 1:
        found.columns = ["a"] * len(names)
    if rng.random() < 0.05:
        found.columns = range(len(names))
    return found


def numbers(rng: Generator, n: int) -> Any:
    return np.stack(
        [np.asarray(chosen(rng, COLUMNS[:12])(rng, n), np.float64) for _ in range(1 + int(rng.integers(4)))], 1
    )


def table(rng: Generator, n: int) -> Any:
    """Something that may be given for X."""
    if rng.random() < 0.4:
        return frame(rng, n)
    if rng.random() < 0.6:
        return numbers(rng, n)
    with np.errstate(all="ignore"):
        X = numbers(rng, n)
        odd: list[Callable[[], Any]] = [
            lambda: pl.DataFrame({f"c{place}": values for place, values in enumerate(X.T)}),
            lambda: polars_frame(rng, n),
            lambda: X.tolist(),
            lambda: X.astype(object),
            lambda: X.astype(str),
            lambda: X.astype(np.float16),
            lambda: X[:, 0],
            lambda: X[None],
            lambda: X[:, :, None, None],
            lambda: X[:, :0],
            lambda: torch.from_numpy(X),
            lambda: np.ma.masked_invalid(X),
            lambda: X.astype(complex),
            lambda: [[1, 2], [3]],
            list,
            lambda: None,
            lambda: "rows.csv",
            lambda: 3.0,
            lambda: {"a": X[:, 0]},
            lambda: pd.Series(X[:, 0], name="rooms"),
            lambda: np.asfortranarray(X),
            lambda: np.zeros((n, 3, 16, 16)),
            lambda: pl.DataFrame({"a": X[:, 0]}).lazy(),
            lambda: frame(rng, n).to_numpy(),
        ]
        return chosen(rng, odd)()


def polars_frame(rng: Generator, n: int) -> Any:
    columns = {}
    for name in ("rooms", "age", "b"):
        values = column(rng, n)
        try:
            columns[name] = pl.Series(name, values)
        except Exception:  # what polars itself does not take
            columns[name] = pl.Series(name, rng.normal(size=n))
    return pl.DataFrame(columns)


def target(rng: Generator, n: int) -> Any:
    """Something that may be given for y."""
    y = rng.normal(size=n)
    with np.errstate(all="ignore"):
        odd: list[Callable[[], Any]] = [
            lambda: y,
            lambda: y,
            lambda: np.stack([y, y**2], axis=1),
            lambda: np.round(y),
            lambda: y > 0,
            lambda: rng.choice(["crow", "rook", "wren"], n),
            lambda: column(rng, n),
            lambda: column(rng, n),
            lambda: pd.DataFrame({"u": y, "v": column(rng, n)}),
            lambda: pd.Series(y, name="price", index=range(5, n + 5)),
            lambda: spiked(rng, n),
            lambda: y[:-1],
            lambda: np.append(y, y),
            lambda: y[:, None],
            lambda: y[:, None, None],
            lambda: np.zeros((n, 0)),
            lambda: y.tolist(),
            lambda: None,
            lambda: 1.0,
            lambda: pl.Series("price", y),
            lambda: y * 10.0 ** rng.integers(-300, 300),
        ]
        return chosen(rng, odd)()


LEVELS: tuple[Any, ...] = (
    0.9, 0.5, [0.5, 0.9], (0.9, 0.5), np.array([0.6, 0.8]), 0.999999, 1e-6, 1e-9, 0, 1, -0.5, 2, float("nan"),
    float("inf"), "0.9", None, [], [0.9, 0.9], True, [[0.5]], (0.1, "a"), 1 - 1e-7, np.linspace(0.01, 0.99, 30),
    np.float32(0.9), {0.5}, {"a": 0.5}, np.array(0.9), 0.9 + 0j, b"0.9", [None], 10**400,
)  # fmt: skip


def level(rng: Generator) -> Any:
    return 0.8 if rng.random() < 0.4 else chosen(rng, LEVELS)


def series(rng: Generator, n: int) -> Any:
    """Something that may be given for a series."""
    values = np.asarray(chosen(rng, (COLUMNS[0], COLUMNS[3], gappy, spiked))(rng, n), np.float64)
    starts: list[Callable[[], Any]] = [
        lambda: values,
        lambda: values.tolist(),
        lambda: pd.Series(values, index=pd.date_range("2024-01-01", periods=n, freq="h"), name="load"),
        lambda: pd.Series(values, index=pd.date_range("2024-10-20", periods=n, freq="h", tz="Europe/Berlin")),
        lambda: pd.Series(values, index=pd.date_range("2024-01-31", periods=n, freq="ME")),
        lambda: pd.Series(values, index=pd.period_range("2024-01", periods=n, freq="M")),
        lambda: pd.Series(values, index=pd.DatetimeIndex(rng.choice(pd.date_range("2024", periods=n + 1), n))),
        lambda: pd.Series(values, index=rng.permutation(n)),
        lambda: pl.DataFrame({"at": pd.date_range("2024-01-01", periods=n, freq="D").to_numpy(), "load": values}),
        lambda: pd.Series(column(rng, n)),
        lambda: values[:, None],
        lambda: None,
        lambda: "load",
        lambda: table(rng, n),
    ]
    return chosen(rng, starts)()


# Files and the command line.


def file_of_bytes(rng: Generator, folder: Path, rows: pd.DataFrame) -> Path:
    """A table as a file, and mostly damaged in some way."""
    suffix = chosen(rng, (".csv", ".csv", ".csv", ".tsv", ".parquet", ".txt"))
    path = folder / f"table{suffix}"
    if suffix == ".parquet":
        content = parquet_bytes(rows, rng)
    else:
        separator = "\t" if suffix == ".tsv" else chosen(rng, (",", ",", ",", ";", "|"))
        content = rows.to_csv(index=rng.random() < 0.1, sep=separator).encode(
            chosen(rng, ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "cp437")), errors="replace"
        )
    if rng.random() < 0.5:
        content = spoilt_bytes(content, rng)
    path.write_bytes(content)
    return path


def parquet_bytes(rows: pd.DataFrame, rng: Generator) -> bytes:
    try:
        rows.columns = rows.columns.astype(str)
        out = io.BytesIO()
        rows.to_parquet(out, index=False)
        return out.getvalue()
    except Exception:  # what pyarrow itself does not take
        return rng.bytes(100)


def spoilt_bytes(content: bytes, rng: Generator) -> bytes:
    start = int(rng.integers(len(content) + 1))
    stop = start + int(rng.integers(1, 30))
    lines = content.split(b"\n")
    changes: list[Callable[[], bytes]] = [
        lambda: content[:start],
        lambda: content[:start] + rng.bytes(stop - start) + content[stop:],
        lambda: content[:start] + b'"' + content[start:],
        lambda: content[:start] + b"\x00" + content[start:],
        lambda: content[:start] + b"," * int(rng.integers(1, 5)) + content[start:],
        lambda: content[:start] + b"\n\n" + content[start:],
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: content.replace(b".", b","),
        lambda: b"\n".join(lines[:1]),
        lambda: b"\n".join(lines[1:]),
        lambda: b"\n".join([lines[0], *lines]),
        lambda: content + content[start:stop],
        lambda: content[:start] + b"9" * 400 + content[start:],
        lambda: content[:start] + b"x" * 200_000 + content[start:],
        lambda: rng.bytes(200),
        lambda: b"",
        lambda: b"\xef\xbb\xbf",
        lambda: b"a" + b",b" * 3000 + b"\n" + b"1" + b",2" * 3000,
    ]
    return chosen(rng, changes)()


def command(*arguments: Any) -> None:
    """Run the command line here. What it says in one line is raised as it came from the library."""
    try:
        main.main(list(map(str, arguments)), prog_name="coverwell", standalone_mode=False)
    except click.ClickException as error:
        inner = error.__context__
        if isinstance(inner, ValueError | TypeError | MemoryError | OSError):
            raise inner from None
