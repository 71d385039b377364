"""One study for tables, series and images: a grid of runs, cut into units of work, whose lines go to a results file.

A domain defines its runs and the line of each (`Study`). Only the process that was asked writes results, a whole unit
at a time. So it may be killed at any moment: what is written stays, and the same call later runs what is missing.
"""

from __future__ import annotations

import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Container, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tqdm import tqdm

from reproduction.lines import FORMAT, Line, append, environment, key_of, only_writer, read
from reproduction.methods import Method

BAR = "{percentage:3.0f}% |{bar}| {desc} [{elapsed} gone, {remaining} left]"

Place = tuple[str, Any]  # data, and the variant of it: levels, a reading of gaps, weights


@dataclass(frozen=True)
class Study(ABC):
    """All runs that are asked for in one domain: methods, data and trials; a trial is a split or a seed."""

    FILE: ClassVar[str]  # of results
    VARIANT: ClassVar[str]  # the field in which runs of one method and trial on one data set differ
    FIELDS: ClassVar[str]  # what else every line has
    QUICK: ClassVar[Mapping[str, Any]] = {}  # the defaults with --quick
    SETTINGS: ClassVar[str | None] = None  # the file that keeps `settings` beside results

    methods: tuple[Method, ...] = ()
    trials: int = 1
    device: str = "auto"
    quick: bool = False

    @abstractmethod
    def places(self, method: Method) -> Iterator[Place]:
        """Where a method is run."""

    @abstractmethod
    def cost(self, method: Method, place: Place) -> float:
        """Roughly proportional to the time of one run. Raises if data are missing."""

    @abstractmethod
    def measure(self, method: Method, place: Place, trials: tuple[int, ...]) -> list[Line]:
        """Fit the trials of a unit; what was found in each of them."""

    def n_trials(self, method: Method) -> int:
        """How many trials of this method there are."""
        return self.trials

    def per_unit(self, method: Method) -> int:
        """How many trials are fitted together."""
        return 1

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """All settings of every method, with their defaults."""
        return {}

    @classmethod
    def key(cls) -> tuple[str, ...]:
        """The fields in which no two lines of a file agree."""
        return ("method", "data", cls.VARIANT, "trial")

    @classmethod
    def stored(cls, path: Path, **of: Any) -> list[Line]:
        """The lines of a results file of this domain; `version` and `methods` are those of `read`."""
        fields = ("format", *cls.key(), *cls.FIELDS.split(), "device", "versions")
        return read(path, fields=fields, key=cls.key(), **of)

    def stored_before(self, path: Path) -> list[Line]:
        """The lines of a results file to which this study may add: those of its methods are of this version."""
        return self.stored(path, methods={method.slug for method in self.methods})

    def missing(self, path: Path) -> list[Unit]:
        """The units that are not in a results file."""
        return self.units({key_of(line, self.key()) for line in self.stored_before(path)})

    def units(self, done: Container[Hashable] = ()) -> list[Unit]:
        """What is not yet done, the longest first so that no worker is left with it at the end."""
        units = []
        for method in self.methods:
            size = self.per_unit(method)
            for place in self.places(method):
                missing = [t for t in range(self.n_trials(method)) if (method.slug, *place, t) not in done]
                # By number, not by position: what is done does not change who else is fitted together.
                stacks = [[t for t in missing if t // size == stack] for stack in sorted({t // size for t in missing})]
                units += [Unit(self, method, place, tuple(trials)) for trials in stacks]
        return sorted(units, key=lambda unit: unit.cost, reverse=True)


@dataclass(frozen=True)
class Unit:
    """What one process does at a time: trials of one method at one place. Workers get it as a pickle."""

    study: Study
    method: Method
    place: Place
    trials: tuple[int, ...]

    def __str__(self) -> str:
        data, variant = self.place
        reading = f" ({variant})" if self.study.VARIANT == "reading" else ""
        name = "trial" if len(self.trials) == 1 else "trials"
        return f"{self.method.slug} on {data}{reading}, {name} {', '.join(map(str, self.trials))}"

    @property
    def cost(self) -> float:
        """Roughly proportional to the time it takes."""
        return len(self.trials) * self.study.cost(self.method, self.place)

    def lines(self) -> list[Line]:
        """The result lines of the unit, one per trial."""
        data, variant = self.place
        variant = list(variant) if isinstance(variant, tuple) else variant
        where = {"format": FORMAT, "method": self.method.slug, "data": data, self.study.VARIANT: variant}
        found = self.study.measure(self.method, self.place, self.trials)
        return [
            {**where, "trial": trial, "seed": trial, **one, **environment(self.study.device)}
            for trial, one in zip(self.trials, found, strict=True)
        ]


@dataclass(frozen=True)
class Failure:
    """What went wrong in a unit."""

    unit: str
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, unit: Unit, error: BaseException, traceback: str = "") -> Failure:
        return cls(str(unit), f"{type(error).__name__}: {' '.join(str(error).split())}", traceback)

    def __str__(self) -> str:
        return f"{self.unit}: {self.error}"


Outcome = list[Line] | Failure


def outcome_of(unit: Unit) -> Outcome:
    """The lines of a unit, or what went wrong in it."""
    try:
        return unit.lines()
    except Exception as error:
        # The messages of our own checks need no traceback.
        return Failure.of(unit, error, "" if isinstance(error, ValueError) else traceback.format_exc())


class Engine:
    """Where units run: this one in the process itself, one at a time."""

    def check(self, study: Study) -> None:
        """Raise if the work cannot be done there, before anything is written."""

    def outcomes(self, units: Sequence[Unit]) -> Generator[tuple[Unit, Outcome], None, None]:
        """What comes of each unit, once each and in any order; what still runs when this is closed is ended."""
        yield from ((unit, outcome_of(unit)) for unit in units)

    def close(self) -> None:
        """Give back what the engine holds."""


def run(study: Study, path: Path, *, on: Engine | None = None) -> list[Failure]:
    """Run what is missing in a results file and add it; returns the units that failed, which do not stop the others."""
    failures = []
    with closing(Engine() if on is None else on) as engine:
        check(study, path, engine)
        with only_writer(path):
            units = study.missing(path)
            # The bar moves by cost, so that its time left is not that of the short units.
            how = {"bar_format": BAR, "desc": "first fits", "miniters": 0, "smoothing": 0, "disable": not units}
            total = sum(unit.cost for unit in units)
            with tqdm(total=total, **how) as bar, closing(engine.outcomes(units)) as outcomes:
                for unit, outcome in outcomes:
                    if isinstance(outcome, Failure):
                        failures.append(outcome)
                        bar.write(f"failed: {outcome}", file=sys.stderr)
                    else:
                        append(path, outcome)
                    bar.set_description_str(f"last: {unit}", refresh=False)
                    bar.update(unit.cost)
    return failures


def check(study: Study, path: Path, engine: Engine) -> None:
    """Raise if data are missing here or where the units will run, or if the results file cannot be read."""
    study.units()
    if study.missing(path):
        engine.check(study)
