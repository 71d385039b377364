"""What the sections of a report show beside charts: rows of their tables, the worst stretch, images, drift, sources."""

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
from coverwell.description import ModelDescription
from coverwell.evaluation import ClassOutcome, Outcome, SetView, View
from coverwell.inputs.images import images_of, pillow
from coverwell.model_file import read_tensors
from coverwell.plots.boxes import inner_and_outer
from coverwell.plots.chart import shortened
from coverwell.slices import BY_CHANCE, Slice, as_text

Row = Sequence[str]  # of a table

LEAST_CHANCE, SAME_MEAN = 0.0001, 1e-6  # the latter in standard deviations
FEWEST_IN_A_TABLE, ROWS_OF_ALL_TABLES = 3, 500
MOST_FEATURES, MOST_COLUMNS = 10, 100  # of a row that was missed, and of a table
MOST_LOOKED_AT = 10  # inputs by their scales
MISS_DIGITS, MOST_DECIMALS, LARGEST_WRITTEN_OUT = 3, 9, 1e12
MOST_CHOSEN, MOST_OF_A_COLUMN = 30, 30  # columns that can be chosen, and slices of each
MOST_MORE = 5  # slices of two columns
MOST_RECORDS, MOST_CHARTS = 12_000, 1_000  # of all charts by column together: they are the bulk of a page
STRETCH, MOST_WINDOW = 150, 500  # values of a series
PERIODS, ONE_IN_TWENTY = 200, 0.05  # that are simulated, and what the worst of them is taken to be
SIDE, QUALITY = 240, 80  # pixels, and of JPEG
N_WORST, N_OTHERS = 6, 6  # images
HEADS_OF_SETS = ("class", "its probability", "set, the likeliest first")


def number(value: float) -> str:
    """A number to four digits."""
    if not math.isfinite(value):
        return "none"
    if 1000 <= abs(value) < 1e9:
        return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:.4g}"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def span(ends: tuple[float, float]) -> str:
    return f"{100 * ends[0]:.1f} to {share(ends[1])}"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def chance_of(probability: float) -> str:
    """A bound on a probability as far as its digits mean something: "at most 0.02", "less than 0.0001"."""
    return f"at most {probability:.1g}" if probability >= LEAST_CHANCE else f"less than {LEAST_CHANCE}"


def by_chance(probability: float) -> str:
    return "may be" if probability >= BY_CHANCE else chance_of(probability)


