"""`coverwell fit`: from a table in a file to a model in a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from coverwell import metrics
from coverwell.commands.messages import BadInput, at_a_terminal, check_output, clear_messages, print_json
from coverwell.commands.models import TableModel
from coverwell.commands.options import (
    DEVICE_OPTION,
    FILES_ARGUMENT,
    FORCE_OPTION,
    JSON_OPTION,
    SKIP_OPTION,
    TEXT_OPTIONS,
)
from coverwell.commands.targets import check_output_columns, check_targets, groups_of, prediction_columns, targets_of
from coverwell.persistence import save
from coverwell.regressor import MatchedRegressor
from coverwell.streaming import TableFiles
from coverwell.table_files import TableFile, needed_polars
from coverwell.text_kinds import check_finite, kinds_of, typed, warn_of_decimal_commas

if TYPE_CHECKING:
    import polars as pl

__all__ = ["fit"]

Array = NDArray[np.float64]

NO_CALIBRATION = "none"


@dataclass(frozen=True)
class _Chosen:
    """What the columns of a table are for, and the levels that predictions will have."""

    target: tuple[str, ...]
    group: str | None
    ignore: tuple[str, ...]
    levels: list[float]

    def features_in(self, table: TableFile) -> list[str]:
        """The columns to learn from."""
        check_targets(table, self.target)
        check_output_columns(prediction_columns(self.target, self.levels))
        table.check_has([self.group] if self.group else [], "column for --group:")
        table.check_has(self.ignore, "column for --ignore:")
        if self.group in self.target:
            raise BadInput(f"--group {self.group} is a target; rows must be grouped by another column")
        names = [name for name in table.columns if name not in (*self.target, self.group, *self.ignore)]
        if not names:
            raise BadInput(f"{table.path} has no column to learn from beside the targets; add some")
        return names

    def with_features(self, names: list[str]) -> list[str]:
        return [*names, *self.target, *([self.group] if self.group else [])]


@click.command(short_help="Fit a model to the rows of a file.")
@FILES_ARGUMENT
@click.option("--target", multiple=True, required=True, metavar="COLUMN", help="What to predict; may be given again.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    default=(0.9,),
    metavar="SHARE",
    help="The share of new rows that an interval is to contain; may be given again for nested intervals.  "
    "[default: 0.9]",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The model file, by custom .safetensors.")
@click.option(
    "--group",
    metavar="COLUMN",
    help="Rows with the same value here (a patient, a house) stay in one fold, so that intervals are for new ones. It "
    "is not a feature.",
)
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not to be used; may be given again.")
@click.option(
    "--calibration",
    type=click.Choice(["cross", "cv+", "split", NO_CALIBRATION]),
    default="cross",
    show_default=True,
    help="How widths are set: by ranks of out-of-fold residuals (cross; cv+ is slower, with a weak guarantee), of rows "
    "kept apart (split, with a guarantee), or as the networks learned them.",
)
@click.option(
    "--matching",
    type=click.Choice(["sigma", "iqr"]),
    default="sigma",
    show_default=True,
    help="How the two networks are matched.",
)
@click.option(
    "--seed", type=click.IntRange(min=0, max=2**32 - 1), default=0, show_default=True, help="Same seed, same model."
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Into how many parts the rows are cut; each part is judged by networks that did not see it.",
)
@click.option("--max-rounds", type=click.IntRange(min=1), help="Stop training after so many rounds.  [default: 100]")
@click.option(
    "--streamed",
    is_flag=True,
    help="Read DATA part by part: Parquet files, one or more, that may together be larger than the memory.",
)
@DEVICE_OPTION
@TEXT_OPTIONS
@SKIP_OPTION
@JSON_OPTION
@FORCE_OPTION
def fit(
    data: tuple[Path, ...],
    target: tuple[str, ...],
    coverage: tuple[float, ...],
    out: Path,
    group: str | None,
    ignore: tuple[str, ...],
    calibration: str,
    matching: str,
    seed: int,
    folds: int,
    max_rounds: int | None,
    streamed: bool,
    device: str,
    skip_missing: bool,
    as_json: bool,
    force: bool,
    **text: Any,
) -> None:
    """Fit a model that gives every prediction an interval, to a table in DATA (.csv, .tsv or .parquet).

    All columns but the targets, --group and --ignore are features. Columns of text become categories, those of dates
    (written as 2026-11-15 or 2026-11-15 10:30) calendar features, and missing values are filled and flagged; what was
    done with each column is printed, and kept in the model. The first line of a text file has the column names; empty
    cells, NA, N/A, NaN, null, None and ? are missing values.

    \b
    Example:
      coverwell fit houses.csv --target price --coverage 0.9 --out model.safetensors
      coverwell fit sales-*.parquet --streamed --target price --out model.safetensors
    """
    with clear_messages():
        check_output(out, force=force, inputs=data)
        levels = sorted(set(coverage))
        model = MatchedRegressor(
            coverage=levels if len(levels) > 1 else levels[0],
            matching=matching,
            calibration=None if calibration == NO_CALIBRATION else calibration,
            folds=folds,
            max_rounds="auto" if max_rounds is None else max_rounds,
            device=device,
            random_state=seed,
            verbose=int(at_a_terminal()),
        )
        chosen = _Chosen(target, group, ignore, levels)
        started = time.perf_counter()
        if streamed:
            y, n_skipped = _fit_files(model, data, chosen, skip_missing=skip_missing), 0
        else:
            y, n_skipped = _fit_table(model, _only(data, text), chosen, skip_missing=skip_missing)
        seconds = time.perf_counter() - started
        save(model.set_params(verbose=0), out)
        found = _summary(TableModel(out, model), y, seconds, n_skipped=n_skipped)
        if as_json:
            print_json(found)
        else:
            _say(found)


def _only(data: tuple[Path, ...], text: dict[str, Any]) -> TableFile:
    if len(data) > 1:
        raise BadInput(
            f"one file is read into memory, got {len(data)}; give --streamed to read Parquet files part by part"
        )
    return TableFile(data[0], **text)


def _fit_table(model: MatchedRegressor, table: TableFile, chosen: _Chosen, *, skip_missing: bool) -> tuple[Array, int]:
    """Fit on a table that is read whole; the targets of its rows, and how many rows were left out for lack of one."""
    names, path = chosen.features_in(table), table.path
    rows = table.read(chosen.with_features(names))
    y, there = targets_of(rows, chosen.target, table=table, skip=skip_missing)
    if len(y) == 1:
        raise BadInput(
            f"{path} has one row to learn from, but --folds {model.folds} needs at least {model.folds}; give more rows"
        )
    features = rows.select(names).filter(there)
    features = typed(features, kinds_of(features, decimal=table.decimal), path=path, decimal=table.decimal)
    if table.is_text:
        warn_of_decimal_commas(features, path=path)
    check_finite(features, path=path, rows=np.flatnonzero(there))
    groups = None if chosen.group is None else _groups(groups_of(rows, chosen.group, path=path), there)
    model.fit(features, y if len(chosen.target) > 1 else y[chosen.target[0]], groups)
    return y.to_numpy(), len(rows) - len(y)


def _fit_files(model: MatchedRegressor, data: tuple[Path, ...], chosen: _Chosen, *, skip_missing: bool) -> Array:
    """Fit on files that are read part by part; the targets of the sample that is judged."""
    if skip_missing:
        raise BadInput("--skip-missing is for a table that is read whole; leave such rows out of what is --streamed")
    names = chosen.features_in(TableFile(TableFiles(data).paths[0]))
    files = TableFiles(data, columns=chosen.with_features(names))
    model.fit(files, chosen.target if len(chosen.target) > 1 else chosen.target[0], chosen.group)
    judged: Array = files.take(model.out_of_fold_rows_, chosen.target).to_numpy()
    return judged


def _groups(groups: pl.Series, there: NDArray[np.bool_]) -> NDArray[Any]:
    """The groups of the rows that are there, each of which must have one."""
    if (without := groups.is_null().to_numpy() & there).any():
        first = int(without.argmax()) + 1
        raise BadInput(f"--group {groups.name} must have a value in every row, but has none in row {first}; fill it in")
    texts: NDArray[Any] = groups.cast(needed_polars().String).to_numpy()[there]
    return texts


def _summary(fitted: TableModel, y: Array, seconds: float, *, n_skipped: int) -> dict[str, Any]:
    """What was fitted, and how it does on training rows by members that did not see them."""
    model: Any = fitted.model
    return {
        "out": str(fitted.path),
        "rows": getattr(model, "n_rows_", len(y)),
        "rows_judged": len(y),
        "rows_skipped": n_skipped,
        "columns": fitted.feature_names if model.source_.columns is None else list(model.source_.columns.report()),
        "rounds": len(model.rounds_),
        "seconds": round(seconds, 3),
        "out_of_fold": [entry for t in range(len(fitted.targets)) for entry in _out_of_fold(fitted, y, t)],
    }


def _out_of_fold(fitted: TableModel, y: Array, target: int) -> list[dict[str, Any]]:
    model: Any = fitted.model
    said, truth = model.out_of_fold_, y[:, target].astype(np.float64)
    heard = ~np.isnan(said.prediction[:, target])
    found = []
    for place, level in enumerate(fitted.levels):
        lower, upper = (bound[heard, target, place] for bound in (said.lower, said.upper))
        found.append(
            {
                "target": fitted.targets[target],
                "asked": level,
                "rmse": metrics.rmse(truth[heard], said.prediction[heard, target]),
                "coverage": metrics.coverage(truth[heard], lower, upper),
                "width": metrics.average_width(lower, upper),
            }
        )
    return found


def _say(found: dict[str, Any]) -> None:
    skipped = f" ({found['rows_skipped']:,} without a target left out)" if found["rows_skipped"] else ""
    click.echo(f"fitted on {found['rows']:,} rows{skipped}: {found['rounds']} rounds in {found['seconds']:.1f} s")
    click.echo("columns:")
    for line in found["columns"]:
        click.echo(f"  {line}")
    judged = "training rows" if found["rows_judged"] == found["rows"] else f"a sample of {found['rows_judged']:,} rows"
    click.echo(f"{judged}, each judged by networks that did not see it:")
    for entry in found["out_of_fold"]:
        click.echo(
            f"  {entry['target']}: RMSE {entry['rmse']:.4g}; at {entry['asked']:g} coverage {entry['coverage']:.3f}, "
            f"mean width {entry['width']:.4g}"
        )
    click.echo(f"wrote {found['out']}")
