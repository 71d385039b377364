"""What the sections of a report show beside charts: rows of their tables, the worst stretch, images, drift, sources."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from coverwell import metrics
from coverwell._version import __version__
from coverwell.description import InputRange, ModelDescription
from coverwell.evaluation import Outcome, View
from coverwell.inputs.images import images_of, pillow
from coverwell.model_file import read_tensors
from coverwell.plots.boxes import inner_and_outer
from coverwell.plots.grammar import percent, shortened
from coverwell.report.words import as_text, chance_of, number, share, span
from coverwell.slices import BY_CHANCE, Slice, Slices

Box = tuple[str, float, float, float, float]  # name, left, top, width and height

FEWEST_IN_A_TABLE, ROWS_OF_ALL_TABLES = 3, 500
MOST_FEATURES, MOST_COLUMNS = 12, 100  # of a row that was missed, and of a table
MISS_DIGITS, MOST_DECIMALS, LARGEST_WRITTEN_OUT = 3, 9, 1e12
MOST_CHOSEN, MOST_OF_A_COLUMN = 30, 30  # columns that can be chosen, and slices of each
MOST_RECORDS, MOST_CHARTS = 12_000, 1_000  # of all charts by column together: they are the bulk of a page
STRETCH, MOST_WINDOW = 150, 500  # values of a series
PERIODS, ONE_IN_TWENTY = 200, 0.05  # that are simulated, and what the worst of them is taken to be
SIDE, QUALITY = 240, 80  # pixels, and of JPEG
N_WORST, N_OTHERS = 6, 6  # images


def room_for(outcome: Outcome, most: int) -> int:
    """How many rows a table of each view may have, `most` at best: a page holds those of all views."""
    return max(FEWEST_IN_A_TABLE, min(most, ROWS_OF_ALL_TABLES // len(outcome.views)))


def summary(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table of all targets and levels."""
    has_static, has_slices = outcome.static is not None, len(outcome.views[0].slices) > 0
    heads = ["target", "asked", "reached", *(["static"] if has_static else []), "expected", "band"]
    heads += [*(["slices short"] if has_slices else []), "RMSE", "mean width", "interval score"]
    rows = []
    for view in outcome.views:
        found = view.scores
        band = "✓ inside" if view.is_expected else "✕ below" if found["coverage"] < found["band"][0] else "✕ above"
        row = [view.name, percent(view.asked), share(found["coverage"])]
        row += [] if view.static is None else [share(view.static.scores["coverage"])]
        row += [span(found["band"]), band]
        row += [f"{len(view.slices.short):,} of {len(view.slices):,}"] if has_slices else []
        rows.append([*row, *(number(found[score]) for score in ("rmse", "width", "interval_score"))])
    return heads, rows


def joint_coverage(outcome: Outcome, level: int) -> float:
    """How often all targets of a row are inside at once."""
    return metrics.joint_coverage(outcome.y, outcome.lower[..., level], outcome.upper[..., level])


# Slices.


def slice_rows(found: Slices, parts: Sequence[Slice]) -> list[tuple[str, ...]]:
    """Slices in a line each."""
    rows: list[tuple[str, ...]] = []
    for part in parts:
        chance = found.chance(part)
        counts = (f"{part.n_rows:,}", f"{part.n_inside:,}", share(part.coverage), span((part.low, part.high)))
        rows.append((f"{part.column}: {part.values}", *counts, "may be" if chance >= BY_CHANCE else chance_of(chance)))
    return rows


def slice_columns(outcome: Outcome, first: View) -> tuple[list[str], int]:
    """The columns that can be chosen, and the place of the one with the worst slice of the first view.

    All of them, or where they are too many for a page those with the worst slices.
    """
    by_column = first.slices.by_column
    drawn = np.cumsum([min(len(parts), MOST_OF_A_COLUMN) for parts in by_column.values()]) * len(outcome.views)
    n_charts = np.arange(1, len(drawn) + 1) * len(outcome.views)
    room = max(3, int(((drawn <= MOST_RECORDS) & (n_charts <= MOST_CHARTS)).sum()))
    worst = list(by_column)[: min(room, MOST_CHOSEN)]
    columns = [column for column in (*outcome.groups, *outcome.features) if column in worst]
    return columns, columns.index(worst[0])


