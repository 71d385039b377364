"""`coverwell recalibrate`: a model file with the widths for other rows than those of the fit."""

from pathlib import Path

import click

from coverwell.cli import options
from coverwell.cli.messages import BadInput, check_output
from coverwell.tables import TableFile


@click.command(short_help="A model whose widths are right for other rows.")
@options.MODEL
@options.DATA
@options.out("The model file to write.")
@click.option(
    "--target", multiple=True, metavar="COLUMN", help="A target, to rank the rows of DATA by; may be given again."
)
@options.KNOWN_ROWS
@options.FORCE
def recalibrate(
    model: Path, table: TableFile, out: Path, target: tuple[str, ...], device: str, skip_missing: bool, force: bool
) -> None:
    """Set the widths of MODEL for rows like those of DATA; predictions stay.

    DATA holds rows from where the model will be used, none of which trained it. Without --target, each ranked row of
    the fit is weighted by how much likelier it is in DATA. That is right if only the features differ, not how the
    target follows from them. With --target, the rows of DATA are ranked themselves. Recalibrating again starts from the
    fit. Of a model of classes the thresholds are set, so the sets; probabilities stay.

    \b
    Example:
      coverwell recalibrate model.safetensors new.csv --out recalibrated.safetensors
    """
    check_output(out, force=force, inputs=[model, table.path])

    from coverwell.cli.rows import Reader
    from coverwell.model_file import check_takes_tables, load, save

    fitted = load(model)
    check_takes_tables(model, type(fitted).__name__, getattr(fitted, "source_", None))
    names, before, own_device = fitted.target_names_, fitted.factor_, fitted.device
    if target and sorted(target) != sorted(names):
        raise BadInput(f"--target must name what {model} predicts, {', '.join(names)}, got {', '.join(target)}")
    classes = getattr(fitted, "classes_", None)
    reader = Reader(fitted.source_, names, model, table, classes=classes)
    if target:
        X, y, _ = reader.known_rows([], skip_missing=skip_missing)
    else:
        X, y = reader.features(table.read(reader.names)), None
    fitted.set_params(device=device).recalibrate(X, y).set_params(device=own_device)
    save(fitted, out)
    what = "widths" if classes is None else "thresholds"
    for name, factors, old in zip(names, fitted.factor_, before, strict=True):
        for level, factor, fitted_factor in zip(fitted.predictor_.levels, factors, old, strict=True):
            click.echo(f"{name} at {level:g}: {what} times {factor:.3f}, before {fitted_factor:.3f}")
    click.echo(f"wrote {out}: {fitted.recalibration_}")
