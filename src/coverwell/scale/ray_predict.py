"""Predictions and intervals for the rows of a Ray Dataset, by workers that each load the model once."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from coverwell.commands.models import ROWS_IN_A_PART, TableModel
from coverwell.commands.targets import check_output_columns, prediction_columns
from coverwell.estimator import IntervalRegressor
from coverwell.inputs.source import TableSource
from coverwell.scale.ray_cluster import needed_ray
from coverwell.table_files import needed_polars

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["predict_dataset"]


def predict_dataset(
    model: object,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    gpus: float = 0.0,
) -> Any:
    """The columns that `coverwell predict` writes, for the rows of a `ray.data.Dataset`.

    Nothing is computed before the result is read or written, as with every step of Ray Data. The values are those of
    the model in this process, but for rounding in the last digits. Ray Data does not keep rows in order unless its
    context is told to: name a column in `keep` by which rows are known.

    Parameters
    ----------
    model : fitted regressor on tables, or path
        A path must be readable here alone: workers are sent the model.
    rows : ray.data.Dataset
        Columns are found by name; others than those that the model was fitted on are ignored. A model that was fitted
        without names takes all columns, but for its targets and those in `keep`.
    keep : sequence of str
        Columns that are copied.
    device : str
        Where the networks run on each worker.
    workers : int, optional
        At most how many workers, each with one CPU and one thread; by default as many as the cluster has CPUs.
    gpus : float
        The share of a GPU that each worker takes.

    Returns
    -------
    ray.data.Dataset
        For a target `price` at coverage 0.9: what is kept, price, price_lower_0.9 and price_upper_0.9.
    """
    ray = needed_ray()
    fitted = _table_model(model, device)
    names = _features(fitted, rows.columns(), keep)
    check_output_columns([*keep, *prediction_columns(fitted.targets, fitted.levels)])
    most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    return rows.map_batches(
        _Predictor,
        fn_constructor_args=(fitted, names, list(keep)),
        batch_format="pyarrow",
        batch_size=ROWS_IN_A_PART,
        # Workers that come when they are needed leave CPUs to whatever reads the rows.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most),
        num_cpus=1,
        num_gpus=gpus,
    )


def _table_model(model: object, device: str) -> TableModel:
    if isinstance(model, str | os.PathLike):
        return TableModel.load(Path(model), device=device)
    if not isinstance(model, IntervalRegressor) or not isinstance(getattr(model, "source_", None), TableSource):
        raise TypeError(
            f"the model must be a fitted regressor on tables or the path of one, got {type(model).__name__}"
        )
    here = copy.copy(model)  # so that the caller's own keeps its device
    here.set_params(device=device)
    return TableModel(Path(type(model).__name__), here)


def _features(fitted: TableModel, there: Sequence[str], keep: Sequence[str]) -> list[str]:
    names = fitted.feature_names
    for name in (*(names or ()), *keep):
        if name not in there:
            what = "to keep" if name in keep else "that the model was fitted on"
            raise ValueError(f"the dataset must have the column {name}, {what}; it has {', '.join(there)}")
    if names is not None:
        return names
    others = [name for name in there if name not in (*fitted.targets, *keep)]
    n_features: int = fitted.model.n_features_in_
    if len(others) != n_features:
        raise ValueError(
            f"the model was fitted without column names on {n_features} columns, but the dataset has {len(others)} "
            "beside targets and kept columns; select exactly these columns, in order"
        )
    return others


class _Predictor:
    """What a worker holds: the model, and how a batch of rows is given to it."""

    def __init__(self, fitted: TableModel, names: list[str], keep: list[str]) -> None:
        torch.set_num_threads(1)  # the other cores are for the other workers
        self.fitted = fitted
        self.names = names
        self.keep = keep

    def __call__(self, batch: pa.Table) -> pa.Table:
        polars = needed_polars()
        part = polars.from_arrow(batch.select(list(dict.fromkeys([*self.names, *self.keep]))))
        features = part.select(self.names)
        if self.fitted.feature_names is None:
            features = features.select(polars.all().cast(polars.Float64)).to_numpy()
        said = self.fitted.say(features).columns
        named = zip(prediction_columns(self.fitted.targets, self.fitted.levels), said, strict=True)
        return part.select(self.keep).with_columns(polars.Series(name, values) for name, values in named).to_arrow()
