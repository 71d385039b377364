"""Arguments and options that commands share."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coverwell.tables import DECIMALS, UTF8, TableFile

Command = TypeVar("Command", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click arguments and options as one decorator, shown in this order."""
    return lambda command: functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def out(endings: str) -> Callable[[Command], Command]:
    return click.option("--out", type=click.Path(path_type=Path), required=True, help=endings)


def shares(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[float]:
    """Shares in (0, 1), ascending, as 0.5,0.9 or given again."""
    found = set()
    for text in ",".join(values).split(",") if values else ():
        try:
            found.add(float(text))
        except ValueError:
            found.add(math.nan)
        if not all(0 < share < 1 for share in found):
            raise click.BadParameter(f"shares must lie strictly between 0 and 1, as 0.5,0.9 do, got {text!r}")
    return sorted(found)


def _device(context: click.Context, option: click.Parameter, value: str) -> str:
    if value not in ("auto", "cpu"):  # others are known by torch alone
        from coverwell.training.device import device_from

        try:
            device_from(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _with_table(command: Command) -> Command:
    """The command with `table`, or `tables` if it takes several, for DATA and the options of text files."""

    @functools.wraps(command)
    def with_table(*context: Any, data: Any, delimiter: str | None, decimal: str, encoding: str, **asked: Any) -> Any:
        if isinstance(data, Path):
            return command(*context, table=TableFile(data, delimiter, decimal, encoding), **asked)
        return command(*context, tables=[TableFile(path, delimiter, decimal, encoding) for path in data], **asked)

    return with_table  # type: ignore[return-value]


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
MODEL = click.argument("model", type=_FILE)
DATA = click.argument("data", type=_FILE)
FILES = click.argument("data", nargs=-1, required=True, type=_FILE)
TEXT = together(
    click.option(
        "--delimiter",
        metavar="CHARACTER",
        callback=lambda context, option, value: "\t" if value in ("tab", "\\t") else value,
        help="Between the columns of DATA, such as ';' or tab.  [default: a comma; a tab in .tsv files]",
    ),
    click.option("--decimal", type=click.Choice(DECIMALS), default=DECIMALS[0], help="The decimal mark in DATA."),
    click.option("--encoding", default=UTF8, help="Of the text of DATA, such as cp1252, latin1 or utf-16."),
    _with_table,
)
DEVICE = click.option("--device", default="auto", callback=_device, help="auto, cpu or cuda; auto prefers cuda.")
SKIP = click.option("--skip-missing", is_flag=True, help="Leave out rows without a target, otherwise an error.")
KNOWN_ROWS = together(DEVICE, TEXT, SKIP)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
FORCE = click.option("--force", is_flag=True, help="Replace the output file if it exists.")
GROUPS = click.option("--group", multiple=True, metavar="COLUMN", help="Also coverage by this; may be given again.")
LEVEL = click.option("--coverage", type=float, metavar="SHARE", help="A fitted level.  [default: the highest]")
QUANTILES = click.option("--quantiles", type=click.IntRange(2, 100), default=4, help="Slices of a feature of numbers.")
