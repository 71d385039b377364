"""Public data by name: tables, series and images, as the paper's experiments need them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reproduction.data.images import IMAGES, BoxedImages, load_images
from reproduction.data.series import SERIES, Series, load_series
from reproduction.data.store import known_name
from reproduction.data.tables import TABLES, Table, load_table

__all__ = ["KINDS", "BoxedImages", "Series", "Table", "frame", "load", "load_images", "load_series", "load_table"]

KINDS = {"table": TABLES, "series": SERIES, "images": IMAGES}


def load(name: str) -> Table | Series | BoxedImages:
    """The data set of that name; case does not matter, and underscores or hyphens may stand for spaces."""
    known = known_name(name, [name for names in KINDS.values() for name in names])
    if known in TABLES:
        return load_table(known)
    return load_series(known) if known in SERIES else load_images(known)


def frame(loaded: Table | Series | BoxedImages) -> pd.DataFrame:
    """The data as columns by name: features, target and groups; times of a series; of images the boxes and sizes."""
    if isinstance(loaded, Table):
        columns = {**dict(zip(loaded.feature_names, loaded.X.T, strict=True)), loaded.target_name: loaded.y}
        return pd.DataFrame(columns if loaded.groups is None else {**columns, "group": loaded.groups})
    if isinstance(loaded, Series):
        names = (loaded.target_name, *loaded.past_covariate_names)
        values = np.column_stack([loaded.y, loaded.past_covariates]).T
        return pd.DataFrame({"time": loaded.time, **dict(zip(names, values, strict=True))})
    sides = dict(zip(("left", "top", "width", "height"), loaded.boxes.T, strict=True))
    size = {"image_width": loaded.sizes[:, 0], "image_height": loaded.sizes[:, 1]}
    return pd.DataFrame({"image": loaded.image_ids, **sides, **size, "train": loaded.train})
