"""The command `python -m reproduction`: the paper's tables and figures again, and its data as files."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from coverwell.errors import ClusterError
from coverwell.files import new_file
from coverwell.training.device import device_from
from reproduction import data as public
from reproduction import figures
from reproduction.data.series import SERIES
from reproduction.data.store import cache_folder
from reproduction.data.tables import TABLES
from reproduction.domains.boxes import SMALL_SHARDS, BoxStudy, Source, shards_from, trunk_weights
from reproduction.domains.series import READINGS, SeriesStudy
from reproduction.domains.tables import DATA, LEVEL_OF, LEVELS, RoundStudy, TableStudy
from reproduction.engines import Processes, RayTasks
from reproduction.lines import ANY_VERSION, Line, ResultsFileError, key_of
from reproduction.methods import BOX_METHODS, SERIES_METHODS, TABLE_METHODS, Method, named
from reproduction.study import Engine, Study, check, run
from reproduction.tables import table1, table2, table3
from reproduction.tables.typeset import LEGENDS

Results = tuple[list[Line], Path]

STOPPED_BY_CTRL_C = 130  # 128 and the number of the signal, as shells count
SMALL = tuple(method for method in BOX_METHODS if method.by_name)


# From what is asked to stored results: runs that are missing are made first, with the same settings -------------------


def _of_levels(*, levels: tuple[float, ...] | None, **asked: Any) -> Results:
    """The lines of exactly these levels, and the folder to write to."""
    levels = levels or LEVELS
    stored, folder = _results(TableStudy, levels=levels, **asked)
    lines = [line for line in stored if tuple(line["levels"]) == levels]
    if not lines:
        raise click.ClickException(
            f"{folder / TableStudy.FILE} has no results of the levels {', '.join(map(str, levels))}; run the command "
            "without --draw-only, or name the --levels and the --out of stored results"
        )
    return lines, folder


def _of_boxes(*, shards: Any, small: bool, weights: Path | None, features: Path | None, **asked: Any) -> Results:
    quick, shards = asked["quick"], shards or (SMALL_SHARDS if small else None)
    if quick and (shards or weights):
        raise click.BadParameter("--quick makes its own images and weights: leave out --small, --shards and --weights")
    source = Source(shards, generated=quick)
    if not (quick or asked["draw_only"]):
        _need_pillow()
        source.problem()  # before a file of weights is fetched
        source = Source(shards, trunk_weights(weights), features or cache_folder() / "features")
    asked["methods"] = asked["methods"] or (SMALL if small else None)
    return _results(BoxStudy, source=source, folder="small" if shards else "", **asked)


def _results(
    kind: type[Study], *, engine: Engine, draw_only: bool, quick: bool, out: Path, folder: str = "", **asked: Any
) -> Results:
    """The stored lines of a domain, after what was missing has been run, and the folder to write to."""
    path = out / ("quick" if quick else folder) / kind.FILE
    if not draw_only:
        given = {name: value for name, value in asked.items() if value is not None}
        _run(kind(**{**(kind.QUICK if quick else {}), **given}, quick=quick), path, engine)
    lines = kind.stored(path, version=None)
    if not lines:
        raise click.ClickException(f"{path} has no results; run the command without --draw-only")
    return lines, path.parent


def _run(study: Study, path: Path, engine: Engine) -> None:
    """Run what is missing; what fails is named when all else is done."""
    stored = study.stored_before(path)
    if isinstance(study, BoxStudy):
        study.check_same(stored)
    if study.SETTINGS is not None and not study.quick:
        file, now = path.parent / study.SETTINGS, study.settings()
        before = json.loads(file.read_text()) if file.exists() else now
        changed = {line["method"] for line in stored if before.get(line["method"], {}) != now.get(line["method"], {})}
        if changed & set(before):
            raise ResultsFileError(
                f"{path} has results of {', '.join(sorted(changed))} with other settings than now (see {file}); give "
                "another folder with --out, or remove those lines"
            )
        check(study, path, engine)  # nothing is written where data are missing
        with new_file(file) as opened:  # before the first line: a killed command leaves no results without settings
            opened.write(json.dumps(now, indent=1).encode() + b"\n")
    if isinstance(study, BoxStudy):  # here and not in each worker: they would all compute the same
        seconds = study.keep_features({key_of(line, study.key()) for line in stored})
        if seconds:
            click.echo(f"Features of all images: {seconds:.1f} s, kept in {study.source.features}.", err=True)
    failures = run(study, path, on=engine)
    if failures:
        listed, units = "\n".join(f"  {failure}" for failure in failures), "unit" if len(failures) == 1 else "units"
        full = next((failure.traceback for failure in failures if failure.traceback), "")
        raise click.ClickException(
            f"{len(failures)} {units} of work failed; the results of the others are in {path}:\n{listed}\n"
            "The same command tries these again; --draw-only writes what is there.\n"
            + (f"\nThe first of them in full:\n{full}" if full else "")
        )


def _need(package: str, why: str, extra: str) -> None:
    """Raise before hours of training, not after them."""
    try:
        importlib.import_module(package)
    except ImportError:
        message = f"{why}; install the extra `{extra}`: pip install 'coverwell[{extra}]'"
        raise click.ClickException(message) from None


_need_pillow = partial(_need, "PIL", "reading images from files needs Pillow", "images")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user can mend becomes one message without a traceback; so does Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\nStopped. What was finished is stored; the same command goes on from there.", err=True)
        raise SystemExit(STOPPED_BY_CTRL_C) from None
    except (ValueError, FileNotFoundError, ClusterError) as error:  # of our own checks
        raise click.ClickException(str(error)) from None
    except OSError as error:  # no space, no permission
        raise click.ClickException(f"{type(error).__name__}: {error}") from None


# Options --------------------------------------------------------------------------------------------------------------

HELP = LEGENDS["options"]
COUNT, FOLDER = click.IntRange(min=1), click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _option(flag: str, type: Any = None, *, help: str | None = None, **more: Any) -> click.Option:
    return click.Option([flag], type=type, help=help or HELP[flag.removeprefix("--")], **more)


def _names(flag: str, parse: Callable[[list[str]], Any], known: Sequence[Any] = (), default: str = "all") -> Any:
    """An option of names separated by commas or given one by one; None where none is given."""

    def callback(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        try:
            return parse([name for value in values for name in value.split(",") if name.strip()]) if values else None
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help = HELP[flag.removeprefix("--")].format(known=_dashed(known), default=default)
    return _option(flag, help=help, multiple=True, metavar="NAME,...", callback=callback)


def _dashed(names: Sequence[Any]) -> str:
    return ", ".join(str(name).replace(" ", "-") for name in names)


def _data(what: str, known: Sequence[str], default: str) -> click.Option:
    return _names("--data", partial(named, what, known), known, default)


def _methods(methods: Sequence[Method], default: str = "all") -> click.Option:
    by_slug = {method.slug: method for method in methods}

    def parse(names: list[str]) -> tuple[Method, ...]:
        return tuple(by_slug[slug] for slug in named("method", list(by_slug), names))

    return _names("--methods", parse, list(by_slug), default)


def _levels(texts: list[str]) -> tuple[float, ...]:
    try:
        levels = sorted(float(text) for text in texts)
    except ValueError:
        raise ValueError(f"levels must be numbers strictly between 0 and 1, got {', '.join(texts)}") from None
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"a level must lie strictly between 0 and 1, got {level!r}")
    return tuple(map(float, named("level", list(dict.fromkeys(map(repr, levels))), list(map(repr, levels)))))


def _device(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        kind = device_from(value).type
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if kind not in ("cpu", "cuda"):
        raise click.BadParameter(f"the device must be auto, cpu or cuda, got {value}")
    return value


def _engine(on: str, jobs: int | None, ray_address: str | None, ray_gpus: float) -> Engine:
    if on == "ray":
        _need("ray", "--on ray needs Ray", "ray")
        return RayTasks(ray_address, jobs=jobs, gpus=ray_gpus)
    if ray_address is not None or ray_gpus:
        raise click.UsageError("--ray-address and --ray-gpus are for --on ray; give that too, or leave them out")
    return Engine() if jobs is None or jobs == 1 else Processes(jobs)


SPLITS, SEEDS = (_option("--trials", COUNT, help=HELP[name]) for name in ("splits", "seeds"))
TABLE_OPTIONS = (
    *(SPLITS, _data("data set", DATA, "the first six; boston and auto-mpg with --quick")),
    *(_methods(TABLE_METHODS), _names("--levels", _levels, LEVELS)),
)
ROUND_OPTIONS = (SPLITS, _data("data set", DATA, _dashed(tuple(LEVEL_OF))))
SERIES_OPTIONS = (
    *(SEEDS, _data("series", SERIES, "all; tas2016 and air-quality with --quick")),
    *(_methods(SERIES_METHODS), _option("--reading", click.Choice(READINGS))),
)
BOX_OPTIONS = (
    *(SEEDS, _methods(BOX_METHODS, "all but small"), _option("--weights", FILE), _names("--shards", shards_from)),
    *(_option("--small", is_flag=True), _option("--features", FOLDER)),
)
EVERYWHERE = (
    _option("--device", default="auto", show_default=True, callback=_device),
    _option("--jobs", COUNT),
    _option("--on", click.Choice(["local", "ray"]), default="local", show_default=True),
    _option("--ray-address", metavar="HOST:PORT"),
    _option("--ray-gpus", click.FloatRange(min=0.0), default=0.0, show_default=True),
    _option("--quick", is_flag=True),
    _option("--out", FOLDER, default="reproduction", show_default=True),
    _option("--draw-only", is_flag=True),
)


# Commands -------------------------------------------------------------------------------------------------------------


def _help(name: str) -> str:
    return f"{LEGENDS['commands'][name]}\n\n\b\nExample:\n  python -m reproduction {LEGENDS['examples'][name]}"


main = click.Group("main", help=_help("main"), context_settings={"help_option_names": ["-h", "--help"]})


def _command(*options: click.Option) -> Callable[[Callable[..., list[Path]]], None]:
    """Add a command with its own options and those of all; where to run becomes `engine`, errors become one message."""

    def add(make: Callable[..., list[Path]]) -> None:
        name = make.__name__.removeprefix("make_")

        def callback(on: str, jobs: int | None, ray_address: str | None, ray_gpus: float, **asked: Any) -> None:
            with _clear_errors():
                if name.startswith("figure"):
                    _need("matplotlib", "figures need matplotlib", "plots")
                for path in make(engine=_engine(on, jobs, ray_address, ray_gpus), **asked):
                    click.echo(f"wrote {path}")

        main.add_command(click.Command(name, params=[*options, *EVERYWHERE], callback=callback, help=_help(name)))

    return add


@_command(*TABLE_OPTIONS, _option("--peers", FILE))
def make_table1(peers: Path | None, **asked: Any) -> list[Path]:
    if asked["data"] and not set(asked["data"]) & set(TABLES):
        raise click.BadParameter(f"Table 1 needs at least one of {_dashed(TABLES)} among the data")
    if asked["levels"] and table1.ASKED not in asked["levels"]:
        raise click.BadParameter(f"Table 1 is about coverage {table1.ASKED}: it must be among the levels")
    table = asked["out"] / ("quick" if asked["quick"] else "") / "table1.md"
    if peers is None and table.exists() and table1.PEERS_HEAD in table.read_text():
        raise click.ClickException(f"{table} has rows of peers; give their results with --peers, or another --out")
    others = [] if peers is None else TableStudy.stored(peers, version=ANY_VERSION)  # before hours of training
    others = [line for line in others if line["data"] in TABLES]  # peers have development tables too
    return table1.write(*_of_levels(**asked), others)


@_command(*TABLE_OPTIONS)
def make_figure3(**asked: Any) -> list[Path]:
    lines, folder = _of_levels(**asked)
    return figures.write(figures.draw_figure3(lines), folder, "figure3")


@_command(*ROUND_OPTIONS)
def make_figure2(**asked: Any) -> list[Path]:
    lines, folder = _results(RoundStudy, **asked)
    return figures.write(figures.draw_figure2(lines), folder, "figure2")


@_command(*SERIES_OPTIONS)
def make_table2(**asked: Any) -> list[Path]:
    return table2.write(*_results(SeriesStudy, **asked))


@_command(*SERIES_OPTIONS)
def make_figure4(methods: tuple[Method, ...] | None, **asked: Any) -> list[Path]:
    shown = tuple(method for method in SERIES_METHODS if method.in_figure)
    return figures.write_figure4(*_results(SeriesStudy, methods=methods or shown, **asked))


@_command(*BOX_OPTIONS)
def make_table3(**asked: Any) -> list[Path]:
    return table3.write(*_of_boxes(**asked))


@_command(*BOX_OPTIONS, _option("--photographs", is_flag=True))
def make_figure5(methods: tuple[Method, ...] | None, photographs: bool, **asked: Any) -> list[Path]:
    if photographs and not asked["quick"]:
        _need_pillow()
    wanted = methods or (SMALL if asked["small"] else tuple(m for m in BoxStudy().methods if m.in_figure))
    if not any(method.in_figure for method in wanted):  # before the training, not after it
        shown = " or ".join(figures.FIGURE5)
        raise click.UsageError(f"Figure 5 shows {shown}: give one of them in --methods, or leave --methods out")
    lines, folder = _of_boxes(methods=wanted, **asked)
    line = figures.line_of_figure5(lines)
    written = figures.write(figures.draw_figure5(line), folder, "figure5")
    if photographs:
        shards = asked["shards"] or (SMALL_SHARDS if asked["small"] else None)
        problem = Source(shards, generated=asked["quick"]).problem()
        written += figures.write_photographs(figures.draw_figure5(line, problem), folder, "figure5")
    return written


@main.command()
@click.argument("name", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="The file to write: .csv, .tsv or .parquet.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def data(name: str | None, out: Path | None, force: bool) -> None:
    """List the paper's public data sets, or write one of them into a file.

    It is looked for in the folder that the environment variable COVERWELL_DATA names, in the user's cache, in installed
    packages, and at its public address, and checked by its sha256. A table has its features, its target, and the group
    of each row where there are groups; a series has a column `time`; of images the boxes and sizes are written.

    \b
    Example:
      python -m reproduction data auto-mpg --out cars.csv
    """
    if name is None:
        for kind, names in public.KINDS.items():
            click.echo("\n".join(f"{_dashed([name]):<18}{kind}" for name in names))
        return
    if out is None or out.suffix not in (".csv", ".tsv", ".parquet"):
        raise click.BadParameter(f"a table's file ends in .csv, .tsv or .parquet, got {out}", param_hint="--out")
    if out.exists() and not force:
        raise click.BadParameter(f"{out} exists; give --force to replace it", param_hint="--out")
    with _clear_errors():
        loaded = public.load(name)
        frame = public.frame(loaded)
        with new_file(out) as file:
            if out.suffix == ".parquet":
                frame.to_parquet(file, index=False)
            else:
                frame.to_csv(file, index=False, sep="\t" if out.suffix == ".tsv" else ",")
        click.echo(f"wrote {out}: {len(frame):,} rows of {loaded.name}")
        click.echo(f"source: {loaded.source}\nnotes: {loaded.notes}")
