"""`coverwell export`: a model file as an ONNX file, which runs without torch."""

from pathlib import Path
from typing import Any

import click

import coverwell
from coverwell.cli import options
from coverwell.cli.fit import classes_in_words
from coverwell.cli.messages import check_output, print_json


@click.command(short_help="A model as an ONNX file, which runs without torch.")
@options.MODEL
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--precision",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    help="Of fully connected networks. float32 is twice as fast and half the size; its predictions and bounds differ "
    "from those of MODEL by some 1e-6 of the target's standard deviation.",
)
@options.JSON
@options.FORCE
def export(model: Path, out: Path, precision: str, as_json: bool, force: bool) -> None:
    """Write MODEL to OUT as one ONNX graph, from columns of numbers to predictions and bounds.

    Of a target of classes, the outputs are `probability`, of each class, and `sets`, whether it is in each level's set.

    MODEL may be about tables, series or images. Names and shapes of inputs and outputs, the codes of categories and
    the levels are in the metadata of OUT; --json prints them. OUT appears when onnxruntime has given the numbers of
    MODEL on a few rows, and not before.

    \b
    Example:
      coverwell export model.safetensors model.onnx
    """
    check_output(out, force=force, inputs=(model,), name="OUT")
    fitted: Any = coverwell.load(model)
    getattr(fitted, "regressor_", fitted).set_params(device="cpu")
    metadata = coverwell.to_onnx(fitted, out, precision=precision, model_file=model)
    if as_json:
        print_json({"out": str(out), "bytes": out.stat().st_size, **metadata})
        return
    click.echo(f"wrote {out}: {out.stat().st_size:,} bytes")
    for what in ("inputs", "outputs"):
        for entry in metadata[what]:
            sizes = ", ".join(map(str, entry["shape"]))
            click.echo(f"  {what.removesuffix('s'):<7}{entry['name']:<16}{entry['type']:<9}({sizes})")
    if classes := metadata.get("classes"):
        click.echo(f"  {classes_in_words(classes)}")
