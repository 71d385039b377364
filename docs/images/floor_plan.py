"""The picture of docs/architecture.md, who imports whom: python docs/images/floor_plan.py

Read from the sources: one box for each package or module at the top of `coverwell`, an arrow to each one that it uses.
Arrows that follow from others are left out.
"""

from __future__ import annotations

import ast
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "coverwell"
OPEN = ("paper", "training")
READING = ("calibration", "predictor", "estimator", "matched", "regressor")  # with OPEN, a first hour
LEFT_OUT = ("__init__", "__main__", "_version", "errors", "options", "files")  # that everybody uses


def name_of(parts: tuple[str, ...]) -> str:
    """The box of a module: its package, or the module itself where the package is for reading."""
    return "/".join(parts[:2]) if parts[0] in OPEN else parts[0]


def uses() -> dict[str, set[str]]:
    """The parts that each part imports when it is loaded; not inside functions, nor for annotations alone."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        part = name_of(path.relative_to(SOURCES).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = ast.walk(tree) if part == "cli" else tree.body  # commands import what they need when they run
        names = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        others = {name_of(tuple(name.split(".")[1:])) for name in names if name.startswith("coverwell.")}
        found.setdefault(part, set()).update(others - {part})
    kept = set(found) - set(LEFT_OUT) - {f"{package}/__init__" for package in OPEN}
    return {part: others & kept for part, others in found.items() if part in kept}


def reached(graph: dict[str, set[str]], part: str) -> set[str]:
    """Everything that a part uses, directly or not."""
    seen: set[str] = set()
    todo = list(graph[part])
    while todo:
        other = todo.pop()
        if other not in seen:
            seen.add(other)
            todo += graph[other]
    return seen


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without arrows that follow from others."""
    return {
        part: {o for o in others if not any(o in reached(graph, mid) for mid in others - {o})}
        for part, others in graph.items()
    }


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each part: one above the highest part that it uses."""
    floor: dict[str, int] = {}

    def of(part: str) -> int:
        if part not in floor:
            floor[part] = 0  # a circle would end here
            floor[part] = 1 + max((of(other) for other in graph[part]), default=-1)
        return floor[part]

    for part in graph:
        of(part)
    return floor


def main() -> None:
    """Draw the parts, floor by floor."""
    graph = uses()
    floor, arrows = floors(graph), direct(graph)
    rows = [sorted(part for part in graph if floor[part] == level) for level in range(max(floor.values()) + 1)]
    place = {
        part: ((k + 0.5) * 12 / len(row), float(level)) for level, row in enumerate(rows) for k, part in enumerate(row)
    }
    figure = Figure(figsize=(9, 0.75 * len(rows)), layout="constrained")
    axes = figure.subplots()
    boxes = {}
    for part, (x, y) in place.items():
        first = part != "training/device" and part.split("/")[0] in (*OPEN, *READING)
        colour = "#cfe3f5" if first else "#f2f2f2"
        look = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": "0.4"}
        boxes[part] = axes.text(x, y, part, ha="center", va="center", bbox=look, fontsize=10, zorder=3).get_bbox_patch()
    for part, others in arrows.items():
        for other in others:
            look = {"arrowstyle": "-|>", "color": "0.45", "lw": 0.8, "patchA": boxes[part], "patchB": boxes[other]}
            far = floor[part] - floor[other] > 1  # round the boxes between them
            look["connectionstyle"] = f"arc3,rad={0.22 if far else 0}"
            axes.annotate("", place[other], place[part], arrowprops=look, zorder=1)
    axes.set(xlim=(0, 12), ylim=(-0.5, len(rows) - 0.5))
    axes.axis("off")
    figure.savefig(HERE / "floor_plan.png", dpi=130)
    print("wrote docs/images/floor_plan.png")


if __name__ == "__main__":
    main()
