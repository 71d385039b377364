"""Arguments and options that the commands for tables in files share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coverwell.delimited import UTF8
from coverwell.table_files import DECIMALS
from coverwell.training import device_from

__all__ = [
    "DATA_ARGUMENT",
    "DEVICE_OPTION",
    "FILES_ARGUMENT",
    "FORCE_OPTION",
    "JSON_OPTION",
    "MODEL_ARGUMENT",
    "QUANTILES_OPTION",
    "SKIP_OPTION",
    "TEXT_OPTIONS",
    "together",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click arguments and options as one decorator, shown in this order."""
    return lambda command: functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def _delimiter(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    return "\t" if value in ("tab", "\\t") else value


def _device(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        device_from(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


MODEL_ARGUMENT = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
DATA_ARGUMENT = click.argument("data", type=click.Path(exists=True, dir_okay=False, path_type=Path))
FILES_ARGUMENT = click.argument(
    "data", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
# How a text file is read; they come to a command as the arguments of `TableFile`.
TEXT_OPTIONS = together(
    click.option(
        "--delimiter",
        metavar="CHARACTER",
        callback=_delimiter,
        help="Between the columns of DATA, such as ';' or tab.  [default: a comma; a tab in .tsv files]",
    ),
    click.option(
        "--decimal",
        type=click.Choice(DECIMALS),
        default=DECIMALS[0],
        show_default=True,
        help="In the numbers of DATA, between whole and rest.",
    ),
    click.option(
        "--encoding", default=UTF8, show_default=True, help="Of the text of DATA, such as cp1252, latin1 or utf-16."
    ),
)
DEVICE_OPTION = click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=_device,
    help="auto, cpu or cuda; auto is cuda where there is one.",
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
FORCE_OPTION = click.option("--force", is_flag=True, help="Replace the output file if it exists.")
SKIP_OPTION = click.option(
    "--skip-missing", is_flag=True, help="Leave out rows in which a target is missing; otherwise they are an error."
)
QUANTILES_OPTION = click.option(
    "--quantiles",
    type=click.IntRange(min=2, max=100),
    default=4,
    show_default=True,
    help="Into how many slices features of numbers are cut.",
)
