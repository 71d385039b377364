"""Table 2 of the paper beside ours, in both readings of the series, and what it was to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from reproduction.data.series import SERIES
from reproduction.domains.series import COVERAGE, INTERPOLATED, READINGS, readings_of, stand_in
from reproduction.lines import Line
from reproduction.methods import BASELINE, OURS, SERIES_METHODS, title_of
from reproduction.tables import typeset
from reproduction.tables.typeset import LEGENDS, PAPER, Estimate, Record, Target, markdown, number, with_error

MEASURES = LEGENDS["series_measures"]
UNITS = LEGENDS["series_units"]
IN_UNIT = {"traffic": 1e8}  # how many of its own units the unit of a column is
HEADS = [f"{data} ({unit})" for data, unit in UNITS.items()]
SHARES = ("calibration_error", "worst_rolling_coverage")  # what has no unit
INTERVALS = {"static": "static", "live": "live", "fixed_rate": "live, rate 0.05"}
METHODS = {method.slug: method for method in SERIES_METHODS}
NUMBERS, TEXTS = PAPER["table2"], LEGENDS["table2"]
PAPERS_OWN = ("sigma-fit", "iqr-fit")
PAPERS_BASELINES = tuple(method for method in NUMBERS if method not in PAPERS_OWN)
# A row of the paper stands above the first of our rows that answers it.
PAPER_ABOVE = {slug: slug for slug in PAPERS_BASELINES} | {f"{own}-published": own for own in PAPERS_OWN}
EFFORT = ("method", "series", "reading", "train", "judged", "rate", "rounds", "refits", "fit s", "test s")
COLUMNS = "method title data reading metric intervals trials mean error paper target bound reached"


class Results(typeset.SeedResults):
    """Result lines by method, series and reading; a series without gaps is the same in both readings."""

    def __init__(self, lines: Iterable[Line]) -> None:
        super().__init__(lines, SERIES_METHODS)
        self.data = [name for name in SERIES if any(line["data"] == name for line in self.lines)]
        if not self.data:
            raise ValueError(
                f"results on at least one of {', '.join(SERIES)} are needed, got none; run the study first"
            )

    def of(self, method: str, data: str, reading: str) -> list[Line]:
        """One method's lines on one series, by seed, or those of the method whose run it would repeat."""
        shown = stand_in(METHODS[method], data) if method in METHODS else method
        return self.where(method=shown, data=data, reading=readings_of(data, (reading,))[0])

    def estimate(self, method: str, data: str, reading: str, name: str, intervals: str = "live") -> Estimate | None:
        """Mean over seeds in the unit of the column, and its standard error; None where there is no such run."""
        unit = 1.0 if name in SHARES else IN_UNIT.get(data, 1.0)
        runs = [line for line in self.of(method, data, reading) if intervals in line]
        return typeset.mean_of_seeds([measure(line, name, intervals) / unit for line in runs])


def measure(line: Line, name: str, intervals: str) -> float:
    """One measure of a line; the error is that of the forecasts, whatever the intervals."""
    if name == "rmse":
        return float(line["rmse"])
    if name == "calibration_error":
        return abs(float(line[intervals]["coverage"]) - float(line["coverage"]))
    return float(line[intervals][name])


def papers(method: str, data: str, name: str) -> float | None:
    """The paper's number, whether ours is as published or a variant; None where it has none."""
    base = next((slug for slug in NUMBERS if method == slug or method.startswith(f"{slug}-")), None)
    numbers = None if base is None else NUMBERS[base].get(name)
    return None if numbers is None else numbers[SERIES.index(data)]


def title(method: str) -> str:
    """The name that readers see."""
    return title_of(method, SERIES_METHODS)


# What it was to show --------------------------------------------------------------------------------------------------

OWN = tuple(method.slug for method in SERIES_METHODS if method.kind == OURS)
UNIVARIATE = tuple(slug for slug in OWN if not METHODS[slug].covariates)


