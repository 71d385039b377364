"""What each ingredient of the default is worth: out-of-fold scores with and without it, on splits 100 to 104.

No test row is predicted. Each candidate removes or changes one thing of the default. One JSON line per fit (candidate,
data, splits) goes to results/selection.jsonl; what is there is not run again, so that the command can be stopped and
started at will. The tables in results/selection.md are made from those lines alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from flat_settings import FIRST_VERSION, as_arguments
from machine import seconds_of
from result_lines import environment, read_lines
from table_fits import (
    LEVELS,
    QUICK_ROUNDS,
    QUICK_TABLES,
    Line,
    add_arguments,
    interval_scores,
    levels_for,
    pinball,
    run_jobs,
    size_of,
)

from coverwell import MatchedRegressor, Schedule, companions, estimator, fit_together, matched, metrics
from coverwell.calibration import Cross
from coverwell.local import Local
from coverwell.predictor import MeanTeam
from coverwell.training.device import device_from
from coverwell.training.rows import equal_rows
from reproduction.data.tables import DEVELOPMENT_TABLES, TABLES
from reproduction.domains.tables import random_split, table
from reproduction.tables.splits import geometric_mean
from reproduction.tables.typeset import markdown, stamp

SPLITS = tuple(range(100, 105))
DEFAULT = "default"
ATOMS, EQUAL_ROWS, SECOND = "atoms", "equal rows", "second network"


@dataclass(frozen=True)
class Candidate:
    """The default, changed by parameters or, where there is none, by another value of an attribute of the package."""

    settings: dict[str, Any] = field(default_factory=dict)
    attributes: tuple[tuple[Any, str, Any], ...] = ()  # (owner, name, value)
    needs: str | None = None  # what a fit by default must have used: the candidate is the default otherwise

    @contextmanager
    def in_place(self) -> Iterator[dict[str, Any]]:
        """The parameters, while the attributes have their other values."""
        with ExitStack() as changes:
            for owner, name, value in self.attributes:
                changes.enter_context(patch.object(owner, name, value))
            yield self.settings


def networks(*names: str, **changes: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Other networks in place of the default ones. Given as a parameter, there would be no second network."""
    return tuple((matched, name, replace(getattr(matched, name), **changes)) for name in names)


MEAN, INTERVAL, SECOND_MEAN = "MEAN_NETWORK", "INTERVAL_NETWORK", "SECOND_NETWORK"
CANDIDATES: dict[str, Candidate] = {
    DEFAULT: Candidate(),
    "no column scales": Candidate(attributes=networks(MEAN, INTERVAL, SECOND_MEAN, scaled=False)),
    "bins for waves": Candidate(attributes=networks(MEAN, INTERVAL, waves=0, bins=8)),
    "ReLU": Candidate(attributes=networks(MEAN, INTERVAL, SECOND_MEAN, activation="relu")),
    "dropout": Candidate(attributes=networks(MEAN, INTERVAL, SECOND_MEAN, dropout=0.1)),
    "twice as wide": Candidate(attributes=(*networks(MEAN, hidden=256), *networks(INTERVAL, hidden=128))),
    "4 layers": Candidate(attributes=networks(MEAN, INTERVAL, layers=4)),
    "no second network": Candidate(attributes=((matched, "SECOND_ROWS", (1, 0)),), needs=SECOND),
    "equal rounds": Candidate({n: FIRST_VERSION[n] for n in vars(Schedule()) if n in FIRST_VERSION}),
    "one long round": Candidate({"schedule": Schedule(max_rounds=1, mean_epochs=128, interval_epochs=64)}),
    "squared error alone": Candidate({"matching": None}),
    "Sigma Fit": Candidate({"matching": "sigma"}),
    "IQR Fit": Candidate({"matching": "iqr"}),
    "shaped by I alone": Candidate({"shape": "interval"}),
    "no companions": Candidate({"companions": ()}),
    "a third of the features": Candidate(attributes=((companions, "SHARES_OF_FEATURES", (1 / 3,)),)),
    # "cross" leaves the ends where they are: moved here too, so that only the shape differs.
    "no local shape": Candidate({"calibration": "cross"}, ((Cross, "moves_ends", True),)),
    "no atoms": Candidate(attributes=((Local, "moves_ends", False),), needs=ATOMS),
    "equal rows apart": Candidate(attributes=((estimator, "equal_rows", lambda X: None),), needs=EQUAL_ROWS),
}


def scores(
    y: np.ndarray, y_hat: np.ndarray, lower: np.ndarray, upper: np.ndarray, levels: Sequence[float] = LEVELS
) -> dict[str, float]:
    """Scores of out-of-fold predictions, bounds (row, level); "weighted" is the mean pinball loss over all levels."""
    found, at_90 = interval_scores(y, lower, upper, levels), levels.index(0.9)
    return {
        "rmse": metrics.rmse(y, y_hat),
        "score": found["interval_score"][at_90],
        "coverage": found["coverage"][at_90],
        "weighted": pinball(found["interval_score"], levels),
    }


