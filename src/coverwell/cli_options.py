"""The options of the command line: what may be asked, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from coverwell.datasets import names
from coverwell.experiments import study
from coverwell.experiments.boxes_data import SMALL_SHARDS, shards_from
from coverwell.experiments.boxes_methods import BOX_METHODS, SMALL
from coverwell.experiments.methods import METHODS, methods_from, named_among
from coverwell.experiments.series_data import READINGS, SERIES, series_from
from coverwell.experiments.series_methods import SERIES_METHODS
from coverwell.experiments.work import Engine, Here, Processes
from coverwell.scale import RayTasks
from coverwell.scale.ray_cluster import needed_ray
from coverwell.training.device import device_from

__all__ = [
    "DEVICE_OPTION",
    "DRAW_OPTION",
    "FIGURE2_DATA",
    "FIGURE2_DATA_OPTION",
    "OUT_OPTION",
    "PEERS_OPTION",
    "PHOTOGRAPHS_OPTION",
    "QUICK_DATA",
    "QUICK_OPTION",
    "QUICK_SERIES",
    "QUICK_TRIALS",
    "TRIALS",
    "TRIALS_OPTION",
    "box_options",
    "dashed",
    "engine_options",
    "grid_options",
    "options",
    "series_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])
Read = TypeVar("Read")

TRIALS, QUICK_TRIALS = 5, 2
QUICK_DATA = ("boston", "auto mpg")
FIGURE2_DATA = ("boston", "parkinsons")
QUICK_SERIES = ("tas2016", "air quality")


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


def dashed(data: Sequence[str], between: str = ", ") -> str:
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
    help=f"Among: {dashed(study.DATA)}.  "
    f"[default: the first {len(names())}; {dashed(QUICK_DATA, ' and ')} with --quick]",
)
FIGURE2_DATA_OPTION = _names_option(
    "--data",
    study.data_from,
    help=f"Among the data sets of table1.  [default: {dashed(FIGURE2_DATA, ' and ')}]",
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
    help=f"Among: {dashed(SERIES)}.  [default: all; {dashed(QUICK_SERIES, ' and ')} with --quick]",
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
BOX_METHODS_OPTION = _names_option(
    "--methods",
    partial(named_among, BOX_METHODS),
    help=f"Among: {', '.join(method.slug for method in BOX_METHODS)}.  [default: all but "
    f"{', '.join(method.slug for method in SMALL)}]",
)
WEIGHTS_OPTION = click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of a ResNet-18 with torchvision's names, whole or up to layer 3.  [default: torchvision's, trained on "
    "ImageNet: from the user's cache, or else fetched]",
)
SHARDS_OPTION = _names_option(
    "--shards",
    shards_from,
    help="Only these parts of the data, such as train-0,test-0; into a folder `small` of its own.  [default: all]",
)
SMALL_OPTION = click.option(
    "--small",
    is_flag=True,
    help=f"One split-calibrated member, few epochs, on {' and '.join(SMALL_SHARDS)}: within a quarter of an hour on "
    "two cores; into a folder `small` of its own.",
)
FEATURES_OPTION = click.option(
    "--features",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps what the frozen layers say about the pictures (3.5 GB).  [default: in the user's cache]",
)
PHOTOGRAPHS_OPTION = click.option(
    "--photographs",
    is_flag=True,
    help="Also draw the boxes on the photographs, into a folder `photographs` that git passes over: they must not be "
    "published.",
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
    help="Processes side by side, one thread each; on a CPU as many as it has cores.  [default: 1; with --on ray as "
    "many as Ray has CPUs]",
)
ON_OPTION = click.option(
    "--on",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where fits run: in processes of this machine, or as tasks of Ray, which runs them again when a node dies.",
)
RAY_ADDRESS_OPTION = click.option(
    "--ray-address",
    metavar="HOST:PORT",
    help="A running Ray cluster; auto is one that runs on this machine.  [default: one is started here, for this "
    "command]",
)
RAY_GPUS_OPTION = click.option(
    "--ray-gpus",
    type=click.FloatRange(min=0.0),
    default=0.0,
    show_default=True,
    help="The share of a GPU that each unit of work takes from Ray: 0.25 is four on one GPU, side by side.",
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


def options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def _engine(on: str, jobs: int | None, ray_address: str | None, ray_gpus: float) -> Engine:
    if on == "ray":
        try:
            needed_ray()
        except ImportError as error:
            raise click.ClickException(str(error)) from None
        return RayTasks(ray_address, jobs=jobs, gpus=ray_gpus)
    if ray_address is not None or ray_gpus:
        raise click.UsageError("--ray-address and --ray-gpus are for --on ray; give that too, or leave them out")
    return Here() if jobs is None or jobs == 1 else Processes(jobs)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the work is run: four options for the user, and one argument, `engine`, for the command."""

    @options(JOBS_OPTION, ON_OPTION, RAY_ADDRESS_OPTION, RAY_GPUS_OPTION)
    @wraps(command)
    def with_engine(*, on: str, jobs: int | None, ray_address: str | None, ray_gpus: float, **asked: Any) -> Any:
        return command(engine=_engine(on, jobs, ray_address, ray_gpus), **asked)

    return with_engine


grid_options = options(
    *(TRIALS_OPTION, DATA_OPTION, METHODS_OPTION, LEVELS_OPTION, DEVICE_OPTION, engine_options),
    *(QUICK_OPTION, OUT_OPTION, DRAW_OPTION),
)


series_options = options(
    *(SEEDS_OPTION, SERIES_OPTION, SERIES_METHODS_OPTION, READING_OPTION, DEVICE_OPTION, engine_options),
    *(QUICK_OPTION, OUT_OPTION, DRAW_OPTION),
)


box_options = options(
    *(SEEDS_OPTION, BOX_METHODS_OPTION, WEIGHTS_OPTION, SHARDS_OPTION, SMALL_OPTION, FEATURES_OPTION),
    *(DEVICE_OPTION, engine_options, QUICK_OPTION, OUT_OPTION, DRAW_OPTION),
)
