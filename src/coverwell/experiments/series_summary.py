"""Arithmetic on the result lines of series: which belong together, their means over seeds, and the paper's numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from coverwell.experiments.results import Line
from coverwell.experiments.series_data import LONELY, SERIES, readings_of
from coverwell.experiments.series_methods import SERIES_METHODS, Networks
from coverwell.experiments.summary import Estimate

__all__ = [
    "INTERVALS",
    "LEGEND_NAMES",
    "MEASURES",
    "PAPER",
    "PAPERS_BASELINES",
    "UNITS",
    "SeriesSelection",
    "in_unit",
    "measure",
    "papers",
    "stand_in",
    "title",
]

MEASURES = ("rmse", "calibration_error", "width", "interval_score")
LEGEND_NAMES = {
    "rmse": "RMSE",
    "calibration_error": "CE, |coverage - 0.95|",
    "width": "AW, average width",
    "interval_score": "Interval score at 0.95",
}
INTERVALS = {"static": "static", "live": "live", "fixed_rate": "live, rate 0.05"}
# The unit of a column, and how many of the series' own units it is.
UNITS = {
    "nsw2013": ("MW", 1.0),
    "bike sharing": ("rentals", 1.0),
    "tas2016": ("MW", 1.0),
    "traffic": ("1e8 bits", 1e8),
    "beijing pm2.5": ("ug/m3", 1.0),
    "air quality": ("mg/m3", 1.0),
}
# Table 2 of the paper, columns as in SERIES, traffic in 1e8 bits: RMSE, CE and AW at 0.95 asked. It has no interval
# scores. Its rows of Concrete Dropout and BNN are the same, number by number.
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "mc-dropout": {
        "rmse": (125.48, 62.68, 22.12, 2.03, 22.42, 0.66),
        "calibration_error": (0.04, 0.30, 0.196, 0.037, 0.177, 0.02),
        "width": (587.54, 90.94, 50.37, 8.39, 38.53, 2.52),
    },
    "concrete-dropout": {
        "rmse": (153.16, 64.81, 23.11, 2.25, 22.46, 0.65),
        "calibration_error": (0.046, 0.277, 0.145, 0.073, 0.12, 0.105),
        "width": (696.19, 96.67, 53.58, 8.93, 48.42, 2.73),
    },
    "quantiles": {
        "rmse": (131.18, 65.19, 23.44, 2.07, 22.45, 0.77),
        "calibration_error": (0.07, 0.22, 0.19, 0.07, 0.11, 0.241),
        "width": (533.31, 99.34, 49.17, 8.6, 49.17, 2.71),
    },
    "bnn": {
        "rmse": (153.16, 64.81, 23.11, 2.25, 22.46, 0.65),
        "calibration_error": (0.046, 0.277, 0.145, 0.073, 0.12, 0.105),
        "width": (696.19, 96.67, 53.58, 8.93, 48.42, 2.73),
    },
    "hnn": {
        "rmse": (124.59, 64.38, 22.81, 1.36, 22.83, 0.72),
        "calibration_error": (0.008, 0.004, 0.013, 0.014, 0.028, 0.041),
        "width": (452.05, 199.64, 91.24, 5.62, 98.95, 6.16),
    },
    "sigma-fit": {
        "rmse": (90.31, 58.97, 17.95, 1.27, 18.65, 0.53),
        "calibration_error": (0.002, 0.005, 0.009, 0.006, 0.011, 0.007),
        "width": (424.59, 169.81, 77.71, 5.49, 88.19, 2.99),
    },
    "iqr-fit": {
        "rmse": (94.85, 53.65, 17.64, 1.21, 19.43, 0.62),
        "calibration_error": (0.003, 0.002, 0.005, 0.003, 0.01, 0.004),
        "width": (421.63, 182.34, 80.44, 5.43, 87.48, 3.11),
    },
}
PAPERS_OWN = ("sigma-fit", "iqr-fit")
PAPERS_BASELINES = tuple(method for method in PAPER if method not in PAPERS_OWN)

_METHODS = {method.slug: method for method in SERIES_METHODS}


class SeriesSelection:
    """Result lines by method, series and reading; a series without gaps is the same in both readings."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)
        found = {line["method"] for line in self.lines}
        self.methods = [*[slug for slug in _METHODS if slug in found], *sorted(found - set(_METHODS))]
        self.data = [name for name in SERIES if any(line["data"] == name for line in self.lines)]
        if not self.data:
            raise ValueError(
                f"results on at least one of {', '.join(SERIES)} are needed, got none; run the study first"
            )

    def of(self, method: str, data: str, reading: str) -> list[Line]:
        """One method's lines on one series, by seed; none if it was not run."""
        shown = stand_in(method, data)
        (read,) = readings_of(data, (reading,))
        own = [line for line in self.lines if (line["method"], line["data"], line["reading"]) == (shown, data, read)]
        return sorted(own, key=lambda line: int(line["trial"]))

    def estimate(self, method: str, data: str, reading: str, name: str, intervals: str) -> Estimate | None:
        """Mean over seeds in the unit of the column, and its standard error; None where there is no such run."""
        values = [
            in_unit(measure(line, name, intervals), data, name)
            for line in self.of(method, data, reading)
            if intervals in line
        ]
        if not values:
            return None
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return Estimate(statistics.fmean(values), error, len(values))


def stand_in(method: str, data: str) -> str:
    """The method whose run this one is: another one's where there is nothing beside the series to see."""
    known = _METHODS.get(method)
    if isinstance(known, Networks) and known.alone is not None and data in LONELY:
        return known.alone
    return method


def title(method: str) -> str:
    """The name that readers see; a method that we do not know keeps its own."""
    return _METHODS[method].title if method in _METHODS else method


def measure(line: Line, name: str, intervals: str) -> float:
    """One measure of a line; the error is that of the forecasts, whatever the intervals."""
    if name == "rmse":
        return float(line["rmse"])
    if name == "calibration_error":
        return abs(float(line[intervals]["coverage"]) - float(line["coverage"]))
    return float(line[intervals][name])


def in_unit(value: float, data: str, name: str) -> float:
    """A measure in the unit of its column; shares have none."""
    return value / UNITS[data][1] if name in ("rmse", "width", "interval_score") else value


def papers(method: str, data: str, name: str) -> float | None:
    """The paper's number, whether ours is as published or a variant; None where it has none."""
    base = next((slug for slug in PAPER if method == slug or method.startswith(f"{slug}-")), None)
    numbers = None if base is None else PAPER[base].get(name)
    return None if numbers is None else numbers[SERIES.index(data)]
