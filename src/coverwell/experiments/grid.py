"""The grid of method, table and trial: what is missing, cut into stacks of trials that are fitted together."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from coverwell.experiments import results, study
from coverwell.experiments.methods import Method
from coverwell.experiments.results import Line
from coverwell.training import device_from

__all__ = ["Grid", "Unit"]

# How many trials are fitted as one stack. A GPU is not busy with fewer; on a CPU networks side by side gain little once
# there are about ten, and smaller units are less to lose.
TRIALS_ON_GPU = 20
TRIALS_ON_CPU = 5
MANY_NETWORKS = 10
# The cost of a row that does not depend on its columns, in columns.
COLUMNS_FOR_FREE = 25


@dataclass(frozen=True)
class Unit:
    """Trials of one method and one table that are fitted as one stack."""

    method: Method
    data: str
    trials: tuple[int, ...]
    levels: tuple[float, ...]
    device: str
    quick: bool

    def __str__(self) -> str:
        name = "trial" if len(self.trials) == 1 else "trials"
        return f"{self.method.slug} on {self.data}, {name} {', '.join(map(str, self.trials))}"

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""
        n_rows, n_columns = study.table(self.data).X.shape
        per_row = self.method.cost_per_row(len(self.levels), quick=self.quick)
        return float(len(self.trials) * n_rows * per_row * (COLUMNS_FOR_FREE + n_columns))

    def lines(self) -> list[Line]:
        """Fit the stack; one line per trial."""
        return study.lines_of(
            self.method, self.data, self.trials, levels=self.levels, device=self.device, quick=self.quick
        )


@dataclass(frozen=True)
class Grid:
    """All runs that are asked for."""

    KEY: ClassVar[tuple[str, ...]] = results.KEY
    FIELDS: ClassVar[tuple[str, ...]] = results.FIELDS

    methods: tuple[Method, ...]
    data: tuple[str, ...]
    trials: int
    levels: tuple[float, ...] = study.STUDY_LEVELS
    device: str = "auto"
    quick: bool = False

    def check_data(self) -> None:
        """Load every table, so that missing data are told before anything is written."""
        for name in self.data:
            study.table(name)

    def units(self, done: Container[Any] = ()) -> list[Unit]:
        """What is not yet done, as stacks, the longest first so that no worker is left with it at the end."""
        units = [
            Unit(method, data, tuple(trials), self.levels, self.device, self.quick)
            for method in self.methods
            for data in self.data
            for trials in self._stacks(method, data, done)
        ]
        return sorted(units, key=lambda unit: unit.cost, reverse=True)

    def _stacks(self, method: Method, data: str, done: Container[Any]) -> Iterator[list[int]]:
        size = self._trials_per_stack(method)
        missing = [t for t in range(self.trials) if (method.slug, data, t, self.levels) not in done]
        # By number, not by place: what is done does not change who else is fitted together.
        yield from (list(trials) for _, trials in groupby(missing, key=lambda trial: trial // size))

    def _trials_per_stack(self, method: Method) -> int:
        if device_from(self.device).type != "cpu":
            return TRIALS_ON_GPU
        return 1 if method.n_networks(len(self.levels)) >= MANY_NETWORKS else TRIALS_ON_CPU
