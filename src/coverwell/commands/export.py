"""`coverwell export`: a model file as an ONNX file, which runs without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coverwell.commands.messages import check_output, clear_messages, print_json
from coverwell.commands.options import FORCE_OPTION, JSON_OPTION, MODEL_ARGUMENT
from coverwell.export.onnx_file import PRECISIONS, to_onnx
from coverwell.persistence import load

__all__ = ["export"]


@click.command(short_help="A model as an ONNX file, which runs without torch.")
@MODEL_ARGUMENT
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--precision",
    type=click.Choice(list(PRECISIONS)),
    default="float32",
    show_default=True,
    help="In which fully connected networks are computed. float32 is twice as fast and half the size; its "
    "predictions and bounds differ from those of MODEL by some 1e-6 of the target's standard deviation.",
)
@JSON_OPTION
@FORCE_OPTION
def export(model: Path, out: Path, precision: str, as_json: bool, force: bool) -> None:
    """Write MODEL to OUT as one ONNX graph, from columns of numbers to predictions and bounds.

    MODEL may be about tables, series or pictures. Names and shapes of inputs and outputs, the codes of categories and
    the levels are in the metadata of OUT; --json prints them. OUT appears when onnxruntime has given the numbers of
    MODEL on a few rows, and not before.

    \b
    Example:
      coverwell export model.safetensors model.onnx
    """
    with clear_messages():
        check_output(out, force=force, inputs=(model,), name="OUT")
        fitted: Any = load(model)
        getattr(fitted, "regressor_", fitted).set_params(device="cpu")
        told = to_onnx(fitted, out, precision=precision, model_file=model)
        if as_json:
            print_json({"out": str(out), "bytes": out.stat().st_size, **told})
        else:
            _say(out, told)


def _say(out: Path, told: dict[str, Any]) -> None:
    click.echo(f"wrote {out}: {out.stat().st_size:,} bytes")
    for what in ("inputs", "outputs"):
        for entry in told[what]:
            sizes = ", ".join(map(str, entry["shape"]))
            click.echo(f"  {what.removesuffix('s'):<7}{entry['name']:<16}{entry['type']:<9}({sizes})")