def out_of_fold(model: MatchedRegressor, X: np.ndarray, y: np.ndarray, levels: Sequence[float]) -> Line:
    """Scores of a fitted model on the rows that its members left out, and what it used that not every fit does."""
    found, predictor = model.out_of_fold_, model.predictor_
    used = {
        ATOMS: predictor.correction.atoms is not None,
        EQUAL_ROWS: equal_rows(X) is not None,
        SECOND: any(isinstance(module, MeanTeam) for module in predictor.modules()),
    }
    return {
        **scores(y, found.prediction[:, 0], found.lower[:, 0], found.upper[:, 0], levels),
        "rounds": len(model.rounds_),
        "used": [what for what, is_used in used.items() if is_used],
    }


def run(candidate: str, name: str, splits: Sequence[int], device: str, more: dict[str, Any]) -> list[Line]:
    """One line: a candidate on some splits of a table, fitted as one stack."""
    data = table(name)
    rows = [random_split(len(data.y), split)[0] for split in splits]
    levels = levels_for(len(rows[0]))
    with CANDIDATES[candidate].in_place() as changes:
        settings = as_arguments({**changes, **more})
        models = [MatchedRegressor(levels, random_state=s, device=device, **settings) for s in splits]
        tables = [(data.X[own], data.y[own], None) for own in rows]
        seconds = seconds_of(lambda: fit_together(models, tables), device_from(device))
    each = [out_of_fold(model, X, y, levels) for model, (X, y, _) in zip(models, tables, strict=True)]
    line = {
        "candidate": candidate,
        "data": name,
        "splits": list(splits),  # also the seeds, of a stack the first one
        "levels": levels,
        **{key: [line[key] for line in each] for key in each[0]},
        "seconds": round(seconds / len(splits), 2),
        **environment(device),
    }
    return [line]


def jobs_of(candidates: Sequence[str], names: Sequence[str], splits: Sequence[int], stack: int, path: Path) -> Iterator:
    """What is not there yet, as (candidate, data, splits), large tables first."""
    lines = read_lines(path)
    done = {(line["candidate"], line["data"], split) for line in lines for split in line["splits"]}
    for name in sorted(names, key=size_of, reverse=True):
        used = used_by_default(lines, name)
        for candidate in candidates:
            needs = CANDIDATES[candidate].needs
            missing = [split for split in splits if (candidate, name, split) not in done]
            if needs is None or needs in used:
                yield from ((candidate, name, missing[at : at + stack]) for at in range(0, len(missing), stack))


def used_by_default(lines: Sequence[Line], name: str) -> set[str]:
    """What the default used on a table, as far as it was run."""
    own = [line for line in lines if (line["candidate"], line["data"]) == (DEFAULT, name)]
    return {what for line in own for used in line["used"] for what in used}


MEASURES = {
    "rmse": "RMSE",
    "score": "Interval score at 0.9",
    "weighted": "Mean pinball loss over the levels .5 to .99",
    "coverage": "Coverage at 0.9",
    "seconds": "Seconds of a fit",
}


class Scores:
    """Every measure of every candidate on every table, by split."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.found: dict[tuple[str, str, str], dict[Any, float]] = {}
        for line in lines:
            for place, split in enumerate(line["splits"]):
                for measure in MEASURES:
                    where = (split, line["device"]) if measure == "seconds" else split  # not of different devices
                    value = line[measure] if measure == "seconds" else line[measure][place]
                    self.found.setdefault((measure, line["candidate"], line["data"]), {})[where] = value

    def mean(self, measure: str, candidate: str, name: str) -> float | None:
        """The mean over the splits."""
        values = self.found.get((measure, candidate, name))
        return float(np.mean(list(values.values()))) if values else None

    def ratio(self, measure: str, candidate: str, name: str) -> float | None:
        """The candidate's mean over that of the default, on the splits that both have; 1 where they are the same."""
        own, base = (self.found.get((measure, one, name), {}) for one in (candidate, DEFAULT))
        if base and not own and self.is_default(candidate, name):
            return 1.0
        shared = own.keys() & base.keys()
        return float(np.sum([own[s] for s in shared]) / np.sum([base[s] for s in shared])) if shared else None

    def is_default(self, candidate: str, name: str) -> bool:
        """Whether a candidate removes what the default did not use on this table."""
        needs = CANDIDATES[candidate].needs
        return needs is not None and needs not in used_by_default(self.lines, name)

    def over(self, measure: str, candidate: str, names: Sequence[str]) -> str:
        """The geometric mean of the ratios over some tables, and over how many where not all."""
        ratios = [ratio for name in names if (ratio := self.ratio(measure, candidate, name)) is not None]
        fewer = "" if len(ratios) == len(names) else f" [{len(ratios)}]"
        return f"{geometric_mean(ratios):.3f}{fewer}" if ratios else "-"


