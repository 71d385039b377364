"""A fitted estimator as one ONNX file, which runs without torch and from other languages.

torch's exporter reads the model's own `Predictor`, behind layers that make rows from raw numbers: columns of a table,
images, or the last steps of a series. onnxruntime must give the model's numbers before the file is written.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import embedding

from coverwell._version import __version__
from coverwell.calibration import Correction
from coverwell.companions import Foreign
from coverwell.estimator import CalibratedEstimator
from coverwell.files import new_file
from coverwell.inputs.columns import Column
from coverwell.inputs.images import ROUNDING
from coverwell.inputs.source import ImageSource
from coverwell.networks.mlp import MLPTeam
from coverwell.networks.team import Team
from coverwell.portable import NO_TENSORS
from coverwell.prediction import Prediction
from coverwell.predictor import Predictor
from coverwell.sets import ClassPredictor, TeamOfClasses
from coverwell.trees import Trees

if TYPE_CHECKING:
    from coverwell.forecasting.forecaster import SeriesForecaster

Array = NDArray[np.float64]

OLDEST_TORCH = (2, 11)
OPSET, IR_VERSION = 18, 9  # what onnxruntime 1.17 and later read
TREE_OPSET = 5  # of ai.onnx.ml, only for files with trees: onnxruntime 1.21
OWN_DOMAIN = "coverwell"  # of what stands for trees until torch's exporter has done its part
NUMBERS_OF_LEAVES = 2**10  # of a row, that a graph holds at a time
FORMAT = 2  # of the metadata; grows when names, shapes or meanings change
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
LARGEST_DIFFERENCE = 1e-5  # of predictions and bounds, in standard deviations of the target
LARGEST_LOCAL = 1e-3  # for local calibration: its shares are of single precision, and quantiles magnify what they err
LARGEST_FEATURE_DIFFERENCE = 1e-4  # of an image's features before they are rounded, relative to their size
LARGEST_OF_IMAGES = 1e-3  # from pixels on: a few features are rounded to another float16 number
MOST_SCORES = 20_000  # of "cv+", all of which are compared for every row
MOST_BYTES = 2**31 - 1  # that protobuf can hold
OUTPUTS = {
    "prediction": "in the units of the targets, in the order of `targets`",
    "lower": "the lower bound of each target at each of `levels`",
    "upper": "the upper bound of each target at each of `levels`",
    "joint_lower": "the lower bounds of boxes that hold all targets together",
    "joint_upper": "the upper bounds of boxes that hold all targets together",
}
OUTPUTS_OF_CLASSES = {
    "probability": "of each of `classes`",
    "sets": "whether each of `classes` is in the set of each of `levels`; the likeliest one always is",
}


def to_onnx(
    model: CalibratedEstimator | SeriesForecaster,
    path: str | os.PathLike[str],
    *,
    precision: str = "float32",
    model_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Write a fitted regressor, classifier or forecaster as one ONNX file, whole or not at all; return its metadata.

    Names, types and shapes of inputs and outputs, and what the metadata hold, are in docs/export.md. Nothing is written
    unless onnxruntime gives the model's predictions and bounds within 1e-5 standard deviations of the target; bounds of
    local calibration, and what is predicted from the pixels of images, within 1e-3.

    Parameters
    ----------
    model : fitted estimator
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
    >>> from coverwell import MLP, MatchedRegressor, Schedule, to_onnx
    >>> X, y = np.eye(40, 3), np.arange(40)
    >>> model = MatchedRegressor(network=MLP(hidden=8), schedule=Schedule(max_rounds=1), repeats=1).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     metadata = to_onnx(model, f"{folder}/model.onnx")
    >>> [(entry["name"], entry["shape"]) for entry in metadata["outputs"]]
    [('prediction', ['row', 1]), ('lower', ['row', 1, 1]), ('upper', ['row', 1, 1])]
    """
    from coverwell.forecasting.forecaster import SeriesForecaster

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be 'float32' or 'float64', got {precision!r}")
    for package in ("onnx", "onnxruntime", "onnxscript"):
        _needed(package)
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        raise ImportError(f"an export to ONNX needs torch 2.11 or later, got {torch.__version__}; upgrade torch")
    if not isinstance(model, (CalibratedEstimator, SeriesForecaster)):
        raise TypeError(
            f"to_onnx takes a fitted regressor, classifier or forecaster of coverwell, got {type(model).__name__}"
        )
    check_is_fitted(model)
    if isinstance(model, SeriesForecaster):
        graph: _Graph = _Series(model, PRECISIONS[precision])
    else:
        graph = (_Images if isinstance(model.source_, ImageSource) else _Table)(model, PRECISIONS[precision])
    sha256 = None if model_file is None else hashlib.sha256(Path(model_file).read_bytes()).hexdigest()
    metadata = {"class": type(model).__name__, **graph.about, "precision": precision, "model_sha256": sha256}
    proto = _exported(graph, metadata)
    _check(graph, proto)
    del proto.graph.output[len(graph.outputs) :]  # the features of images, which were there to be checked
    with new_file(Path(path)) as file:
        file.write(proto.SerializeToString(deterministic=True))
    return metadata


