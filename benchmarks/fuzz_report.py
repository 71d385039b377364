"""Reports on odd rows: from Python and by the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_inputs as odd
import numpy as np
import pandas as pd
from fuzz_inputs import chosen
from fuzz_models import OWN, Step, files_in, rows_for
from fuzz_models import SERIES as VALUES
from fuzz_predict import SERIES, rows

from coverwell import load
from coverwell.report import write_report, write_series_report


def prepared(folder: Path) -> Callable[[np.random.Generator], Iterator[Step]]:
    paths = {name: path for name, path in files_in(folder).items() if name not in ("photographs", "images")}
    models = {name: load(path, **OWN.get(name, {})) for name, path in paths.items()}
    tables = [name for name in paths if name not in SERIES]

    def case(rng: np.random.Generator) -> Iterator[Step]:
        if rng.random() < 0.15:
            yield from of_series(rng, models["forecaster"], folder)
            return
        name = chosen(rng, tables)
        yield from of_rows(rng, name, models[name], paths[name], folder)

    return case


def of_rows(rng: np.random.Generator, name: str, model: Any, path: Path, folder: Path) -> Iterator[Step]:
    X = rows_for(name) if rng.random() < 0.4 else rows(rng, name)
    n = len(X) if hasattr(X, "__len__") else 10
    classes = getattr(model, "classes_", None)
    y = odd.target(rng, n)
    if classes is not None and rng.random() < 0.7:
        y = np.resize(classes, n)
    elif rng.random() < 0.5:
        y = np.squeeze(rng.normal(size=(n, len(model.target_names_))), axis=1 if len(model.target_names_) == 1 else ())
    if rng.random() < 0.3:
        table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(rows_for(name)))
        table = table.assign(y=pd.Series(odd.column(rng, len(table)), index=table.index))
        data = odd.file_of_bytes(rng, folder, table)
        out = folder / "report.html"
        yield "coverwell report", lambda: odd.command("report", path, data, "--out", out, "--force")
        return
    more: dict[str, Any] = {}
    if rng.random() < 0.4:
        more["groups"] = chosen(rng, ({"g": odd.column(rng, n)}, {"g": ["a"] * n}, {"": [1] * n}, "x", {"g": None}))
    if rng.random() < 0.3:
        more["coverage"] = odd.level(rng)
    if rng.random() < 0.2:
        more["quantiles"] = chosen(rng, (1, 2, 0, -1, 2.5, "x", 10**6))
    if rng.random() < 0.2:
        more["title"] = chosen(rng, ("<script>alert(1)</script>", "", "🏠", "</style>", 3))
    if rng.random() < 0.2:
        more["row_numbers"] = chosen(rng, (range(n), [1], odd.column(rng, n), "x"))
    if rng.random() < 0.1:
        more["boxes"] = chosen(rng, (True, False, "x"))
    yield f"write_report {name}", lambda: write_report(model, X, y, folder / "report.html", **more)


def of_series(rng: np.random.Generator, model: Any, folder: Path) -> Iterator[Step]:
    series = VALUES if rng.random() < 0.3 else odd.series(rng, 60)
    start = chosen(rng, (None, 10, -1, "x", "2024-03-25 12:00"))
    past = np.arange(130.0) % 5 if rng.random() < 0.5 else odd.table(rng, 60)
    out, more = folder / "report.html", {"start": start, "past_covariates": past}
    yield "write_series_report", lambda: write_series_report(model, series, out, **more)