def slices_by(view: View, column: str) -> tuple[Sequence[Slice], int]:
    """The slices by a column, or where they are many the worst of them, and how many there are."""
    ranked = view.slices.by_column[column]
    is_cut = len(ranked) > MOST_OF_A_COLUMN
    return (ranked[:MOST_OF_A_COLUMN] if is_cut else view.slices.of(column)), len(ranked)


# Series.


def time_of(view: View, place: int) -> str:
    """A date, or which step."""
    time = view.times[place]
    return as_text(time) if isinstance(time, np.datetime64) else f"step {time}"


def window_of(n_values: int) -> int:
    """How many values a moving window has: a quarter of them, 500 at most."""
    return max(1, min(MOST_WINDOW, n_values // 4))


def worst_stretch(view: View, n: int) -> tuple[int, float]:
    """Where the `n` consecutive values with the fewest inside begin, and their coverage; the first of equals."""
    shares = metrics.rolling_coverage(view.inside, n)
    return int(shares.argmin()), float(shares.min())


def worst_window(view: View) -> tuple[int, int, float, float]:
    """The size of a window, where the worst begins, its coverage, and what chance brings."""
    window = window_of(len(view.y))
    return window, *worst_stretch(view, window), lowest_by_chance(view.asked, len(view.y), window)


def stretches(view: View) -> list[tuple[int, int]]:
    """Where the worst stretch, the first and the last begin and end."""
    n = min(STRETCH, len(view.y))
    return [(first, first + n) for first in (worst_stretch(view, n)[0], 0, len(view.y) - n)]


@functools.cache
def lowest_by_chance(asked: float, n_values: int, n: int) -> float:
    """The coverage that the worst `n` of so many values in a row falls below in one period of twenty.

    It holds if each value is inside with the asked probability, independently of the others, and is found by drawing
    periods: the windows overlap, so no plain formula gives it.
    """
    rng = np.random.default_rng(0)
    lowest = [metrics.rolling_coverage(rng.random(n_values) < asked, n).min() for _ in range(PERIODS)]
    return float(np.quantile(lowest, ONE_IN_TWENTY, method="lower"))


# Single rows.


def row_number(outcome: Outcome, place: int) -> int:
    return place if outcome.row_numbers is None else int(outcome.row_numbers[place])


def miss_heads(outcome: Outcome) -> tuple[list[str], list[str], int, int]:
    """Heads of a table of misses, those of texts, how many columns there are, and how many of them are shown."""
    columns = {**outcome.groups, **outcome.features}
    names = list(columns)[:MOST_FEATURES]
    heads = ["time" if outcome.times is not None else "row", "observed", "predicted", "lower", "upper", "missed by"]
    texts = [shortened(name) for name in names if columns[name].dtype.kind not in "iuf"]
    return [*heads, *map(shortened, names)], ["time", *texts], len(columns), len(names)


def miss_rows(view: View, most: int) -> list[list[str]]:
    """The rows that lie farthest from their intervals, the farthest first, with what is known about them."""
    outcome = view.outcome
    columns = list({**outcome.groups, **outcome.features}.values())[:MOST_FEATURES]
    rows = []
    for place in np.argsort(-view.missed_by, kind="stable")[:most].tolist():
        if view.missed_by[place] > 0:
            name = f"{row_number(outcome, place):,}" if outcome.times is None else time_of(view, place)
            known = [as_text(column[place]) for column in columns]
            rows.append([name, *numbers_of_a_miss(view, place), *known])
    return rows


def numbers_of_a_miss(view: View, place: int) -> list[str]:
    """Observed, predicted, bounds, and the distance between: as many digits as the distance needs."""
    missed_by = float(view.missed_by[place])
    values = [float(column[place]) for column in (view.y, view.prediction, view.lower, view.upper)]
    decimals = max(0, MISS_DIGITS - 1 - math.floor(math.log10(missed_by)))
    if decimals > MOST_DECIMALS or max(map(abs, values)) > LARGEST_WRITTEN_OUT:
        return [f"{value:,.7g}" for value in (*values, missed_by)]
    return [f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in (*values, missed_by)]  # + 0.0: never "-0"


def chosen_images(outcome: Outcome, level: int) -> list[tuple[int, bool, bool]]:
    """The places of the images that are shown, whether each is among the worst, and whether it is inside."""
    views = [outcome.view(target, level) for target in range(len(outcome.target_names))]
    # In units of the mean width, so that targets on different scales count alike.
    missed = np.max([view.missed_by / max(view.width.mean(), 1e-300) for view in views], axis=0)
    worst = [int(place) for place in np.argsort(-missed, kind="stable")[:N_WORST] if missed[place] > 0]
    others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(outcome)), worst))[:N_OTHERS]
    return [(place, place in worst, not missed[place]) for place in [*worst, *np.sort(others).tolist()]]


