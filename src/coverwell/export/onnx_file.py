"""A fitted estimator as one ONNX file, whose numbers are compared with the estimator's before it is written."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from coverwell._version import __version__
from coverwell.estimator import IntervalRegressor
from coverwell.export.drafts import Draft, promise_of
from coverwell.export.graph import needed
from coverwell.export.pictures import draft_of_pictures
from coverwell.export.series import draft_of_series
from coverwell.export.tables import draft_of_table
from coverwell.files import new_file
from coverwell.forecasting.forecaster import SeriesForecaster
from coverwell.inputs.source import ImageSource

__all__ = ["KEY", "LARGEST_DIFFERENCE", "to_onnx"]

KEY = "coverwell"  # of the metadata
FORMAT = 1  # grows when names, shapes or meanings change
PRECISIONS = {"float32": np.float32, "float64": np.float64}
LARGEST_DIFFERENCE = 1e-5  # of predictions and bounds, in standard deviations of the target
MOST_BYTES = 2**31 - 1  # that protobuf can hold
WHAT_OUTPUTS_ARE = {
    "prediction": "in the units of the targets, in the order of `targets`",
    "lower": "the lower bound of each target at each of `levels`",
    "upper": "the upper bound of each target at each of `levels`",
    "joint_lower": "the same of boxes that hold all targets together",
    "joint_upper": "the same of boxes that hold all targets together",
}


def to_onnx(
    model: Any,
    path: str | os.PathLike[str],
    *,
    precision: str = "float32",
    model_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Write a fitted regressor or forecaster as one ONNX file, whole or not at all, and return its metadata.

    Names, types and shapes of inputs and outputs, and what the metadata hold, are in docs/export.md. The graph is run
    in onnxruntime first; nothing is written unless its predictions and bounds are those of the model within 1e-5
    standard deviations of the target.

    Parameters
    ----------
    model : fitted estimator of ours
        On tables or pictures, or a forecaster.
    path : str or path
        By custom it ends in `.onnx`. An existing file is replaced once the new one is complete.
    precision : "float32" or "float64", default="float32"
        In which fully connected networks are computed. All else before and after networks is float64, LSTMs and
        networks for pictures float32.
    model_file : path, optional
        The file that the model was loaded from; its sha256 is noted in the metadata.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_regression
    >>> from coverwell import MLP, MatchedRegressor
    >>> from coverwell.export import to_onnx
    >>> X, y = make_regression(n_samples=40, n_features=3, random_state=0)
    >>> model = MatchedRegressor(network=MLP(hidden=8), max_rounds=1, repeats=1, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metadata = to_onnx(model, f"{folder}/model.onnx")
    >>> [(entry["name"], entry["shape"]) for entry in metadata["outputs"]]
    [('prediction', ['row', 1]), ('lower', ['row', 1, 1]), ('upper', ['row', 1, 1])]
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be 'float32' or 'float64', got {precision!r}")
    for package in ("onnx", "onnxruntime"):
        needed(package)
    draft = _draft(model, PRECISIONS[precision])
    metadata = _metadata(model, draft, precision, model_file)
    about = f"{metadata['class']}: prediction intervals, exported by coverwell {__version__}"
    content = _serialized(draft.graph.model(draft.outputs, {KEY: json.dumps(metadata, ensure_ascii=False)}, about))
    _check(draft, content)
    with new_file(Path(path)) as file:
        file.write(content)
    return metadata


def _draft(model: Any, precision: Any) -> Draft:
    if not isinstance(model, IntervalRegressor | SeriesForecaster):
        raise TypeError(f"to_onnx takes a fitted regressor or forecaster of coverwell, got {type(model).__name__}")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit before it is exported") from None
    if isinstance(model, SeriesForecaster):
        return draft_of_series(model, precision)
    return (draft_of_pictures if isinstance(model.source_, ImageSource) else draft_of_table)(model, precision)


def _metadata(model: Any, draft: Draft, precision: str, model_file: str | os.PathLike[str] | None) -> dict[str, Any]:
    regressor = model.regressor_ if isinstance(model, SeriesForecaster) else model
    series = isinstance(model, SeriesForecaster)
    targets = [f"step {number + 1}" for number in range(len(regressor.target_names_))] if series else None
    calibration = regressor.calibration
    return {
        "format": FORMAT,
        "version": __version__,
        "class": type(model).__name__,
        **draft.told,
        "targets": targets or list(regressor.target_names_),
        "levels": list(regressor._fitted_levels),
        "inputs": [given.told() for given in draft.graph.inputs],
        "outputs": [
            {"name": name, "type": "float64", "shape": ["row", *sizes], "is": WHAT_OUTPUTS_ARE[name]}
            for name, (_, sizes) in draft.outputs.items()
        ],
        "calibration": calibration,
        "promise": promise_of(calibration),
        "precision": precision,
        "model_sha256": None if model_file is None else hashlib.sha256(Path(model_file).read_bytes()).hexdigest(),
    }


def _serialized(made: Any) -> bytes:
    if made.ByteSize() > MOST_BYTES:
        raise ValueError(
            f"an ONNX file may have up to {MOST_BYTES:,} bytes, this model takes more; fit with fewer members "
            "(repeats, members, n_samples) or a smaller network"
        )
    content: bytes = made.SerializeToString(deterministic=True)
    return content


def _check(draft: Draft, content: bytes) -> None:
    """Raise unless onnxruntime, given the examples, says what the model says."""
    if draft.between:
        content = _serialized(draft.graph.model({**draft.outputs, **draft.between}, {}, "to be checked"))
    said = _run(content, draft.examples)
    expected = draft.expected({name: said[name] for name in draft.between})
    for name in draft.outputs:
        unit = draft.unit if said[name].ndim == 2 else draft.unit[:, None]
        largest = float(np.max(np.abs(said[name] - expected[name]) / unit))
        if not largest <= LARGEST_DIFFERENCE:  # NaN is a difference too
            raise ValueError(
                f"the exported graph must give the model's numbers within {LARGEST_DIFFERENCE:g} standard deviations "
                f"of the target, but its {name} lies {largest:.2g} away; nothing was written. Export with "
                "precision='float64'; if that does not help, the model cannot be exported"
            )


def _run(content: bytes, examples: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    onnxruntime = needed("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own, one for each status
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"onnxruntime {onnxruntime.__version__} cannot run this model ({reason})") from error
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, examples), strict=True))