def room_for(outcome: Outcome | ClassOutcome, most: int) -> int:
    """How many rows a table of each view may have, `most` at best: a page holds those of all views."""
    return max(FEWEST_IN_A_TABLE, min(most, ROWS_OF_ALL_TABLES // len(outcome.views)))


def joint_coverage(outcome: Outcome, level: int) -> float:
    """How often all targets of a row are inside at once."""
    return metrics.joint_coverage(outcome.y, outcome.lower[..., level], outcome.upper[..., level])


def slice_columns(outcome: Outcome | ClassOutcome, first: View | SetView) -> tuple[list[str], int]:
    """The columns that a page has room for, those with the worst slices, and the place of the very worst."""
    by_column, n_views = first.slices.by_column, len(outcome.views)
    drawn = np.cumsum([min(len(parts), MOST_OF_A_COLUMN) for parts in by_column.values()]) * n_views
    n_charts = np.arange(1, len(drawn) + 1) * n_views
    room = max(3, int(((drawn <= MOST_RECORDS) & (n_charts <= MOST_CHARTS)).sum()))
    worst = list(by_column)[: min(room, MOST_CHOSEN)]
    columns = [column for column in first.parts if column in worst]
    return columns, columns.index(worst[0])


def slices_by(view: View | SetView, column: str) -> tuple[Sequence[Slice], int]:
    """The slices by a column, or where they are many the worst of them, and how many there are."""
    ranked = view.slices.by_column[column]
    return ranked[:MOST_OF_A_COLUMN] if len(ranked) > MOST_OF_A_COLUMN else view.slices.of(column), len(ranked)


def more_slices(view: View | SetView, model: ModelDescription) -> list[Row]:
    """Slices of two columns that are short in these rows, and the worst of the training rows, in a line each."""
    found = [("test", part, view.pairs.chance(part)) for part in view.pairs.short[:MOST_MORE]]
    of_fit = [one for one in model.worst_slices if (one.target, one.asked) == (view.name, view.asked)]
    found += [("training, out of fold", one, one.by_chance) for one in of_fit]
    return [
        (which, part.name, f"{part.n_rows:,}", share(part.coverage), span((part.low, part.high)), by_chance(chance))
        for which, part, chance in found
    ]


def time_of(view: View, place: int) -> str:
    """A date, or which step."""
    time = view.times[place]
    return as_text(time) if isinstance(time, np.datetime64) else f"step {time}"


def worst_stretch(view: View, n: int) -> tuple[int, float]:
    """Where the `n` consecutive values with the fewest inside begin, and their coverage; the first of equals."""
    shares = metrics.rolling_coverage(view.inside, n)
    return int(shares.argmin()), float(shares.min())


def window_of(view: View) -> int:
    """How many values a moving window has."""
    return max(1, min(MOST_WINDOW, len(view.y) // 4))


def stretches(view: View) -> list[tuple[int, int]]:
    """Where the worst stretch, the first and the last begin and end."""
    n = min(STRETCH, len(view.y))
    return [(first, first + n) for first in (worst_stretch(view, n)[0], 0, len(view.y) - n)]


@functools.cache
def lowest_by_chance(asked: float, n_values: int, n: int) -> float:
    """The coverage that the worst `n` of so many independent values in a row falls below in one of twenty periods."""
    # The windows overlap, so no plain formula gives it: periods are drawn.
    rng = np.random.default_rng(0)
    lowest = [metrics.rolling_coverage(rng.random(n_values) < asked, n).min() for _ in range(PERIODS)]
    return float(np.quantile(lowest, ONE_IN_TWENTY, method="lower"))


def row_number(outcome: Outcome | ClassOutcome, place: int) -> int:
    return place if outcome.row_numbers is None else int(outcome.row_numbers[place])


def miss_heads(outcome: Outcome | ClassOutcome, most: int = MOST_FEATURES) -> tuple[Row, Row, int, int]:
    """Heads of a table of misses, those of texts, how many columns there are, and how many of them are shown."""
    columns = {**outcome.groups, **outcome.features}
    names = list(columns)[:most]
    heads = ["time" if outcome.times is not None else "row", "observed", "predicted", "lower", "upper", "missed by"]
    heads = ["row", *HEADS_OF_SETS] if isinstance(outcome, ClassOutcome) else heads
    texts = [shortened(name) for name in names if columns[name].dtype.kind not in "iuf"]
    return [*heads, *map(shortened, names)], ["time", *HEADS_OF_SETS[::2], *texts], len(columns), len(names)


def row_columns(outcome: Outcome | ClassOutcome, place: int) -> Row:
    """What is known about a row."""
    columns = list({**outcome.groups, **outcome.features}.values())[:MOST_FEATURES]
    return [as_text(column[place]) for column in columns]


def miss_rows(view: View, most: int) -> list[Row]:
    """The rows that lie farthest from their intervals, the farthest first, with what is known about them."""
    outcome, rows = view.outcome, list[Row]()
    numbers = np.stack([view.y, view.prediction, view.lower, view.upper, view.missed_by], axis=1)  # (row, number)
    for place in np.argsort(-view.missed_by, kind="stable")[:most].tolist():
        if view.missed_by[place] > 0:
            name = f"{row_number(outcome, place):,}" if outcome.times is None else time_of(view, place)
            decimals = max(0, MISS_DIGITS - 1 - math.floor(math.log10(view.missed_by[place])))  # of the distance
            cells = [f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in numbers[place].tolist()]  # never "-0"
            if decimals > MOST_DECIMALS or np.abs(numbers[place]).max() > LARGEST_WRITTEN_OUT:
                cells = [f"{value:,.7g}" for value in numbers[place].tolist()]
            rows.append([name, *cells, *row_columns(outcome, place)])
    return rows


def chosen_images(outcome: Outcome | ClassOutcome, level: int) -> list[tuple[int, bool, bool]]:
    """The places of the images that are shown, whether each is among the worst, and whether it is inside."""
    views: Sequence[View | SetView] = outcome.of_level(level)
    # In units of the mean width, so that targets on different scales count alike.
    units = [max(view.width.mean(), 1e-300) if isinstance(view, View) else 1.0 for view in views]
    missed = np.max([view.missed_by / unit for view, unit in zip(views, units, strict=True)], axis=0)
    worst = [int(place) for place in np.argsort(-missed, kind="stable")[:N_WORST] if missed[place] > 0]
    others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(outcome)), worst))[:N_OTHERS]
    return [(place, place in worst, not missed[place]) for place in [*worst, *np.sort(others).tolist()]]


def jpeg(inputs: Any, place: int) -> str:
    """An image as a data URI."""
    pixels = (255 * images_of(inputs).read(place, SIDE).movedim(0, -1)).round().byte().numpy()
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def boxes_in(outcome: Outcome | ClassOutcome, place: int, level: int) -> list[tuple[str, float, float, float, float]]:
    """Name, left, top, width and height of each box of an image, cut at its edges; none if targets are no boxes."""
    if not isinstance(outcome, Outcome) or not outcome.boxes:
        return []
    inner, outer = inner_and_outer(outcome.lower[place, :, level], outcome.upper[place, :, level])
    found = {"outer": outer, "inner": inner, "predicted": outcome.prediction[place], "true": outcome.y[place]}
    boxes = []
    for name, box in found.items():
        if box is not None:
            start, end = np.clip([box[:2], box[:2] + box[2:]], 0, 1).round(4)
            boxes.append((name, *start.tolist(), *np.maximum(end - start, 0.0).round(4).tolist()))
    return boxes


def column_rows(outcome: Outcome | ClassOutcome, model: ModelDescription) -> tuple[list[Row], int]:
    """Targets, groups and features in a line each, and how many there are."""
    columns = {**outcome.groups, **outcome.features}
    targets = outcome.labels[:, None] if isinstance(outcome, ClassOutcome) else outcome.y
    rows = [column_row(name, targets[:, place], "target", "0") for place, name in enumerate(outcome.target_names)]
    for name, values in list(columns.items())[:MOST_COLUMNS]:
        kind, n_missing = model.columns.get(name, ("numbers", None))
        in_training = "unknown" if n_missing is None else f"{n_missing:,} of {model.n_trained:,}"
        rows.append(column_row(name, values, "group" if name in outcome.groups else kind, in_training))
    return rows, len(outcome.target_names) + len(columns)


def column_row(name: str, values: NDArray[Any], kind: str, in_training: str) -> Row:
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


def period_rows(outcome: Outcome, model: ModelDescription) -> tuple[list[Row], list[tuple[str, int, int]]]:
    """The series and its covariates in both periods, and how many values lie outside the range that was seen."""
    rows: list[Row] = []
    outside = []
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
    is_expected: bool  # whether chance may bring it


def shifts_of(X: Any, model: ModelDescription) -> list[Shift]:
    """How the means of the networks' inputs differ from those of the training, the surest difference first."""
    if X is None:
        return []
    names, rows, means, deviations, low, high = model.input_range(X)
    standard_error = math.sqrt(1 / len(rows) + (1 / model.n_trained if model.n_trained else 0.0))
    test, is_new = rows.mean(axis=0), (rows != low).any(axis=0)
    difference = np.where(is_new, np.copysign(np.inf, test - low), 0.0)  # where the training had one value
    np.divide(test - means, deviations, out=difference, where=high > low)
    chance = np.minimum(1.0, 2 * len(names) * norm.sf(np.abs(difference) / standard_error))
    n_outside = ((rows < low) | (rows > high)).sum(axis=0)
    is_share = (low == 0) & (high == 1) & np.isin(rows, (0.0, 1.0)).all(axis=0)
    errors, is_expected = np.full(len(names), standard_error), chance >= BY_CHANCE
    columns = (means, test, difference, errors, chance, n_outside, is_share, is_expected)
    shifts = [Shift(*one) for one in zip(names, *(column.tolist() for column in columns), strict=True)]
    return sorted(shifts, key=lambda shift: (shift.chance, -abs(shift.difference)))


def is_training(outcome: Outcome | ClassOutcome, model: ModelDescription) -> bool:
    """Whether the rows are as many as those of the training, within its ranges, with the same means."""
    if model.takes != "table" or len(outcome) != model.n_trained:
        return False
    shifts = shifts_of(outcome.inputs, model)
    return bool(shifts) and all(abs(shift.difference) < SAME_MEAN and not shift.n_outside for shift in shifts)


def shift_rows(shifts: Sequence[Shift], model: ModelDescription) -> list[Row]:
    """Differences of inputs in a line each."""
    rows: list[Row] = []
    for shift in shifts:
        difference = "one value in training"
        if math.isfinite(shift.difference):
            difference = f"{shift.difference:+.2f}" if abs(shift.difference) < 1000 else f"{shift.difference:+.3g}"
        means = [share(mean) if shift.is_share else number(mean) for mean in (shift.train_mean, shift.test_mean)]
        if model.columns.get(shift.name, ("", 0))[0] == "dates and times":  # days since 1970
            means = [str(np.datetime64(int(mean), "D")) for mean in (shift.train_mean, shift.test_mean)]
        rows.append((shift.name, *means, difference, by_chance(shift.chance), f"{shift.n_outside:,}"))
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
    rows += [("weights", model.weights)] if model.weights else []
    rows += [("coverage held for", model.held_for)] if model.held_for else []
    of_model = {} if source.model_file is None else read_tensors(source.model_file)[0]["versions"]
    versions = {"coverwell": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    versions |= {"numpy": np.__version__, "scikit-learn": sklearn.__version__}
    versions |= {"vega": vl_convert.get_vega_version(), "vl-convert-python": version("vl-convert-python")}
    for what, known in (("wrote the model", of_model), ("made this report", versions)):
        if known:
            rows.append((f"versions that {what}", ", ".join(f"{package} {one}" for package, one in known.items())))
    return [*rows, ("device", model.device)]
