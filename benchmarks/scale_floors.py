"""One training step beside the least time that its arithmetic and its memory traffic would take.

Arithmetic: the multiply-adds of the matrix products, each two operations. A layer has three products of the same size:
its outputs, the gradient of its weights, and the gradient of its inputs, which the first layer does without. Biases,
activations, the loss and Adam are left out: a floor counts too little rather than too much.

Memory: what has to pass between memory and the chip at least once each way, in float32. The weights, their gradients
and Adam's two moments are each read and written; inputs and targets are read; what comes out of each layer is written
on the way forward and read on the way back. Gradients of activations are left out, since they could stay on the chip.
Where all of it fits in the cache, even this floor can be passed below.

The peaks are those that NVIDIA's data sheet names for the H200 SXM: 67 TFLOP/s in FP32, 494 in TF32 (dense, half of
what the sheet gives with sparsity), 4.8 TB/s. What `torch.bmm` and a copy reach on the spot stands beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from machine import Work, seconds_of
from scale_training import Case, captured, stack_of
from stacks import Stack
from torch import Tensor

BYTES = 4  # of a float32
TIMES_THE_FLOOR = 4.0  # target
# What torch.set_float32_matmul_precision calls them.
PRECISIONS = {"FP32": "highest", "TF32": "high"}
STEPS_PER_EPOCH = 16


@dataclass(frozen=True)
class Peaks:
    """The most that a device can do in a second."""

    operations: dict[str, float]
    bytes_moved: float


DATA_SHEETS = {"H200": Peaks({"FP32": 67e12, "TF32": 494e12}, 4.8e12)}


@dataclass(frozen=True)
class Sizes:
    members: tuple[int, ...] = (1, 5, 25, 75)
    hidden: int = 256
    batch_size: int = 1024
    epochs: int = 10
    turns: int = 5
    products: int = 20
    copied: int = 2**30  # bytes

    @property
    def cases(self) -> list[Case]:
        return [Case(m, self.hidden, self.batch_size, STEPS_PER_EPOCH * self.batch_size) for m in self.members]


FULL = {"cuda": Sizes(), "cpu": Sizes(members=(1, 5), epochs=1, turns=2, products=3, copied=2**26)}
QUICK = Sizes(members=(2,), hidden=4, batch_size=8, epochs=1, turns=1, products=1, copied=2**10)


# Counting ------------------------------------------------------------------------------------------------------------


def multiply_adds(sizes: list[int], n_rows: int) -> int:
    """Of one network's step: forward, the gradients of the weights, and those of the inputs of all layers but one."""
    layers = [before * after for before, after in pairwise(sizes)]
    return n_rows * (3 * sum(layers) - layers[0])


def bytes_moved(sizes: list[int], n_rows: int) -> int:
    """Of one network's step: see above."""
    weights = sum((before + 1) * after for before, after in pairwise(sizes))
    inputs, *outputs = sizes
    of_weights = 2 * (1 + 1 + 2) * weights  # weights, gradients, two moments; read and written
    of_rows = n_rows * (inputs + outputs[-1] + 2 * sum(outputs))
    return BYTES * (of_weights + of_rows)


def peaks_of(device: torch.device) -> Peaks | None:
    """What the data sheet of a GPU says, where we have read it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((peaks for part, peaks in DATA_SHEETS.items() if part in name), None)


# Measuring -----------------------------------------------------------------------------------------------------------


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Matrix products in FP32, or with factors rounded to TF32 where the device can; as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISIONS[name])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def fastest_of(work: Work, device: torch.device, turns: int) -> float:
    work()  # not timed
    return min(seconds_of(work, device) for _ in range(turns))


def step_seconds(case: Case, sizes: Sizes, device: torch.device) -> dict[str, float]:
    """Seconds per step of `Learner.descend`, shuffling and averages of the weights included, and of the step alone."""
    stack = stack_of(case, device)
    n_steps = sizes.epochs * stack.batches.n_steps
    whole = fastest_of(partial(stack.descend, stack.squared_error, sizes.epochs), device, sizes.turns) / n_steps
    return {"seconds": whole, "seconds of the step alone": step_alone(stack, sizes, device)}


def step_alone(stack: Stack, sizes: Sizes, device: torch.device) -> float:
    """The step as `descend` runs it, without what an epoch adds."""
    learner, rows = stack.learner, stack.rows
    learner.team.train()

    def step(batch: Tensor) -> Tensor:
        losses = stack.squared_error(learner.team(rows.at(rows.x, batch)), batch)
        losses.sum().backward()
        learner.optimizer.step()
        return losses.detach()

    run = step if learner.graphs is None else learner.graphs.replayed(step)
    batch = next(stack.batches.epoch())
    run(batch)  # captures

    def steps() -> None:
        for _ in range(STEPS_PER_EPOCH):
            run(batch)

    return fastest_of(steps, device, sizes.turns) / STEPS_PER_EPOCH


def product_rate(case: Case, sizes: Sizes, device: torch.device) -> float:
    """Operations per second of `torch.bmm`, the best of a hidden layer's three products."""
    rows = torch.randn(case.members, case.batch_size, case.hidden, device=device)
    weights = torch.randn(case.members, case.hidden, case.hidden, device=device)
    products = ((rows, weights), (rows.transpose(1, 2), rows), (rows, weights.transpose(1, 2)))
    operations = 2 * case.members * case.batch_size * case.hidden**2
    return max(operations * sizes.products / product_seconds(*pair, sizes, device) for pair in products)


