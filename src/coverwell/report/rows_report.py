"""The report on a model of rows: of a table, or of pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from coverwell.estimator import IntervalRegressor
from coverwell.plots.style import percent
from coverwell.report.coverage_sections import calibration_section, reached_section, width_section
from coverwell.report.data_sections import data_section, drift_section
from coverwell.report.judged import Judged, judged_rows
from coverwell.report.library import check_library
from coverwell.report.page import Choice, Page, Section, write_page
from coverwell.report.picture_sections import are_boxes, pictures_section
from coverwell.report.provenance import Source, provenance_section
from coverwell.report.rounds_section import rounds_section
from coverwell.report.row_sections import misses_section, residuals_section
from coverwell.report.slice_sections import slices_section, worst_section
from coverwell.report.wording import counted

__all__ = ["place_of_level", "write_report"]


def write_report(
    model: Any,
    X: Any,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    coverage: float | None = None,
    title: str | None = None,
    quantiles: int = 4,
    row_numbers: ArrayLike | None = None,
    n_skipped: int = 0,
    boxes: bool | None = None,
    source: Source | None = None,
) -> int:
    """Write one HTML file that says how a model does on rows it has not seen; how many bytes it has.

    It needs the extra `report`. The file loads nothing from a network.

    Parameters
    ----------
    model : fitted regressor
    X : array-like or data frame (n, feature), or pictures, as in `fit`
        At least ten rows that were not trained on. Of pictures, the worst and some others are shown.
    y : array-like (n,) or (n, target)
        What was observed.
    path : str or path
        An existing file is replaced once the new one is complete.
    groups : mapping from name to array-like (n,), optional
        Columns by which coverage is told as well, such as a region or a customer.
    coverage : float, optional
        The fitted level that is shown first; the highest if None.
    title : str, optional
    quantiles : int
        Into how many slices numbers are cut.
    row_numbers : array-like of int (n,), optional
        How rows are called in the list of misses; by default they are counted from 0.
    n_skipped : int
        How many rows were left out before, since a target is missing; told in the report.
    boxes : bool, optional
        Whether the four targets of pictures are boxes to be drawn: left, top, width and height in fractions of the
        sides. None is as the model was fitted: with a network that mirrors boxes, they are.
    source : Source, optional
        Files and command to be named.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MLP, MatchedRegressor
    >>> from coverwell.report import write_report
    >>> X, y = make_regression(n_samples=60, n_features=2, noise=5, random_state=0)
    >>> model = MatchedRegressor(network=MLP(hidden=4), max_rounds=1, repeats=1, random_state=0).fit(X[:40], y[:40])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_bytes = write_report(model, X[40:], y[40:], f"{folder}/report.html")
    >>> n_bytes < 5_000_000
    True
    """
    check_library()
    if not isinstance(model, IntervalRegressor):
        raise TypeError(
            f"write_report takes a fitted regressor, got {type(model).__name__}; for forecasters there is "
            "write_series_report"
        )
    check_is_fitted(model)
    shown = place_of_level(model._fitted_levels, coverage)
    judged = judged_rows(model, X, y, groups=groups, quantiles=quantiles, row_numbers=row_numbers, n_skipped=n_skipped)
    if boxes and not judged.is_seen:
        raise ValueError("boxes are for models of pictures, and this one is of tables; leave it out")
    has_boxes = judged.is_seen and are_boxes(model, judged.rows.y, boxes)
    return write_page(_page(judged, shown, title, source or Source(), boxes=has_boxes), Path(path))


def place_of_level(levels: tuple[float, ...], coverage: float | None) -> int:
    """Where a level stands among the fitted ones; the highest if None."""
    if coverage is None:
        return len(levels) - 1
    if coverage not in levels:
        raise ValueError(f"coverage {coverage!r} was not fitted; the fitted levels are {', '.join(map(str, levels))}")
    return levels.index(coverage)


def _has_slices(judged: Judged) -> bool:
    """Whether there are features or groups to cut the rows by; pictures have no features."""
    return len(judged.views[0].judgement.slices) > 0


def _page(judged: Judged, shown: int, title: str | None, source: Source, *, boxes: bool) -> Page:
    model = judged.model
    sections: list[Section] = [
        reached_section(judged),
        calibration_section(judged),
        width_section(judged),
        *([worst_section(judged), slices_section(judged, judged.views[shown])] if _has_slices(judged) else []),
        misses_section(judged),
        *([pictures_section(judged, boxes=boxes)] if judged.is_seen else []),
        residuals_section(judged),
        rounds_section(model, judged.levels, dict(enumerate(judged.targets))),
        data_section(judged),
        *([] if judged.is_seen else [drift_section(judged)]),
        provenance_section(source, model),
    ]
    name = source.model_file.name if source.model_file else type(model).__name__
    on = f" of {source.data_file.name}" if source.data_file else ""
    return Page(
        title or f"Report on {name}",
        f"{counted(judged.n_rows, 'row')}{on}; prediction of {', '.join(judged.targets)} with intervals",
        sections,
        (
            Choice("target", "Target", tuple(judged.targets)),
            Choice("level", "Level", tuple(percent(level) for level in judged.levels), shown),
        ),
    )
