"""`coverwell fit`: from a table in a file to a model in a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import check_output, print_json
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coverwell.regressor import MatchedRegressor


@click.command(short_help="Fit a model to the rows of a file.")
@options.FILES
@click.option("--target", multiple=True, required=True, metavar="COLUMN", help="What to predict; may be given again.")
@click.option(
    "--coverage",
    multiple=True,
    default=("0.9",),
    metavar="SHARE",
    callback=options.shares,
    help="The share of new rows inside their intervals; several, as 0.5,0.9 or given again, give nested intervals.",
)
@options.out("The model file, by custom .safetensors.")
@click.option("--group", metavar="COLUMN", help="No feature: rows with one value here, as a patient, stay in one fold.")
@click.option("--weight", metavar="COLUMN", help="No feature: how much each row counts, relative to the others.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not to be used; may be given again.")
@click.option(
    "--calibration",
    type=click.Choice(["local", "cross", "cv+", "split", "none"]),
    default="local",
    callback=lambda context, option, value: None if value == "none" else value,
    help="How widths are set: by quantiles of out-of-fold residuals in each part of the table, then ranks (local), "
    "by ranks alone (cross; cv+ is slower, with a weak guarantee), by ranks of rows kept apart (split, with a "
    "guarantee), or as the networks learned them.",
)
@click.option(
    "--hold-for",
    multiple=True,
    metavar="COLUMN",
    callback=lambda context, option, values: values or None,
    help="Hold the coverage for each value of this feature, not only on average; may be given again.",
)
@click.option(
    "--companions",
    type=click.Choice(["forest", "none"]),
    default="forest",
    callback=lambda context, option, value: () if value == "none" else (value,),
    help="What is blended with the networks, as far as it lowers the error.",
)
@click.option(
    "--matching",
    type=click.Choice(["balanced", "sigma", "iqr"]),
    default="balanced",
    help="How both networks are matched; sigma and iqr are the paper's.",
)
@click.option("--seed", "random_state", type=click.IntRange(0, 2**32 - 1), default=0, help="Same seed, same model.")
@click.option("--folds", type=click.IntRange(min=2), default=5, help="Parts, each left out by some of the networks.")
@click.option("--max-rounds", type=click.IntRange(min=1), help="Stop training after so many rounds.  [default: 6]")
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
    weight: str | None,
    ignore: tuple[str, ...],
    max_rounds: int | None,
    streamed: bool,
    skip_missing: bool,
    as_json: bool,
    force: bool,
    **asked: Any,
) -> None:
    """Fit a model that gives every prediction an interval, to a table in DATA (.csv, .tsv or .parquet).

    All columns but the targets, --group, --weight and --ignore are features. Columns of text become categories, those
    of dates (written as 2026-11-15 or 2026-11-15 10:30) calendar features, and missing values are filled and flagged;
    what was done with each column is printed, and kept in the model. The first line of a text file has the column
    names; empty cells, NA, N/A, NaN, null, None and ? are missing values.

    \b
    Example:
      coverwell fit houses.csv --target price --coverage 0.9 --out model.safetensors
      coverwell fit sales-*.parquet --streamed --target price --out model.safetensors
    """
    check_output(out, force=force, inputs=[table.path for table in tables])
    if len(tables) > 1 and not streamed:
        way_out = "give --streamed to read Parquet files in parts"
        raise ValueError(f"one file is read into memory, got {len(tables)}; {way_out}")
    if streamed and skip_missing:
        raise ValueError("--skip-missing is for a table that is read whole; leave these rows out of what is --streamed")
    model = coverwell.MatchedRegressor(
        coverage=coverage if len(coverage) > 1 else coverage[0],
        schedule=None if max_rounds is None else coverwell.Schedule(max_rounds=max_rounds),
        verbose=int(sys.stderr.isatty()),
        **asked,
    )
    from coverwell.cli.rows import features_in, training_rows
    from coverwell.slices import in_one_line

    start = time.perf_counter()
    names = features_in(tables[0], target, coverage, ignore, group=group, weight=weight)
    if streamed:
        used = list(dict.fromkeys([*names, *target, *filter(None, (group, weight))]))
        files = coverwell.TableFiles([table.path for table in tables], columns=used)
        model.fit(files, target if len(target) > 1 else target[0], group, weight)
        y, n_skipped = files.take(model.out_of_fold_rows_, target).to_numpy(), 0
        weights = None if weight is None else files.take(model.out_of_fold_rows_, [weight]).to_numpy()[:, 0]
    else:
        features, y, groups, weights, n_skipped = training_rows(
            tables[0], names, target, group=group, weight=weight, skip_missing=skip_missing
        )
        if len(y) == 1:
            needed = f"--folds {model.folds} needs at least {model.folds}"
            raise ValueError(f"{tables[0].path} has one row to learn from, but {needed}; give more rows")
        model.fit(features, y if len(target) > 1 else y[target[0]], groups, weights)
        y = y.to_numpy()
    seconds = time.perf_counter() - start
    coverwell.save(model.set_params(verbose=0), out)
    found = {"out": str(out), "rows_skipped": n_skipped, **_summary(model, y, weights), "seconds": round(seconds, 3)}
    if as_json:
        print_json(found)
        return
    skipped = f" ({n_skipped:,} without a target left out)" if n_skipped else ""
    click.echo(f"fitted on {found['rows']:,} rows{skipped}: {found['rounds']} rounds in {seconds:.1f} s")
    click.echo("\n  ".join(["columns:", *found["columns"]]))
    which = "training rows" if len(y) == found["rows"] else f"a sample of {len(y):,} rows"
    click.echo(f"{which}, each predicted by networks that did not train on it:")
    for entry in found["out_of_fold"]:
        at = f"at {entry['asked']:g} coverage {entry['coverage']:.3f}, mean width {entry['width']:.4g}"
        click.echo(f"  {entry['target']}: RMSE {entry['rmse']:.4g}; {at}")
    if model.worst_slices_:
        click.echo(f"  {in_one_line(model.worst_slices_)}")
    click.echo(f"wrote {out}")


def _summary(model: MatchedRegressor, y: NDArray[Any], weight: NDArray[Any] | None) -> dict[str, Any]:
    """What was fitted, and how it does on training rows by members that did not train on them."""
    import numpy as np

    from coverwell.calibration import weighted_mean
    from coverwell.evaluation import Outcome, View

    def scores(view: View) -> dict[str, float]:
        own, squares = None if weight is None else weight[view.rows], (view.y - view.prediction) ** 2
        values = {"rmse": squares, "coverage": view.inside, "width": view.width}
        means = {name: float(weighted_mean(one, own)) for name, one in values.items()}
        return {**means, "rmse": means["rmse"] ** 0.5}

    known = model.out_of_fold_
    assert known is not None
    truth = np.where(np.isnan(known.prediction), np.nan, y.astype(float))  # NaN where no member left the row out
    bounds, levels = (known.lower, known.upper), model.predictor_.levels
    views = Outcome(truth, known.prediction, *bounds, levels, model.target_names_).views
    return {
        "rows": getattr(model, "n_rows_", len(y)),
        "rows_evaluated": len(y),
        "columns": list(model.columns_.report()) if model.columns_ is not None else model.source_.table_columns,
        "rounds": len(model.rounds_),
        "out_of_fold": [{"target": view.name, "asked": view.asked, **scores(view)} for view in views],
        "worst_slices": [vars(one) | {"coverage": one.coverage} for one in model.worst_slices_],
    }
