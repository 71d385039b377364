"""Fitted models in MLflow (extra `mlflow`): one safetensors file, no pickle, and data frames with intervals or sets.

The artifact is what `coverwell.save` writes, beside MLflow's own description of it. Loading runs this module and
`coverwell.load`, and no code from the artifact.
"""

from __future__ import annotations

import platform
import shutil
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coverwell._version import __version__
from coverwell.errors import ModelFileError
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.inputs.columns import Column
from coverwell.inputs.source import TableSource
from coverwell.model_file import load, save
from coverwell.options import levels_from
from coverwell.prediction import Prediction, prediction_columns

if TYPE_CHECKING:
    import pandas as pd

try:
    with warnings.catch_warnings():  # MLflow's own, about its types for chats
        warnings.filterwarnings("ignore", message=".*hint is inferred as AnyType")
        import mlflow
        import mlflow.artifacts
        import mlflow.pyfunc
        from mlflow.models import Model, ModelSignature
        from mlflow.models.model import ModelInfo
        from mlflow.models.utils import _save_example
        from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
        from mlflow.types.schema import AnyType, Array
except ImportError:
    raise ImportError("coverwell.mlflow needs MLflow 3.17 or later: pip install 'coverwell[mlflow]'") from None

__all__ = ["IntervalModel", "load_model", "log_model", "log_rounds", "save_model"]

FLAVOR_NAME = "coverwell"
MODEL_FILE, REQUIREMENTS, ENVIRONMENT = "model.safetensors", "requirements.txt", "python_env.yaml"
PACKAGES = ("torch", "scikit-learn", "numpy", "scipy", "pandas", "safetensors", "mlflow-skinny")
KINDS = {"b": "boolean", "i": "long", "u": "long", "f": "double", "U": "string"}  # of classes


def save_model(
    model: Any,
    path: str | Path,
    *,
    mlflow_model: Model | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a fitted model into a new folder that MLflow can load.

    Parameters
    ----------
    model : fitted regressor, classifier or forecaster
        One that `coverwell.load` reads without objects of the user's own.
    path : str or path
        A folder that does not exist yet, or is empty.
    mlflow_model : mlflow.models.Model, optional
        What `log_model` hands over.
    signature : ModelSignature, optional
        By default the columns of the fit by name, in which the loaded model finds wrong values itself, and those of
        the result.
    input_example : data frame or array, optional
        By default a typical row of a table: medians, and the most frequent levels.
    pip_requirements : list of str, optional
        By default coverwell and what it rests on, in the versions of this process.
    metadata : dict, optional
        Whatever else MLflow is to keep.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coverwell import MatchedRegressor, MLP, Schedule
    >>> X, y = np.eye(40, 3), np.arange(40)
    >>> model = MatchedRegressor(network=MLP(hidden=8), schedule=Schedule(max_rounds=1), repeats=1).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/model")
    ...     mlflow.pyfunc.load_model(f"{folder}/model").predict(X[:2]).columns.tolist()
    ['y', 'y_lower_0.9', 'y_upper_0.9']
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"path must be a new or an empty folder, got {folder}; remove it, or choose another")
    description = Model() if mlflow_model is None else mlflow_model
    folder.mkdir(parents=True, exist_ok=True)
    try:
        served = _saved(model, folder / MODEL_FILE)
        description.signature = served.signature if signature is None else signature
        example = served.typical_row if input_example is None else input_example
        if example is not None:
            with warnings.catch_warnings():  # MLflow's own, which is a step behind pandas
                warnings.simplefilter("ignore", DeprecationWarning)
                _save_example(description, example, str(folder))
        if metadata is not None:
            description.metadata = metadata
        _write_environment(folder, pip_requirements)
        mlflow.pyfunc.add_to_model(description, loader_module=__name__, data=MODEL_FILE, python_env=ENVIRONMENT)
        description.add_flavor(FLAVOR_NAME, data=MODEL_FILE, model_class=type(model).__name__, version=__version__)
        description.save(str(folder / "MLmodel"))
    except BaseException:  # Ctrl-C too: whole or not at all
        shutil.rmtree(folder)
        raise


def _saved(model: Any, path: Path) -> IntervalModel:
    """The model as it is read from the file that is written here."""
    save(model, path)
    try:
        return IntervalModel(load(path))
    except ModelFileError as error:
        raise TypeError(f"MLflow must load a model without code of its user's; use coverwell.save: {error}") from None


def log_model(model: Any, name: str = "model", **options: Any) -> ModelInfo:
    """Log a fitted model to the active run, or to a new one; returns what MLflow knows of it, `model_uri` among it.

    Parameters
    ----------
    model : fitted regressor, classifier or forecaster
    name : str
    **options
        Those of `save_model`, and of `mlflow.models.Model.log`, such as `registered_model_name`.
    """
    logged: ModelInfo = Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **options)
    return logged


def load_model(model_uri: str, dst_path: str | None = None) -> Any:
    """The estimator itself, as `coverwell.load` gives it, from a URI of MLflow such as "runs:/.../model"."""
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri), dst_path=dst_path))
    flavors = Model.load(str(folder / "MLmodel")).flavors
    if FLAVOR_NAME not in flavors:
        raise ModelFileError(f"{model_uri} must have the flavour {FLAVOR_NAME}, got {', '.join(sorted(flavors))}")
    return load(folder / MODEL_FILE)