def jpeg(inputs: Any, place: int) -> str:
    """An image as a data URI."""
    pixels = (255 * images_of(inputs).read(place, SIDE).movedim(0, -1)).round().byte().numpy()
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def boxes_in(outcome: Outcome, place: int, level: int) -> list[Box]:
    """The true, the predicted, the inner and the outer box of an image, cut at its edges; none if targets are none."""
    if not outcome.boxes:
        return []
    inner, outer = inner_and_outer(outcome.lower[place, :, level], outcome.upper[place, :, level])
    boxes: list[Box] = []
    found = {"outer": outer, "inner": inner, "predicted": outcome.prediction[place], "true": outcome.y[place]}
    for name, box in found.items():
        if box is not None:
            left, top = np.clip(box[:2], 0, 1).round(4).tolist()
            right, bottom = np.clip(box[:2] + box[2:], 0, 1).round(4).tolist()
            boxes.append((name, left, top, round(max(right - left, 0.0), 4), round(max(bottom - top, 0.0), 4)))
    return boxes


# The data.


def column_rows(outcome: Outcome, model: ModelDescription) -> tuple[list[tuple[str, ...]], int]:
    """Targets, groups and features in a line each, and how many there are."""
    learned = {column.name: column for column in model.columns}
    columns = {**outcome.groups, **outcome.features}
    rows = [column_row(name, outcome.y[:, place], "target", "0") for place, name in enumerate(outcome.target_names)]
    for name, values in list(columns.items())[:MOST_COLUMNS]:
        kind = "group" if name in outcome.groups else learned[name].kind if name in learned else "numbers"
        in_training = f"{learned[name].n_missing:,} of {model.n_trained:,}" if name in learned else "unknown"
        rows.append(column_row(name, values, kind, in_training))
    return rows, len(outcome.target_names) + len(columns)


