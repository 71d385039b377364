"""What Table 2 was to show, computed from its lines; a miss is shown as a miss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coverwell.experiments.series_data import SERIES
from coverwell.experiments.series_methods import OURS, SERIES_METHODS, Networks
from coverwell.experiments.series_summary import PAPER, PAPERS_BASELINES, UNITS, SeriesSelection, title
from coverwell.experiments.typeset import markdown, number

__all__ = ["TARGETS", "Judged", "Target", "judge", "records", "sections"]

Bound = Callable[[SeriesSelection, str, str], float | None]  # of the lines, a series and a reading

OWN = tuple(method.slug for method in SERIES_METHODS if method.kind == OURS)
UNIVARIATE = tuple(
    method.slug
    for method in SERIES_METHODS
    if isinstance(method, Networks) and method.kind == OURS and not (method.calendar or method.past_covariates)
)


def _best_autoregression(chosen: SeriesSelection, data: str, reading: str) -> float | None:
    """The lower one of AR(48)'s interval scores: at the rate that was chosen, and at 0.05."""
    found = [chosen.estimate("ar48", data, reading, "interval_score", rate) for rate in ("live", "fixed_rate")]
    means = [one.mean for one in found if one is not None]
    return min(means) if means else None


def _papers_best(*methods: str) -> Bound:
    return lambda chosen, data, reading: min(PAPER[method]["rmse"][SERIES.index(data)] for method in methods)


@dataclass(frozen=True)
class Target:
    """A bound for one measure of the live intervals, to be held on so many series."""

    name: str
    measure: str
    bound: Bound
    needed: int | None  # None: shown for comparison, nothing is asked
    methods: tuple[str, ...] = OWN
    at_least: bool = False  # whether the bound is from below
    strictly: bool = False

    def holds(self, value: float, bound: float) -> bool:
        value, bound = (-value, -bound) if self.at_least else (value, bound)
        return value < bound if self.strictly else value <= bound


TARGETS = (
    Target("CE at most 0.004", "calibration_error", lambda *where: 0.004, needed=6),
    Target(
        "coverage of any 500 steps in a row at least 0.90",
        "worst_rolling_coverage",
        lambda *where: 0.90,
        needed=6,
        at_least=True,
    ),
    Target(
        "interval score below AR(48) with the same live calibration",
        "interval_score",
        _best_autoregression,
        needed=5,
        strictly=True,
    ),
    Target(
        "RMSE below every baseline of the paper, from the series alone",
        "rmse",
        _papers_best(*PAPERS_BASELINES),
        needed=5,
        methods=UNIVARIATE,
        strictly=True,
    ),
    Target(
        "RMSE at most the paper's best, with what is seen beside the series",
        "rmse",
        _papers_best("sigma-fit", "iqr-fit"),
        needed=None,
        methods=tuple(slug for slug in OWN if slug not in UNIVARIATE),
    ),
)


@dataclass(frozen=True)
class Judged:
    """A method against a target on one series."""

    value: float
    bound: float
    reached: bool

    def __str__(self) -> str:
        return f"{_number(self.value)}{'' if self.reached else ' missed'}"


def judge(chosen: SeriesSelection, target: Target, method: str, reading: str) -> dict[str, Judged]:
    """By series, wherever there are runs to judge by; values are means over seeds."""
    found = {}
    for data in SERIES:
        value = chosen.estimate(method, data, reading, target.measure, "live")
        bound = target.bound(chosen, data, reading)
        if value is not None and bound is not None:
            # Shares of whole counts: 0.9 less a rounding error is 0.9.
            found[data] = Judged(value.mean, bound, target.holds(round(value.mean, 9), round(bound, 9)))
    return found


def sections(chosen: SeriesSelection, reading: str) -> Iterator[str]:
    """Markdown: one table for each target."""
    for target in TARGETS:
        methods = [method for method in target.methods if method in chosen.methods]
        if methods:
            yield f"**{target.name[0].upper()}{target.name[1:]}**: {_asked(target)}."
            yield _table(chosen, target, methods, reading)


def records(chosen: SeriesSelection, reading: str) -> Iterator[dict[str, object]]:
    """Long form: every verdict."""
    for target in TARGETS:
        for method in target.methods:
            for data, one in judge(chosen, target, method, reading).items():
                where = {"method": method, "title": title(method), "data": data, "reading": reading}
                what = {"metric": target.measure, "intervals": "live", "mean": one.value}
                yield {**where, **what, "target": target.name, "bound": one.bound, "reached": one.reached}


def _asked(target: Target) -> str:
    if target.needed is None:
        return "for comparison, not asked"
    return "asked of all six series" if target.needed == len(SERIES) else f"asked of {target.needed} of six series"


def _table(chosen: SeriesSelection, target: Target, methods: list[str], reading: str) -> str:
    rows = [["*bound*", *[_bound(chosen, target, data, reading) for data in SERIES], "", ""]]
    for method in methods:
        found = judge(chosen, target, method, reading)
        cells = [str(found[data]) if data in found else "-" for data in SERIES]
        n_reached = sum(one.reached for one in found.values())
        rows.append([title(method), *cells, f"{n_reached} of {len(found)}", _verdict(target, n_reached, len(found))])
    return markdown(["live", *[_head(data, target.measure) for data in SERIES], "reached on", "verdict"], rows)


def _verdict(target: Target, n_reached: int, n_judged: int) -> str:
    if target.needed is None:
        return ""
    if n_reached >= target.needed:
        return "reached"
    return "missed" if n_judged - n_reached > len(SERIES) - target.needed else "open"


def _bound(chosen: SeriesSelection, target: Target, data: str, reading: str) -> str:
    bound = target.bound(chosen, data, reading)
    return "-" if bound is None else _number(bound)


def _number(value: float) -> str:
    return f"{value:.4f}" if value < 1 else number(value)


def _head(data: str, measure: str) -> str:
    return f"{data} ({UNITS[data][0]})" if measure in ("rmse", "interval_score") else data