def log_rounds(model: Any) -> None:
    """Log the measures of each round to the active run, the round as step: means over targets and levels."""
    for number, one in enumerate(model.rounds_, start=1):
        measures = {name: float(np.mean(value)) for name, value in vars(one).items() if value is not None}
        mlflow.log_metrics(measures, step=number)


def _write_environment(folder: Path, pip_requirements: list[str] | None) -> None:
    pinned = [f"{package}=={version(package).partition('+')[0]}" for package in PACKAGES]
    lines = [f"coverwell=={__version__}", *pinned] if pip_requirements is None else pip_requirements
    (folder / REQUIREMENTS).write_text("".join(f"{line}\n" for line in lines))
    dependencies = f'build_dependencies: [pip]\ndependencies: ["-r {REQUIREMENTS}"]\n'
    (folder / ENVIRONMENT).write_text(f'python: "{platform.python_version()}"\n{dependencies}')


def _load_pyfunc(path: str) -> IntervalModel:
    """What MLflow calls for `mlflow.pyfunc.load_model`."""
    return IntervalModel(load(path))


class IntervalModel:
    """A fitted model as MLflow's pyfunc: a data frame with the columns that `coverwell predict` writes.

    Parameters
    ----------
    model : fitted regressor, classifier or forecaster
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.forecasts = isinstance(model, SeriesForecaster)
        self.targets = (model.history_.name,) if self.forecasts else model.target_names_
        self.classes: NDArray[Any] | None = getattr(model, "classes_", None)
        self.levels: tuple[float, ...] = (model.regressor_ if self.forecasts else model).predictor_.levels

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions with intervals or sets; `params` may hold `coverage`, a list of levels.

        A forecaster takes rows of covariates for the next steps, or nothing.
        """
        import pandas as pd

        coverage = (params or {}).get("coverage")
        levels = self.levels if coverage is None or not np.size(coverage) else tuple(sorted(levels_from(coverage)))
        index = getattr(model_input, "index", None)
        if self.forecasts:
            columns, index = self._next_steps(model_input, levels)
        elif not isinstance(self.model.source_, TableSource) or self.model.source_.table_columns is not None:
            columns = self._columns(model_input, levels)
        else:
            columns = self._columns(np.asarray(model_input), levels)
        return pd.DataFrame(dict(zip(self._names(levels), columns, strict=True)), index=index)

    def _columns(self, X: Any, levels: tuple[float, ...]) -> list[Any]:
        model = self.model
        if self.classes is None:
            prediction: Prediction = model.predicted(X, levels)
            return prediction.columns
        p, sets = model.classified(X, levels)
        lists = [[self.classes[row].tolist() for row in members] for members in np.moveaxis(sets, 2, 0)]
        return [self.classes[p.argmax(axis=1)], *p.T, *lists]

    def _next_steps(self, covariates: Any, levels: tuple[float, ...]) -> tuple[list[Any], Any]:
        rows = covariates if covariates is not None and len(covariates) else None
        interval = self.model.predict_interval(levels, covariates=rows)
        predicted = self.model.predict()  # a polars frame has a column of times beside
        mean = np.asarray(predicted[self.targets[0]] if hasattr(predicted, "columns") else predicted)
        found = Prediction(mean[:, None], interval.lower[:, None], interval.upper[:, None])
        return found.columns, interval.index

    def _names(self, levels: tuple[float, ...]) -> list[str]:
        labels = None if self.classes is None else [_in_words(label) for label in self.classes.tolist()]
        return prediction_columns(self.targets, levels, classes=labels)

    @property
    def signature(self) -> ModelSignature:
        """Columns and their types. Those of X are any: the model says itself which values it cannot read."""
        source, inputs = getattr(self.model, "source_", None), None
        if isinstance(source, TableSource):
            names = source.table_columns
            unnamed = TensorSpec(np.dtype(np.float64), (-1, *source.row_shape))
            inputs = Schema([unnamed] if names is None else [ColSpec(AnyType(), name) for name in names])
        types: list[Any] = ["double"] * len(self._names(self.levels))
        if self.classes is not None:
            label = DataType[KINDS[self.classes.dtype.kind]]
            types = [label, *["double"] * len(self.classes), *[Array(label)] * len(self.levels)]
        outputs: list[Any] = [ColSpec(kind, name) for kind, name in zip(types, self._names(self.levels), strict=True)]
        params = ParamSchema([ParamSpec("coverage", "double", list(self.levels), shape=(-1,))])
        return ModelSignature(inputs, Schema(outputs), params)

    @property
    def typical_row(self) -> Any:
        """A row of medians and most frequent levels; None without a table, or where times have a zone.

        An example is kept as JSON, which has no names of zones.
        """
        import pandas as pd

        source = getattr(self.model, "source_", None)
        if not isinstance(source, TableSource):
            return None
        if source.columns is None:
            centre = self.model.predictor_.inputs.centre.cpu().numpy().reshape(1, -1)
            return centre if source.names is None else pd.DataFrame(centre, columns=list(source.names))
        columns = source.columns.columns
        zoned = any(column.zone for column in columns)
        return None if zoned else pd.DataFrame({column.name: [_typical(column)] for column in columns})


def _in_words(label: Any) -> str:
    """A class as `coverwell predict` writes it."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _typical(column: Column) -> Any:
    """The most frequent level of text, or the median."""
    import pandas as pd

    match column.kind:
        case "text":
            return column.levels[0] if column.levels else None
        case "booleans":
            return bool(column.median)
        case "times":
            return pd.Timestamp(int(column.median), unit="us")
    return column.median