def column_row(name: str, values: NDArray[Any], kind: str, in_training: str) -> tuple[str, ...]:
    """A column in one line: its kind, its gaps and its values."""
    is_text = values.dtype.kind == "O"
    present = values[[value is not None and value == value for value in values] if is_text else values == values]
    n_different, shown = len(set(present) if is_text else np.unique(present)), "none"
    if len(present) and not is_text:
        low, middle, high = (as_text(value) for value in np.sort(present)[[0, (len(present) - 1) // 2, -1]])
        shown = f"{low} to {high}, median {middle}"
    elif len(present):
        counts = Counter(map(str, present)).most_common(4)
        frequent = [f"{shortened(level)} {share(count / len(present))}" for level, count in counts]
        shown = ", ".join([*frequent, *(["..."] if n_different > 4 else [])])
    return name, kind, f"{len(values) - len(present):,} of {len(values):,}", in_training, f"{n_different:,}", shown


def period_rows(outcome: Outcome, model: ModelDescription) -> tuple[list[tuple[str, ...]], list[tuple[str, int, int]]]:
    """The series and its covariates in both periods, and how many values lie outside the range that was seen."""
    rows, outside = [], []
    for name, before in model.seen.items():
        now = outcome.inputs[name]
        for period, values in (("seen by the forecaster", before), ("this report", now)):
            there = values[~np.isnan(values)]
            of = (there.min(), np.median(there), there.max(), there.mean(), there.std()) if len(there) else [np.nan] * 5
            rows.append((name, period, f"{len(values):,}", f"{len(values) - len(there):,}", *map(number, of)))
        n_outside = int(((now < np.nanmin(before)) | (now > np.nanmax(before))).sum())
        outside += [(name, n_outside, len(now))] if n_outside else []
    return rows, outside


@dataclass(frozen=True)
class Shift:
    """How one input differs between training and test rows."""

    name: str
    train_mean: float  # of an input that is 0 or 1, the share of ones
    test_mean: float
    difference: float  # of the means, in standard deviations over the training; infinite where that had one value
    standard_error: float  # of the difference, if both are samples of the same rows
    chance: float  # a bound on the probability that chance makes any of all inputs differ this much (Bonferroni)
    n_outside: int  # test rows outside the range of the training rows
    is_share: bool  # whether it is 0 or 1 in all rows

    @property
    def is_expected(self) -> bool:
        """Whether chance may bring it."""
        return self.chance >= BY_CHANCE


def shifts_of(outcome: Outcome, model: ModelDescription) -> list[Shift]:
    """Every input of the networks, the one that differs most surely first; none where the model keeps no numbers."""
    inputs = None if outcome.inputs is None else model.input_range(outcome.inputs)
    return [] if inputs is None else shifts_between(inputs, model.n_trained)


def shifts_between(inputs: InputRange, n_trained: int | None) -> list[Shift]:
    """How the inputs of test rows differ from those of training rows, of which mean, deviation and range are known.

    So an input whose spread or shape alone has changed is not found.
    """
    standard_error = float(np.sqrt(1 / len(inputs.rows) + (1 / n_trained if n_trained else 0.0)))
    shifts = []
    for place, name in enumerate(inputs.names):
        test, low, high = inputs.rows[:, place], inputs.low[place], inputs.high[place]
        mean, difference, chance = float(test.mean()), 0.0, 1.0
        if high > low:
            difference = float((mean - inputs.mean[place]) / inputs.deviation[place])
            chance = min(1.0, len(inputs.names) * float(2 * norm.sf(abs(difference) / standard_error)))
        elif not (test == low).all():
            difference, chance = float(np.copysign(np.inf, mean - low)), 0.0
        n_outside = int(((test < low) | (test > high)).sum())
        is_share = bool(low == 0 and high == 1 and np.isin(test, (0.0, 1.0)).all())
        means = float(inputs.mean[place]), mean
        shifts.append(Shift(name, *means, difference, standard_error, chance, n_outside, is_share))
    return sorted(shifts, key=lambda shift: (shift.chance, -abs(shift.difference)))


def shift_rows(shifts: Sequence[Shift], model: ModelDescription) -> list[tuple[str, ...]]:
    """Differences of inputs in a line each."""
    dates = {column.name for column in model.columns if column.kind == "dates and times"}

    def mean(value: float, shift: Shift) -> str:
        if shift.is_share:
            return share(value)
        return str(np.datetime64(int(value), "D")) if shift.name in dates else number(value)  # days since 1970

    rows: list[tuple[str, ...]] = []
    for shift in shifts:
        difference = "one value in training"
        if math.isfinite(shift.difference):
            difference = f"{shift.difference:+.2f}" if abs(shift.difference) < 1000 else f"{shift.difference:+.3g}"
        means = mean(shift.train_mean, shift), mean(shift.test_mean, shift)
        chance = "may be" if shift.is_expected else chance_of(shift.chance)
        rows.append((shift.name, *means, difference, chance, f"{shift.n_outside:,}"))
    return rows


@dataclass(frozen=True)
class Source:
    """What a report was made from, as far as it is known; files are named with their sha256."""

    model_file: Path | None = None
    data_file: Path | None = None
    command: str | None = None  # as it was typed


def source_rows(source: Source, model: ModelDescription) -> list[tuple[str, str]]:
    """Where a report comes from: time, command, files, model, versions and device."""
    import vl_convert  # extra `report`

    rows = [("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    rows += [("command", source.command)] if source.command is not None else []
    for what, path in (("model file", source.model_file), ("data file", source.data_file)):
        if path is not None:
            with path.open("rb") as file:
                rows += [(what, path.name), (f"sha256 of the {what}", hashlib.file_digest(file, "sha256").hexdigest())]
    rows += [("model", model.name), *model.parameters.items()]
    if source.model_file is not None:
        rows.append(("versions that wrote the model", _listed(read_tensors(source.model_file)[0]["versions"])))
    versions = {"coverwell": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    versions |= {"numpy": np.__version__, "scikit-learn": sklearn.__version__}
    versions |= {"vega": vl_convert.get_vega_version(), "vl-convert-python": version("vl-convert-python")}
    return [*rows, ("versions that made this report", _listed(versions)), ("device", model.device)]


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
