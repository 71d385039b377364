"""A fitted model as a command meets it: which columns of a file it needs, and what it says about their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.commands.messages import BadInput
from coverwell.ensemble import ROWS_AT_A_TIME
from coverwell.estimator import IntervalRegressor
from coverwell.fitted_models import Said, n_ranked_rows, n_trained_rows, say
from coverwell.inputs.source import ImageSource
from coverwell.networks.team import Team
from coverwell.persistence import load
from coverwell.table_files import TableFile, needed_polars
from coverwell.text_kinds import Kind, check_finite, kinds_of, typed

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ROWS_IN_A_PART", "FeatureReader", "TableModel"]

Array = NDArray[np.float64]

# A whole number of the estimator's own steps: cut elsewhere, the last bit of a prediction could be another.
ROWS_IN_A_PART = 4 * ROWS_AT_A_TIME
KINDS = {"numbers": Kind.NUMBER, "booleans": Kind.BOOLEAN, "text": Kind.TEXT, "times": Kind.TEXT}


@dataclass(frozen=True)
class TableModel:
    """A fitted regressor on tables, and the file that it comes from."""

    path: Path
    model: IntervalRegressor

    @classmethod
    def load(cls, path: Path, *, device: str = "auto", float32: bool = False) -> TableModel:
        """The model of a file; with `float32` its networks speak in that precision, faster and less exactly."""
        model = load(path)
        if not isinstance(model, IntervalRegressor) or isinstance(model.source_, ImageSource):
            what = "a model for images" if isinstance(model, IntervalRegressor) else f"a {type(model).__name__}"
            raise BadInput(f"{path} holds {what}, not one for tables; use it in Python: coverwell.load({str(path)!r})")
        model.set_params(device=device)
        if float32:
            _speak_in_float32(model)
        return cls(path, model)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.model.target_names_

    @property
    def levels(self) -> tuple[float, ...]:
        return self.model._fitted_levels

    @property
    def n_ranked(self) -> int | None:
        """How many training rows' ranks set the widths; None if no ranks did, or if the model does not know."""
        return n_ranked_rows(self.model)

    @property
    def n_trained(self) -> int | None:
        """How many rows it was fitted on, where the model knows."""
        return n_trained_rows(self.model)

    @property
    def feature_names(self) -> list[str] | None:
        """The columns that are needed, in order; None of a model that was fitted on an array without names."""
        if self.model.source_.columns is not None:
            return list(self.model.source_.columns.kinds)
        names = getattr(self.model, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def features_in(self, table: TableFile) -> list[str]:
        """The columns of a file that the model needs."""
        if self.feature_names is not None:
            absent = [name for name in self.feature_names if name not in table.columns]
            if absent:
                table.check_has(absent, f"column that {self.path.name} was fitted on:")
            return self.feature_names
        n_features: int = self.model.n_features_in_
        others = [name for name in table.columns if name not in self.targets]
        if len(others) != n_features:
            raise BadInput(
                f"{self.path} was fitted without column names on {n_features} columns, but {table.path} has "
                f"{len(others)} beside the targets; give a file with exactly these columns, in order"
            )
        return others

    def reader(self, table: TableFile) -> FeatureReader:
        return FeatureReader(self, table, self.features_in(table))

    def say(self, features: Any) -> Said:
        """What the model says about rows."""
        return say(self.model, features)


@dataclass(frozen=True)
class FeatureReader:
    """How the rows of a file become what a model is given."""

    model: TableModel
    table: TableFile
    names: list[str]

    def features(self, part: pl.DataFrame, first_row: int) -> Any:
        """The features of rows as they come from the file."""
        path, decimal = self.table.path, self.table.decimal
        frame = typed(part.select(self.names), self._kinds, path=path, first_row=first_row, decimal=decimal)
        check_finite(frame, path=path, rows=range(first_row, first_row + len(frame)))
        return frame if self.model.feature_names is not None else self._array(frame)

    @cached_property
    def _kinds(self) -> dict[str, Kind]:
        if (columns := self.model.model.source_.columns) is not None:
            return {name: KINDS[kind] for name, kind in columns.kinds.items()}
        # Numbers alone, or truths that count as 0 and 1: the first value tells which.
        rows = next(self.table.parts(self.names, ROWS_IN_A_PART))
        texts = typed(rows, dict.fromkeys(self.names, Kind.TEXT), path=self.table.path)
        truths = [n for n in self.names if kinds_of(texts.select(n).drop_nulls().head(1)).get(n) is Kind.BOOLEAN]
        return {name: Kind.BOOLEAN if name in truths else Kind.NUMBER for name in self.names}

    def _array(self, frame: pl.DataFrame) -> Array:
        return frame.select(needed_polars().all().cast(needed_polars().Float64)).to_numpy()


def _speak_in_float32(model: IntervalRegressor) -> None:
    for ensemble in model.ensembles_:
        for part in vars(ensemble).values():
            if isinstance(part, Team):
                part.to(torch.float32)
                part.precision = torch.float32
