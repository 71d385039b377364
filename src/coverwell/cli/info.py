"""`coverwell info`: what a model file holds."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from coverwell.cli import options
from coverwell.cli.fit import classes_in_words
from coverwell.cli.messages import print_json

MOST_LOOKED_AT = 8
OPTIONAL = "looks at", "blend", "seen rows", "held for", "slices", "new rows", "weights"


@click.command(short_help="What a model file holds.")
@options.MODEL
@options.JSON
def info(model: Path, as_json: bool) -> None:
    """Show what MODEL predicts, from which columns, how they are read, and how it was made.

    \b
    Example:
      coverwell info model.safetensors
    """
    from coverwell.cli.rows import load_table_model
    from coverwell.description import ModelDescription
    from coverwell.model_file import read_tensors
    from coverwell.networks.team import Team
    from coverwell.slices import in_one_line

    fitted = load_table_model(model, device="cpu")
    about = ModelDescription(fitted)
    columns, teams = fitted.source_.columns, [m for m in fitted.predictor_.modules() if isinstance(m, Team)]
    found: dict[str, Any] = {
        "file": str(model),
        "bytes": model.stat().st_size,
        "class": about.name,
        "targets": list(about.target_names),
        **about.of_classes,
        "coverage": list(about.levels),
        "features": fitted.source_.table_columns,
        "n_features": int(fitted.n_features_in_),
        "columns": None if columns is None else list(columns.report()),
        "column_scales": {name: round(scale, 3) for name, scale in about.looked_at},
        "blend": {name: round(weight, 3) for name, weight in about.blend.items()},
        "repeated_up_to": about.repeated_up_to,
        "held_groups": about.held_groups,
        "worst_slices": [vars(one) | {"coverage": one.coverage} for one in fitted.worst_slices_],
        "calibration": fitted.chosen_calibration.name,
        "seed": fitted.random_state,
        "training_rows": about.n_trained,
        "rows_worth": about.n_effective,
        "rows_ranked": about.n_ranked,
        "recalibration": None if about.recalibration is None else asdict(about.recalibration),
        "rounds": len(fitted.rounds_),
        "training_seconds": round(sum(entry.seconds for entry in fitted.rounds_), 3) if fitted.rounds_ else None,
        "members": sum(team.n_members for team in teams),
        "weights": sum(weights.numel() for team in teams for weights in team.parameters()),
        "parameters": fitted.get_params(deep=False),
        "versions": read_tensors(model)[0]["versions"],
    }
    if as_json:
        print_json(found)
        return
    names = found["features"] or [f"{found['n_features']} columns without names"]
    counts = (found["rows_ranked"], found["training_rows"])
    rounds = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}"
    n_ranked, n_trained = ("an unknown number of" if count is None else f"{count:,}" for count in counts)
    looks_at = [f"{name} {scale:.2f}" for name, scale in about.looked_at]
    n_more = len(looks_at) - MOST_LOOKED_AT
    lines = {
        "file": f"{found['file']} ({found['bytes']:,} bytes)",
        "model": f"{found['class']}, {found['members']} networks, {found['weights']:,} weights",
        "targets": ", ".join(found["targets"]),
        **(_lines_of_classes(about.of_classes) if about.of_classes else {}),
        "coverage": ", ".join(map(str, found["coverage"])),
        "features": ", ".join(names),
        "looks at": ", ".join(looks_at[:MOST_LOOKED_AT]) + (f", and {n_more} more" if n_more > 0 else ""),
        "blend": " + ".join(f"{weight:.2f} {name}" for name, weight in about.blend.items()),
        "seen rows": f"have their targets, with no width up to {about.repeated_up_to}" if about.repeated_up_to else "",
        "held for": about.held_for,
        "slices": in_one_line(fitted.worst_slices_) if fitted.worst_slices_ else "",
        "calibration": f"none, {'thresholds' if about.of_classes else 'widths'} as the networks learned them",
        "new rows": about.recalibration or "",
        "training": f"{n_trained} rows, {rounds} in {found['training_seconds'] or 0:.1f} s",
        "weights": about.weights,
        "seed": found["seed"],
        "versions": ", ".join(f"{package} {number}" for package, number in found["versions"].items()),
    }
    if not teams:  # another learner than our networks
        lines["model"] = f"{found['class']}, {found['parameters']['estimator']}"
        lines["training"] = f"{n_trained} rows"
    if found["calibration"]:
        lines["calibration"] = f"{found['calibration']}, ranks of {n_ranked} rows"
    for name, value in lines.items():
        if value or name not in OPTIONAL:
            click.echo(f"{name + ':':<13}{value}")
    if found["columns"]:
        click.echo("\n  ".join(["columns:", *found["columns"]]))


def _lines_of_classes(found: dict[str, Any]) -> dict[str, str]:
    return {
        "classes": classes_in_words(found["classes"], in_order=found["in_order"]),
        "score": found["score"],
        "thresholds": ", ".join(f"{kind} at {level:g}" for level, kind in found["thresholds"].items()),
        "calibrator": found["calibrator"] or "none, probabilities as they are",
        "matching": found["matching"] or "none",
    }
