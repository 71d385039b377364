"""A model in a file as the service asks it: the columns that it needs, and predictions for a frame of them."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.errors import ModelFileError
from coverwell.inputs.columns import KINDS, Column
from coverwell.inputs.frames import columns_of, read
from coverwell.model_file import load_predictor
from coverwell.options import levels_from
from coverwell.prediction import Prediction, class_names, columns_of_classes, prediction_columns
from coverwell.sets import ClassPredictor
from coverwell.training.device import device_from

if TYPE_CHECKING:
    import polars as pl

ONNX = ".onnx"
ROWS_AT_A_TIME = 1024  # through an ONNX graph: with "cv+", a row compares all scores
Levels = tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """Predictions column by column, what the model warns of, and how many rows lie outside its training range."""

    columns: list[Any]
    warnings: list[str]
    n_outside: int | None  # None where that is not known


@dataclass(frozen=True)
class ServedModel(ABC):
    """What requests are checked against, and answered by."""

    path: Path
    columns: tuple[Column, ...]
    is_named: bool  # whether the model was fitted on columns with names
    fills_gaps: bool  # whether values may be missing
    targets: tuple[str, ...]
    levels: Levels
    classes: NDArray[Any] | None

    has_all_levels = True  # or only those of the fit
    counts_outside = True  # whether the training range is known

    def answer_names(self, levels: Levels, shares: Sequence[float]) -> list[str]:
        """The columns of an answer: those of `coverwell predict`."""
        classes = None if self.classes is None else class_names(self.classes)
        return prediction_columns(self.targets, levels, (), shares, classes)

    @abstractmethod
    def answer(self, rows: pl.DataFrame, levels: Levels, shares: Sequence[float], *, in_text: bool) -> Answer:
        """The columns named by `answer_names`, for rows with the model's columns, of its kinds."""


@dataclass(frozen=True)
class StoredModel(ServedModel):
    """A `.safetensors` file: the numbers of `coverwell predict`."""

    source: Any
    predictor: Any

    @classmethod
    def load(cls, path: Path, device: str) -> StoredModel:
        source, predictor, targets = load_predictor(path)
        if source.columns is None:
            (n_columns,) = source.row_shape
            names = source.table_columns or _numbered(n_columns)
            columns = tuple(map(_of_numbers, names, predictor.inputs.centre.tolist()))
        else:
            columns = source.columns.columns
        about = source.table_columns is not None, source.columns is not None, targets, predictor.levels
        classes = predictor.classes if isinstance(predictor, ClassPredictor) else None
        return cls(path, columns, *about, classes, source, predictor.to(device_from(device)))

    def answer(self, rows: pl.DataFrame, levels: Levels, shares: Sequence[float], *, in_text: bool) -> Answer:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            X = self.source.rows(rows if self.is_named else rows.to_numpy(), None)
            outside = self.predictor.inputs.count_outside(X)
            outside.warn(self.source.names)
            if self.classes is None:
                columns = self.predictor.prediction(X, levels, list(shares)).columns
            else:
                p, sets = self.predictor.classified(X, levels)
                columns = columns_of_classes(p, sets, self.classes, in_text=in_text)
        own = [one for one in caught if one.category.__module__.startswith("coverwell")]
        told = [" ".join(str(one.message).split()) for one in own]
        return Answer(columns, list(dict.fromkeys(told)), outside.n_outside)