def product_seconds(one: torch.Tensor, other: torch.Tensor, sizes: Sizes, device: torch.device) -> float:
    result = torch.bmm(one, other)

    def repeated() -> None:
        for _ in range(sizes.products):
            torch.bmm(one, other, out=result)

    return fastest_of(captured(repeated, device), device, sizes.turns)


def copy_rate(sizes: Sizes, device: torch.device) -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.zeros(sizes.copied, dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    return 2 * sizes.copied / fastest_of(lambda: copy.copy_(source), device, sizes.turns)


def floors(case: Case, rates: dict[str, float] | None, n_bytes: float) -> dict[str, float] | None:
    """Least seconds of a step at these rates, or nothing where they are not known."""
    if rates is None:
        return None
    arithmetic = 2 * case.members * multiply_adds(case.sizes, case.batch_size) / rates["operations"]
    return {"arithmetic": arithmetic, "memory": n_bytes / rates["bytes"]}


def measure(device: torch.device, *, quick: bool) -> dict[str, Any]:
    sizes = QUICK if quick else FULL[device.type]
    peaks, copied = peaks_of(device), copy_rate(sizes, device)
    found: dict[str, Any] = {
        "bytes per second copied": copied,
        "data sheet": None if peaks is None else asdict(peaks),
        "cases": [],
    }
    for name in PRECISIONS if device.type == "cuda" else ("FP32",):
        with precision(name):
            rates = {case.members: product_rate(case, sizes, device) for case in sizes.cases}
            found.setdefault("operations per second of torch.bmm", {})[name] = rates
            for case in sizes.cases:
                n_bytes = case.members * bytes_moved(case.sizes, case.batch_size)
                sheet = None if peaks is None else {"operations": peaks.operations[name], "bytes": peaks.bytes_moved}
                found["cases"].append(
                    {
                        **asdict(case),
                        "precision": name,
                        "operations": 2 * case.members * multiply_adds(case.sizes, case.batch_size),
                        "bytes": n_bytes,
                        "floors": floors(case, sheet, n_bytes),
                        "measured floors": floors(case, {"operations": max(rates.values()), "bytes": copied}, n_bytes),
                        **step_seconds(case, sizes, device),
                    }
                )
    return found


# The report ----------------------------------------------------------------------------------------------------------


def larger(found: dict[str, float] | None) -> float | None:
    return None if found is None else max(found.values())


def ratio(case: dict[str, Any], which: str = "floors") -> float | None:
    """How many times the larger floor a step takes."""
    floor = larger(case[which])
    return None if floor is None else case["seconds"] / floor


def lines(found: dict[str, Any], device: str) -> str:
    first = found["cases"][0]
    text = [
        "### A training step and its floors, in microseconds",
        "",
        f"In microseconds. {first['layers']} linear layers of width {first['hidden']}, {first['features']} features, "
        f"batch {first['batch_size']}, squared error, Adam. *Step*: time of `Learner.descend` over its steps, with "
        f"shuffling and averages of the weights; *alone*: without them. {rates_in_words(found)} "
        f"{sheet_in_words(found)}",
        "",
        "| precision | members | step | alone | arithmetic floor | memory floor | step over the larger | measured "
        "floors: arithmetic | memory | step over the larger |",
        "|" + "---|" * 10,
    ]
    for case in found["cases"]:
        cells = [f"{1e6 * case[name]:,.0f}" for name in ("seconds", "seconds of the step alone")]
        for which in ("floors", "measured floors"):
            cells += ["-"] * 3 if case[which] is None else floor_cells(case, which)
        text.append(f"| {case['precision']} | {case['members']} | " + " | ".join(cells) + " |")
    return "\n".join(text) + verdict(found)


def floor_cells(case: dict[str, Any], which: str) -> list[str]:
    return [*(f"{1e6 * case[which][name]:,.1f}" for name in ("arithmetic", "memory")), f"{ratio(case, which):.2f}"]


def rates_in_words(found: dict[str, Any]) -> str:
    products = "; ".join(
        f"{name} {max(rates.values()) / 1e12:.2f} TFLOP/s"
        for name, rates in found["operations per second of torch.bmm"].items()
    )
    return (
        f"Measured floors are by the best rate of `torch.bmm` on a hidden layer's products ({products}) and that of a "
        f"copy ({found['bytes per second copied'] / 1e12:.3f} TB/s)."
    )


def sheet_in_words(found: dict[str, Any]) -> str:
    sheet = found["data sheet"]
    if sheet is None:
        return "We have no data sheet of this device."
    rates = ", ".join(f"{name} {rate / 1e12:g} TFLOP/s" for name, rate in sheet["operations"].items())
    return f"The other floors are by the data sheet: {rates}, {sheet['bytes_moved'] / 1e12:g} TB/s."


def verdict(found: dict[str, Any]) -> str:
    """Each case against the target, where the floors are those of a data sheet."""
    words = []
    for case in found["cases"]:
        times = ratio(case)
        if times is not None:
            assessed = "reached" if times <= TIMES_THE_FLOOR else "MISSED"
            words.append(f"{case['precision']}, {case['members']} members {times:.2f}: {assessed}")
    if not words:
        return ""
    return f"\n\nTarget: within {TIMES_THE_FLOOR:g} times of the larger floor. " + "; ".join(words) + "."
