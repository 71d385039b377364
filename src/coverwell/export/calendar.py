"""The calendar as arithmetic: where in the year, the week and the day a number of seconds since 1970 lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coverwell.export.graph import Graph, Value

__all__ = ["SECONDS_OF_DAY", "Moments", "seconds_by_the_clock"]

SECONDS_OF_DAY = 86_400.0
# Days of 400, 100 and 4 years of the Gregorian calendar, and of one; from 1 March of the year 0 to 1 January 1970.
CYCLE, CENTURY, FOUR_YEARS, YEAR = 146_097.0, 36_524.0, 1_461.0, 365.0
FROM_MARCH_OF_YEAR_0 = 719_468.0


def seconds_by_the_clock(zone: str | None) -> str:
    """How a moment is written as a number, for whoever writes it."""
    return f"seconds from 1970-01-01T00:00 to what the clock shows{'' if zone is None else f' in {zone}'}"


@dataclass(frozen=True)
class Moments:
    """Moments as seconds since 1970 by the local clock, a float64 of any shape."""

    graph: Graph
    seconds: Value

    def days(self) -> Value:
        """Days since 1970, with their fraction."""
        return self._by("Div", self.seconds, SECONDS_OF_DAY)

    def phase_of_day(self) -> Value:
        """From 0 at midnight to 1 at the next."""
        return self._by("Div", self._since(self._day()), SECONDS_OF_DAY)

    def weekday(self) -> Value:
        """0 for Monday to 6 for Sunday."""
        since_monday = self._by("Add", self._day(), 3.0)  # 1 January 1970 was a Thursday
        weeks = self._by("Mul", self._floored(since_monday, 7.0), 7.0)
        return self.graph.op("Sub", since_monday, weeks)

    def year(self) -> Value:
        """The year in which the day lies, by whole cycles of 400 years and the years since their 1 March."""
        g = self.graph
        days = self._by("Add", self._day(), FROM_MARCH_OF_YEAR_0)
        cycle = self._floored(days, CYCLE)
        within = g.op("Sub", days, self._by("Mul", cycle, CYCLE))
        # Less the leap days that have passed, every year has 365 days.
        leapless = g.op("Sub", within, self._floored(within, FOUR_YEARS - 1))
        leapless = g.op("Add", leapless, self._floored(within, CENTURY))
        leapless = g.op("Sub", leapless, self._floored(within, CYCLE - 1))
        year = self._floored(leapless, YEAR)
        first_day = g.op("Add", self._by("Mul", year, YEAR), self._floored(year, 4.0))
        day_of_year = g.op("Sub", within, g.op("Sub", first_day, self._floored(year, 100.0)))  # from 1 March on
        after_new_year = g.op("GreaterOrEqual", day_of_year, np.float64(306))
        year = g.op("Add", year, g.cast(after_new_year, np.float64))
        return g.op("Add", year, self._by("Mul", cycle, 400.0))

    def phase_of_year(self) -> Value:
        """From 0 at New Year to 1 at the next."""
        g, year = self.graph, self.year()
        begin, end = self._new_year(year), self._new_year(self._by("Add", year, 1.0))
        return g.op("Div", self._since(begin), self._by("Mul", g.op("Sub", end, begin), SECONDS_OF_DAY))

    def waves(self, phase: Value, harmonic: int = 1) -> tuple[Value, Value]:
        """Sine and cosine of a multiple of a position in a cycle; older versions of onnxruntime have no cosine here."""
        turn = self._by("Mul", phase, 2 * np.pi * harmonic)
        return self.graph.op("Sin", turn), self.graph.op("Sin", self._by("Add", turn, np.pi / 2))

    def _since(self, day: Value) -> Value:
        """Seconds from the beginning of a day, of which none is lost, as parts of a distant day would be."""
        return self.graph.op("Sub", self.seconds, self._by("Mul", day, SECONDS_OF_DAY))

    def _day(self) -> Value:
        return self.graph.op("Floor", self.days())

    def _new_year(self, year: Value) -> Value:
        """Days from 1970 to the first day of a year: 365 of each, and a leap day of every 4 but 100 but 400 years."""
        g, past = self.graph, self._by("Sub", year, 1.0)
        leap_days = g.op("Sub", self._floored(past, 4.0), self._floored(past, 100.0))
        leap_days = g.op("Add", leap_days, self._floored(past, 400.0))
        return g.op("Add", self._by("Mul", self._by("Sub", year, 1970.0), YEAR), self._by("Sub", leap_days, 477.0))

    def _floored(self, x: Value, divisor: float) -> Value:
        return self.graph.op("Floor", self._by("Div", x, divisor))

    def _by(self, kind: str, x: Value, number: float) -> Value:
        return self.graph.op(kind, x, np.float64(number))