def _needed(package: str) -> Any:
    """An optional companion, or one sentence that names the extra that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        message = f"an export to ONNX needs {package}; install the extra `onnx`: pip install 'coverwell[onnx]'"
        raise ImportError(message) from None


class _Graph(nn.Module):
    """From raw inputs to the outputs of a file; a kind of model adds inputs, `examples` of them and rows from them."""

    def __init__(self, regressor: CalibratedEstimator, predictor: Predictor, precision: torch.dtype, **about: Any):
        super().__init__()
        n_scores = sum(len(part) for part in predictor.correction.scores)
        if n_scores > MOST_SCORES:
            raise ValueError(
                f"calibration='cv+' compares the scores of all training rows for every row; exported it may have up to "
                f"{MOST_SCORES:,}, got {n_scores:,}; fit with calibration='cross' or 'split', which need one factor"
            )
        teams = [team.for_export() for team in copy.deepcopy(predictor).cpu().fitted_teams]
        for team in teams:
            team.in_chunks = False
            for part in team.modules():
                if isinstance(part, Foreign):
                    raise TypeError(" ".join(f"{part.regressor!r} {NO_TENSORS}".split()))
                if isinstance(part, MLPTeam):  # in the precision of the file; a user's networks in float32
                    part.fold()  # onnxruntime would scale in float32
                    for weight in part.parameters():  # edges of bins stay as they are
                        weight.data = weight.data.to(precision)
                elif isinstance(part, Team) and part.recipe is None:
                    part.float().precision = torch.float32
            team.shape = None if team.shape is None else team.shape.only_asked()
            team.groups = nn.ModuleList(factors.at(predictor.levels) for factors in team.group_factors)
            team.edges = None if team.edges is None else team.edges.at(predictor.levels)
            if isinstance(team, TeamOfClasses) and team.by_class is not None:
                team.by_class = team.by_class.at(predictor.levels)
        self.model = (predictor,)  # in a tuple: no layer of this one
        known = predictor.levels, teams, copy.deepcopy(predictor.correction).cpu().only_asked()
        n_targets, levels = teams[0].targets.shape[0], list(predictor.levels)
        if isinstance(predictor, ClassPredictor):
            self.predictor: Predictor = ClassPredictor(*known, predictor.classes)
            meanings, several = OUTPUTS_OF_CLASSES, False
            about["classes"] = predictor.classes.tolist()
        else:
            self.predictor, meanings = Predictor(*known), OUTPUTS
            several = n_targets > 1 and predictor.correction.is_joint
        self.joint = (False, True)[: 2 if several else 1]
        self.outputs = list(meanings)[: 1 + 2 * len(self.joint)]
        shapes = {name: ["row", n_targets, *[len(levels)] * (number > 0)] for number, name in enumerate(self.outputs)}
        types = {name: "bool" if name == "sets" else "float64" for name in self.outputs}
        self.examples: dict[str, NDArray[Any]] = {}
        self.about = {
            "format": FORMAT,
            "version": __version__,
            "targets": list(regressor.target_names_),
            "inputs": [],
            **about,
            "levels": levels,
            "outputs": [{"name": n, "type": types[n], "shape": s, "is": meanings[n]} for n, s in shapes.items()],
            "calibration": regressor.chosen_calibration.name,
            "promise": regressor.chosen_calibration.promise,
        }

    def add(self, name: str, examples: NDArray[Any], meaning: str) -> None:
        """One more input."""
        shape = ["row", *examples.shape[1:]]
        self.about["inputs"].append({"name": name, "type": examples.dtype.name, "shape": shape, "is": meaning})
        self.examples[name] = examples

    def rows(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, and what is added to the outputs of each: NaN for one that is of no use."""
        raise NotImplementedError

    def own_rows(self, features: NDArray[Any] | None = None) -> tuple[NDArray[Any], Array]:
        """The same for the examples, before they are exported."""
        rows, added = self.rows(*map(torch.from_numpy, self.examples.values()))
        return rows.double().numpy(), added.double().numpy()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        images, n = isinstance(self, _Images), inputs[0].shape[0]
        # Zeros where there is no row: some layers of onnxruntime need one. Every exporter knows 1 // (n + 1).
        spared = [torch.cat([given, given.new_zeros(1, *given.shape[1:])])[: n + 1 // (n + 1)] for given in inputs]
        features, added = self.rows(*spared)
        rows = features.half().float() if images else features  # as estimators keep features of images
        if isinstance(self.predictor, ClassPredictor):
            p, sets = self.predictor(rows)
            return tuple(part[:n] for part in (p + added, sets, *[features] * images))
        means, half_widths = (list(part) for part in zip(*(team(rows) for team in self.predictor.teams), strict=True))
        outputs = [torch.stack(means).mean(dim=0)]
        for joint in self.joint:
            outputs += self.predictor.correction(means, half_widths, self.predictor.levels, joint)
        results = [output + (added if output.ndim == 2 else added[..., None]) for output in outputs]
        return tuple(result[:n] for result in ([*results, features] if images else results))


class _Table(_Graph):
    """The columns of a table: numbers as they are, codes of categories, and seconds since 1970 by the local clock."""

    def __init__(self, model: CalibratedEstimator, precision: torch.dtype) -> None:
        table, scaling, rng = model.source_.columns, model.predictor_.inputs, np.random.default_rng(0)
        names = getattr(model, "feature_names_in_", [f"column {number}" for number in range(model.n_features_in_)])
        columns = [{"name": str(name), "kind": "numbers"} for name in names]
        rows = scaling.inverse(torch.from_numpy(rng.normal(size=(64, *scaling.shape)))).numpy()
        if table is not None:
            columns, features = list(map(_described, table.columns)), rows
            rows = rng.normal(size=(len(features), len(columns)))  # raw rows near those of the training
            for place, column in enumerate(table.columns):
                if column.name in table.feature_names:
                    rows[:, place] = features[:, table.feature_names.index(column.name)]
                if column.kind == "times":
                    rows[:, place] = np.floor(rows[:, place] * 86_400)
                elif column.kind in ("booleans", "text"):
                    first, end = (-1, len(column.levels)) if column.kind == "text" else (0, 2)
                    rows[:, place] = rng.integers(first, end, len(rows))
            rows[rng.random(rows.shape) < 0.1] = np.nan
        super().__init__(model, model.predictor_, precision, kind="table", columns=columns)
        self.columns = table
        unit = [1e6 if column["kind"] == "times" else 1.0 for column in columns]  # times are read in microseconds
        self.unit = nn.Buffer(torch.tensor(unit, dtype=torch.float64))
        self.add("X", rows, "one column per raw column, in the order of `columns`")

    def rows(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows = inputs[0] if self.columns is None else self.columns.features(inputs[0] * self.unit)
        return rows, (rows - rows).sum(dim=1)[:, None]


def _described(column: Column) -> dict[str, Any]:
    """How a raw column is written as numbers, for whoever fills the matrix."""
    more: dict[str, dict[str, Any]] = {
        "numbers": {"median": column.median},
        "text": {"codes": {level: code for code, level in enumerate(column.levels)}, "unknown": -1},
        "booleans": {"codes": {"false": 0, "true": 1}, "median": column.median},
        "times": {"unit": _seconds_by_the_clock(column.zone), "zone": column.zone, "median": column.median / 1e6},
    }
    return {"name": column.name, "kind": column.kind, "missing": "NaN", **more.get(column.kind, {})}


def _seconds_by_the_clock(zone: str | None) -> str:
    return f"seconds from 1970-01-01T00:00 to what the clock shows{'' if zone is None else f' in {zone}'}"


class _Images(_Graph):
    """Pixels, and what the frozen layers make of them; the features are one output more, to be checked."""

    def __init__(self, model: CalibratedEstimator, precision: torch.dtype) -> None:
        source = cast(ImageSource, model.source_)
        mirror = None if source.mirroring is None else source.mirroring.targets
        super().__init__(model, model.predictor_, precision, kind="images", size=source.size, mirror=mirror)
        self.mirrored, self.trunk = mirror is not None, cast(nn.Module, copy.deepcopy(source.trunk))
        n = source.size
        pixels = np.random.default_rng(0).random((2, 3, n, n), dtype=np.float32)
        self.add("X", pixels, f"RGB in [0, 1], squeezed to {n} x {n} (bilinear, with antialiasing)")

    def rows(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        (X,) = inputs
        pixels = X.clamp(0, 1)
        beyond = torch.where((X - pixels).abs() > ROUNDING, torch.nan, X)  # the model refuses what is no image
        views = [pixels, pixels.flip(-1)] if self.mirrored else [pixels]
        features = [self.trunk(view) for view in views]
        added = (beyond - beyond).double().sum(dim=(1, 2, 3))[:, None]
        return torch.stack(features, dim=1) if self.mirrored else features[0], added

    def own_rows(self, features: NDArray[Any] | None = None) -> tuple[NDArray[Any], Array]:
        """The graph's own features, found to be the model's: one between two float16 numbers may round either way.

        Without them those of the model, rounded as it keeps them.
        """
        own, added = super().own_rows()
        if features is None:
            return own.astype(np.float16), added
        largest = float(np.max(np.abs(features - own) / (np.abs(own) + np.sqrt(np.mean(own**2)))))
        if not largest <= LARGEST_FEATURE_DIFFERENCE:
            raise ValueError(
                f"the exported trunk must give the model's features within {LARGEST_FEATURE_DIFFERENCE:g} of their "
                f"size, but they lie {largest:.2g} apart; nothing was written"
            )
        return np.asarray(features, dtype=np.float16), added


class _Series(_Graph):
    """The last steps of a series and what is known beside them; a row is a moment. Live factors are the present's."""

    def __init__(self, model: SeriesForecaster, precision: torch.dtype) -> None:
        from coverwell.forecasting.windows import WindowEncoding

        regressor, windows, history = model.regressor_, model.windows_, model.history_
        predictor, factor, zone = regressor.predictor_, np.asarray(regressor.factor_), history.clock.tz
        live = np.reshape(model.calibrator_.factor, factor.shape) if model.live else None
        levels = predictor.levels
        correction = Correction(levels, levels, factor if live is None else factor * live)
        super().__init__(
            regressor,
            Predictor(levels, predictor.fitted_teams, correction),
            precision,
            kind="series",
            targets=[f"step {number + 1}" for number in range(windows.horizon)],
            series=history.name,
            past=windows.n_past,
            horizon=windows.horizon,
            step=history.clock.step_in_words(),
            zone=zone,
            past_covariates=list(history.past_names),
            covariates=list(history.ahead_names),
            calendar=list(history.calendar),
            latest_step=history.clock.label(len(history) - 1),
            live_factor=None if live is None else live.tolist(),
        )
        self.windows, self.history, self.inputs = windows, history, predictor.inputs
        self.encoding = WindowEncoding(windows, history.calendar, windows.level_range(self.inputs))
        end = len(history) if history.n_known is None else min(len(history), history.n_known - windows.horizon)
        self.origins = np.arange(windows.n_past - 1, end)[-8:]  # the latest about which all is known
        steps, ahead = self.origins[:, None] + np.arange(1 - windows.n_past, 1), windows.ahead(self.origins)
        gaps = "; NaN is a gap" if model.missing == "fill" else ""
        self.add("values", history.values[steps], f"the last {windows.n_past} values, latest last{gaps}")
        if model.missing == "fill":
            before = np.concatenate([[np.nan], history.filled])[steps[:, :1]]
            self.add("before", before, "the last value observed before those, for a gap at their beginning; else any")
        if history.past_names:
            self.add("past_covariates", history.past[steps], "of the same steps, in the order of their names")
        if history.calendar:
            times = history.clock.times(0, int(ahead.max()) + 1).astype("datetime64[s]").astype(np.float64)
            self.add("times", times[ahead], f"when the next steps begin: {_seconds_by_the_clock(zone)}")
        if history.ahead_names:
            self.add("covariates", history.ahead[ahead], "of the next steps, in the order of their names")

    def rows(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows, anchors = self.encoding(**dict(zip(self.examples, inputs, strict=True)))
        return rows, (rows - rows).sum(dim=1)[:, None] + anchors

    def own_rows(self, features: NDArray[Any] | None = None) -> tuple[NDArray[Any], Array]:
        rows = self.windows.within(self.windows.rows(self.history, self.origins), self.inputs)
        return rows, self.windows.anchors(self.history, self.origins)


class _Forest(nn.Module):
    """Trees in a graph: one operator gives the leaf of a row in each tree, by its number within the tree."""

    def __init__(self, trees: Trees, number: int) -> None:
        super().__init__()
        feature, threshold, child, row = (
            part.numpy() for part in (trees.feature, trees.threshold, trees.child, trees.leaf)
        )
        self.number, self.n_trees, self.mean, self.precision = number, trees.n_trees, trees.mean, trees.threshold.dtype
        tree, level = np.arange(len(child)), np.arange(trees.n_trees)
        inner = child != tree
        while len(level := level[inner[level]]):
            tree[child[level]] = tree[child[level] + 1] = tree[level]
            level = np.concatenate([child[level], child[level] + 1])
        leaves = np.flatnonzero(~inner)
        leaves = leaves[np.argsort(tree[leaves], kind="stable")]
        n_leaves = np.bincount(tree[leaves])
        first = np.cumsum(n_leaves) - n_leaves
        self.table, self.first = nn.Buffer(trees.table[row[leaves]]), nn.Buffer(torch.from_numpy(first))
        is_node = inner | (np.arange(len(child)) < trees.n_trees)  # a leaf alone hangs on both sides of one
        place = is_node.cumsum() - 1
        roots = place[: trees.n_trees].copy()
        place[leaves] = np.arange(len(leaves))
        right, feature = child[is_node], feature[is_node]
        left = right + inner[is_node]
        self.lists = {
            "tree_roots": roots,
            "nodes_featureids": feature % trees.n_features,
            "nodes_missing_value_tracks_true": feature >= trees.n_features,
            "nodes_truenodeids": place[left],
            "nodes_trueleafs": ~inner[left],
            "nodes_falsenodeids": place[right],
            "nodes_falseleafs": ~inner[right],
            "leaf_targetids": tree[leaves],
        }
        self.tensors = {
            "nodes_splits": np.where(inner, threshold, 0)[is_node].astype(threshold.dtype),
            "nodes_modes": np.zeros(len(right), dtype=np.uint8),  # at most the threshold: to the left
            "leaf_weights": (np.arange(len(leaves)) - first[tree[leaves]]).astype(threshold.dtype),
        }

    def forward(self, x: Tensor) -> Tensor:
        about: dict[str, Any] = {"dtype": self.precision, "shape": (x.shape[0], self.n_trees)}
        about["attrs"] = {"number": self.number}
        found = torch.onnx.ops.symbolic(f"{OWN_DOMAIN}::Leaves", [x.to(self.precision)], **about)
        parts = (found.long() + self.first).split(max(1, NUMBERS_OF_LEAVES // self.table.shape[1]), dim=1)
        total = functools.reduce(torch.add, [embedding(part, self.table).sum(dim=1) for part in parts])
        return total / self.n_trees if self.mean else total

    def fill(self, node: Any) -> None:
        """Make the operator that stands for the trees into the one that finds their leaves."""
        helper, from_array = _needed("onnx").helper, _needed("onnx.numpy_helper").from_array
        lists = {name: values.astype(np.int64).tolist() for name, values in self.lists.items()}
        tensors = {name: from_array(values) for name, values in self.tensors.items()}
        about = {**lists, **tensors, "n_targets": self.n_trees, "aggregate_function": 1, "post_transform": 0}
        node.CopyFrom(helper.make_node("TreeEnsemble", node.input, node.output, domain="ai.onnx.ml", **about))


@torch.no_grad()
def proto_of(module: nn.Module, examples: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> Any:
    """What torch's exporter makes of a module, whose trees become one operator each; the number of rows is free."""
    op, helper = _needed("onnxscript").opset18, _needed("onnx").helper
    from_array = _needed("onnx.numpy_helper").from_array

    # The exporter or onnxruntime would compute these in float32, though they are given float64.
    def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        return op.Add(op.Relu(x), op.Log(op.Add(op.Exp(op.Neg(op.Abs(x))), op.CastLike(1.0, x))))

    def scalar_tensor(s: Any, dtype: int = 11, layout: str = "", device: str = "", pin_memory: bool = False) -> Any:
        return op.Cast(op.Constant(value=from_array(np.array(s))), to=dtype)

    aten, silent, forests = torch.ops.aten, io.StringIO(), list[_Forest]()
    exact: dict[Any, Any] = {aten.softplus.default: softplus, aten.scalar_tensor.default: scalar_tensor}
    for name, part in list(module.named_modules()):
        if isinstance(part, Trees):
            forests.append(_Forest(part, len(forests)))
            module.set_submodule(name, forests[-1])
    rows = tuple(torch.from_numpy(values[[0, 0, 0]]) for values in examples.values())
    shapes = (tuple({0: torch.export.Dim("row", max=2**31)} for _ in rows),)
    named: dict[str, Any] = {"input_names": list(examples), "output_names": outputs}
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch's exporter also prints and warns, as that torchvision is absent
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(silent), redirect_stderr(silent):
            # Read by torch.export here: some versions of torch.onnx else fall back to what one example row makes it do.
            read = torch.export.export(module.eval(), rows, dynamic_shapes=shapes, strict=False)
            program: Any = torch.onnx.export(
                read, dynamo=True, opset_version=OPSET, custom_translation_table=exact, optimize=True, **named
            )
            proto = program.model_proto
    finally:
        logging.disable(before)
    for node in proto.graph.node:
        if node.domain == OWN_DOMAIN:
            forests[node.attribute[0].i].fill(node)
    opsets = {"": OPSET, **({"ai.onnx.ml": TREE_OPSET} if forests else {})}
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(*opset) for opset in opsets.items())
    return proto


def _exported(graph: _Graph, metadata: dict[str, Any]) -> Any:
    """The ONNX model with its metadata; what torch cannot export is an error of one line."""
    outputs = graph.outputs + ["features"] * isinstance(graph, _Images)
    try:
        proto = proto_of(graph, graph.examples, outputs)
    except Exception as error:  # the exporter raises nearly anything about what it cannot read
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"this model cannot be exported: torch.onnx ended with {type(error).__name__} ({reason}); give a network "
            "of your own a forward of plain tensor operations, or fit with one of ours, such as MLP()"
        ) from error
    nodes = proto.graph
    for part in (proto, nodes, *nodes.node, *nodes.initializer, *nodes.input, *nodes.output):
        part.doc_string = ""  # what the exporter noted about this machine
        del part.metadata_props[:]
    del nodes.value_info[:]
    for value in (*nodes.input, *nodes.output):
        value.type.tensor_type.shape.dim[0].dim_param = "row"
    proto.ir_version, proto.producer_name, proto.producer_version = IR_VERSION, "coverwell", __version__
    what = "prediction sets" if "classes" in metadata else "prediction intervals"
    proto.doc_string = f"{metadata['class']}: {what}, exported by coverwell {__version__}"
    _needed("onnx").helper.set_model_props(proto, {"coverwell": json.dumps(metadata, ensure_ascii=False)})
    if proto.ByteSize() > MOST_BYTES:
        raise ValueError(
            f"an ONNX file may have up to {MOST_BYTES:,} bytes, this model takes more; fit with fewer members "
            "(repeats, members, n_samples) or a smaller network"
        )
    return proto


@torch.no_grad()
def _check(graph: _Graph, proto: Any) -> None:
    """Raise unless onnxruntime gives the model's numbers for the examples."""
    runtime = _needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    try:
        session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except runtime.capi.onnxruntime_pybind11_state.Fail as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"onnxruntime {runtime.__version__} cannot run this model ({reason})") from error
    found = dict(zip((o.name for o in session.get_outputs()), session.run(None, graph.examples), strict=True))
    is_local = graph.predictor.fitted_teams[0].shape is not None
    allowed = LARGEST_LOCAL if is_local else LARGEST_DIFFERENCE
    _check_outputs(graph, found, *graph.own_rows(found.get("features")), allowed)
    if isinstance(graph, _Images):
        _check_outputs(graph, found, *graph.own_rows(), LARGEST_OF_IMAGES)


def _check_outputs(
    graph: _Graph, found: Mapping[str, NDArray[Any]], rows: NDArray[Any], added: Array, allowed: float
) -> None:
    """Raise unless these are the model's numbers for some rows."""
    (predictor,) = graph.model
    own = predictor.prediction(rows)
    if isinstance(predictor, ClassPredictor):
        _check_classes(predictor, own, found, added, allowed)
        return
    expected = [own.mean, own.lower, own.upper]
    if True in graph.joint:
        expected += predictor.bounds(predictor.estimates(rows), joint=True)
    spread = graph.predictor.fitted_teams[0].targets.spread.numpy()[:, None]
    for name, values in zip(graph.outputs, expected, strict=True):
        differences = (found[name] - values).reshape(len(values), len(spread), -1) - added[..., None]
        largest = float(np.max(np.abs(differences) / spread))
        if not largest <= allowed:  # NaN is a difference too
            raise ValueError(
                f"the exported graph must give the model's numbers within {allowed:g} standard deviations "
                f"of the target, but its {name} lies {largest:.2g} away; nothing was written. Export with "
                "precision='float64'; if that does not help, the model cannot be exported"
            )


def _check_classes(
    predictor: ClassPredictor, own: Prediction, found: Mapping[str, NDArray[Any]], added: Array, allowed: float
) -> None:
    """The same for probabilities and sets; a class whose score lies at the threshold may be in or out."""
    differences = np.abs(found["probability"] - own.mean - added)
    p, thresholds = torch.from_numpy(own.mean), torch.from_numpy(own.upper)
    at_threshold = (predictor.score.of(p)[..., None] - thresholds).abs() < allowed
    other = (predictor.sets(p, thresholds).numpy() != found["sets"]) & ~at_threshold.numpy()
    useful = ~np.isnan(added[:, 0])
    if not (differences[useful] <= allowed).all() or other[useful].any():
        raise ValueError(
            f"the exported graph must give the model's probabilities within {allowed:g} and its sets, but a "
            f"probability lies {np.nanmax(differences):.2g} away and {other.sum()} classes are in other sets; nothing "
            "was written. Export with precision='float64'; if that does not help, the model cannot be exported"
        )