def report(lines: list[Line]) -> str:
    """All tables as Markdown."""
    found, names = Scores(lines), [name for name in DEVELOPMENT_TABLES if any(name == line["data"] for line in lines)]
    candidates = [candidate for candidate in CANDIDATES if any(candidate == line["candidate"] for line in lines)]
    if not lines:
        return (
            "# What each ingredient of the default is worth\n\nNothing is stored yet: `make bench-selection` runs it.\n"
        )
    paper = [name for name in names if name in TABLES]
    short, parts_of_tables = {"rmse": "RMSE", "score": "score at .9", "weighted": "pinball"}, (paper, names)
    head = [f"{title}, {len(part)}" for title in short.values() for part in parts_of_tables]
    rows = [
        [
            candidate,
            *(found.over(measure, candidate, part) for measure in short for part in parts_of_tables),
            found.over("seconds", candidate, names),
        ]
        for candidate in candidates
    ]
    parts = [
        "# What each ingredient of the default is worth",
        "Made by `make bench-selection` from `selection.jsonl` in this folder: out-of-fold scores in the training "
        f"parts of {splits_in_words(lines)}; no test row was predicted. Each row removes or changes one thing of the "
        "default. Ratios to the default on the same splits: above 1, the default is better. Differences of a per cent "
        f"are within the noise of the seeds. {stamp(lines)}.",
        "## Over all tables",
        f"Geometric means of the ratios, over the paper's {len(paper)} tables and over all {len(names)}: RMSE, "
        "interval score at .9, mean pinball loss over the levels .5 to .99, seconds of a fit (on a CPU those of one "
        "thread, on a GPU those of the clock, where fits side by side share it). [n]: only n tables were run. A table "
        "on which the default does not use what a row removes counts as 1.",
        markdown(["", *head, "seconds of a fit"], rows),
        DIFFERENCES,
    ]
    for measure in ("rmse", "score", "weighted", "coverage"):
        parts += [
            f"## {MEASURES[measure]}",
            OWN_VALUES if measure != "coverage" else OUT_OF_FOLD,
            by_table(found, measure, candidates, names),
        ]
    return "\n\n".join(parts) + "\n"


def splits_in_words(lines: Sequence[Line]) -> str:
    """Which splits were run, of those that there are."""
    run = sorted({split for line in lines for split in line["splits"]})
    fewer = "" if len(run) == len(SPLITS) else f" (of {SPLITS[0]} to {SPLITS[-1]})"
    return f"split{'s' * (len(run) > 1)} {', '.join(map(str, run))}{fewer}"


OWN_VALUES = "The first row has the values themselves, the others the ratios. =: the same as the default; -: not run."
OUT_OF_FOLD = (
    "Of averages over fewer members than are deployed. Bounds are stretched for these, so it may be lower than on new "
    "rows: most of all where one member leaves out each row, as on kin40k."
)
DIFFERENCES = """\
- *no column scales*: also none in the second network. *bins for waves*: 8 bins of each column in place of 8 cosines.
- *twice as wide*: F 256, I 128. *4 layers*: both networks, in place of 3. *no second network*: on tables where the
  default trains one.
- *equal rounds*: the schedule of 0.1.0, rounds of ten epochs at a constant rate, which leaves out the second network
  too. *one long round*: 128 epochs of F, then 64 of I.
- *squared error alone*, *Sigma Fit*, *IQR Fit*: in place of balanced matching. *shaped by I alone*: before the local
  shape.
- *no companions*: neither a forest nor a second network. *a third of the features*: tried at each split of the forest,
  where the default chooses between a third and all.
- *no local shape*: `calibration="cross"`, with ends at values of the target where the default has them. *no atoms*:
  ends stay where they are.
- *equal rows apart*: copies of a row may lie on both sides of a fold, so its scores look better than they are wherever
  copies are an accident."""


def by_table(found: Scores, measure: str, candidates: Sequence[str], names: Sequence[str]) -> str:
    """One measure, table by table."""

    def cell(candidate: str, name: str) -> str:
        if candidate != DEFAULT and found.is_default(candidate, name):
            return "="
        own_value = candidate == DEFAULT or measure == "coverage"
        value = (found.mean if own_value else found.ratio)(measure, candidate, name)
        return "-" if value is None else f"{value:.4g}" if own_value else f"{value:.3f}"

    return markdown(["", *names], [[candidate, *(cell(candidate, name) for name in names)] for candidate in candidates])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--data", nargs="+", default=DEVELOPMENT_TABLES, choices=DEVELOPMENT_TABLES)
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    add_arguments(parser)
    given = parser.parse_args()
    end, name, more = time.time() + given.seconds, "selection", {}
    if given.quick:
        given.data, given.splits, name = QUICK_TABLES, [100], "selection-quick"
        more = QUICK_ROUNDS
    path, failed = given.out / f"{name}.jsonl", []
    # What the default uses decides where some of the others differ from it.
    for part in ([DEFAULT] if DEFAULT in given.candidates else []), [c for c in given.candidates if c != DEFAULT]:
        jobs = [(*job, given.device, more) for job in jobs_of(part, given.data, given.splits, given.stack, path)]
        failed += run_jobs(run, jobs, path, given.jobs, end)
    if lines := read_lines(path):
        path.with_suffix(".md").write_text(report(lines))
    if failed:
        sys.exit("These fits failed, all others are stored:\n" + "\n".join(failed))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
