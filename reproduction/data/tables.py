"""The six public tables of the paper's first experiment, with the features that all our results use, and more."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.data.store import CATALOGUE, Entry, known_name, read

Array = NDArray[np.float64]

TABLES = tuple(CATALOGUE["tables"])  # the paper's
MORE_TABLES = tuple(name for name in CATALOGUE["more_tables"] if name != "shared")
DEVELOPMENT_TABLES = TABLES + MORE_TABLES
MISSING = "?"


@dataclass(frozen=True, eq=False)
class Table:
    """A regression table, ready for `fit`; `groups` marks rows that belong together (the patient in parkinsons)."""

    name: str
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    target_name: str
    groups: NDArray[np.int64] | None = field(repr=False)
    source: str
    notes: str


def load_table(name: str) -> Table:
    """The table of that name; case does not matter, and underscores or hyphens may stand for spaces."""
    known = known_name(name, DEVELOPMENT_TABLES)
    about = _about(known)
    content, layout = read(about, about.get("folder", "regression"))
    layout = {**about, **layout}
    names = layout.get("columns", "").split() or None
    # As text: how pandas reads numbers differs in the last bits from version to version.
    header = None if names or "target" not in about else 0
    how = {"sep": layout["separator"], "names": names, "header": header, "na_values": MISSING}
    frame = pd.read_csv(io.BytesIO(content), dtype=str, **how)
    if "target" not in about:
        frame.columns = [*(f"x{place}" for place in range(1, frame.shape[1])), "y"]
    target, groups = about.get("target", "y"), about.get("groups")
    left_out = {target, groups, *about.get("leave_out", "").split()}
    features = [column for column in about.get("columns", "").split() or frame.columns if column not in left_out]
    # By rows, as the mean of a column depends in its last bits on the order in memory.
    rows = np.ascontiguousarray(frame[[*features, target, *([groups] if groups else [])]].to_numpy(dtype=np.float64))
    rows = _mended(rows, about.get("gaps"))
    return Table(
        name=known,
        X=rows[:, : len(features)].copy(),
        y=rows[:, len(features)].copy(),
        feature_names=tuple(features),
        target_name=target,
        groups=rows[:, -1].astype(np.int64) if groups else None,
        source=about["source"].strip(),
        notes=about["notes"].strip(),
    )


def _about(known: str) -> Entry:
    """The entry of a table in the catalogue."""
    if known in TABLES:
        return CATALOGUE["tables"][known]
    shared = {key: text.format(name=known) for key, text in CATALOGUE["more_tables"]["shared"].items()}
    return {**shared, **CATALOGUE["more_tables"][known]}


def _mended(rows: Array, gaps: str | None) -> Array:
    """Rows with a gap dropped, gaps filled by the mean of their column, or rows as they are."""
    if gaps == "drop":
        return rows[~np.isnan(rows).any(axis=1)]
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows) if gaps == "fill" else rows
