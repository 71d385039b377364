"""Pictures of a report: the worst misses and some others, with boxes where the targets are boxes."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coverwell.estimator import IntervalRegressor
from coverwell.inputs.images import Images, images_of, pillow
from coverwell.plots.boxes import inner_and_outer
from coverwell.plots.style import percent
from coverwell.report.charts import box_spec
from coverwell.report.judged import Judged
from coverwell.report.page import Block, Chart, Legend, Mark, Section
from coverwell.report.wording import number

__all__ = ["are_boxes", "jpeg", "pictures_section"]

Array = NDArray[np.float64]

ROUNDING = 1e-6
SIDE, QUALITY = 240, 80  # pixels, and of JPEG
N_WORST, N_OTHERS = 6, 6
MARKS = (
    Mark("╌", "outside", "true"),
    Mark("━", "other", "predicted"),
    Mark("┄", "inside", "inner: what all boxes within the bounds have in common"),
    Mark("─", "inside", "outer: what holds them all"),
)


def are_boxes(model: IntervalRegressor, y: Array, asked: bool | None) -> bool:
    """Whether targets are left, top, width and height in fractions of the sides: as told, or as the model was fitted.

    A model whose network knows what a mirror does to boxes was fitted on boxes; numbers alone do not tell.
    """
    boxes = model.ensembles_[0].mirroring.targets == "boxes" if asked is None else asked
    if boxes and y.shape[1] != 4:
        raise ValueError(f"boxes are four targets (left, top, width, height), but the model has {y.shape[1]}")
    if boxes and not ((y >= -ROUNDING).all() and (y <= 1 + ROUNDING).all()):
        raise ValueError(
            f"boxes must be given in fractions of the pictures' sides, got values from {y.min():g} to {y.max():g}; "
            "divide them by width and height"
        )
    return boxes


def pictures_section(judged: Judged, *, boxes: bool) -> Section:
    """The pictures whose targets lie farthest outside, and some by lot; where they are boxes, with these."""
    pictures = images_of(judged.X)
    blocks: list[Block] = [Legend(MARKS)] if boxes else []
    images: dict[int, str] = {}
    for level in range(len(judged.levels)):
        for place, why in _chosen(judged, level):
            images.setdefault(place, jpeg(pictures, place))
            records = [_picture(images[place]), *(_boxes(judged, place, level) if boxes else [])]
            told = f"Row {judged.row_numbers[place]:,}, {why}{'' if boxes else _values(judged, place, level)}"
            blocks.append(Chart(box_spec(), records, told, when={"level": level}, in_numbers=False))
    lead = "Every picture is squeezed to a square, as the network sees it: the farthest misses first, then some by lot."
    lead += " Inner and outer boxes come from the interval of each target alone." if boxes else ""
    return Section("pictures", "Pictures", lead, blocks, beside=True)


def _chosen(judged: Judged, level: int) -> list[tuple[int, str]]:
    views = [view for view in judged.views if view.level == level]
    # In units of the mean width, so that targets on different scales count alike.
    missed = np.max([view.missed_by / max(view.width.mean(), 1e-300) for view in views], axis=0)
    order = np.argsort(-missed, kind="stable")
    worst = [int(place) for place in order[:N_WORST] if missed[place] > 0]
    rest = np.setdiff1d(np.arange(judged.n_rows), worst)
    lot = np.random.default_rng(0).permutation(rest)[:N_OTHERS]
    asked = percent(judged.levels[level])
    return [
        *((place, f"among the farthest outside at {asked}.") for place in worst),
        *(
            (int(place), f"by lot; {'inside' if not missed[place] else 'outside'} at {asked}.")
            for place in np.sort(lot)
        ),
    ]


def jpeg(pictures: Images, place: int) -> str:
    """A picture as a data URI."""
    pixels = (255 * pictures.read(place, SIDE).movedim(0, -1)).round().byte().numpy()
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _picture(uri: str) -> dict[str, Any]:
    return {"name": "picture", "left": None, "right": None, "top": None, "bottom": None, "picture": uri}


def _boxes(judged: Judged, place: int, level: int) -> list[dict[str, Any]]:
    said = judged.rows.said
    inner, outer = inner_and_outer(said.lower[place, :, level], said.upper[place, :, level])
    found = {"outer": outer, "inner": inner, "predicted": said.prediction[place], "true": judged.rows.y[place]}
    return [_corners(name, box) for name, box in found.items() if box is not None]


def _corners(name: str, box: Array) -> dict[str, Any]:
    left, top = np.clip(box[:2], 0, 1)
    right, bottom = np.clip(box[:2] + box[2:], 0, 1)
    return {"name": name, "left": left, "right": right, "top": top, "bottom": bottom, "picture": None}


def _values(judged: Judged, place: int, level: int) -> str:
    said = judged.rows.said
    return " " + "; ".join(
        f"{name}: observed {number(judged.rows.y[place, target])}, interval "
        f"{number(said.lower[place, target, level])} to {number(said.upper[place, target, level])}"
        for target, name in enumerate(judged.targets)
    )
