"""From what the command line asks to stored results: runs that are missing are made first, with the same settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from coverwell._version import __version__
from coverwell.cli_options import QUICK_DATA, QUICK_SERIES, QUICK_TRIALS, TRIALS
from coverwell.datasets import DatasetChecksumError, names
from coverwell.datasets.store import cache_folder
from coverwell.experiments import study
from coverwell.experiments.boxes_data import RANDOM_WEIGHTS, SMALL_SHARDS, TrunkWeights, box_problem, trunk_weights
from coverwell.experiments.boxes_methods import SMALL, STUDY, BoxMethod, boxes_configuration
from coverwell.experiments.boxes_study import BOX_FIELDS, BOX_KEY, BoxGrid, Source
from coverwell.experiments.grid import Grid
from coverwell.experiments.methods import METHODS, configuration
from coverwell.experiments.results import Line, ResultsFileError, key_of, read_results
from coverwell.experiments.series_data import READINGS, SERIES
from coverwell.experiments.series_methods import SERIES_METHODS, SeriesMethod, series_configuration
from coverwell.experiments.series_study import SERIES_FIELDS, SERIES_KEY, SeriesGrid
from coverwell.experiments.work import Engine, Work, check, run
from coverwell.files import new_file
from coverwell.inputs.images import pillow

__all__ = [
    "box_methods",
    "box_results",
    "folder_of",
    "grid_results",
    "need_pillow",
    "run_or_tell",
    "series_results",
    "shards_of",
]


def grid_results(
    *,
    trials: int | None,
    data: tuple[str, ...] | None,
    methods: tuple[Any, ...] | None,
    levels: tuple[float, ...] | None,
    device: str,
    engine: Engine,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> tuple[list[Line], Path]:
    """The lines of the asked levels, after what was missing has been run; and the folder to write to."""
    folder = folder_of(out, quick)
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
            grid, path, engine, None if quick else Settings(folder / "configuration.json", configuration())
        )
    stored = read_results(path, version=None if draw_only else __version__)
    lines = [line for line in stored if tuple(line["levels"]) == levels]
    if not lines:
        raise click.ClickException(
            f"{path} has no results of the levels {', '.join(map(str, levels))}; run the command without --draw-only, "
            "or name the --levels and the --out of stored results"
        )
    return lines, folder


def series_results(
    *,
    trials: int,
    data: tuple[str, ...] | None,
    methods: tuple[SeriesMethod, ...] | None,
    reading: str | None,
    device: str,
    engine: Engine,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> tuple[list[Line], Path]:
    """All stored lines of the series, after what was missing has been run; and the folder to write to."""
    folder = folder_of(out, quick)
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
        _run_with_settings(grid, path, engine, None if quick else told)
    version = None if draw_only else __version__
    lines = read_results(path, fields=SERIES_FIELDS, key=SERIES_KEY, version=version)
    if not lines:
        raise click.ClickException(f"{path} has no results; run the command without --draw-only")
    return lines, folder


def box_methods(small: bool) -> tuple[BoxMethod, ...]:
    return SMALL if small else STUDY


def shards_of(shards: tuple[str, ...] | None, small: bool) -> tuple[str, ...] | None:
    return shards or (SMALL_SHARDS if small else None)


def box_results(
    *,
    trials: int,
    methods: tuple[BoxMethod, ...] | None,
    weights: Path | None,
    shards: tuple[str, ...] | None,
    small: bool,
    features: Path | None,
    device: str,
    engine: Engine,
    quick: bool,
    out: Path,
    draw_only: bool,
) -> tuple[list[Line], Path]:
    """All stored lines of boxes, after what was missing has been run; and the folder to write to."""
    if quick and (small or shards or weights):
        raise click.BadParameter(
            "--quick makes its own pictures and weights: leave out --small, --shards and --weights"
        )
    if not (quick or draw_only):
        need_pillow()
    chosen_shards = shards_of(shards, small)
    folder = folder_of(out, quick) if chosen_shards is None else out / "small"
    path = folder / "boxes.jsonl"
    if not draw_only:
        box_problem(chosen_shards, generated=quick)  # before a file of weights is fetched
        source = Source(
            shards=chosen_shards,
            weights=RANDOM_WEIGHTS if quick else _weights(weights),
            features=None if quick else features or cache_folder() / "features",
            quick=quick,
        )
        grid = BoxGrid(methods=methods or box_methods(small), source=source, trials=trials, device=device)
        grid.check_same(read_results(path, fields=BOX_FIELDS, key=BOX_KEY))
        told = Settings(folder / "boxes_configuration.json", boxes_configuration())
        _run_with_settings(grid, path, engine, None if quick else told, before=partial(_keep_features, grid, path))
    version = None if draw_only else __version__
    lines = read_results(path, fields=BOX_FIELDS, key=BOX_KEY, version=version)
    if not lines:
        raise click.ClickException(f"{path} has no results; run the command without --draw-only")
    return lines, folder


def _weights(path: Path | None) -> TrunkWeights:
    try:
        return trunk_weights(path)
    except DatasetChecksumError:
        raise
    except ValueError as error:  # not the weights of a ResNet-18
        raise click.BadParameter(str(error), param_hint="--weights") from None


def _keep_features(grid: BoxGrid, path: Path) -> None:
    """Here and not in each worker: they would all compute the same."""
    seconds = grid.keep_features({key_of(line, BOX_KEY) for line in read_results(path, fields=BOX_FIELDS, key=BOX_KEY)})
    if seconds:
        click.echo(f"Features of all pictures: {seconds:.1f} s, kept in {grid.source.features}.", err=True)


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


def _run_with_settings(
    work: Work, path: Path, engine: Engine, settings: Settings | None, *, before: Callable[[], None] | None = None
) -> None:
    """Run what is missing; the settings, where they are kept, must be those of the results that are there."""
    if settings is not None:
        settings.check(path, work)
        check(work, path, engine)  # nothing is written where data are missing
        settings.write()  # before the first line: a command that is killed leaves no results without their settings
    if before is not None:
        before()
    run_or_tell(work, path, engine)


def run_or_tell(work: Work, path: Path, engine: Engine) -> None:
    """Run what is missing; what fails is told when all else is done."""
    failures = run(work, path, on=engine)
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        units = "unit" if len(failures) == 1 else "units"
        full = next((failure.traceback for failure in failures if failure.traceback), "")
        raise click.ClickException(
            f"{len(failures)} {units} of work failed; the results of the others are in {path}:\n{listed}\n"
            "The same command tries these again; --draw-only writes what is there.\n"
            + (f"\nThe first of them in full:\n{full}" if full else "")
        )


def folder_of(out: Path, quick: bool) -> Path:
    return out / "quick" if quick else out


def need_pillow() -> None:
    try:
        pillow()
    except ImportError as error:
        raise click.ClickException(str(error)) from None
