"""CPU seconds per member beside what a user would run instead: UQ360, and MAPIE's CV+ around a network.

UQ360 as in speed.py, whose functions are used; MAPIE is put beside it in the same environment, since both need torch.
UQ360 and ours take turns; the fits of MAPIE come before them.
"""

from __future__ import annotations

import json
import subprocess
from statistics import median
from typing import Any

import numpy as np
import speed
import torch
from machine import three_digits
from scale_curves import need_cpu

from coverwell.paper.algorithm import Recipe

REQUIREMENTS = speed.HERE / "requirements-peers.txt"
NEEDED = ("mapie", "scikit-learn")
REPEATS = 5
STACKED = "25"
TIMES_FASTER = 10.0  # target, of the stack beside UQ360


def mapie_python() -> str:
    """The interpreter of UQ360's environment, with MAPIE in it."""
    python, done = speed.peer_python(), speed.PEER_ENVIRONMENT / ".mapie-installed"
    if not done.exists():
        wanted = [line for line in REQUIREMENTS.read_text().split() if line.split("==")[0] in NEEDED]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
        done.touch()
    return str(python)


def mapie_seconds(seed: int) -> dict[str, Any]:
    """CPU seconds of one CV+, in which each network of a fold trains on as many rows as a member of ours."""
    X, y, _ = speed.boston_like(speed.ROWS_OF_A_MEMBER * 5 // 4)
    table = speed.PEER_ENVIRONMENT / "table-of-mapie.npz"
    np.savez(table, X=X, y=y)
    settings = json.dumps({**speed.SETTINGS, "seed": seed})
    return speed.run([mapie_python(), str(speed.HERE / "mapie_runner.py"), str(table), settings])


def measure(device: torch.device, *, quick: bool) -> dict[str, Any]:
    need_cpu(device)
    repeats = 1 if quick else REPEATS
    fits = [mapie_seconds(seed) for seed in range(repeats)]
    return {
        "beside UQ360": speed.beside_peer(repeats),
        "MAPIE": {
            "networks": fits[0]["networks"],
            "versions": fits[0]["versions"],
            "CPU seconds of each fit": [one["seconds"] for one in fits],
        },
    }


# The report ----------------------------------------------------------------------------------------------------------


def per_network(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By method: networks, epochs of each, and seconds of all (the fastest fit, the median)."""
    settings, beside = speed.SETTINGS, found["beside UQ360"]
    epochs = settings["rounds"] * settings["epochs"]
    closing = Recipe.closing_rounds * settings["epochs"]
    seconds = beside["CPU seconds of each fit"]
    members = {name: speed.n_members_of(name) for name in seconds}
    mapie = found["MAPIE"]
    rows = {
        name: {
            "members": n,
            "epochs": 2 * epochs + (closing if name != speed.PEER and n > 1 else 0),
            "fastest": min(seconds[name]) / n,
            "median": median(seconds[name]) / n,
        }
        for name, n in members.items()
    }
    times = [one / mapie["networks"] for one in mapie["CPU seconds of each fit"]]
    rows["MAPIE"] = {"members": mapie["networks"], "epochs": epochs, "fastest": min(times), "median": median(times)}
    return rows


def label_of(name: str) -> str:
    named = {speed.PEER: "UQ360, one model", "MAPIE": "MAPIE's CV+ around a network"}
    return named.get(name, f"coverwell, {name} stacked")


def lines(found: dict[str, Any], device: str) -> str:
    beside, rows = found["beside UQ360"], per_network(found)
    settings = beside["settings"]
    text = [
        "### Next to other packages",
        "",
        f"{beside['data']}, {beside['rows of a member']} rows per member, {settings['layers']} linear layers of width "
        f"{settings['hidden']}, batch {settings['batch_size']}, {settings['rounds']} rounds of {settings['epochs']} + "
        f"{settings['epochs']} epochs; the fastest of {len(beside['seeds'])} fits. A member of UQ360 and of ours has "
        f"two networks; MAPIE trains one per fold and one on all rows, for as many epochs as our F alone. "
        f"UQ360 {beside['peer versions']['uq360']}, MAPIE {found['MAPIE']['versions']['mapie']}, both with torch "
        f"{beside['peer versions']['torch']}.",
        "",
        "| | members | CPU seconds per member | (median) | epochs per member | milliseconds per epoch | "
        "times faster than UQ360 per member |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ratio = rows[speed.PEER]["fastest"] / row["fastest"]
        text.append(
            f"| {label_of(name)} | {row['members']:.0f} | {row['fastest']:.3f} | {row['median']:.3f} "
            f"| {row['epochs']:.0f} | {three_digits(1e3 * row['fastest'] / row['epochs'])} | {ratio:.1f} |"
        )
    ratio = rows[speed.PEER]["fastest"] / rows[STACKED]["fastest"]
    verdict = "reached" if ratio >= TIMES_FASTER else "MISSED"
    middle = rows[speed.PEER]["median"] / rows[STACKED]["median"]
    return "\n".join(
        [
            *text,
            "",
            f"Target for {STACKED} stacked: {TIMES_FASTER:g} times faster than UQ360. {ratio:.1f} by the fastest fits: "
            f"{verdict}; {middle:.1f} by medians.",
        ]
    )
