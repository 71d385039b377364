"""`coverwell watch`: whether intervals or sets of a model still hold on rows whose targets have become known."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coverwell.cli import options
from coverwell.cli.messages import BadInput, check_output
from coverwell.files import new_file
from coverwell.tables import TableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coverwell.forecasting.forecaster import SeriesForecaster
    from coverwell.monitor import CoverageMonitor
    from coverwell.predictor import Predictor

HEADS = ("rows", "batch_coverage", "coverage", "evidence", "input_evidence", "alarm", "worst_group")
HEADS_OF_A_SERIES = (*HEADS[:4], "static_evidence", "alarm")
INPUTS, STATIC = "inputs", "static intervals"  # the second alarms
MOST_REMEMBERED = 100_000  # rows, by which repeated ones are known


@click.command(short_help="An alarm when the intervals or sets of a model no longer hold.")
@options.MODEL
@options.DATA
@click.option("--out", type=click.Path(path_type=Path), help="A .csv file to which the lines are added.")
@click.option("--batch", type=click.IntRange(min=1), default=100, help="Rows per line.")
@options.LEVEL
@click.option("--group", metavar="COLUMN", help="An alarm for each value of this column too.")
@click.option(
    "--time",
    metavar="COLUMN",
    help="The time or number of each row; rows up to the last one watched are left out.  [default for a forecaster: "
    "its name in the fit]",
)
@click.option("--false-alarms", type=float, default=0.01, metavar="SHARE", help="The probability of a false alarm.")
@click.option("--inputs", is_flag=True, help="Inputs that have changed ring the alarm too.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Where the next call goes on from.  [default: the name of MODEL, ending in .watch.json; for a forecaster in "
    ".watch.safetensors]",
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
    state: Path | None,
    **asked: Any,
) -> None:
    """Watch MODEL on the rows of DATA, in their order, which has the targets too.

    Prints a line for each batch: rows and coverage so far, and the evidence against the coverage, which rings the alarm
    once it reaches 1 / SHARE. If the intervals hold, that happens with probability SHARE, however long the stream is.
    The exit code is 1 once an alarm has rung: for the coverage, or for a group. That inputs have changed is only
    printed, unless --inputs is given. A row of a target of classes is missed if its class is not in its set.

    The next call goes on from there. Rows that were watched before are left out: those that a file which has grown
    begins with, or all of a file that comes again.

    For a forecaster, DATA has the values that came later, in a column with the name of the series. The forecaster moves
    on value by value as in live use, and the interval of the next step is watched. There is a second alarm for the
    static interval, whose width has not followed the misses.

    \b
    Example:
      coverwell watch model.safetensors stream.csv --group city --out watch.csv
    """
    from coverwell.model_file import holds_forecaster

    is_series = holds_forecaster(model)
    heads, ending = (HEADS_OF_A_SERIES, "safetensors") if is_series else (HEADS, "json")
    state = model.with_suffix(f".watch.{ending}") if state is None else state
    check_output(state, force=True, inputs=[model, table.path], name="--state")
    before = b"" if out is None else _lines_in(out, heads, [model, table.path, *([state] if state.exists() else [])])
    stream = (_steps_of if is_series else _rows_of)(_Asked(model, table, state, **asked))
    head, lines = _written([heads]), _written(stream.lines(batch))
    changed = "; inputs have changed" if stream.second_rings and not stream.second_counts else ""
    click.echo(f"{head}{lines}{stream.news}: {stream.monitor.summary(stream.rung)}{changed}")
    if out is not None:
        _write(out, before + ("" if before else head).encode() + lines.encode())
    stream.keep()
    if stream.rung:
        context.exit(1)


@dataclass(frozen=True)
class _Asked:
    model: Path
    table: TableFile
    state: Path
    coverage: float | None
    group: str | None
    time: str | None
    false_alarms: float
    device: str
    skip_missing: bool
    inputs: bool

    def about(self, level: float) -> dict[str, Any]:
        """What must be the same in every call."""
        options = {"--coverage": level, "--false-alarms": self.false_alarms, "--group": self.group, "--time": self.time}
        return options | {"the sha256 of the model": hashlib.sha256(self.model.read_bytes()).hexdigest()}

    def earlier(self, content: str, about: dict[str, Any], more: tuple[str, ...]) -> list[Any]:
        """More of the content of a state, which must be about the same."""
        try:
            earlier = json.loads(content)
            had, found = [earlier[name] for name in about], [earlier[name] for name in more]
        except (LookupError, TypeError, ValueError) as error:
            what = f"{self.state} is not what watch wrote ({error!r})"
            raise BadInput(f"{what}; give another --state, or remove it") from None
        for (name, value), theirs in zip(about.items(), had, strict=True):
            if theirs != value:
                goes_on = f"{self.state} goes on with {name} {theirs}, got {value}"
                raise BadInput(f"{goes_on}; give the same, or another --state")
        return found

    def news(self, n_new: int, after: str, what: str, n_without: int) -> str:
        left_out = f" ({n_without:,} without {what} left out)" if n_without else ""
        return f"{n_new:,} new row{'s' * (n_new != 1)} in {self.table.path}{after}{left_out}"


@dataclass(frozen=True)
class _Stream:
    """New rows, in their order, and what watches them."""

    news: str  # how many there are, in words
    n_rows: int
    monitor: CoverageMonitor
    feed: Callable[[slice], Any]  # takes in these rows
    second: str  # the name of the second alarm
    second_evidence: Callable[[], float]
    second_counts: bool  # whether it sets the exit code
    keep: Callable[[], None]  # writes the state

    @property
    def second_rings(self) -> bool:
        return self.second_evidence() >= 1 / self.monitor.false_alarms

    @property
    def rung(self) -> list[str]:
        """The alarms that have rung, of those that set the exit code."""
        rung = [name for name in self.monitor.rung if name != INPUTS]
        return [*rung, self.second] if self.second_rings and self.second_counts else rung

    def lines(self, batch: int) -> Iterator[tuple[Any, ...]]:
        """Take in the rows; what is found after each batch."""
        monitor = self.monitor
        for start in range(0, self.n_rows, batch):
            n_rows, n_missed = monitor.n_rows, monitor.n_missed
            self.feed(slice(start, start + batch))
            share = 1 - (monitor.n_missed - n_missed) / (monitor.n_rows - n_rows)
            evidence = (f"{monitor.evidence:#.4g}", f"{self.second_evidence():#.4g}")
            alarm = "; ".join(self.rung) or "no"
            found = (monitor.n_rows, f"{share:.3f}", f"{monitor.coverage_:.3f}", *evidence, alarm)
            worst = max(monitor.group_evidence, key=monitor.group_evidence.__getitem__, default="")
            yield found if self.second == STATIC else (*found, worst)


# Tables.


def _rows_of(asked: _Asked) -> _Stream:
    import numpy as np

    from coverwell.class_metrics import places_or_none
    from coverwell.cli.rows import Reader
    from coverwell.cli.stream import n_watched, row_digests, row_times
    from coverwell.evaluation import place_of_level, warn_of_unseen
    from coverwell.model_file import load_predictor
    from coverwell.monitor import CoverageMonitor
    from coverwell.training.device import device_from

    (source, predictor, targets), table, group, time = load_predictor(asked.model), asked.table, asked.group, asked.time
    level = predictor.levels[place_of_level(predictor.levels, asked.coverage)]
    about, earlier, state, last = asked.about(level), "", None, None
    if asked.state.exists():
        state, earlier, last = asked.earlier(asked.state.read_text(), about, ("monitor", "rows", "last"))
    monitor = CoverageMonitor(level, false_alarms=asked.false_alarms, state=state)
    table.check_has([time] if time else [], "column for --time:")
    columns, classes = [name for name in (group, time) if name], getattr(predictor, "classes", None)
    reader = Reader(source, targets, asked.model, table, classes=classes)
    X, y, more = reader.known_rows(columns, skip_missing=asked.skip_missing)
    labels, y = y, y if classes is None else places_or_none(y, classes)[:, None].astype(np.float64)
    rows, numbers = source.rows(X, None), more["row_numbers"].tolist()
    if time:
        times = row_times(more["groups"][time], last, f"column {time} of {table.path}", numbers)
        first = sum(last is not None and moment <= last for moment in times)
        last = times[-1] if first < len(times) else last
    else:
        seen, now = np.frombuffer(base64.b64decode(earlier), dtype=np.uint64), row_digests(rows, y)
        first = n_watched(seen, now, table.path, numbers)
        earlier = base64.b64encode(np.append(seen, now[first:])[-MOST_REMEMBERED:].tobytes()).decode()
    rows, y = rows[first:], y[first:]
    lower, upper, unlikeness = y, y, np.zeros(0)
    if len(y):
        predictor.inputs.count_outside(rows).warn(source.names)
        if classes is not None:
            warn_of_unseen(labels[first:], classes)
        lower, upper = _ends(predictor.to(device_from(asked.device)), rows, y, level)
        unlikeness = predictor.inputs.unlikeness(rows)
    names = ["missing" if name is None else name for name in more["groups"][group][first:]] if group else None

    def feed(part: slice) -> None:
        monitor.update(y[part], lower[part], upper[part], names[part] if names else None)
        monitor.update_inputs(unlikeness[part])

    def keep() -> None:
        content = {**about, "monitor": monitor.state, "rows": earlier, "last": last}
        _write(asked.state, json.dumps(content).encode())

    after = f" below {first:,} old ones" if first else ""
    news = asked.news(len(y), after, "a target", more["n_skipped"])
    return _Stream(news, len(y), monitor, feed, INPUTS, lambda: monitor.input_evidence, asked.inputs, keep)


def _ends(predictor: Predictor, rows: NDArray[Any], y: NDArray[Any], level: float) -> tuple[Any, Any]:
    """The interval of each row; of classes, whose places are y, one that holds y where the set has the class."""
    import numpy as np

    from coverwell.sets import ClassPredictor

    if isinstance(predictor, ClassPredictor):
        (_, sets), place = predictor.classified(rows, (level,)), y[:, 0].astype(np.intp)
        inside = sets[np.arange(len(place)), place, 0] & (place >= 0)
        return (both := y + ~inside[:, None]), both
    found = predictor.prediction(rows, (level,))
    return found.lower[..., 0], found.upper[..., 0]


# Series.


def _steps_of(asked: _Asked) -> _Stream:
    import numpy as np

    from coverwell.cli.stream import later_rows, walk
    from coverwell.evaluation import place_of_level
    from coverwell.model_file import load, save
    from coverwell.monitor import CoverageMonitor

    if asked.group or asked.inputs or asked.skip_missing:
        raise BadInput("--group, --inputs and --skip-missing are for models of rows; leave them out for a series")
    exists = asked.state.exists()
    forecaster: SeriesForecaster = load(asked.state if exists else asked.model)
    if exists and not hasattr(forecaster, "watch_"):
        raise BadInput(f"{asked.state} is not what watch wrote; give another --state, or remove it")
    levels, device = forecaster.regressor_.predictor_.levels, forecaster.regressor_.device
    level = levels[place_of_level(levels, asked.coverage)]
    about, states, n_before = asked.about(level), [None, None], 0
    if exists:
        *states, n_before = asked.earlier(forecaster.watch_, about, ("monitor", "static", "n_steps"))
    monitor, static = (CoverageMonitor(level, false_alarms=asked.false_alarms, state=state) for state in states)
    history = forecaster.history_
    rows = later_rows(history, asked.table, asked.time, n_before)
    forecaster.regressor_.set_params(device=asked.device)
    steps = walk(forecaster, rows, level, asked.table.path)
    known = steps[~np.isnan(steps[:, 0])]

    def feed(part: slice) -> None:
        y, lower, upper, static_lower, static_upper = known[part].T
        monitor.update(y, lower, upper)
        static.update(y, static_lower, static_upper)

    def keep() -> None:
        forecaster.regressor_.set_params(device=device)
        monitors = {"monitor": monitor.state, "static": static.state}
        forecaster.watch_ = json.dumps({**about, **monitors, "n_steps": n_before + len(steps)})
        save(forecaster, asked.state)

    after = f" after {history.clock.label(len(history) - 1)}"
    news = asked.news(len(known), after, "a value", len(steps) - len(known))
    return _Stream(news, len(known), monitor, feed, STATIC, lambda: static.evidence, True, keep)


# Files.


def _written(lines: Iterable[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _lines_in(out: Path, heads: tuple[str, ...], inputs: list[Path]) -> bytes:
    """What is in the file already; raises unless lines can be added to it."""
    check_output(out, force=True, inputs=inputs)
    before = out.read_bytes() if out.exists() else b""
    if before and not before.startswith(_written([heads]).encode()):
        raise BadInput(f"--out must be a new file, or one that watch wrote, but {out} is another; give another --out")
    return before


def _write(path: Path, content: bytes) -> None:
    with new_file(path) as file:
        file.write(content)
