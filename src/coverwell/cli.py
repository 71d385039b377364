"""The command `coverwell`: the paper's tables and figures, from one grid of runs that can be stopped at any moment."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from coverwell._version import __version__
from coverwell.datasets import DatasetChecksumError, DatasetNotFoundError, names
from coverwell.experiments import study
from coverwell.experiments.grid import Grid
from coverwell.experiments.methods import METHODS, configuration, methods_from, named_among
from coverwell.experiments.results import Line, ResultsFileError, read_results
from coverwell.experiments.series_data import READINGS, SERIES, series_from
from coverwell.experiments.series_methods import PICTURED, SERIES_METHODS, SeriesMethod, series_configuration
from coverwell.experiments.series_study import SERIES_FIELDS, SERIES_KEY, SeriesGrid
from coverwell.experiments.table1 import PEERS_HEAD
from coverwell.experiments.work import Work, run
from coverwell.files import new_file
from coverwell.training import device_from

__all__ = ["main"]

Command = TypeVar("Command", bound=Callable[..., Any])
Read = TypeVar("Read")

TRIALS, QUICK_TRIALS = 5, 2
QUICK_DATA = ("boston", "auto mpg")
TABLE1_LEVEL = 0.9
FIGURE2_DATA = ("boston", "parkinsons")
QUICK_SERIES = ("tas2016", "air quality")
STOPPED_BY_CTRL_C = 130  # 128 and the number of the signal, as shells count


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coverwell")
def main() -> None:
    """Deep regression with prediction intervals: studies that can be run again."""


@main.group()
def reproduce() -> None:
    """Run the paper's comparison and write its tables and figures.

    All runs on tables go to one file, results.jsonl, a line each, and those on series to series.jsonl. Runs that are
    there are not repeated: a command that was stopped or killed goes on where it was, and commands share their runs:
    table1 with figure3, table2 with figure4.

    \b
    Example:
      coverwell reproduce table1 --quick
    """


def _names(read: Callable[[Sequence[str]], Read]) -> Callable[..., Read | None]:
    """A click callback: names separated by commas or given one by one, or None where none is given."""

    def callback(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Read | None:
        if not values:
            return None
        try:
            return read([name.strip() for value in values for name in value.split(",") if name.strip()])
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _levels(texts: Sequence[str]) -> tuple[float, ...]:
    try:
        levels = [float(text) for text in texts]
    except ValueError:
        raise ValueError(f"levels must be numbers strictly between 0 and 1, got {', '.join(texts)}") from None
    return study.levels_from(levels)


def _device(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        kind = device_from(value).type
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if kind not in ("cpu", "cuda"):
        raise click.BadParameter(f"the device must be auto, cpu or cuda, got {value}")
    return value


def _dashed(data: Sequence[str], between: str = ", ") -> str:
    return between.join(name.replace(" ", "-") for name in data)


def _names_option(flag: str, read: Callable[[Sequence[str]], Any], help: str) -> Callable[[Command], Command]:
    return click.option(flag, multiple=True, metavar="NAME,...", callback=_names(read), help=help)


TRIALS_OPTION = click.option(
    "--trials",
    type=click.IntRange(min=1),
    help=f"How many random splits of each data set.  [default: {TRIALS}; {QUICK_TRIALS} with --quick]",
)
DATA_OPTION = _names_option(
    "--data",
    study.data_from,
    help=f"Among: {_dashed(study.DATA)}.  "
    f"[default: the first {len(names())}; {_dashed(QUICK_DATA, ' and ')} with --quick]",
)
FIGURE2_DATA_OPTION = _names_option(
    "--data",
    study.data_from,
    help=f"Among the data sets of table1.  [default: {_dashed(FIGURE2_DATA, ' and ')}]",
)
METHODS_OPTION = _names_option(
    "--methods",
    methods_from,
    help=f"Among: {', '.join(method.slug for method in METHODS)}.  [default: all]",
)
SEEDS_OPTION = click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many seeds for each method that has anything random.",
)
SERIES_OPTION = _names_option(
    "--data",
    series_from,
    help=f"Among: {_dashed(SERIES)}.  [default: all; {_dashed(QUICK_SERIES, ' and ')} with --quick]",
)
SERIES_METHODS_OPTION = _names_option(
    "--methods",
    partial(named_among, SERIES_METHODS),
    help=f"Among: {', '.join(method.slug for method in SERIES_METHODS)}.  [default: all]",
)
READING_OPTION = click.option(
    "--reading",
    type=click.Choice(READINGS),
    help="What gaps in a series are: left open and filled by the value before, or straight lines as the paper seems to "
    "have drawn. A series without gaps is run in either.  [default: both]",
)
LEVELS_OPTION = click.option(
    "--levels",
    multiple=True,
    metavar="SHARE,...",
    callback=_names(_levels),
    help=f"Coverage levels.  [default: {', '.join(map(str, study.STUDY_LEVELS))}]",
)
DEVICE_OPTION = click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=_device,
    help="auto, cpu or cuda; auto is cuda where there is one.",
)
JOBS_OPTION = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes side by side, one thread each; on a CPU as many as it has cores.",
)
QUICK_OPTION = click.option(
    "--quick", is_flag=True, help="Only see that all runs: little training, into a folder `quick` of its own."
)
OUT_OPTION = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="The folder of the results, tables and figures.",
)
PEERS_OPTION = click.option(
    "--peers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Results of other packages on the same splits, as `make bench-peers` writes them, to stand beside ours.",
)
DRAW_OPTION = click.option("--draw-only", is_flag=True, help="No training: only write anew what stored results give.")


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


_grid_options = _options(
    *(TRIALS_OPTION, DATA_OPTION, METHODS_OPTION, LEVELS_OPTION, DEVICE_OPTION, JOBS_OPTION),
    *(QUICK_OPTION, OUT_OPTION, DRAW_OPTION),
)


_series_options = _options(
    *(SEEDS_OPTION, SERIES_OPTION, SERIES_METHODS_OPTION, READING_OPTION, DEVICE_OPTION, JOBS_OPTION),
    *(QUICK_OPTION, OUT_OPTION, DRAW_OPTION),
)


@reproduce.command(short_help="Table 1 of the paper, and interval scores.")
@_grid_options
@PEERS_OPTION
def table1(peers: Path | None, **asked: Any) -> None:
    """Write Table 1: every method on every data set, the paper's numbers beside ours.

    --methods, --data and --trials say what is run; the tables show all stored results of these levels.

    \b
    Example:
      coverwell reproduce table1 --data boston,auto-mpg --methods sigma-fit,hnn --jobs 2
    """
    from coverwell.experiments import table1

    if asked["data"] and not set(asked["data"]) & set(names()):
        raise click.BadParameter(f"Table 1 needs at least one of {_dashed(names())} among the data")
    if asked["levels"] and TABLE1_LEVEL not in asked["levels"]:
        raise click.BadParameter(f"Table 1 is about coverage {TABLE1_LEVEL}: it must be among the levels")
    with _clear_errors():
        _keep_peers(_folder(asked["out"], asked["quick"]) / "table1.md", peers)
        others = [] if peers is None else read_results(peers, version=None)  # before hours of training
        _write(partial(table1.write, peers=others), *_results(**asked))


@reproduce.command(short_help="Figure 3 of the paper: coverage and width by level.")
@_grid_options
def figure3(**asked: Any) -> None:
    """Draw Figure 3: coverage reached, and average width, against the coverage asked for.

    \b
    Example:
      coverwell reproduce figure3 --data boston --trials 20 --device cuda
    """
    with _clear_errors():
        _need_matplotlib()
        from coverwell.experiments import figure3

        _write(figure3.write, *_results(**asked))


@reproduce.command(short_help="Figure 2 of the paper: error, calibration and width by round.")
@_options(TRIALS_OPTION, FIGURE2_DATA_OPTION, DEVICE_OPTION, QUICK_OPTION, OUT_OPTION, DRAW_OPTION)
def figure2(
    trials: int | None, data: tuple[str, ...] | None, device: str, quick: bool, out: Path, draw_only: bool
) -> None:
    """Draw Figure 2: how error, calibration and width change from round to round of training.

    \b
    Example:
      coverwell reproduce figure2 --data boston --trials 5
    """
    with _clear_errors():
        _need_matplotlib()
        from coverwell.experiments import figure2

        n_trials = trials or (QUICK_TRIALS if quick else TRIALS)
        folder = _folder(out, quick)
        if draw_only:
            stored = read_results(folder / "rounds.jsonl", fields=figure2.FIELDS, version=None)
            if not stored:
                raise click.ClickException(f"{folder / 'rounds.jsonl'} has no results; run it without --draw-only")
            _write(figure2.write, stored, folder)
            return
        _say_written(
            figure2.run_and_write(folder, trials=n_trials, data=data or FIGURE2_DATA, device=device, quick=quick)
        )


@reproduce.command(short_help="Table 2 of the paper: forecasts of six series.")
@_series_options
def table2(**asked: Any) -> None:
    """Write Table 2: every method on every series, the paper's numbers beside ours.

    --methods, --data, --reading and --trials say what is run; the table shows all stored results.

    \b
    Example:
      coverwell reproduce table2 --data tas2016,air-quality --methods ar48,sigma-fit --jobs 2
    """
    from coverwell.experiments import table2

    with _clear_errors():
        _write(table2.write, *_series_results(**asked))


@reproduce.command(short_help="Figure 4 of the paper: forecast bands on the test period.")
@_series_options
def figure4(methods: tuple[SeriesMethod, ...] | None, **asked: Any) -> None:
    """Draw Figure 4: forecasts with their intervals, and the coverage of 500 steps in a row.

    Without --methods only those that the figure shows are run.

    \b
    Example:
      coverwell reproduce figure4 --data tas2016 --reading observed
    """
    with _clear_errors():
        _need_matplotlib()
        from coverwell.experiments import figure4

        _write(figure4.write, *_series_results(methods=methods or PICTURED, **asked))


def _keep_peers(table: Path, peers: Path | None) -> None:
    """Refuse to replace a table that has peers by one without."""
    if peers is None and table.exists() and PEERS_HEAD in table.read_text():
        raise click.ClickException(f"{table} has rows of peers; give their results with --peers, or another --out")


def _results(
    *,
    trials: int | None,
    data: tuple[str, ...] | None,
    methods: tuple[Any, ...] | None,
    levels: tuple[float, ...] | None,
    device: str,
    jobs: int,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> tuple[list[Line], Path]:
    """The lines of the asked levels, after what was missing has been run; and the folder to write to."""
    folder = _folder(out, quick)
    path = folder / "results.jsonl"
    levels = levels or study.STUDY_LEVELS
    if not draw_only:
        grid = Grid(
            methods=methods or METHODS,
            data=data or (QUICK_DATA if quick else names()),
            trials=trials or (QUICK_TRIALS if quick else TRIALS),
            levels=levels,
            device=device,
            quick=quick,
        )
        _run_with_settings(
            grid, path, jobs, None if quick else Settings(folder / "configuration.json", configuration())
        )
    stored = read_results(path, version=None if draw_only else __version__)
    lines = [line for line in stored if tuple(line["levels"]) == levels]
    if not lines:
        raise click.ClickException(
            f"{path} has no results of the levels {', '.join(map(str, levels))}; run the command without --draw-only, "
            "or name the --levels and the --out of stored results"
        )
    return lines, folder


def _series_results(
    *,
    trials: int,
    data: tuple[str, ...] | None,
    methods: tuple[SeriesMethod, ...] | None,
    reading: str | None,
    device: str,
    jobs: int,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> tuple[list[Line], Path]:
    """All stored lines of the series, after what was missing has been run; and the folder to write to."""
    folder = _folder(out, quick)
    path = folder / "series.jsonl"
    if not draw_only:
        grid = SeriesGrid(
            methods=methods or SERIES_METHODS,
            data=data or (QUICK_SERIES if quick else SERIES),
            readings=READINGS if reading is None else (reading,),
            trials=trials,
            device=device,
            quick=quick,
        )
        told = Settings(folder / "series_configuration.json", series_configuration())
        _run_with_settings(grid, path, jobs, None if quick else told)
    version = None if draw_only else __version__
    lines = read_results(path, fields=SERIES_FIELDS, key=SERIES_KEY, version=version)
    if not lines:
        raise click.ClickException(f"{path} has no results; run the command without --draw-only")
    return lines, folder


@dataclass(frozen=True)
class Settings:
    """What every method of a study is told, and the file that holds what it was told when its results were made."""

    file: Path
    now: dict[str, Any]

    def check(self, results: Path, work: Work) -> None:
        """Raise if there are results of a method whose settings have changed since."""
        before = json.loads(self.file.read_text()) if self.file.exists() else {}
        there = {line["method"] for line in read_results(results, fields=work.FIELDS, key=work.KEY)}
        changed = sorted(method for method in there if method in before and before[method] != self.now.get(method))
        if changed:
            raise ResultsFileError(
                f"{results} has results of {', '.join(changed)} with other settings than now (see {self.file}); give "
                "another folder with --out, or remove those lines"
            )

    def write(self) -> None:
        with new_file(self.file) as file:
            file.write(json.dumps(self.now, indent=1).encode() + b"\n")


def _run_with_settings(work: Work, path: Path, jobs: int, settings: Settings | None) -> None:
    """Run what is missing; the settings, where they are kept, must be those of the results that are there."""
    if settings is not None:
        settings.check(path, work)
        work.check_data()  # nothing is written where data are missing
        settings.write()  # before the first line: a command that is killed leaves no results without their settings
    _run(work, path, jobs)


def _run(work: Work, path: Path, jobs: int) -> None:
    failures = run(work, path, jobs=jobs)
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        units = "unit" if len(failures) == 1 else "units"
        full = next((failure.traceback for failure in failures if failure.traceback), "")
        raise click.ClickException(
            f"{len(failures)} {units} of work failed; the results of the others are in {path}:\n{listed}\n"
            "The same command tries these again; --draw-only writes what is there.\n"
            + (f"\nThe first of them in full:\n{full}" if full else "")
        )


def _write(write: Callable[[list[Line], Path], Sequence[Path]], lines: list[Line], folder: Path) -> None:
    try:
        paths = write(lines, folder)
    except ValueError as error:  # the results do not hold what the table or figure shows
        raise click.ClickException(str(error)) from None
    _say_written(paths)


def _say_written(paths: Sequence[Path]) -> None:
    for path in paths:
        click.echo(f"wrote {path}")


def _folder(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def _need_matplotlib() -> None:
    """Raise before hours of training, not after them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("figures need matplotlib; install the extra `plots`: pip install 'coverwell[plots]'")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user can mend becomes one message without a traceback; Ctrl-C an exit that says what stays."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\nStopped. What was finished is stored; the same command goes on from there.", err=True)
        raise SystemExit(STOPPED_BY_CTRL_C) from None
    except (ResultsFileError, DatasetNotFoundError, DatasetChecksumError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:  # no space, no permission
        raise click.ClickException(f"{type(error).__name__}: {error}") from None
