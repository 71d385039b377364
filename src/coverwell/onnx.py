"""A fitted estimator as one ONNX file, which runs without torch and from other languages.

torch's exporter reads the model's own `Predictor`, behind a few layers that make rows from raw numbers: columns of a
table, images, or the last steps of a series. onnxruntime must give the model's numbers before the file is written.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from coverwell._version import __version__
from coverwell.estimator import IntervalRegressor
from coverwell.files import new_file
from coverwell.inputs.columns import Booleans, Categories, Column, Columns, Times
from coverwell.inputs.images import ROUNDING
from coverwell.inputs.source import ImageSource
from coverwell.networks.mlp import MLPTeam, StackedLinear
from coverwell.networks.team import Team
from coverwell.predictor import Predictor

__all__ = ["to_onnx"]

Array = NDArray[np.float64]

OPSET, IR_VERSION = 18, 9  # what onnxruntime 1.17 and later read
FORMAT = 2  # of the metadata; grows when names, shapes or meanings change
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
LARGEST_DIFFERENCE = 1e-5  # of predictions and bounds, in standard deviations of the target
LARGEST_FEATURE_DIFFERENCE = 1e-4  # of an image's features before they are rounded, relative to their size
MOST_SCORES = 20_000  # of "cv+", all of which are compared for every row
MOST_BYTES = 2**31 - 1  # that protobuf can hold
OUTPUTS = {
    "prediction": "in the units of the targets, in the order of `targets`",
    "lower": "the lower bound of each target at each of `levels`",
    "upper": "the upper bound of each target at each of `levels`",
    "joint_lower": "the lower bounds of boxes that hold all targets together",
    "joint_upper": "the upper bounds of boxes that hold all targets together",
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
        For tables or images, or a forecaster.
    path : str or path
        An existing file is replaced once the new one is complete.
    precision : "float32" or "float64", default="float32"
        In which fully connected networks are computed. Everything before and after networks is float64; LSTMs, networks
        for images and networks of your own are float32.
    model_file : path, optional
        The file that the model was loaded from; its sha256 is noted in the metadata.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coverwell import MLP, MatchedRegressor, Schedule
    >>> from coverwell.onnx import to_onnx
    >>> X, y = np.eye(40, 3), np.arange(40)
    >>> model = MatchedRegressor(network=MLP(hidden=8), schedule=Schedule(max_rounds=1), repeats=1).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     metadata = to_onnx(model, f"{folder}/model.onnx")
    >>> [(entry["name"], entry["shape"]) for entry in metadata["outputs"]]
    [('prediction', ['row', 1]), ('lower', ['row', 1, 1]), ('upper', ['row', 1, 1])]
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be 'float32' or 'float64', got {precision!r}")
    for package in ("onnx", "onnxruntime", "onnxscript"):
        _needed(package)
    graph = _Graph(_front(model), PRECISIONS[precision])
    metadata = _metadata(model, graph, precision, model_file)
    proto = _exported(graph)
    _describe(proto, metadata)
    _check(graph, proto)
    del proto.graph.output[len(graph.outputs) :]  # the features of images, which were there to be checked
    with new_file(Path(path)) as file:
        file.write(_serialized(proto))
    return metadata


def _front(model: Any) -> _Front:
    if not isinstance(model, IntervalRegressor):
        raise TypeError(f"to_onnx takes a fitted regressor or forecaster of coverwell, got {type(model).__name__}")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit before it is exported") from None
    source = model.source_
    return _Images(model, source) if isinstance(source, ImageSource) else _Table(model)


# From raw inputs to rows.


class _Front(nn.Module):
    """The layers before the networks: from inputs to rows, and what is added to a row's outputs, NaN if it is no row.

    Attributes
    ----------
    model : Predictor
        What is exported.
    inputs : list of dict
        Their names, types and shapes, and what each is.
    examples : dict of arrays
        The inputs of a few rows, for which the graph is compared with the model.
    described : dict
        What the metadata say about the rows.
    """

    described: dict[str, Any]

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model = (predictor,)  # in a tuple: no layer of this one
        self.inputs: list[dict[str, Any]] = []
        self.examples: dict[str, NDArray[Any]] = {}

    def add(self, name: str, examples: NDArray[Any], about: str) -> None:
        """One more input."""
        shape = ["row", *examples.shape[1:]]
        self.inputs.append({"name": name, "type": examples.dtype.name, "shape": shape, "is": about})
        self.examples[name] = examples

    def own_rows(self, features: NDArray[Any] | None) -> tuple[NDArray[Any], Array]:
        """Rows of the examples as the model itself makes them, and what is added to their outputs."""
        raise NotImplementedError


class _Table(_Front):
    """The columns of a table: numbers as they are, codes of categories, and seconds since 1970 by the local clock."""

    def __init__(self, model: IntervalRegressor) -> None:
        super().__init__(model.predictor_)
        self.columns, scaling = model.source_.columns, model.predictor_.inputs
        names = getattr(model, "feature_names_in_", [f"column {number}" for number in range(model.n_features_in_)])
        described = [{"name": str(name), "kind": "numbers"} for name in names]
        rng = np.random.default_rng(0)
        rows = scaling.inverse(torch.from_numpy(rng.normal(size=(64, *scaling.shape)))).numpy()
        if self.columns is not None:
            described = [_described(column) for column in self.columns.columns]
            rows = _raw_examples(self.columns, rows, rng)
        unit = [1e6 if entry["kind"] == Times.name else 1.0 for entry in described]  # times are read in microseconds
        self.register_buffer("unit", torch.tensor(unit, dtype=torch.float64))
        self.described = {"kind": "table", "columns": described}
        self.add("X", rows, "one column per raw column, in the order of `columns`")

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        rows = X if self.columns is None else self.columns.features(X * self.unit)
        return rows, (rows - rows).sum(dim=1, keepdim=True)

    def own_rows(self, features: NDArray[Any] | None) -> tuple[NDArray[Any], Array]:
        X = self.examples["X"]
        return X if self.columns is None else self.columns.features(X * self.unit.numpy()), np.zeros((len(X), 1))


def _described(column: Column) -> dict[str, Any]:
    """How a raw column is written as numbers, for whoever fills the matrix."""
    kind, entry = column.kind, {"name": column.name, "kind": column.kind.name, "missing": "NaN"}
    if isinstance(kind, Categories):
        return {**entry, "codes": {level: code for code, level in enumerate(kind.levels)}, "unknown": -1}
    if isinstance(kind, Booleans):
        return {**entry, "codes": {"false": 0, "true": 1}}
    return {**entry, "unit": _seconds_by_the_clock(kind.zone)} if isinstance(kind, Times) else entry


def _seconds_by_the_clock(zone: str | None) -> str:
    return f"seconds from 1970-01-01T00:00 to what the clock shows{'' if zone is None else f' in {zone}'}"


def _raw_examples(columns: Columns, features: Array, rng: np.random.Generator) -> Array:
    """Raw rows near those of the training, from features that are; some values are missing."""
    raw = rng.normal(size=(len(features), len(columns.columns)))
    for place, column in enumerate(columns.columns):
        if column.name in columns.feature_names:
            raw[:, place] = features[:, columns.feature_names.index(column.name)]
        if isinstance(column.kind, Times):
            raw[:, place] = np.floor(raw[:, place] * 86_400)
        elif isinstance(column.kind, Booleans):
            raw[:, place] = rng.integers(0, 2, len(raw))
        elif isinstance(column.kind, Categories):
            raw[:, place] = rng.integers(-1, len(column.kind.levels), len(raw))
    raw[rng.random(raw.shape) < 0.1] = np.nan
    return raw


class _Images(_Front):
    """Pixels, and what the frozen layers make of them; the features are one output more, to be checked."""

    def __init__(self, model: IntervalRegressor, source: ImageSource) -> None:
        super().__init__(model.predictor_)
        self.size, self.mirrored, self.trunk = source.size, source.mirroring is not None, copy.deepcopy(source.trunk)
        mirror = None if source.mirroring is None else source.mirroring.targets
        self.described = {"kind": "images", "size": self.size, "mirror": mirror}
        pixels = np.random.default_rng(0).random((2, 3, self.size, self.size), dtype=np.float32)
        self.add("X", pixels, f"RGB in [0, 1], squeezed to {self.size} x {self.size} (bilinear, with antialiasing)")

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        pixels = X.clamp(0, 1)
        beyond = torch.where((X - pixels).abs() > ROUNDING, torch.nan, X)  # the model refuses what is no image
        features = self.trunk(pixels)
        if self.mirrored:
            features = torch.stack([features, self.trunk(pixels.flip(-1))], dim=1)
        return features, (beyond - beyond).double().sum(dim=(1, 2, 3))[:, None]

    def own_rows(self, features: NDArray[Any] | None) -> tuple[NDArray[Any], Array]:
        """The graph's own features, after these were found to be the model's.

        One that lies between two numbers of float16 is rounded up by one way to compute it and down by another, which
        would hide an error of the layers behind it.
        """
        assert features is not None  # they are an output of the graph
        X = self.examples["X"]
        with torch.no_grad():
            own = self(torch.from_numpy(X))[0].double().numpy()
        largest = float(np.max(np.abs(features - own) / (np.abs(own) + np.sqrt(np.mean(own**2)))))
        if not largest <= LARGEST_FEATURE_DIFFERENCE:
            raise ValueError(
                f"the exported trunk must give the model's features within {LARGEST_FEATURE_DIFFERENCE:g} of their "
                f"size, but they lie {largest:.2g} apart; nothing was written"
            )
        return features.astype(np.float16), np.zeros((len(X), 1))


# The graph.


class _Graph(nn.Module):
    """From raw inputs to the outputs of a file."""

    def __init__(self, front: _Front, precision: torch.dtype) -> None:
        super().__init__()
        (predictor,) = front.model
        self.front, self.predictor, self.images = front, _plain(predictor, precision), isinstance(front, _Images)
        n_targets = predictor.fitted_teams[0].targets.shape[0]
        self.outputs = list(OUTPUTS)[: 5 if n_targets > 1 and predictor.correction.is_joint else 3]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        features, added = self.front(*inputs)
        rows = features.half().float() if self.images else features  # as estimators keep features of images
        means, half_widths = (list(part) for part in zip(*(team(rows) for team in self.predictor.teams), strict=True))
        outputs = [torch.stack(means).mean(dim=0)]
        for joint in (False, True)[: len(self.outputs) // 2]:
            outputs += self.predictor.correction(means, half_widths, self.predictor.levels, joint)
        results = [output + (added if output.ndim == 2 else added[..., None]) for output in outputs]
        return (*results, features) if self.images else tuple(results)


def _plain(predictor: Predictor, precision: torch.dtype) -> Predictor:
    """A copy for torch's exporter: all rows at once, sampled networks in place, in the precision of the file."""
    n_scores = sum(len(part) for part in predictor.correction.scores)
    if n_scores > MOST_SCORES:
        raise ValueError(
            f"calibration='cv+' compares the scores of all training rows for every row; exported it may have up to "
            f"{MOST_SCORES:,}, got {n_scores:,}; fit with calibration='cross' or 'split', which need one factor"
        )
    teams = [team.for_export() for team in copy.deepcopy(predictor).cpu().fitted_teams]
    for team in teams:
        team.in_chunks = False
        _set_plain_layers(team, precision)
    return Predictor(predictor.levels, teams, predictor.correction)


