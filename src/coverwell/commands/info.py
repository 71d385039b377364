"""`coverwell info`: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coverwell.commands.messages import clear_messages, print_json
from coverwell.commands.models import TableModel
from coverwell.commands.options import JSON_OPTION, MODEL_ARGUMENT
from coverwell.files import read_tensors

__all__ = ["info"]


@click.command(short_help="What a model file holds.")
@MODEL_ARGUMENT
@JSON_OPTION
def info(model: Path, as_json: bool) -> None:
    """Say what MODEL predicts, from which columns, how they are read, and how it was made.

    \b
    Example:
      coverwell info model.safetensors
    """
    with clear_messages():
        found = _found(model)
        if as_json:
            print_json(found)
        else:
            _say(found)


def _found(path: Path) -> dict[str, Any]:
    fitted = TableModel.load(path, device="cpu")
    model: Any = fitted.model
    teams = [team for ensemble in model.ensembles_ for team in _teams(ensemble)]
    columns = model.source_.columns
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "class": type(model).__name__,
        "targets": list(fitted.targets),
        "coverage": list(fitted.levels),
        "features": fitted.feature_names,
        "n_features": int(model.n_features_in_),
        "columns": None if columns is None else list(columns.report()),
        "calibration": model.calibration,
        "seed": model.random_state,
        "training_rows": fitted.n_trained,
        "rows_ranked": fitted.n_ranked,
        "rounds": len(model.rounds_),
        "training_seconds": round(sum(entry.seconds for entry in model.rounds_), 3),
        "members": sum(team.n_members for team in teams),
        "weights": sum(weights.numel() for team in teams for weights in team.parameters()),
        "parameters": {name: _plain(value) for name, value in model.get_params(deep=False).items()},
        "versions": read_tensors(path)[0]["versions"],
    }


def _teams(ensemble: Any) -> list[Any]:
    return [getattr(ensemble, name) for name in ("mean_team", "interval_team", "team") if hasattr(ensemble, name)]


def _plain(value: Any) -> Any:
    """What JSON can hold; of anything else its description."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _say(found: dict[str, Any]) -> None:
    names = found["features"] or [f"{found['n_features']} columns without names"]
    rows = {
        "file": f"{found['file']} ({found['bytes']:,} bytes)",
        "model": f"{found['class']}, {found['members']} networks, {found['weights']:,} weights",
        "targets": ", ".join(found["targets"]),
        "coverage": ", ".join(map(str, found["coverage"])),
        "features": ", ".join(names),
        "calibration": _calibration(found),
        "training": f"{_count(found['training_rows'])} rows, {found['rounds']} rounds in "
        f"{found['training_seconds']:.1f} s",
        "seed": found["seed"],
        "versions": ", ".join(f"{package} {number}" for package, number in found["versions"].items()),
    }
    for name, value in rows.items():
        click.echo(f"{name + ':':<13}{value}")
    if found["columns"]:
        click.echo("columns:")
        for line in found["columns"]:
            click.echo(f"  {line}")


def _calibration(found: dict[str, Any]) -> str:
    if found["calibration"] is None:
        return "none, widths as the networks learned them"
    return f"{found['calibration']}, ranks of {_count(found['rows_ranked'])} rows"


def _count(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"
