"""The command `coverwell`: tables in files to models and intervals."""

from __future__ import annotations

import click

from coverwell._version import __version__
from coverwell.commands.evaluate import evaluate
from coverwell.commands.export import export
from coverwell.commands.fit import fit
from coverwell.commands.info import info
from coverwell.commands.messages import OneLineGroup
from coverwell.commands.plot import plot
from coverwell.commands.predict import predict
from coverwell.commands.report import report

__all__ = ["main"]


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


for command in (fit, predict, evaluate, report, plot, info, export):
    main.add_command(command)