@dataclass(frozen=True)
class SeriesTarget(Target):
    """A bound for the live intervals of some methods, to be held on so many series; None: shown for comparison."""

    needed: int | None = len(SERIES)
    methods: tuple[str, ...] = OWN

    def verdict(self, n_reached: int, n_compared: int) -> str:
        """Whether it is reached on enough series, or can still be."""
        if self.needed is None:
            return ""
        if n_reached >= self.needed:
            return "reached"
        return "missed" if n_compared - n_reached > len(SERIES) - self.needed else "open"


def _best_autoregression(found: Results, data: str, reading: str) -> float | None:
    """The lower one of AR(48)'s interval scores: at the rate that was chosen, and at 0.05."""
    scores = [found.estimate("ar48", data, reading, "interval_score", rate) for rate in ("live", "fixed_rate")]
    return min((one.mean for one in scores if one is not None), default=None)


def _papers_best(*methods: str) -> Callable[[Results, str, str], float]:
    return lambda found, data, reading: min(NUMBERS[method]["rmse"][SERIES.index(data)] for method in methods)


TARGETS = (
    SeriesTarget("CE at most 0.004", "calibration_error", lambda *where: 0.004),
    SeriesTarget(
        "coverage of any 500 steps in a row at least 0.90", "worst_rolling_coverage", lambda *where: 0.90, at_least=True
    ),
    SeriesTarget(
        "interval score below AR(48) with the same live calibration",
        "interval_score",
        _best_autoregression,
        strictly=True,
        needed=5,
    ),
    SeriesTarget(
        "RMSE below every baseline of the paper, from the series alone",
        "rmse",
        _papers_best(*PAPERS_BASELINES),
        strictly=True,
        needed=5,
        methods=UNIVARIATE,
    ),
    SeriesTarget(
        "RMSE at most the paper's best, with what is seen beside the series",
        "rmse",
        _papers_best(*PAPERS_OWN),
        needed=None,
        methods=tuple(slug for slug in OWN if slug not in UNIVARIATE),
    ),
)


def compared(found: Results, target: SeriesTarget, method: str, reading: str) -> dict[str, Record]:
    """Value, bound and whether it holds by series, wherever there are runs; values are means over seeds."""
    by_series: dict[str, Record] = {}
    for data in SERIES:
        value, bound = found.estimate(method, data, reading, target.measure), target.bound(found, data, reading)
        if value is not None and bound is not None:
            by_series[data] = {"mean": value.mean, "bound": bound, "reached": target.holds(value.mean, bound)}
    return by_series


def target_sections(found: Results, reading: str) -> Iterator[str]:
    """Markdown: one table for each target; a miss is shown as a miss."""
    asked = {None: "for comparison, not asked", len(SERIES): "asked of all six series"}
    for target in TARGETS:
        bounds = [target.bound(found, data, reading) for data in SERIES]
        rows = [["*bound*", *["-" if bound is None else _four_digits(bound) for bound in bounds], "", ""]]
        for method in [method for method in target.methods if method in found.methods]:
            by_series = compared(found, target, method, reading)
            missed = {data: "" if one["reached"] else " missed" for data, one in by_series.items()}
            cells = [
                f"{_four_digits(by_series[data]['mean'])}{missed[data]}" if data in by_series else "-"
                for data in SERIES
            ]
            n_reached = list(missed.values()).count("")
            verdict = target.verdict(n_reached, len(missed))
            rows.append([title(method), *cells, f"{n_reached} of {len(missed)}", verdict])
        if len(rows) > 1:
            words = asked.get(target.needed, f"asked of {target.needed} of six series")
            yield f"**{target.name[0].upper()}{target.name[1:]}**: {words}."
            yield markdown(["live", *(SERIES if target.measure in SHARES else HEADS), "reached on", "verdict"], rows)


def _four_digits(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:.4f}" if value < 1 else number(value)


# The tables -----------------------------------------------------------------------------------------------------------


def write(lines: Iterable[Line], folder: Path) -> list[Path]:
    """Write `table2.md` and `table2.csv`; returns both paths."""
    found = Results(lines)
    return typeset.write(folder, {"table2.md": _document(found), "table2.csv": typeset.csv(COLUMNS, _records(found))})


