"""The command `coverwell`: models and intervals from tables in files.

Each command is a module of this package. What it needs beyond click is imported when it runs, so that help and wrong
arguments are answered at once.
"""

from importlib import import_module

import click

from coverwell._version import __version__
from coverwell.cli.messages import OneLineGroup

COMMANDS = ("evaluate", "export", "fit", "info", "plot", "predict", "recalibrate", "report", "serve", "watch")


class _Commands(OneLineGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = import_module(f"coverwell.cli.{cmd_name}") if cmd_name in COMMANDS else None
        return getattr(module, cmd_name, None)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="coverwell")
def main() -> None:
    """Regression with a prediction interval for every row, classification with a set, from tables in files.

    \b
    Example:
      coverwell fit houses.csv --target price --coverage 0.9 --out model.safetensors
      coverwell predict model.safetensors new.csv --out predictions.csv
      coverwell evaluate model.safetensors test.csv
    """
