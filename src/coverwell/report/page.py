"""A page about an outcome: sections that templates make, some of their blocks shown only while they are chosen.

Charts are drawn by Vega-Lite, whose text the package vl-convert-python carries: below one megabyte inside the page.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from coverwell.description import ModelDescription
from coverwell.evaluation import ClassOutcome, Outcome
from coverwell.files import new_file
from coverwell.plots.chart import percent
from coverwell.plots.charts import slices_chart
from coverwell.report import charts, classes, facts
from coverwell.slices import BY_CHANCE, FEWEST_ROWS

if TYPE_CHECKING:
    import jinja2

MOST_BYTES = 5_000_000
LICENCE = (
    "Vega, Vega-Lite, Vega-Embed: Copyright (c) 2015-2026, University of Washington Interactive Data Lab, and their "
    "contributors. BSD-3-Clause licence: redistribution and use in source and binary forms, with or without "
    "modification, are permitted provided that this notice is kept; the software is provided as is, without warranty "
    "of any kind."
)
STRETCHES = ("the worst stretch", "the beginning", "the end")


def check_library() -> None:
    """Raise before any work unless pages can be made."""
    for module, package in {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}.items():
        if importlib.util.find_spec(module) is None:
            raise ImportError(f'reports need {package}; install the extra `report`: pip install "coverwell[report]"')


def write_page(html: str, path: Path) -> int:
    """Write a page, whole or not at all; how many bytes it has."""
    content = html.encode()
    if len(content) > MOST_BYTES:
        must = f"a report must stay below {MOST_BYTES:,} bytes, got {len(content):,}"
        raise ValueError(f"{must}; fit fewer targets or levels, or report on fewer groups")
    with new_file(path) as file:
        file.write(content)
    return len(content)


def rendered(
    outcome: Outcome | ClassOutcome,
    model: ModelDescription,
    *,
    title: str | None = None,
    subtitle: str = "",
    level: int = 0,
    source: facts.Source | None = None,
) -> str:
    """The whole page as HTML; `level` is the place of the one that is shown first."""
    source = source or facts.Source()
    levels = [percent(one) for one in outcome.levels]
    offered = {"target": ("Target", outcome.target_names, 0), "level": ("Level", levels, level)}
    if len((first := outcome.view(0, level)).slices):
        offered["column"] = ("Feature or group", *facts.slice_columns(outcome, first))
    if outcome.times is not None:
        offered["stretch"] = ("Period", STRETCHES, 0)
    keys, assets = ("key", "label", "options", "chosen"), files("coverwell.report")
    chosen = {key: place for key, (*_, place) in offered.items()}
    context = {
        "outcome": outcome,
        "model": model,
        "title": title or f"Report on {source.model_file.name if source.model_file else model.name}",
        "subtitle": subtitle,
        "choices": {key: dict(zip(keys, (key, *choice), strict=True)) for key, choice in offered.items()},
        "noun": "row" if outcome.times is None else "value",
        "chosen": chosen,
        "store": charts.ChartStore(),
        "shown": lambda when: all(chosen[key] == place for key, place in when.items()),
        "source": source,
        "style": (assets / "page.css").read_text("utf-8"),
        "script": (assets / "page.js").read_text("utf-8"),
        "library": _chart_library(),
    }
    return _environment().get_template("page.html.j2").render(context)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coverwell.report", ""),
        autoescape=True,
        extensions=["jinja2.ext.do"],
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value.replace(" %", "\u00a0%") if type(value) is str else value,  # on one line
    )
    filters = (facts.share, facts.span, facts.number, facts.counted, facts.chance_of, facts.by_chance, percent)
    environment.filters |= {format.__name__: format for format in filters}
    environment.filters["squeezed"] = lambda text: type(text)(re.sub(r"[ \n]+", " ", text).strip())
    for module in (facts, charts, classes):
        environment.globals |= {name: value for name, value in vars(module).items() if callable(value)}
    environment.globals |= {"slices_chart": slices_chart, "legend_of": charts.legend, "BY_CHANCE": BY_CHANCE}
    environment.globals["FEWEST_ROWS"] = FEWEST_ROWS  # of a slice among the worst
    environment.globals |= {"MOST_LOOKED_AT": facts.MOST_LOOKED_AT, "COLUMNS_OF_EXAMPLES": classes.COLUMNS_OF_EXAMPLES}
    # The choices that show a view.
    environment.globals["when"] = lambda view, **more: {"target": view.target, "level": view.level, **more}
    return environment


@functools.cache
def _chart_library() -> str:
    """The charting library as the text of a script; it takes a few seconds, so once for all pages of a process."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside a page, these three would end the script or begin a comment; within strings the backslash changes nothing.
    for ends in ("</script", "</SCRIPT", "<!--"):
        bundle = bundle.replace(ends, ends.replace("<", "\\x3c"))
    return f"/*! {LICENCE} */\n{bundle}"