def _set_plain_layers(module: nn.Module, precision: torch.dtype) -> None:
    """Put layers in place that a graph can run as well: fully connected teams in the precision of the file."""
    for name, child in module.named_children():
        if isinstance(child, MLPTeam):
            setattr(module, name, _MLP(child, precision))
        elif isinstance(child, StackedLinear):
            setattr(module, name, _Linear(child, child.weight.dtype))
        else:
            _set_plain_layers(child, precision)
        if isinstance(child, Team) and child.recipe is None:  # of the user's
            child.float().precision = torch.float32


class _Linear(nn.Module):
    """A linear layer of each member, `(1 or member, batch, feature) -> (member, batch, output)`."""

    def __init__(self, layer: StackedLinear, precision: torch.dtype, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter((gain * layer.weight).to(precision), requires_grad=False)
        self.bias = nn.Parameter(layer.bias.to(precision), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = x.to(self.weight.dtype) @ self.weight + self.bias
        return outputs


class _MLP(Team):
    """A deployed MLP team. Inputs are coded once for all members, in float64: bins may be narrower than float32."""

    def __init__(self, team: MLPTeam, precision: torch.dtype) -> None:
        super().__init__()
        self.n_members, self.code, (first, *others) = team.n_members, team.code, team.layers
        if self.code is not None:
            self.code.start, self.code.slope = self.code.start[:1], self.code.slope[:1]
        self.layers = nn.Sequential(_Linear(first, precision))
        for layer in others:
            self.layers.extend([nn.ReLU(), _Linear(layer, precision, gain=1 - team.rate)])

    def for_members(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x if self.code is None else self.code(x))
        return outputs


def _exported(graph: _Graph) -> Any:
    """The ONNX model; what torch cannot export is an error of one line."""
    names, outputs = list(graph.front.examples), graph.outputs + ["features"] * graph.images
    examples = tuple(torch.from_numpy(given[[0, 0, 0]]) for given in graph.front.examples.values())
    shapes = (tuple({0: torch.export.Dim("row", max=2**31)} for _ in names),)
    try:
        with _silence(), torch.no_grad():
            # Read by torch.export here: some versions of torch.onnx else fall back to what one example row makes it do.
            read = torch.export.export(graph.eval(), examples, dynamic_shapes=shapes, strict=False)
            _write_out_softplus(read.graph)
            named = {"input_names": names, "output_names": outputs}
            program: Any = torch.onnx.export(read, dynamo=True, opset_version=OPSET, verbose=False, **named)
            proto = _needed("onnx.inliner").inline_local_functions(program.model_proto)
    except Exception as error:  # the exporter raises nearly anything about what it cannot read
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"this model cannot be exported: torch.onnx ended with {type(error).__name__} ({reason}); give a network "
            "of your own a forward of plain tensor operations, or fit with one of ours, such as MLP()"
        ) from error
    _restore_numbers(proto, read.graph)
    _never_empty(proto.graph)
    return proto


def _write_out_softplus(graph: torch.fx.Graph) -> None:
    """log(1 + exp(x)) as relu(x) + log(1 + exp(-|x|)): onnxruntime's own is computed in float32."""
    aten = torch.ops.aten
    for node in [node for node in graph.nodes if node.target is aten.softplus.default]:
        with graph.inserting_before(node):
            value = node.args[0]
            for function in (aten.abs, aten.neg, aten.exp, aten.log1p):
                value = graph.call_function(function.default, (value,))
            above = graph.call_function(aten.relu.default, node.args[:1])
            node.replace_all_uses_with(graph.call_function(aten.add.Tensor, (above, value)))
        graph.erase_node(node)


def _restore_numbers(proto: Any, graph: torch.fx.Graph) -> None:
    """Numbers in the code as they were: the exporter rounds them to float32, also where all else is float64."""
    helper = _needed("onnx.numpy_helper")
    given = [value for node in graph.nodes for value in (*node.args, *node.kwargs.values())]
    exact = {float(np.float32(value)): value for value in given if isinstance(value, float)}
    for tensor in proto.graph.initializer:
        value = helper.to_array(tensor) if not tensor.dims else None
        if value is not None and value.dtype == np.float64 and value.item() in exact:
            tensor.CopyFrom(helper.from_array(np.array(exact[value.item()]), tensor.name))


def _never_empty(graph: Any) -> None:
    """Put a row of zeros where there is none, and take it off again: some of onnxruntime's layers need a row."""
    helper, array = _needed("onnx").helper, _needed("onnx.numpy_helper").from_array
    within = {value.name: f"{value.name}_within" for value in (*graph.input, *graph.output)}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [within.get(name, name) for name in names]
    n_axes = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.input}
    zeros = {
        f"zeros_{n}": array(np.zeros(n, dtype=np.int64), f"zeros_{n}") for k in n_axes.values() for n in (1, k, k - 1)
    }
    graph.initializer.extend(zeros.values())
    before = [
        helper.make_node("Shape", [graph.input[0].name], ["n_rows"], end=1),
        helper.make_node("Equal", ["n_rows", "zeros_1"], ["none"]),
        helper.make_node("Cast", ["none"], ["n_spare"], to=int(helper.TensorProto.INT64)),
    ]
    for name, n in n_axes.items():
        pads = [f"zeros_{n}", "n_spare", f"zeros_{n - 1}"]
        before.append(helper.make_node("Concat", pads, [f"{name}_pads"], axis=0))
        before.append(helper.make_node("Pad", [name, f"{name}_pads"], [within[name]]))
    after = [helper.make_node("Slice", [within[o.name], "zeros_1", "n_rows"], [o.name]) for o in graph.output]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