def _document(found: Results) -> Iterator[str]:
    trained = [method for method in found.methods if method not in METHODS or METHODS[method].model is not None]
    seeds = typeset.span({len(found.of(m, d, r)) for m in trained for d in found.data for r in READINGS} - {0})
    most = METHODS["sigma-fit-covariates-refit"].settings
    yield f"# Table 2: one-step forecasts of six series at {COVERAGE} asked, the paper's and ours"
    yield TEXTS["made"].format(past=most["past"], seeds=f"; {seeds} seed(s) for each network" if seeds else "")
    yield f"Ran on: {typeset.stamp(found.lines)}."
    yield TEXTS["legend"].format(every=most["refit_every"])
    for reading in READINGS:
        yield f"## {TEXTS[reading]}"
        if reading == INTERPOLATED:
            yield "Series without gaps (nsw2013, tas2016, traffic) are the same runs as above."
        yield "### Against the targets"
        yield from target_sections(found, reading)
        for name, words in MEASURES.items():
            yield f"### {words}"
            yield _table(found, reading, name)
            if name == "rmse" and reading == INTERPOLATED:
                yield _fairness(found)
    yield "## Rate, rounds, refits and seconds"
    yield _effort(found)


def _table(found: Results, reading: str, name: str) -> str:
    rows = []
    for method in METHODS:
        above = PAPER_ABOVE.get(method)
        if above is not None and name in NUMBERS[above]:
            rows.append([title(above), "paper", *[f"{value:g}" for value in NUMBERS[above][name]]])
        for kind, whose in _kinds(name).items():
            cells = [found.estimate(method, data, reading, name, kind) for data in SERIES]
            if any(one is not None for one in cells):
                rows.append([title(method), whose, *[with_error(one, share=name in SHARES) for one in cells]])
    return markdown(["method", "whose", *(SERIES if name in SHARES else HEADS)], rows)


def _kinds(name: str) -> dict[str, str]:
    """The intervals that a measure has, in words; forecasts are the same for all."""
    return {"live": "ours"} if name == "rmse" else {kind: f"ours, {words}" for kind, words in INTERVALS.items()}


def _fairness(found: Results) -> str:
    """How often a baseline of ours is worse than the paper's."""
    verdicts = {}
    for method in [method.slug for method in SERIES_METHODS if method.kind == BASELINE]:
        for data in SERIES:
            own, paper = found.estimate(method, data, INTERPOLATED, "rmse"), papers(method, data, "rmse")
            if own is not None and paper is not None:
                verdicts[f"{title(method)} on {data} ({number(own.mean)} to {paper:g})"] = own.mean > paper
    return typeset.fairness(TEXTS["fair"], verdicts)


def _effort(found: Results) -> str:
    rows = []
    for method, data, reading in product(found.methods, found.data, READINGS):
        runs = found.of(method, data, reading) if reading in readings_of(data) else []
        for line in [line for line in runs[:1] if line["method"] == method]:
            counts = [str(line[name]) for name in ("n_train", "n_test", "rounds", "n_refits")]
            seconds = [f"{line['fit_seconds']:.1f}", f"{line['backtest_seconds']:.1f}"]
            rows.append([title(method), data, reading, *counts[:2], f"{line['rate']:g}", *counts[2:], *seconds])
    return markdown(EFFORT, rows)


def _records(found: Results) -> Iterator[Record]:
    """In the units of the columns: traffic in 1e8 bits."""
    for reading in READINGS:
        for method, data, name in product(found.methods, found.data, MEASURES):
            for kind in _kinds(name):
                own = found.estimate(method, data, reading, name, kind)
                if own is not None:
                    intervals, paper = "" if name == "rmse" else kind, papers(method, data, name)
                    yield _record(method, data, reading, name, intervals) | {**vars(own), "paper": paper}
        for target in TARGETS:
            for method in target.methods:
                for data, one in compared(found, target, method, reading).items():
                    yield _record(method, data, reading, target.measure, "live") | {"target": target.name, **one}


def _record(method: str, data: str, reading: str, name: str, intervals: str) -> Record:
    where = {"method": method, "title": title(method), "data": data, "reading": reading}
    return {**where, "metric": name, "intervals": intervals}
