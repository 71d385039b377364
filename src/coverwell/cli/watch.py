"""`coverwell watch`: whether the intervals of a model still hold on rows whose targets have become known."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import BadInput, check_output
from coverwell.files import new_file
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coverwell.monitor import Array, CoverageMonitor

HEADS = ("rows", "batch_coverage", "coverage", "evidence", "input_evidence", "alarm", "worst_group")


@click.command(short_help="An alarm when the intervals of a model no longer hold.")
@options.MODEL
@options.DATA
@click.option("--out", type=click.Path(path_type=Path), help="A .csv file to which the lines are added.")
@click.option("--batch", type=click.IntRange(min=1), default=100, help="Rows per line.")
@options.LEVEL
@click.option("--group", metavar="COLUMN", help="An alarm for each value of this column too.")
@click.option("--false-alarms", type=float, default=0.01, metavar="SHARE", help="The probability of a false alarm.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Where the next call goes on from.  [default: the name of MODEL, ending in .watch.json]",
)
@options.KNOWN_ROWS
@click.pass_context
def watch(
    context: click.Context,
    /,
    model: Path,
    table: TableFile,
    out: Path | None,
    batch: int,
    coverage: float | None,
    group: str | None,
    false_alarms: float,
    state: Path | None,
    device: str,
    skip_missing: bool,
) -> None:
    """Watch MODEL on the rows of DATA, in their order, which has the targets too.

    Prints a line for each batch: rows and coverage so far, and the evidence against the coverage, which rings the alarm
    once it reaches 1 / SHARE. If the intervals hold, that happens with probability SHARE, however long the stream is.
    The exit code is 1 once the alarm for the coverage, or for a group, has rung. The evidence that inputs have changed
    is only printed.

    The next call goes on from there. A file that begins with the rows of the last one is read from the first new row
    on; every row of any other file is new.

    \b
    Example:
      coverwell watch model.safetensors stream.csv --group city --out watch.csv
    """
    state = model.with_suffix(".watch.json") if state is None else state
    check_output(state, force=True, inputs=[model, table.path], name="--state")
    before = b"" if out is None else _lines_in(out, [model, table.path, *([state] if state.exists() else [])])

    from coverwell.cli.rows import Reader
    from coverwell.evaluation import place_of_level
    from coverwell.model_file import load_predictor
    from coverwell.monitor import CoverageMonitor
    from coverwell.training.device import device_from

    source, predictor, targets = load_predictor(model)
    level = predictor.levels[place_of_level(predictor.levels, coverage)]
    about = {"--coverage": level, "--false-alarms": false_alarms, "--group": group}
    about["the sha256 of the model"] = hashlib.sha256(model.read_bytes()).hexdigest()
    earlier = _earlier(state, about)
    monitor = CoverageMonitor(level, false_alarms=false_alarms, state=earlier["monitor"])
    X, y, more = Reader(source, targets, model, table).known_rows([group] if group else [], skip_missing=skip_missing)
    rows, n = source.rows(X, None), earlier["n_rows"]
    first = n if _sha256(rows[:n], y[:n]) == earlier["sha256"] else 0
    content = {**about, "n_rows": len(y), "sha256": _sha256(rows, y)}
    rows, y = rows[first:], y[first:]
    names = ["missing" if name is None else name for name in more["groups"][group][first:]] if group else None
    lines = ""
    if len(y):
        predictor.inputs.warn_if_far_outside(rows, source.names)
        bounds = predictor.to(device_from(device)).prediction(rows, (level,))
        outcome = (y, bounds.lower[..., 0], bounds.upper[..., 0])
        lines = _lines(monitor, batch, outcome, names, predictor.inputs.unlikeness(rows))
    head = ",".join(HEADS) + "\n"
    click.echo(f"{head}{lines}{len(y):,} new rows in {table.path}: {monitor}")
    if out is not None:
        _write(out, before + ("" if before else head).encode() + lines.encode())
    _write(state, json.dumps({**content, "monitor": monitor.state}).encode())
    if monitor.alarm or monitor.group_alarms:
        context.exit(1)


def _lines(
    monitor: CoverageMonitor, batch: int, outcome: tuple[Array, ...], groups: list[Any] | None, unlikeness: Array
) -> str:
    """What the monitor finds after each batch of y, lower and upper, (row, target) each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for start in range(0, len(unlikeness), batch):
        part, n_rows, n_missed = slice(start, start + batch), monitor.n_rows, monitor.n_missed
        y, lower, upper = (values[part] for values in outcome)
        monitor.update(y, lower, upper, groups[part] if groups else None)
        monitor.update_inputs(unlikeness[part])
        share = 1 - (monitor.n_missed - n_missed) / (monitor.n_rows - n_rows)
        evidence = (f"{monitor.evidence:#.4g}", f"{monitor.input_evidence:#.4g}")
        worst = max(monitor.group_evidence, key=monitor.group_evidence.__getitem__, default="")
        alarm = "; ".join(monitor.rung) or "no"
        writer.writerow((monitor.n_rows, f"{share:.3f}", f"{monitor.coverage_:.3f}", *evidence, alarm, worst))
    return text.getvalue()


def _lines_in(out: Path, inputs: list[Path]) -> bytes:
    """What is in the file already; raises unless lines can be added to it."""
    check_output(out, force=True, inputs=inputs)
    before = out.read_bytes() if out.exists() else b""
    if before and not before.startswith(",".join(HEADS).encode() + b"\n"):
        raise BadInput(f"--out must be a new file, or one that watch wrote, but {out} is another; give another --out")
    return before


def _earlier(state: Path, about: dict[str, Any]) -> dict[str, Any]:
    """The state of the last call, which must have been about the same; an empty one if there was none."""
    if not state.exists():
        return {"monitor": None, "n_rows": 0, "sha256": ""}
    try:
        earlier: dict[str, Any] = json.loads(state.read_bytes())
        had = {name: earlier[name] for name in (*about, "monitor", "n_rows", "sha256")}
    except (LookupError, TypeError, ValueError) as error:
        raise BadInput(f"{state} is not what watch wrote ({error!r}); give another --state, or remove it") from None
    for name, value in about.items():
        if had[name] != value:
            raise BadInput(f"{state} goes on with {name} {had[name]}, got {value}; give the same, or another --state")
    return earlier


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as file:
        file.write(content)


def _sha256(rows: NDArray[Any], y: NDArray[Any]) -> str:
    return hashlib.sha256(rows.tobytes() + y.tobytes()).hexdigest()
