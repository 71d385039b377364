"""Sections on single rows: the largest misses, images, and residuals."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.description import ModelDescription
from coverwell.evaluation import Outcome, View
from coverwell.inputs.images import Images, images_of, pillow
from coverwell.plots.boxes import BOX_STYLES, inner_and_outer
from coverwell.plots.charts import split_points
from coverwell.plots.grammar import Axis, Chart, Mark, Tip, shortened
from coverwell.report.page import Block, Graph, Image, Legend, Section, Table, Text, prose
from coverwell.report.series import time_of
from coverwell.report.words import as_text, noun, room_for, when

Array = NDArray[np.float64]

MOST_MISSES, MOST_FEATURES = 10, 12
MOST_POINTS = 3_000  # of all targets together
MOST_BINS, CENTRAL = 30, 0.99
MISS_DIGITS, MOST_DECIMALS, LARGEST_WRITTEN_OUT = 3, 9, 1e12
SIDE, QUALITY = 240, 80  # pixels, and of JPEG
N_WORST, N_OTHERS = 6, 6  # images
BOXES = {"true": "true", "predicted": "predicted", "inner": "inner: common to all boxes within the bounds"}
BOXES["outer"] = "outer: contains them all"


def misses_of(view: View, most: int) -> NDArray[np.intp]:
    """The places of the rows that lie farthest outside their intervals, the farthest first."""
    order = np.argsort(-view.missed_by, kind="stable")[:most]
    return order[view.missed_by[order] > 0]


def numbers_of_a_miss(view: View, place: int) -> list[str]:
    """Observed, predicted, bounds, and the distance between: as many digits as the distance needs."""
    missed_by = float(view.missed_by[place])
    values = [float(column[place]) for column in (view.y, view.prediction, view.lower, view.upper)]
    decimals = max(0, MISS_DIGITS - 1 - math.floor(math.log10(missed_by)))
    if decimals > MOST_DECIMALS or max(map(abs, values)) > LARGEST_WRITTEN_OUT:
        return [f"{value:,.7g}" for value in (*values, missed_by)]
    return [f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in (*values, missed_by)]  # + 0.0: never "-0"


def misses(outcome: Outcome, model: ModelDescription) -> Section:
    """The rows that lie farthest from their intervals, with what is known about them."""
    columns, what = {**outcome.groups, **outcome.features}, noun(outcome)
    names, is_series = list(columns)[:MOST_FEATURES], outcome.times is not None
    heads = ["time" if is_series else "row", "observed", "predicted", "lower", "upper", "missed by"]
    texts = [shortened(name) for name in names if columns[name].dtype.kind not in "iuf"]
    blocks: list[Block] = []
    for view in outcome.views:
        places = misses_of(view, room_for(outcome, MOST_MISSES)).tolist()
        if not places:
            blocks.append(Text(prose("no_misses", view=view, noun=what), when=when(view)))
            continue
        rows = [
            [
                time_of(view, place) if is_series else f"{row_number(outcome, place):,}",
                *numbers_of_a_miss(view, place),
                *(as_text(columns[name][place]) for name in names),
            ]
            for place in places
        ]
        caption = prose("misses", view=view, n=len(places), noun=what)
        shown = [*heads, *map(shortened, names)]
        blocks.append(Table(caption, shown, rows, texts=("time", *texts), when=when(view)))
    first = None if is_series else 0 if outcome.row_numbers is None else 1
    return Section("misses", blocks, lead={"first": first, "n_columns": len(columns), "n_shown": len(names)})


def row_number(outcome: Outcome, place: int) -> int:
    return place if outcome.row_numbers is None else int(outcome.row_numbers[place])


def images(outcome: Outcome, model: ModelDescription) -> Section | None:
    """The images whose targets lie farthest outside, and some at random; with boxes where the targets are boxes."""
    if model.takes != "images":
        return None
    given = images_of(outcome.inputs)
    signs = {"-": "━", "--": "╌", ":": "┄"}
    looks = {name: (signs[dash], f"var(--{colour})") for name, (colour, dash, _) in BOX_STYLES.items()}
    blocks: list[Block] = [Legend([(*looks[name], text) for name, text in BOXES.items()])] if outcome.boxes else []
    uris: dict[int, str] = {}
    for level, asked in enumerate(outcome.levels):
        views = [outcome.view(target, level) for target in range(len(outcome.target_names))]
        # In units of the mean width, so that targets on different scales count alike.
        missed = np.max([view.missed_by / max(view.width.mean(), 1e-300) for view in views], axis=0)
        worst = [int(place) for place in np.argsort(-missed, kind="stable")[:N_WORST] if missed[place] > 0]
        others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(outcome)), worst))[:N_OTHERS]
        for place in [*worst, *np.sort(others).tolist()]:
            uris.setdefault(place, jpeg(given, place))
            values = [] if outcome.boxes else [(v.name, v.y[place], v.lower[place], v.upper[place]) for v in views]
            about = {"chosen": place in worst, "is_inside": not missed[place], "asked": asked, "values": values}
            caption = prose("image", number=row_number(outcome, place), **about)
            boxes = _boxes(outcome, place, level) if outcome.boxes else []
            blocks.append(Image(uris[place], boxes, caption, {"level": level}))
    return Section("images", blocks, beside=True, lead={"boxes": outcome.boxes})


def jpeg(given: Images, place: int) -> str:
    """An image as a data URI."""
    pixels = (255 * given.read(place, SIDE).movedim(0, -1)).round().byte().numpy()
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _boxes(outcome: Outcome, place: int, level: int) -> list[tuple[str, float, float, float, float]]:
    inner, outer = inner_and_outer(outcome.lower[place, :, level], outcome.upper[place, :, level])
    found = {"outer": outer, "inner": inner, "predicted": outcome.prediction[place], "true": outcome.y[place]}
    boxes = []
    for name, box in found.items():
        if box is not None:
            left, top = np.clip(box[:2], 0, 1).round(4).tolist()
            right, bottom = np.clip(box[:2] + box[2:], 0, 1).round(4).tolist()
            boxes.append((name, left, top, round(max(right - left, 0.0), 4), round(max(bottom - top, 0.0), 4)))
    return boxes


def residuals(outcome: Outcome, model: ModelDescription) -> Section:
    """Observed minus predicted: against the prediction, and how often each size occurs."""
    blocks: list[Block] = []
    what, most = noun(outcome), max(1, MOST_POINTS // len(outcome.target_names))
    for target, name in enumerate(outcome.target_names):
        views = [outcome.view(target, level) for level in range(len(outcome.levels))]
        view, n = views[0], len(views[0].y)
        rows = np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))
        left_over = view.y - view.prediction
        table: dict[str, Any] = {"prediction": view.prediction[rows], "residual": left_over[rows]}
        table[what] = [row_number(outcome, row) if what == "row" else time_of(view, row) for row in rows.tolist()]
        table |= {f"inside {level}": one.inside[rows] for level, one in enumerate(views)}
        tips = [Tip(what, what, "count" if what == "row" else "text"), Tip("prediction", "predicted")]
        tips.append(Tip("residual", "observed minus predicted"))
        axes = Axis("prediction"), Axis("observed minus predicted", zero=True)
        caption = prose("residuals", name=name, noun=what, n=len(rows), n_all=n)
        for level, one in enumerate(views):  # one table for all levels
            labels = "inside its interval", "outside"
            points = split_points("prediction", "residual", f"inside {level}", labels=labels, sizes=(3.5, 5.0))
            chart = Chart(table, [Mark("rule", "", 0, colour="centre", thickness=0.7), *points], *axes, tips)
            blocks.append(Graph(chart, caption, when(one), in_numbers=False))
        blocks.append(_histogram(name, left_over, what, target))
    return Section("residuals", blocks, beside=True)


def residual_bins(values: Array) -> tuple[NDArray[np.intp], Array, int]:
    """Counts and edges of equal bins over the central 99 % of the residuals, and how many lie beyond."""
    low, high = np.quantile(values, [(1 - CENTRAL) / 2, (1 + CENTRAL) / 2], method="closest_observation")
    central = values[(values >= low) & (values <= high)]
    n_bins = int(np.clip(round(2 * len(central) ** (1 / 3)), 5, MOST_BINS)) if high > low else 1
    around = (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))
    counts, edges = np.histogram(central, bins=n_bins, range=around)
    return counts, edges, len(values) - len(central)


def _histogram(name: str, values: Array, what: str, target: int) -> Graph:
    counts, edges, n_beyond = residual_bins(values)
    table = {"low": edges[:-1], "high": edges[1:], "rows": counts}
    zero = Mark("rule", 0, colour="outside", thickness=1.0, dash="--")
    axes = Axis("observed minus predicted"), Axis(f"{what}s", zero=True)
    tips = [Tip("low", "from"), Tip("high", "to"), Tip("rows", f"{what}s", "count")]
    chart = Chart(table, [Mark("bars", "low", "rows", "high"), zero], *axes, tips, height=240)
    about = {"mean": values.mean(), "quartiles": np.quantile(values, [0.25, 0.75]), "n_beyond": n_beyond}
    return Graph(chart, prose("histogram", name=name, noun=what, **about), {"target": target})
