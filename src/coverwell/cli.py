"""The command `coverwell`: tables in files to models and intervals, and the paper's tables and figures again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from coverwell._version import __version__
from coverwell.cli_options import (
    DEVICE_OPTION,
    DRAW_OPTION,
    FIGURE2_DATA,
    FIGURE2_DATA_OPTION,
    OUT_OPTION,
    PEERS_OPTION,
    PHOTOGRAPHS_OPTION,
    QUICK_OPTION,
    QUICK_TRIALS,
    TRIALS,
    TRIALS_OPTION,
    box_options,
    dashed,
    engine_options,
    grid_options,
    options,
    series_options,
)
from coverwell.cli_runs import (
    box_methods,
    box_results,
    folder_of,
    grid_results,
    need_pillow,
    run_or_tell,
    series_results,
    shards_of,
)
from coverwell.commands.data import data
from coverwell.commands.evaluate import evaluate
from coverwell.commands.export import export
from coverwell.commands.fit import fit
from coverwell.commands.info import info
from coverwell.commands.messages import OneLineGroup
from coverwell.commands.plot import plot
from coverwell.commands.predict import predict
from coverwell.commands.report import report
from coverwell.datasets import DatasetChecksumError, DatasetNotFoundError, names
from coverwell.errors import ImageError
from coverwell.experiments.boxes_data import box_problem
from coverwell.experiments.boxes_methods import BOX_METHODS, BoxMethod
from coverwell.experiments.results import Line, ResultsFileError, read_results
from coverwell.experiments.series_methods import PICTURED, SeriesMethod
from coverwell.experiments.table1 import PEERS_HEAD
from coverwell.experiments.work import Engine
from coverwell.scale import ClusterError

__all__ = ["main"]

TABLE1_LEVEL = 0.9
STOPPED_BY_CTRL_C = 130  # 128 and the number of the signal, as shells count


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coverwell")
def main() -> None:
    """Regression with a prediction interval for every row, from tables in files.

    \b
    Example:
      coverwell fit houses.csv --target price --coverage 0.9 --out model.safetensors
      coverwell predict model.safetensors new.csv --out predictions.csv
      coverwell evaluate model.safetensors test.csv
    """


for command in (fit, predict, evaluate, report, plot, info, export, data):
    main.add_command(command)


@main.group()
def reproduce() -> None:
    """Run the paper's comparison and write its tables and figures.

    All runs on tables go to one file, results.jsonl, a line each, those on series to series.jsonl, and those on
    photographs to boxes.jsonl. Runs that are there are not repeated: a command that was stopped or killed goes on where
    it was, and commands share their runs: table1 with figure3, table2 with figure4, table3 with figure5.

    \b
    Example:
      coverwell reproduce table1 --quick
    """


@reproduce.command(short_help="Table 1 of the paper, and interval scores.")
@grid_options
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
        raise click.BadParameter(f"Table 1 needs at least one of {dashed(names())} among the data")
    if asked["levels"] and TABLE1_LEVEL not in asked["levels"]:
        raise click.BadParameter(f"Table 1 is about coverage {TABLE1_LEVEL}: it must be among the levels")
    with _clear_errors():
        _keep_peers(folder_of(asked["out"], asked["quick"]) / "table1.md", peers)
        others = [] if peers is None else read_results(peers, version=None)  # before hours of training
        _write(partial(table1.write, peers=others), *grid_results(**asked))


@reproduce.command(short_help="Figure 3 of the paper: coverage and width by level.")
@grid_options
def figure3(**asked: Any) -> None:
    """Draw Figure 3: coverage reached, and average width, against the coverage asked for.

    \b
    Example:
      coverwell reproduce figure3 --data boston --trials 20 --device cuda
    """
    with _clear_errors():
        _need_matplotlib()
        from coverwell.experiments import figure3

        _write(figure3.write, *grid_results(**asked))


@reproduce.command(short_help="Figure 2 of the paper: error, calibration and width by round.")
@options(TRIALS_OPTION, FIGURE2_DATA_OPTION, DEVICE_OPTION, engine_options, QUICK_OPTION, OUT_OPTION, DRAW_OPTION)
def figure2(
    trials: int | None,
    data: tuple[str, ...] | None,
    device: str,
    engine: Engine,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> None:
    """Draw Figure 2: how error, calibration and width change from round to round of training.

    \b
    Example:
      coverwell reproduce figure2 --data boston --trials 5
    """
    with _clear_errors():
        _need_matplotlib()
        from coverwell.experiments import figure2

        folder = folder_of(out, quick)
        path = folder / "rounds.jsonl"
        if not draw_only:
            n_trials = trials or (QUICK_TRIALS if quick else TRIALS)
            run_or_tell(figure2.Rounds(data or FIGURE2_DATA, n_trials, device, quick), path, engine)
        stored = read_results(path, fields=figure2.FIELDS, version=None if draw_only else __version__)
        if not stored:
            raise click.ClickException(f"{path} has no results; run it without --draw-only")
        _write(figure2.write, stored, folder)


@reproduce.command(short_help="Table 2 of the paper: forecasts of six series.")
@series_options
def table2(**asked: Any) -> None:
    """Write Table 2: every method on every series, the paper's numbers beside ours.

    --methods, --data, --reading and --trials say what is run; the table shows all stored results.

    \b
    Example:
      coverwell reproduce table2 --data tas2016,air-quality --methods ar48,sigma-fit --jobs 2
    """
    from coverwell.experiments import table2

    with _clear_errors():
        _write(table2.write, *series_results(**asked))


@reproduce.command(short_help="Figure 4 of the paper: forecast bands on the test period.")
@series_options
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

        _write(figure4.write, *series_results(methods=methods or PICTURED, **asked))


@reproduce.command(short_help="Table 3 of the paper: boxes around birds.")
@box_options
def table3(**asked: Any) -> None:
    """Write Table 3: every method on the photographs of CUB-200-2011, the paper's numbers beside ours.

    --methods and --trials say what is run; the table shows all stored results. With --quick the pictures are made up,
    so that no data are needed, and the numbers mean nothing.

    \b
    Example:
      coverwell reproduce table3 --small --device cpu
    """
    from coverwell.experiments import table3

    with _clear_errors():
        _write(table3.write, *box_results(**asked))


@reproduce.command(short_help="Figure 5 of the paper: boxes and their intervals.")
@box_options
@PHOTOGRAPHS_OPTION
def figure5(methods: tuple[BoxMethod, ...] | None, photographs: bool, **asked: Any) -> None:
    """Draw Figure 5: true and predicted boxes, and the boxes between which the intervals say that they lie.

    Without --methods only the one that the figure shows is run.

    \b
    Example:
      coverwell reproduce figure5 --draw-only --photographs
    """
    with _clear_errors():
        _need_matplotlib()
        if photographs and not asked["quick"]:
            need_pillow()
        from coverwell.experiments import figure5

        wanted = methods or tuple(method for method in box_methods(asked["small"]) if method.pictured)
        if not any(method.pictured for method in wanted):  # before the training, not after it
            shown = " or ".join(method.slug for method in BOX_METHODS if method.pictured)
            raise click.UsageError(f"Figure 5 shows {shown}: give one of them in --methods, or leave --methods out")
        lines, folder = box_results(methods=wanted, **asked)
        _write(figure5.write, lines, folder)
        if photographs:
            problem = box_problem(shards_of(asked["shards"], asked["small"]), generated=asked["quick"])
            draw = partial(figure5.write_photographs, photograph=figure5.photographs_of(problem))
            _write(draw, lines, folder)


def _keep_peers(table: Path, peers: Path | None) -> None:
    """Refuse to replace a table that has peers by one without."""
    if peers is None and table.exists() and PEERS_HEAD in table.read_text():
        raise click.ClickException(f"{table} has rows of peers; give their results with --peers, or another --out")


def _write(write: Callable[[list[Line], Path], Sequence[Path]], lines: list[Line], folder: Path) -> None:
    try:
        paths = write(lines, folder)
    except ValueError as error:  # the results do not hold what the table or figure shows
        raise click.ClickException(str(error)) from None
    _say_written(paths)


def _say_written(paths: Sequence[Path]) -> None:
    for path in paths:
        click.echo(f"wrote {path}")


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
    except (ResultsFileError, DatasetNotFoundError, DatasetChecksumError, ImageError, ClusterError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:  # no space, no permission
        raise click.ClickException(f"{type(error).__name__}: {error}") from None