@contextmanager
def _silence() -> Iterator[None]:
    """Without what torch's exporter prints, logs and warns of on its way, such as that torchvision is absent."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _metadata(model: Any, graph: _Graph, precision: str, model_file: str | os.PathLike[str] | None) -> dict[str, Any]:
    n_targets, levels = len(model.target_names_), list(graph.predictor.levels)
    sizes = {name: [n_targets] if name == "prediction" else [n_targets, len(levels)] for name in graph.outputs}
    calibration = model.chosen_calibration
    return {
        "format": FORMAT,
        "version": __version__,
        "class": type(model).__name__,
        "targets": list(model.target_names_),
        "levels": levels,
        "inputs": graph.front.inputs,
        "outputs": [
            {"name": name, "type": "float64", "shape": ["row", *sizes[name]], "is": OUTPUTS[name]}
            for name in graph.outputs
        ],
        "calibration": calibration.name,
        "promise": calibration.promise,
        "precision": precision,
        "model_sha256": None if model_file is None else hashlib.sha256(Path(model_file).read_bytes()).hexdigest(),
        **graph.front.described,
    }


def _describe(proto: Any, metadata: dict[str, Any]) -> None:
    """Set what a file says about itself, and nothing that the exporter noted about this machine."""
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    del proto.graph.value_info[:]
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "row"
        del value.metadata_props[:]
    proto.ir_version, proto.producer_name, proto.producer_version = IR_VERSION, "coverwell", __version__
    proto.doc_string = f"{metadata['class']}: prediction intervals, exported by coverwell {__version__}"
    _needed("onnx").helper.set_model_props(proto, {"coverwell": json.dumps(metadata, ensure_ascii=False)})


def _serialized(proto: Any) -> bytes:
    if proto.ByteSize() > MOST_BYTES:
        raise ValueError(
            f"an ONNX file may have up to {MOST_BYTES:,} bytes, this model takes more; fit with fewer members "
            "(repeats, members, n_samples) or a smaller network"
        )
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _check(graph: _Graph, proto: Any) -> None:
    """Raise unless onnxruntime gives the model's numbers for the examples."""
    found = _run(_serialized(proto), graph.front.examples)
    (predictor,), (rows, added) = graph.front.model, graph.front.own_rows(found.get("features"))
    estimates = predictor.estimates(rows)
    expected = [np.mean([estimate.mean for estimate in estimates], axis=0)]
    for joint in (False, True)[: len(graph.outputs) // 2]:
        expected += predictor.bounds(estimates, joint=joint)
    spread = predictor.fitted_teams[0].targets.spread.cpu().numpy()[:, None]
    for name, own in zip(graph.outputs, expected, strict=True):
        differences = (found[name] - own).reshape(len(own), len(spread), -1) - added[..., None]
        largest = float(np.max(np.abs(differences) / spread))
        if not largest <= LARGEST_DIFFERENCE:  # NaN is a difference too
            raise ValueError(
                f"the exported graph must give the model's numbers within {LARGEST_DIFFERENCE:g} standard deviations "
                f"of the target, but its {name} lies {largest:.2g} away; nothing was written. Export with "
                "precision='float64'; if that does not help, the model cannot be exported"
            )


def _run(content: bytes, examples: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    onnxruntime = _needed("onnxruntime")
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


def _needed(package: str) -> Any:
    """An optional companion, or one sentence that names the extra that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(
            f"an export to ONNX needs {package}; install the extra `onnx`: pip install 'coverwell[onnx]'"
        ) from None
