"""The tables of results/classification.md and classification-selection.md, made from the stored lines alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from accuracy_report import Runs
from class_tables import CLASS_TABLES

from reproduction.tables.splits import geometric_mean
from reproduction.tables.typeset import markdown, stamp

Line = dict[str, Any]

ASKED, LEVELS = 0.9, (0.8, 0.9, 0.95, 0.99)
DEFAULT, UNMATCHED, BY_CLASS = "coverwell", "unmatched", "by-class"
OURS = (DEFAULT, UNMATCHED, BY_CLASS, "adaptive")
OWN_SETS, BY_RANKS = ("mc-dropout", "deep-ensemble", "temperature"), "-split"
BASELINES = (*OWN_SETS, *(name + BY_RANKS for name in OWN_SETS))
TOLERANCE, N_ERRORS = 0.005, 3
FEWEST = 30
SMALLEST = 1e-5  # the last digit that is stored, below which there are no ratios
KINDS = {"sets": "as they are", "never_empty": "never empty"}
# What would do.
SIZE, BRIER, ACCURACY, WORST_CLASS, WORST_SIZE, DIGITS_SECONDS = 0.95, 0.98, -0.01, -0.03, 0.85, 20.0
METHODS = """\
Ours: the default, whose sets are never empty, and its sets with `allow_empty=True`, which are compared with those of
peers as they give them; for the sets that are never empty, the likeliest class was added to every set of a peer. Peers
run with their documented defaults around scikit-learn's histogram gradient boosting (*boosting*) and a forest of 200
trees. MAPIE: LAC, APS and RAPS with a fifth of the training rows kept for ranks (where that is too few for a level,
the set is full), and LAC and APS across 5 folds; for two classes it has LAC alone. TorchCP: SAPS with the same rows
kept. crepes: ranks of out-of-bag rows, of all classes together or each by itself. venn-abers: across 5 folds for up to
three classes, else with a fifth of the rows kept. scikit-learn: `CalibratedClassifierCV` with 5 folds. Text is one-hot
encoded for peers; gaps are left to the trees. Baselines, peers too: `coverwell.baselines` with its defaults, with the
smallest sets that have the level by their own probabilities, or (*-split*) by the ranks of a fifth of the rows."""


class Best(NamedTuple):
    """The best peer of a table by some measure, its mean and ours on the same splits."""

    method: str
    theirs: float
    ours: float


def report(lines: Sequence[Line]) -> str:
    """All tables as Markdown."""
    failed = [line for line in lines if "error" in line]
    runs = Runs({**line, "trial": line["split"]} for line in lines if "error" not in line)
    tables = [data for data in CLASS_TABLES if runs.of(DEFAULT, data)]
    if not tables:
        return "# Classification\n\nNo fit of ours is stored.\n"
    counts = sorted({len(runs.of(DEFAULT, data)) for data in tables})
    n_splits = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    parts = [
        "# Classification",
        "Made by `make bench-classification` from `classification.jsonl` in this folder: random 80/20 splits from 0, "
        f"the same share of each class in both parts; {n_splits} splits of each of {len(tables)} tables, and where a "
        "method was run on fewer, those. Matching and scores of classes were compared out of fold on split 100 alone, "
        "in `classification-selection.md`, when training ends on splits 100 to 104. "
        f"{stamp(runs.of(DEFAULT, tables[0]))}; peers: {packages(runs.lines)}.",
        METHODS,
        *verdicts(runs, tables),
        *over_the_best(runs, tables),
        *over_each(runs, tables),
        *coverage(runs, tables),
        *conditional(runs, tables),
        *matched(runs, tables),
        *seconds(runs, tables),
        *failures(failed),
    ]
    return "\n\n".join(parts) + "\n"


def packages(lines: Iterable[Line]) -> str:
    found = {
        f"{name} {number}"
        for line in lines
        if line["method"] not in (*OURS, *BASELINES)
        for name, number in line["versions"].items()
    }
    return ", ".join(sorted(found))


def peers_of(runs: Runs, data: str) -> list[str]:
    return [method for method in runs.methods([data]) if method not in OURS]


def paired(runs: Runs, method: str, data: str, other: str = DEFAULT) -> tuple[list[Line], list[Line]]:
    """The lines of both methods on the splits that both have."""
    of_other = {line["split"]: line for line in runs.of(other, data)}
    own = [line for line in runs.of(method, data) if line["split"] in of_other]
    return own, [of_other[line["split"]] for line in own]


def mean(lines: Sequence[Line], value: Callable[[Line], float | None]) -> float:
    found = [number for line in lines if (number := value(line)) is not None]
    return statistics.fmean(found) if found else math.nan


def at(measure: str, level: float = ASKED, kind: str = "sets") -> Callable[[Line], float | None]:
    """Reads a measure of sets at a level; None where a line has no such level."""

    def value(line: Line) -> float | None:
        if measure not in line.get(kind, {}) or level not in line["levels"]:
            return None
        return float(line[kind][measure][line["levels"].index(level)])

    return value


def slack(lines: Sequence[Line], level: float) -> float:
    """How far the mean coverage of exact ranks may lie from the level by chance, and a bit."""
    line = lines[0]
    error = math.sqrt(level * (1 - level) * (1 / line["n_test"] + 1 / line["n_train"]) / len(lines))
    return TOLERANCE + N_ERRORS * error


def valid(lines: Sequence[Line], kind: str = "sets", level: float = ASKED) -> bool:
    """Whether sets are there and cover enough."""
    reached = mean(lines, at("coverage", level, kind))
    return not math.isnan(reached) and reached >= level - slack(lines, level)


def best(
    runs: Runs, data: str, value: Callable[[Line], float | None], *, highest: bool = False, kind: str | None = None
) -> Best | None:
    """The best peer among those with such sets that cover enough, if a kind of sets is given."""
    most, found = n_compared(runs, data), []
    for method in peers_of(runs, data):
        theirs, ours = paired(runs, method, data)
        if theirs and len(theirs) == most and not (kind and not valid(theirs, kind)):
            found.append(Best(method, mean(theirs, value), mean(ours, value)))
    found = [one for one in found if not math.isnan(one.theirs)]
    return (max if highest else min)(found, key=lambda one: one.theirs) if found else None


def n_compared(runs: Runs, data: str) -> int:
    """On how many splits peers are compared; those that were run on fewer are left out."""
    return max((len(paired(runs, method, data)[0]) for method in peers_of(runs, data)), default=0)


def bests(runs: Runs, tables: Sequence[str]) -> dict[str, dict[str, Best]]:
    """By measure and table; tables without a peer are left out."""
    found: dict[str, dict[str, Best]] = {name: {} for name in (*KINDS, "brier", "accuracy")}
    for data in tables:
        of_table = {kind: best(runs, data, at("size", kind=kind), kind=kind) for kind in KINDS}
        of_table["brier"] = best(runs, data, lambda line: line["brier"])
        of_table["accuracy"] = best(runs, data, lambda line: line["accuracy"], highest=True)
        for name, one in of_table.items():
            if one is not None:
                found[name][data] = one
    return found


def ratio(one: Best) -> float:
    return max(one.ours, SMALLEST) / max(one.theirs, SMALLEST)


def of_all(found: dict[str, Best]) -> str:
    ratios = [ratio(one) for one in found.values()]
    if not ratios:
        return "-"
    spread = f"median {statistics.median(ratios):.3f}, worst {max(ratios):.2f}"
    return f"{geometric_mean(ratios):.3f} ({spread}; {len(ratios)} tables)"


def verdicts(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """What was asked, and what was found."""
    found, rows = bests(runs, tables), []
    for kind, words in KINDS.items():
        rows.append(
            [
                f"mean set size at {ASKED} over the best valid peer's, sets {words}",
                f"at most {SIZE}",
                of_all(found[kind]),
            ]
        )
    rows.append(["Brier score over the best peer's", f"at most {BRIER}", of_all(found["brier"])])
    differences = {data: one.ours - one.theirs for data, one in found["accuracy"].items()}
    if differences:
        least = min(differences, key=lambda data: differences[data])
        short = sum(difference < ACCURACY for difference in differences.values())
        average = statistics.fmean(differences.values())
        text = f"mean {average:+.4f}, worst {differences[least]:+.3f} ({least}), below in {short} tables"
        rows.append(["accuracy less the best peer's", f"at least {ACCURACY:g}", text])
    for level in LEVELS:
        off = [data for data in tables if (miss := missed(runs.of(DEFAULT, data), level)) is not None and miss]
        rows.append(
            [
                f"coverage at {level:g}, sets that may be empty",
                "within the tolerance",
                f"off in {len(off)}: {', '.join(off) or '-'}",
            ]
        )
    worst_class = worst(tables, lambda data: of_class(runs.of(BY_CLASS, data)))
    rows.append(
        [
            f'worst class of {FEWEST} rows at {ASKED}, `hold_for="class"`',
            f"at least {ASKED + WORST_CLASS:g}",
            worst_class,
        ]
    )
    for kind, words in KINDS.items():
        size = worst(tables, lambda data, kind=kind: of_size(runs.of(DEFAULT, data), kind))
        rows.append([f"worst size of {FEWEST} rows at {ASKED}, sets {words}", f"at least {WORST_SIZE}", size])
    if runs.of(DEFAULT, "digits"):
        taken = mean(runs.of(DEFAULT, "digits"), lambda line: line["seconds"])
        rows.append(["seconds of a default fit of digits, one thread", f"at most {DIGITS_SECONDS:g}", f"{taken:.1f}"])
    yield "## What was asked, and what was found"
    yield markdown(["", "asked", "found"], rows)


def worst(tables: Sequence[str], value: Callable[[str], float]) -> str:
    found = {data: value(data) for data in tables}
    known = {data: one for data, one in found.items() if not math.isnan(one)}
    if not known:
        return "-"
    least = min(known, key=lambda data: known[data])
    return f"{known[least]:.3f} ({least}; {len(known)} tables)"


def missed(lines: Sequence[Line], level: float, kind: str = "sets") -> float | None:
    """By how much coverage lies outside its tolerance, 0 if it does not; None without lines."""
    reached = mean(lines, at("coverage", level, kind)) if lines else math.nan
    if math.isnan(reached):
        return None
    distance = reached - level
    allowed = slack(lines, level)
    if distance > 0:  # sets cover more where some may not be empty, and where scores are the same
        strictly = mean(lines, at("strictly", level)) if kind == "sets" else 0.0
        distance = max(0.0, min(distance, strictly - level))
    return distance if abs(distance) > allowed else 0.0


def over_the_best(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """Ours and the best peer, table by table."""
    found, rows = bests(runs, tables), []
    for data in tables:
        cells = []
        for name in (*KINDS, "brier"):
            one = found[name].get(data)
            cells += [f"{one.ours:.3f}", one.method, f"{ratio(one):.3f}"] if one else ["-"] * 3
        one = found["accuracy"].get(data)
        cells += [f"{one.ours:.3f}", one.method, f"{one.ours - one.theirs:+.3f}"] if one else ["-"] * 3
        first = runs.of(DEFAULT, data)[0]
        about = (
            f"{len(first['rows_of_class'])}",
            f"{first['n_train'] + first['n_test']}",
            f"{n_compared(runs, data)}",
        )
        rows.append([data, *about, *cells])
    yield "## Over the best peer of each table"
    yield (
        f"Means over the splits. Set size at {ASKED}: the best peer has the smallest sets of those whose mean coverage "
        f"is at least {ASKED} - ({TOLERANCE} + {N_ERRORS} standard errors). Below 1, ours is better."
    )
    heads = ["size", "best peer", "ratio", "never empty", "best peer", "ratio", "Brier", "best peer", "ratio"]
    yield markdown(["", "classes", "rows", "splits", *heads, "accuracy", "best peer", "difference"], rows)


def over_each(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """Each method over the default."""
    rows = []
    for method in runs.methods(tables):
        if method == DEFAULT:
            continue
        pairs = [pair for data in tables if (pair := paired(runs, method, data))[0]]
        cells = [ratio_of(pairs, at("size", kind=kind)) for kind in KINDS]
        cells += [ratio_of(pairs, lambda line: line["brier"]), ratio_of(pairs, lambda line: line["log_loss"])]
        difference = statistics.fmean(mean(a, accuracy) - mean(b, accuracy) for a, b in pairs)
        reached = [mean(own, at("coverage")) for own, _ in pairs]
        known = [one for one in reached if not math.isnan(one)]
        n_valid = sum(valid(own) for own, _ in pairs)
        span = f"{min(known):.2f} to {max(known):.2f}, {n_valid} valid" if known else "-"
        excess = statistics.fmean(mean(own, excess_error) for own, _ in pairs)
        rows.append(
            [
                method,
                f"{len(pairs)}",
                *cells,
                f"{difference:+.3f}",
                span,
                f"{excess:+.3f}",
                ratio_of(pairs, lambda line: line["seconds"]),
            ]
        )
    excess = statistics.fmean(mean(runs.of(DEFAULT, data), excess_error) for data in tables)
    yield "## Each method over ours"
    yield (
        "Geometric means over the tables that a method was run on; above 1, ours is better. Reliability error: of the "
        f"probabilities of the likeliest class, less what is to be expected by chance; ours {excess:+.3f}."
    )
    heads = ["tables", "size", "size, never empty", "Brier", "log loss", "accuracy", f"coverage at {ASKED}"]
    yield markdown(["method over ours", *heads, "reliability error", "fit time"], rows)


def accuracy(line: Line) -> float:
    return float(line["accuracy"])


def excess_error(line: Line) -> float:
    return float(line["reliability_error"] - line["expected_reliability_error"])


def ratio_of(pairs: Sequence[tuple[list[Line], list[Line]]], value: Callable[[Line], float | None]) -> str:
    means = [(mean(own, value), mean(ours, value)) for own, ours in pairs]
    ratios = [max(own, SMALLEST) / max(ours, SMALLEST) for own, ours in means if own >= 0 and ours >= 0]  # not of NaN
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


def coverage(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """The coverage of ours at every level."""
    rows = []
    for data in tables:
        lines, cells = runs.of(DEFAULT, data), []
        for kind in KINDS:
            for level in LEVELS:
                miss = missed(lines, level, kind)
                reached = "-" if miss is None else f"{mean(lines, at('coverage', level, kind)):.3f}"
                cells.append(reached + (f" **{miss:+.3f}**" if miss else ""))
        empty, full = (mean(lines, at(name)) for name in ("empty", "full"))
        rows.append([data, *cells, f"{slack(lines, ASKED):.3f}", f"{empty:.3f}", f"{full:.3f}"])
    yield "## Coverage of ours"
    yield (
        f"Bold: by how much it is off, beyond {TOLERANCE} + {N_ERRORS} sqrt(p (1 - p) (1 / n_test + 1 / n_train) / "
        "splits). Sets that are never empty may cover more than asked; others where several rows have the same score, "
        "if no larger share than asked has a score below its threshold. The last columns: that tolerance, and the "
        f"shares of empty and of full sets, all at {ASKED}."
    )
    heads = [f"{level:g}{extra}" for extra in ("", ", never empty") for level in LEVELS]
    yield markdown(["", *heads, "tolerance", "empty", "full"], rows)


def worst_of(lines: Sequence[Line], kind: str, hits: str, rows: str | None) -> float:
    """The lowest coverage of a class or size (but 0) that enough rows have, all splits together, at 0.9."""
    parts = [line for line in lines if ASKED in line["levels"] and kind in line]
    if not parts:
        return math.nan
    place = parts[0]["levels"].index(ASKED)
    counts = [line["rows_of_class"] if rows is None else line[kind][rows][place] for line in parts]
    inside, n = (summed(each) for each in ([line[kind][hits][place] for line in parts], counts))
    known = [k for k in np.flatnonzero(n >= FEWEST) if rows is None or k > 0]
    return min((float(inside[k] / n[k]) for k in known), default=math.nan)


def summed(parts: Sequence[Sequence[int]]) -> Any:
    found = np.zeros(max(map(len, parts)))
    for one in parts:
        found[: len(one)] += one
    return found


def of_class(lines: Sequence[Line]) -> float:
    return worst_of(lines, "sets", "hits_of_class", None)


def of_size(lines: Sequence[Line], kind: str) -> float:
    return worst_of(lines, kind, "hits_of_size", "rows_of_size")


def conditional(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """Coverage within classes and within sizes of sets."""
    rows = []
    for data in tables:
        own, held = runs.of(DEFAULT, data), runs.of(BY_CLASS, data)
        shares = [of_class(own), of_class(held), *(of_size(own, kind) for kind in KINDS)]
        sizes = [mean(own, at("size")), mean(held, at("size")) if held else math.nan]
        rival = [of_size(runs.of(method, data), "sets") for method in ("mapie-cross-lac-forest", "crepes-forest")]
        rows.append([data, *(number(one) for one in (*shares, *sizes, *rival)), f"{len(held)}"])
    yield "## Within classes and sizes of sets"
    yield (
        f"Coverage at {ASKED} of the worst class and of the worst size of sets that have {FEWEST} rows, pooled over "
        "the splits."
    )
    heads = ["worst class", '`hold_for="class"`', "worst size", "never empty", "mean size", '`hold_for="class"`']
    yield markdown(["", *heads, "worst size, MAPIE cross LAC forest", "crepes", "splits with `hold_for`"], rows)


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def matched(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """What matching does."""
    common = [data for data in tables if paired(runs, UNMATCHED, data)[0]]
    if not common:
        return
    rows = []
    sums: dict[str, list[float]] = {"size": [], "brier": [], "log_loss": []}
    for data in common:
        without, own = paired(runs, UNMATCHED, data)
        readers = {"size": at("size"), "brier": lambda line: line["brier"], "log_loss": lambda line: line["log_loss"]}
        cells = []
        for name, reader in readers.items():
            a, b = mean(own, reader), mean(without, reader)
            sums[name].append(max(a, SMALLEST) / max(b, SMALLEST))
            cells.append(f"{sums[name][-1]:.3f}")
        cells += [number(of_size(lines, "never_empty")) for lines in (own, without)]
        cells.append(f"{mean(own, accuracy) - mean(without, accuracy):+.3f}")
        rows.append([data, f"{len(own)}", *cells])
    means = [f"{geometric_mean(ratios):.3f}" for ratios in sums.values()]
    rows.append(["geometric mean", "", *means, "", "", ""])
    yield "## Matched against unmatched"
    yield "Ratios of the default to `matching=None`, below 1: matching helps; coverage of the worst size of sets."
    heads = ["size", "Brier", "log loss", "worst size, matched", "unmatched", "accuracy"]
    yield markdown(["", "splits", *heads], rows)


def seconds(runs: Runs, tables: Sequence[str]) -> Iterator[str]:
    """Fit times beside those of peers."""
    shown = [DEFAULT, "boosting", "forest", "sigmoid-boosting", "mapie-lac-forest", "mapie-cross-lac-boosting"]
    shown += ["mapie-cross-lac-forest", "crepes-forest", "venn-abers-boosting", *OWN_SETS]
    rows = [
        [
            data,
            *(
                number(mean(runs.of(method, data), lambda line: line["seconds"])) if runs.of(method, data) else "-"
                for method in shown
            ),
        ]
        for data in tables
    ]
    yield "## Fit times"
    yield "CPU seconds on one thread, peers' with their predictions for the test rows."
    yield markdown(["", *shown], rows)


def failures(failed: Sequence[Line]) -> Iterator[str]:
    if failed:
        names = sorted({f"{line['method']} on {line['data']} ({line['error']})" for line in failed})
        yield "## What failed"
        yield "\n".join(f"- {name}" for name in names)


def selection_report(lines: Sequence[Line]) -> str:
    """Scores out of fold, and each setting over the default."""
    runs = Runs({**line, "trial": line["split"]} for line in lines)
    readers: dict[str, Callable[[Line], float]] = {
        f"coverage at {ASKED}": lambda line: line["coverage"][line["levels"].index(ASKED)],
        f"size at {ASKED}": lambda line: line["size"][line["levels"].index(ASKED)],
        "Brier": lambda line: line["brier"],
        "log loss": lambda line: line["log_loss"],
        "accuracy": accuracy,
        "seconds": lambda line: line["seconds"],
    }
    tables = [data for data in CLASS_TABLES if runs.of(DEFAULT, data)]
    over = []
    for method in runs.methods(tables):
        pairs = [pair for data in tables if (pair := paired(runs, method, data))[0]]
        over.append([method, f"{len(pairs)}", *(ratio_of(pairs, reader) for reader in readers.values())])
    rows = [
        [
            data,
            f"{len(runs.of(DEFAULT, data))}",
            *(number(mean(runs.of(DEFAULT, data), reader)) for reader in readers.values()),
        ]
        for data in tables
    ]
    parts = [
        "# Classification: scores that chose settings",
        "Made by `make bench-classification` from `classification-selection.jsonl` in this folder: out of fold, on the "
        "training rows of splits from 100. Sets are never empty. *longer*: the lines of an earlier rule, by which "
        "rounds went on while a score of either network fell by 4 or 5 % of itself; the other settings used it too.",
        "## Each setting over the default",
        markdown(["", "tables", *readers], over),
        "## The default",
        markdown(["", "splits", *readers], rows),
    ]
    return "\n\n".join(parts) + "\n"
