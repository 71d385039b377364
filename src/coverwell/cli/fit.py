"""`coverwell fit`: from a table in a file to a model in a file."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.messages import BadInput, check_output, print_json
from coverwell.cli.rare import in_words as rare_in_words
from coverwell.cli.rare import rare_categories
from coverwell.errors import FewValuesWarning, TwoValuesWarning
from coverwell.tables import TableFile, needed_polars

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from coverwell.checkpoint import CheckpointFile

# What --calibration and --matching may be; the first is the default.
CALIBRATIONS, MATCHINGS = ("local", "cross", "cv+", "split", "none"), ("balanced", "sigma", "iqr")
OF_CLASSES = ("cross", "split", "none")
MOST_NAMED = 12  # classes
SECONDS_BETWEEN = 10.0  # checkpoints at least: fits that take less need none


@click.command(short_help="Fit a model to the rows of a file.")
@options.FILES
@click.option("--target", multiple=True, required=True, metavar="COLUMN", help="What to predict; may be given again.")
@click.option(
    "--coverage",
    multiple=True,
    default=("0.9",),
    metavar="SHARE",
    callback=options.shares,
    help="The share of new rows inside their intervals or sets; several, as 0.5,0.9 or given again, give nested ones.",
)
@click.option("--classify", is_flag=True, help="The target holds classes though they are numbers; text always does.")
@click.option(
    "--ordered",
    is_flag=False,
    flag_value="",
    metavar="[CLASSES]",
    help="The classes have an order, as low,mid,high: sets then have no gaps. Classes that are numbers need not be "
    "named.",
)
@options.out("The model file, by custom .safetensors.")
@click.option("--group", metavar="COLUMN", help="No feature: rows with one value here, as a patient, stay in one fold.")
@click.option("--weight", metavar="COLUMN", help="No feature: how much each row counts, relative to the others.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not to be used; may be given again.")
@click.option(
    "--calibration",
    type=click.Choice(CALIBRATIONS),
    help="How widths are set: by quantiles of out-of-fold residuals in each part of the table, then ranks (local), "
    "by ranks alone (cross; cv+ is slower, with a weak guarantee), by ranks of rows kept apart (split, with a "
    "guarantee), or as the networks learned them. For classes cross, split or none.  [default: local; cross for "
    "classes]",
)
@click.option(
    "--hold-for",
    multiple=True,
    metavar="COLUMN",
    callback=lambda context, option, values: values or None,
    help="Hold the coverage for each value of this feature, not only on average; `class` holds it for each class; may "
    "be given again.",
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
    type=click.Choice(MATCHINGS),
    help="How both networks are matched; sigma and iqr are the paper's. Not for classes.  [default: balanced]",
)
@click.option("--seed", "random_state", type=click.IntRange(0, 2**32 - 1), default=0, help="Same seed, same model.")
@click.option("--folds", type=click.IntRange(min=2), default=5, help="Parts, each left out by some of the networks.")
@click.option("--max-rounds", type=click.IntRange(min=1), help="Stop training after so many rounds.  [default: 6]")
@click.option("--streamed", is_flag=True, help="Read DATA part by part: Parquet files that may exceed the memory.")
@click.option(
    "--resume", is_flag=True, help="Go on with a fit that was stopped, from its OUT.checkpoint if there is one."
)
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
    classify: bool,
    max_rounds: int | None,
    streamed: bool,
    resume: bool,
    skip_missing: bool,
    as_json: bool,
    force: bool,
    **asked: Any,
) -> None:
    """Fit a model that gives every prediction an interval, to a table in DATA (.csv, .tsv or .parquet).

    If the target is text, or with --classify, it gives every row the probabilities of its classes, and sets that
    contain the right class as often as asked.

    All columns but the targets, --group, --weight and --ignore are features. Columns of text become categories, those
    of dates (written as 2026-11-15 or 2026-11-15 10:30) calendar features, and missing values are filled and flagged;
    what was done with each column is printed, and kept in the model. The first line of a text file has the column
    names; empty cells, NA, N/A, NaN, null, None and ? are missing values.

    \b
    Example:
      coverwell fit houses.csv --target price --coverage 0.9 --out model.safetensors
      coverwell fit flowers.csv --target species --out model.safetensors
      coverwell fit sales-*.parquet --streamed --target price --out model.safetensors
    """
    check_output(out, force=force, inputs=[table.path for table in tables])
    if len(tables) > 1 and not streamed:
        way_out = "give --streamed to read Parquet files in parts"
        raise ValueError(f"one file is read into memory, got {len(tables)}; {way_out}")
    if streamed and skip_missing:
        raise ValueError("--skip-missing is for a table that is read whole; leave these rows out of what is --streamed")
    names = features_in(tables[0], target, coverage, ignore, group=group, weight=weight)
    checkpoint = _checkpoint(out, resume=resume, force=force)  # loads torch
    from coverwell.cli.rows import few_values, streamed_classes, training_rows
    from coverwell.groups import FEWEST_ROWS
    from coverwell.slices import in_one_line

    start = time.perf_counter()
    asked |= {"coverage": coverage if len(coverage) > 1 else coverage[0], "verbose": int(sys.stderr.isatty())}
    asked["schedule"] = None if max_rounds is None else coverwell.Schedule(max_rounds=max_rounds)
    if streamed:
        used = list(dict.fromkeys([*names, *target, *filter(None, (group, weight))]))
        files = coverwell.TableFiles([table.path for table in tables], columns=used)
        classes = streamed_classes(tables[0], files, target, classify=classify)
        model = _estimator(classes, **asked)
        model.fit(files, target if len(target) > 1 else target[0], group, weight, checkpoint=checkpoint)
        known, n_skipped = files.take(model.out_of_fold_rows_, target), 0
        y = known.to_numpy() if classes is None else known[target[0]].to_numpy()
        weights = None if weight is None else files.take(model.out_of_fold_rows_, [weight]).to_numpy()[:, 0]
    else:
        features, given, groups, weights, n_skipped = training_rows(
            tables[0], names, target, group=group, weight=weight, skip_missing=skip_missing, classify=classify
        )
        if len(given) == 1:
            needed = f"--folds {asked['folds']} needs at least {asked['folds']}"
            raise ValueError(f"{tables[0].path} has one row to learn from, but {needed}; give more rows")
        is_class = isinstance(given, needed_polars().Series)
        model = _estimator(given if is_class else None, **asked)
        with warnings.catch_warnings():
            if not is_class and len(target) == 1 and (values := few_values(given.to_series())):
                has = f"{target[0]} has only {len(values)} values ({', '.join(map(str, values))})"
                warnings.warn(f"{has}: if these are classes, give --classify", FewValuesWarning, stacklevel=2)
                warnings.simplefilter("ignore", TwoValuesWarning)
            targets = given if is_class or len(target) > 1 else given[target[0]]
            model.fit(features, targets, groups, weights, checkpoint=checkpoint)
        y = given.to_numpy()
    rare = [] if streamed or model.columns_ is None else rare_categories(model.columns_.columns, features)
    seconds = time.perf_counter() - start
    coverwell.save(model.set_params(verbose=0), out)
    checkpoint.remove()
    found = {"out": str(out), "rows_skipped": n_skipped, **_summary(model, y, weights)}
    found |= {"rounds_before": checkpoint.n_rounds, "seconds": round(seconds, 3)}
    if as_json:
        print_json(found)
        return
    skipped = f" ({n_skipped:,} without a target left out)" if n_skipped else ""
    before = f", {checkpoint.n_rounds} of them before it was stopped" if checkpoint.n_rounds else ""
    rounds = f"{found['rounds']} round{'s' * (found['rounds'] != 1)} in {seconds:.1f} s"
    click.echo(f"fitted on {found['rows']:,} rows{skipped}: {rounds}{before}")
    if classes := found.get("classes"):
        click.echo(f"class target: {classes_in_words(classes, in_order=bool(model.ordered))}")
    click.echo("\n  ".join(["columns:", *found["columns"]]))
    which = "training rows" if len(y) == found["rows"] else f"a sample of {len(y):,} rows"
    click.echo(f"{which}, each predicted by networks that did not train on it:")
    for entry in found["out_of_fold"]:
        at = f"at {entry['asked']:g} coverage {entry['coverage']:.3f}"
        if "width" in entry:
            click.echo(f"  {entry['target']}: RMSE {entry['rmse']:.4g}; {at}, mean width {entry['width']:.4g}")
        else:
            scores = f"accuracy {entry['accuracy']:.3f}, log loss {entry['log_loss']:.3f}"
            click.echo(f"  {entry['target']}: {scores}; {at}, mean set size {entry['size']:.2f}")
    if model.worst_slices_:
        click.echo(f"  {in_one_line(model.worst_slices_)}")
    if unheld := [one for one in rare if one[0] not in (asked["hold_for"] or ()) or one[2] < FEWEST_ROWS]:
        click.echo(f"  {rare_in_words(unheld)}")
    if level := found["repeated_up_to"]:
        kept = "rows with equal inputs stay in one fold"
        click.echo(f"rows come again: {kept}; a row seen before is given its target, with no width up to {level:g}")
    click.echo(f"wrote {out}")


def _checkpoint(out: Path, *, resume: bool, force: bool) -> CheckpointFile:
    """Where a fit keeps its rounds: all of them if it may be resumed, otherwise those of a fit that takes long."""
    from coverwell.checkpoint import CheckpointFile

    file = CheckpointFile(out.with_name(f"{out.name}.checkpoint"), 0.0 if resume else SECONDS_BETWEEN)
    check_output(file.path, force=True, name="the checkpoint")
    if file.path.exists() and not resume:
        if not force:
            way_out = "give --resume to go on, or --force to start anew"
            raise BadInput(f"{file.path} keeps a fit that was stopped; {way_out}")
        file.remove()
    return file


def features_in(
    table: TableFile,
    targets: Sequence[str],
    levels: Sequence[float],
    ignore: Sequence[str],
    *,
    group: str | None,
    weight: str | None,
) -> list[str]:
    """The columns to learn from; before anything heavy is loaded, all that is named must be there."""
    from coverwell.prediction import prediction_columns

    if len(set(targets)) < len(targets):
        raise ValueError(f"every --target must be named once, got {', '.join(targets)}")
    table.check_has(targets, "column for the target:")
    prediction_columns(targets, levels)
    table.check_has([group] if group else [], "column for --group:")
    table.check_has([weight] if weight else [], "column for --weight:")
    table.check_has(ignore, "column for --ignore:")
    if group in targets:
        raise ValueError(f"--group {group} is a target; rows must be grouped by another column")
    if weight in targets:
        raise ValueError(f"--weight {weight} is a target; rows must be weighted by another column")
    names = [name for name in table.columns if name not in (*targets, group, weight, *ignore)]
    if not names:
        raise ValueError(f"{table.path} has no column to learn from beside the targets; add some")
    return names


def classes_in_words(classes: list[Any], *, in_order: bool = False) -> str:
    named = ", ".join(map(str, classes[:MOST_NAMED])) + (", ..." if len(classes) > MOST_NAMED else "")
    return f"{len(classes)} classes{', in the order' * in_order} {named}"


def _estimator(classes: pl.Series | None, *, ordered: str | None, **asked: Any) -> Any:
    """The estimator for targets of numbers, or for classes."""
    calibration, matching = asked.pop("calibration"), asked.pop("matching")
    if classes is None:
        if ordered is not None:
            raise BadInput("--ordered is for classes; leave it out, or give --classify if the numbers are classes")
        calibration = calibration or CALIBRATIONS[0]
        asked["matching"] = matching or MATCHINGS[0]
        asked["calibration"] = None if calibration == "none" else calibration
        return coverwell.MatchedRegressor(**asked)
    calibration = calibration or OF_CLASSES[0]
    if calibration not in OF_CLASSES:
        of_classes = f"{', '.join(OF_CLASSES[:-1])} or {OF_CLASSES[-1]}"
        raise BadInput(f"--calibration must be {of_classes} for classes, as {classes.name} has, got {calibration}")
    if matching is not None:
        raise BadInput(f"--matching {matching} is for targets of numbers, and {classes.name} has classes; leave it out")
    asked["calibration"] = None if calibration == "none" else calibration
    return coverwell.MatchedClassifier(**asked, ordered=_order(classes, ordered))


def _order(classes: pl.Series, ordered: str | None) -> Any:
    """False, True for numbers in their order, or the classes in theirs."""
    if ordered is None:
        return False
    known = classes.unique().sort().to_list()
    if not ordered:
        if isinstance(known[0], str):
            way_out = f"name them, separated by commas, as --ordered {','.join(known[:MOST_NAMED])}"
            raise BadInput(f"text says nothing about the order of the classes of {classes.name}; {way_out}")
        return True
    by_name = {str(label): label for label in known}
    given = [name.strip() for name in ordered.split(",")]
    if sorted(given) != sorted(by_name):
        must = f"--ordered must name every class of {classes.name} once"
        raise BadInput(f"{must}, {', '.join(list(by_name)[:MOST_NAMED])}, separated by commas, got {ordered}")
    return [by_name[name] for name in given]


def _summary(model: Any, y: NDArray[Any], weight: NDArray[Any] | None) -> dict[str, Any]:
    """What was fitted, and how it does on training rows by members that did not train on them."""
    from coverwell.description import ModelDescription

    is_class = isinstance(model, coverwell.MatchedClassifier)
    return {
        "rows": getattr(model, "n_rows_", len(y)),
        "rows_evaluated": len(y),
        **({"classes": _classes(model)} if is_class else {}),
        "columns": list(model.columns_.report()) if model.columns_ is not None else model.source_.table_columns,
        "rounds": len(model.rounds_),
        "out_of_fold": (_of_sets if is_class else _of_intervals)(model, y, weight),
        "worst_slices": [vars(one) | {"coverage": one.coverage} for one in model.worst_slices_],
        "repeated_up_to": ModelDescription(model).repeated_up_to,
    }


def _classes(model: Any) -> list[Any]:
    return model.ordered if isinstance(model.ordered, list) else model.classes_.tolist()


def _of_intervals(model: Any, y: NDArray[Any], weight: NDArray[Any] | None) -> list[dict[str, Any]]:
    """The scores of each target and level, out of fold."""
    import numpy as np

    from coverwell.calibration import weighted_mean
    from coverwell.evaluation import Outcome, View

    def scores(view: View) -> dict[str, float]:
        own, squares = None if weight is None else weight[view.rows], (view.y - view.prediction) ** 2
        values = {"rmse": squares, "coverage": view.inside, "width": view.width}
        means = {name: float(weighted_mean(one, own)) for name, one in values.items()}
        return {**means, "rmse": means["rmse"] ** 0.5}

    known = model.out_of_fold_
    truth = np.where(np.isnan(known.prediction), np.nan, y.astype(float))  # NaN where no member left the row out
    bounds, levels = (known.lower, known.upper), model.predictor_.levels
    views = Outcome(truth, known.prediction, *bounds, levels, model.target_names_).views
    return [{"target": view.name, "asked": view.asked, **scores(view)} for view in views]


def _of_sets(model: Any, y: NDArray[Any], weight: NDArray[Any] | None) -> list[dict[str, Any]]:
    """The same of classes, for each level."""
    from coverwell.calibration import weighted_mean
    from coverwell.evaluation import ClassOutcome

    known, own = model.out_of_fold_, model.out_of_fold_.known
    given = (y[own], known.probability[own], known.members[own], model.classes_)
    outcome = ClassOutcome(*given, model.predictor_.levels, model.target_names_)
    weight = weight if weight is None else weight[own]
    found = []
    for view in outcome.views:
        values = {**outcome.of_rows, "coverage": view.inside, "size": view.size}
        means = {name: float(weighted_mean(one, weight)) for name, one in values.items()}
        found.append({"target": view.name, "asked": view.asked, **means})
    return found
