"""What a fit costs when it grows: members, floors, precision and whole studies on a GPU, curves and peers on a CPU.

Each part stores its own results by device, and keeps those of other parts and devices; the text, and the numbers in
docs/scale.md, are written from the stored ones alone. Ways that are compared take turns, and the fastest turn of each
counts. On one thread of a CPU seconds are CPU seconds, those of the clock less what other programs take away; on a GPU
they are the clock's. What each part does stands at the head of its own file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import scale_billion
import scale_curves
import scale_floors
import scale_grid
import scale_peers
import scale_precision
import scale_streaming
import scale_training
import scale_workers
import sklearn
import torch
from machine import at_the_end, environment, place, threads

HERE = Path(__file__).parent
STORED = HERE / "results" / "scale.json"
PAGE = HERE.parent / "docs" / "scale.md"
# A place in the page that is filled from the numbers: its device and part, what stands there now, its end.
PLACE = re.compile(r"(<!-- numbers: (\w+) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BILLION = "billion"  # a place that is worked out from several parts
NOT_MEASURED = "*Not measured yet.*"
BOTH, GPU_ALONE, CPU_ALONE = ("cpu", "cuda"), ("cuda",), ("cpu",)


@dataclass(frozen=True)
class Part:
    """One measurement: what it does on a device, how its numbers read, and where it is run unless it is asked for."""

    measure: Callable[..., Any]
    lines: Callable[[Any, str], str]
    devices: tuple[str, ...]
    together: Callable[[Any, Any], Any] | None = None  # new results beside those that are stored


PARTS: dict[str, Part] = {
    "members": Part(scale_training.measure, scale_training.lines, BOTH),
    "floors": Part(scale_floors.measure, scale_floors.lines, GPU_ALONE),
    "precision": Part(scale_precision.measure, scale_precision.lines, GPU_ALONE, scale_precision.together),
    **{
        what: Part(partial(scale_grid.measure, what), partial(scale_grid.lines_of, what), GPU_ALONE)
        for what in scale_grid.TARGETS
    },
    **{
        curve: Part(partial(scale_curves.measure, curve), partial(scale_curves.lines_of, curve), CPU_ALONE)
        for curve in scale_curves.NUMBERS
    },
    "epoch": Part(scale_curves.measure_epoch, scale_curves.epoch_lines, CPU_ALONE),
    "streaming": Part(scale_streaming.measure, scale_streaming.lines, BOTH),
    "workers": Part(scale_workers.measure, scale_workers.lines, CPU_ALONE),
    "peers": Part(scale_peers.measure, scale_peers.lines, CPU_ALONE),
}


def measure(name: str, device: torch.device, *, quick: bool, **more: Any) -> dict[str, Any]:
    """One part, with where and under what load it was measured."""
    where = environment(device, packages={"scikit-learn": sklearn.__version__}, seed=scale_training.SEED)
    with threads(1):
        found = PARTS[name].measure(device, quick=quick, **more)
    return {"environment": at_the_end(where), "found": found}


def report(results: dict[str, Any]) -> str:
    texts = [
        "# Scale",
        "`make bench-scale`. Alternatives ran in turns, and the fastest turn of each counts. On the CPU, seconds are "
        "CPU seconds on one thread unless noted; on a GPU, wall-clock seconds.",
    ]
    for device, parts in sorted(results.items(), reverse=True):
        texts.append("## GPU" if device == "cuda" else "## CPU")
        for name, part in PARTS.items():
            if name in parts:
                texts += [part.lines(parts[name]["found"], device), place(parts[name]["environment"])]
        billion = scale_billion.lines(parts) if device == "cpu" else ""
        texts += [f"### A billion rows\n\n{billion}"] if billion else []
    return "\n\n".join(texts) + "\n"


def page(text: str, results: dict[str, Any]) -> str:
    """The page with its places filled from the numbers, as in the report but for the headings."""

    def filled(place_of_part: re.Match[str]) -> str:
        start, device, name, end = place_of_part.groups()
        parts = results.get(device, {})
        if name == BILLION:
            words = scale_billion.lines(parts)
        else:
            words = without_heading(device, name, parts[name]) if name in parts else ""
        return f"{start}{words or NOT_MEASURED}\n{end}"

    return PLACE.sub(filled, text)


def without_heading(device: str, name: str, part: dict[str, Any]) -> str:
    words = PARTS[name].lines(part["found"], device).partition("\n\n")[2]
    return f"{words}\n\n{place(part['environment'])}"


def kept(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by device and part."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def store(path: Path, device: str, name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Put one part in its place in the file, and write the text again."""
    results = kept(path)
    before, together = results.get(device, {}).get(name), PARTS[name].together
    if before is not None and together is not None:
        result = {**result, "found": together(before["found"], result["found"])}
    results.setdefault(device, {})[name] = json.loads(json.dumps(result))
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(report(results))
    return results


def wanted(asked: argparse.Namespace) -> list[tuple[str, str]]:
    """Devices and parts: those that were named, or the parts that are meant for the devices that are there."""
    there = ["cpu", "cuda"] if torch.cuda.is_available() and not asked.quick else ["cpu"]
    devices = [asked.device] if asked.device else there
    if asked.parts:
        return [(device, name) for device in devices for name in asked.parts]
    return [(device, name) for device in devices for name, part in PARTS.items() if device in part.devices]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two minutes at most: whether everything runs")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="one device alone; else the CPU, and a GPU if there")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="some parts, on any device; else those meant for it")
    parser.add_argument(
        "--tables", nargs="+", choices=scale_precision.TABLES, help="of the part precision; those of others stay"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(words)
    file = asked.out / ("scale-quick.json" if asked.quick else "scale.json")
    asked.out.mkdir(parents=True, exist_ok=True)
    for device, name in wanted(asked):
        more = {"tables": asked.tables} if name == "precision" else {}
        result = measure(name, torch.device(device), quick=asked.quick, **more)
        print(PARTS[name].lines(result["found"], device), flush=True)
        results = store(file, device, name, result)
        if file == STORED:
            PAGE.write_text(page(PAGE.read_text(), results))


if __name__ == "__main__":
    main()