@dataclass(frozen=True)
class ExportedModel(ServedModel):
    """An `.onnx` file that `coverwell export` wrote, run by onnxruntime."""

    session: Any

    has_all_levels = counts_outside = False

    @classmethod
    def load(cls, path: Path) -> ExportedModel:
        session = _session(path)
        try:
            metadata = json.loads(session.get_modelmeta().custom_metadata_map["coverwell"])
            if (kind := metadata["kind"]) != "table":
                what = f"{path} is of the kind {kind!r}, and the service takes tables"
                raise ModelFileError(f"{what}; run it by onnxruntime, as docs/export.md shows")
            columns = tuple(map(_column, metadata["columns"]))
            fills_gaps = all("missing" in column for column in metadata["columns"])
            is_named = [column.name for column in columns] != _numbered(len(columns))
            targets, levels = tuple(map(str, metadata["targets"])), levels_from(metadata["levels"])
            classes = (
                np.array(metadata["classes"], dtype=_dtype(metadata["classes"])) if "classes" in metadata else None
            )
            model = cls(path, columns, is_named, fills_gaps, targets, levels, classes, session)
            model._check()
        except ModelFileError:
            raise
        except Exception as error:  # onnxruntime has errors of its own
            reason = " ".join(str(error).split())[:200]
            what = f"{path} must be a file that coverwell export wrote for a table"
            raise ModelFileError(f"{what} ({type(error).__name__}: {reason}); export the model again") from error
        return model

    def _check(self) -> None:
        """Raise unless a row has an answer of the right shapes."""
        outputs = self._outputs(np.zeros((1, len(self.columns))))
        n_levels, n_values = len(self.levels), len(self.targets if self.classes is None else self.classes)
        shapes = [(1, n_values), *[(1, n_values, n_levels)] * (2 if self.classes is None else 1)]
        if [output.shape for output in outputs] != shapes or not self.columns or not self.targets:
            raise ValueError(f"its outputs must have the shapes {shapes}, got {[output.shape for output in outputs]}")

    def _outputs(self, matrix: NDArray[np.float64]) -> list[NDArray[Any]]:
        names = ["prediction", "lower", "upper"] if self.classes is None else ["probability", "sets"]
        parts = (matrix[first : first + ROWS_AT_A_TIME] for first in range(0, len(matrix), ROWS_AT_A_TIME))
        found = [self.session.run(names, {"X": part}) for part in parts]
        return [np.concatenate(output) for output in zip(*found, strict=True)]

    def answer(self, rows: pl.DataFrame, levels: Levels, shares: Sequence[float], *, in_text: bool) -> Answer:
        given, units = columns_of(rows), [1e6 if column.kind == "times" else 1.0 for column in self.columns]
        codes = [column.codes(column.read(read(given[column.name]))) for column in self.columns]
        outputs = self._outputs(np.column_stack(codes) / units)
        places = [self.levels.index(level) for level in levels]
        bounds = [output[..., places] for output in outputs[1:]]
        if self.classes is not None:
            return Answer(columns_of_classes(outputs[0], bounds[0], self.classes, in_text=in_text), [], None)
        return Answer(Prediction(outputs[0], *bounds).columns, [], None)


def load_served(path: Path, *, device: str = "auto") -> ServedModel:
    """The model of a file that `coverwell fit` or `coverwell export` wrote."""
    model = ExportedModel.load(path) if path.suffix.lower() == ONNX else StoredModel.load(path, device)
    for column in model.columns:
        try:
            ZoneInfo(column.zone or "UTC")
        except (LookupError, OSError, ValueError):
            has = f"column {column.name} of {path} has times in the zone {column.zone!r}"
            raise ModelFileError(f"{has}, which is not known here; install tzdata, or fit on times in UTC") from None
    return model


def _session(path: Path) -> Any:
    try:
        onnxruntime = import_module("onnxruntime")
    except ImportError:
        way_out = "install the extra `onnx`: pip install 'coverwell[onnx]'"
        raise ImportError(f"a file that ends in {ONNX} needs onnxruntime; {way_out}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    try:
        return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except OSError:
        raise
    except Exception as error:  # of many kinds, all of them onnxruntime's own
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"{path} is damaged or not an ONNX file ({reason}); export the model again") from None


def _column(entry: dict[str, Any]) -> Column:
    """A column as the metadata of an ONNX file describe it."""
    codes = entry.get("codes", {}) if entry["kind"] == "text" else {}
    if entry["kind"] not in KINDS or list(codes.values()) != list(range(len(codes))):
        raise ValueError(f"a column must be of a known kind, with codes from 0 on, got {entry}")
    median = float(entry.get("median", 0)) * (1e6 if entry["kind"] == "times" else 1)
    return Column(str(entry["name"]), entry["kind"], median, tuple(codes), entry.get("zone"))


def _of_numbers(name: str, centre: float) -> Column:
    return Column(name, "numbers", centre)


def _numbered(n_columns: int) -> list[str]:
    """The columns of a model that was fitted on an array, as in the metadata of an ONNX file."""
    return [f"column {number}" for number in range(n_columns)]


def _dtype(classes: list[Any]) -> Any:
    return object if all(isinstance(label, str) for label in classes) else None
