"""`coverwell fit`: from a table in a file to a model in a file."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import at_a_terminal, check_output, print_json
from coverwell.tables import TableFile, needed_polars

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_CALIBRATION = "none"


def _levels(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[float]:
    share: click.ParamType[float] = click.FloatRange(0, 1, min_open=True, max_open=True)
    return sorted({share.convert(level, option, context) for value in values for level in value.split(",")})


@click.command(short_help="Fit a model to the rows of a file.")
@options.FILES
@click.option("--target", multiple=True, required=True, metavar="COLUMN", help="What to predict; may be given again.")
@click.option(
    "--coverage",
    multiple=True,
    default=("0.9",),
    metavar="SHARE",
    callback=_levels,
    help="The share of new rows inside their intervals; several, as 0.5,0.9 or given again, give nested intervals.",
)
@options.out("The model file, by custom .safetensors.")
@click.option(
    "--group", metavar="COLUMN", help="Rows with one value here, such as a patient, stay in one fold. It is no feature."
)
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not to be used; may be given again.")
@click.option(
    "--calibration",
    type=click.Choice(["cross", "cv+", "split", NO_CALIBRATION]),
    default="cross",
    help="How widths are set: by ranks of out-of-fold residuals (cross; cv+ is slower, with a weak guarantee), of rows "
    "kept apart (split, with a guarantee), or as the networks learned them.",
)
@click.option(
    "--matching", type=click.Choice(["sigma", "iqr"]), default="sigma", help="How the two networks are matched."
)
@click.option("--seed", type=click.IntRange(min=0, max=2**32 - 1), default=0, help="Same seed, same model.")
@click.option(
    "--folds", type=click.IntRange(min=2), default=5, help="Parts, each predicted by networks that did not train on it."
)
@click.option("--max-rounds", type=click.IntRange(min=1), help="Stop training after so many rounds.  [default: 100]")
@click.option("--streamed", is_flag=True, help="Read DATA part by part: Parquet files that may exceed the memory.")
@options.KNOWN_ROWS
@options.JSON
@options.FORCE
def fit(
    tables: list[TableFile],
    target: tuple[str, ...],
    coverage: list[float],
    out: Path,
    group: str | None,
    ignore: tuple[str, ...],
    calibration: str,
    seed: int,
    max_rounds: int | None,
    streamed: bool,
    skip_missing: bool,
    as_json: bool,
    force: bool,
    **asked: Any,
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
    check_output(out, force=force, inputs=[table.path for table in tables])
    if len(tables) > 1 and not streamed:
        raise ValueError(
            f"one file is read into memory, got {len(tables)}; give --streamed to read Parquet files part by part"
        )
    if streamed and skip_missing:
        raise ValueError("--skip-missing is for a table that is read whole; leave such rows out of what is --streamed")
    model = coverwell.MatchedRegressor(
        coverage=coverage if len(coverage) > 1 else coverage[0],
        calibration=None if calibration == NO_CALIBRATION else calibration,
        schedule=None if max_rounds is None else coverwell.Schedule(max_rounds=max_rounds),
        random_state=seed,
        verbose=int(at_a_terminal()),
        **asked,
    )
    start = time.perf_counter()
    names = _features_in(tables[0], target, coverage, group, ignore)
    if streamed:
        files = coverwell.TableFiles([table.path for table in tables], columns=_used(names, target, group))
        model.fit(files, target if len(target) > 1 else target[0], group)
        y, n_skipped = files.take(model.out_of_fold_rows_, target).to_numpy(), 0
    else:
        y, n_skipped = _fit_table(model, tables[0], names, target, group, skip_missing=skip_missing)
    seconds = time.perf_counter() - start
    coverwell.save(model.set_params(verbose=0), out)
    found = {"out": str(out), **_summary(model, y, n_skipped), "seconds": round(seconds, 3)}
    if as_json:
        print_json(found)
    else:
        _print(found)


def _features_in(
    table: TableFile, targets: tuple[str, ...], levels: list[float], group: str | None, ignore: tuple[str, ...]
) -> list[str]:
    """The columns to learn from."""
    from coverwell.cli.rows import check_targets
    from coverwell.prediction import prediction_columns

    check_targets(table, targets)
    prediction_columns(targets, levels)
    table.check_has([group] if group else [], "column for --group:")
    table.check_has(ignore, "column for --ignore:")
    if group in targets:
        raise ValueError(f"--group {group} is a target; rows must be grouped by another column")
    names = [name for name in table.columns if name not in (*targets, group, *ignore)]
    if not names:
        raise ValueError(f"{table.path} has no column to learn from beside the targets; add some")
    return names


def _used(names: list[str], targets: tuple[str, ...], group: str | None) -> list[str]:
    return [*names, *targets, *([group] if group else [])]


def _fit_table(
    model: Any, table: TableFile, names: list[str], targets: tuple[str, ...], group: str | None, *, skip_missing: bool
) -> tuple[NDArray[Any], int]:
    """Fit on a table that is read whole; the targets of its rows, and how many rows without one were left out."""
    from coverwell.cli.rows import groups_of, targets_of

    rows = table.read(_used(names, targets, group))
    y, there = targets_of(table, rows, targets, skip_missing=skip_missing)
    if len(y) == 1:
        raise ValueError(
            f"{table.path} has one row to learn from, but --folds {model.folds} needs at least {model.folds}; give "
            "more rows"
        )
    features = rows.select(names).filter(there)
    features = table.typed(features, table.kinds(features), there.nonzero()[0].tolist())
    groups = None
    if group is not None:
        of_rows = groups_of(table, rows, group)
        if (without := of_rows.is_null().to_numpy() & there).any():
            row = without.argmax() + 1
            raise ValueError(f"--group {group} must have a value in every row, but has none in row {row}; fill it in")
        groups = of_rows.cast(needed_polars().String).to_numpy()[there]
    model.fit(features, y if len(targets) > 1 else y[targets[0]], groups)
    return y.to_numpy(), len(rows) - len(y)


def _summary(model: Any, y: NDArray[Any], n_skipped: int) -> dict[str, Any]:
    """What was fitted, and how it does on training rows by members that did not train on them."""
    from coverwell.description import describe

    metrics, known, found = coverwell.metrics, model.out_of_fold_, []
    for (target, name), (level, asked) in product(enumerate(model.target_names_), enumerate(describe(model).levels)):
        there = known.prediction[:, target] == known.prediction[:, target]  # NaN where no member left the row out
        bounds = [bound[there, target, level] for bound in (known.lower, known.upper)]
        truth = y[there, target].astype(float)
        found.append(
            {
                "target": name,
                "asked": asked,
                "rmse": metrics.rmse(truth, known.prediction[there, target]),
                "coverage": metrics.coverage(truth, *bounds),
                "width": metrics.average_width(*bounds),
            }
        )
    return {
        "rows": getattr(model, "n_rows_", len(y)),
        "rows_judged": len(y),
        "rows_skipped": n_skipped,
        "columns": list(model.columns_.report()) if model.columns_ is not None else model.source_.table_columns,
        "rounds": len(model.rounds_),
        "out_of_fold": found,
    }


def _print(found: dict[str, Any]) -> None:
    skipped = f" ({found['rows_skipped']:,} without a target left out)" if found["rows_skipped"] else ""
    click.echo(f"fitted on {found['rows']:,} rows{skipped}: {found['rounds']} rounds in {found['seconds']:.1f} s")
    click.echo("\n  ".join(["columns:", *found["columns"]]))
    which = "training rows" if found["rows_judged"] == found["rows"] else f"a sample of {found['rows_judged']:,} rows"
    click.echo(f"{which}, each predicted by networks that did not train on it:")
    for entry in found["out_of_fold"]:
        click.echo(
            f"  {entry['target']}: RMSE {entry['rmse']:.4g}; at {entry['asked']:g} coverage {entry['coverage']:.3f}, "
            f"mean width {entry['width']:.4g}"
        )
    click.echo(f"wrote {found['out']}")
