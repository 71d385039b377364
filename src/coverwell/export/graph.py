"""An ONNX graph in the making: each verb adds a node and gives the name of what the node computes.

Arrays among the inputs of a node become constants of the graph; equal ones are kept once.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Graph", "Input", "Value", "needed"]

Value = str  # the name of what a node computes, or of an input of the graph
Given = Value | NDArray[Any] | np.generic

# Of the operators, and of the file: what onnxruntime 1.17 and later read.
OPSET, IR_VERSION = 18, 9
LAST = np.iinfo(np.int64).max  # the end of an axis of any length


class Input:
    """What a graph is given: a name, a type of numpy, and sizes, of which the first is any number of rows."""

    def __init__(self, name: str, dtype: Any, sizes: Sequence[int], about: str) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.sizes = tuple(sizes)
        self.about = about

    def told(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.dtype.name, "shape": ["row", *self.sizes], "is": self.about}


class Graph:
    """Nodes and constants, in the order in which they were added."""

    def __init__(self) -> None:
        self.onnx = needed("onnx")
        self.nodes: list[Any] = []
        self.inputs: list[Input] = []
        self.constants: dict[str, Any] = {}

    def input(self, given: Input) -> Value:
        self.inputs.append(given)
        return given.name

    def op(self, kind: str, *given: Given, **attributes: Any) -> Value:
        """The first result of a new node."""
        return self.ops(kind, *given, n_results=1, **attributes)[0]

    def ops(self, kind: str, *given: Given, n_results: int, **attributes: Any) -> list[Value]:
        """The results of a new node."""
        names = [value if isinstance(value, str) else self.constant(value) for value in given]
        results = [f"{kind}_{len(self.nodes)}_{number}" for number in range(n_results)]
        self.nodes.append(self.onnx.helper.make_node(kind, names, results, **attributes))
        return results

    def constant(self, values: NDArray[Any] | np.generic) -> Value:
        array = np.asarray(values, order="C")
        digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest()
        name = f"constant_{digest[:24]}"
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    # Verbs that need more than one node, or constants for their axes.

    def sliced(self, x: Value, first: int, end: int | Value, *, axis: int, step: int = 1) -> Value:
        stop = end if isinstance(end, str) else np.array([end])
        return self.op("Slice", x, np.array([first]), stop, np.array([axis]), np.array([step]))

    def reshaped(self, x: Value, *sizes: int) -> Value:
        """In this shape; 0 keeps a size, and -1 is what remains."""
        return self.op("Reshape", x, np.array(sizes))

    def unsqueezed(self, x: Value, axis: int) -> Value:
        return self.op("Unsqueeze", x, np.array([axis]))

    def concatenated(self, parts: Sequence[Value], *, axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def mean(self, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
        return self.op("ReduceMean", x, np.array(axes), keepdims=int(keepdims))

    def n_rows(self, x: Value) -> Value:
        return self.op("Shape", x, end=1)

    def never_empty(self, x: Value, n_axes: int) -> Value:
        """Rows as they are; where there are none, one of zeros: onnxruntime aborts when an LSTM is given no row."""
        absent = self.cast(self.op("Equal", self.n_rows(x), np.array([0])), np.int64)
        before, after = (self.constant(np.zeros(size, np.int64)) for size in (n_axes, n_axes - 1))
        return self.op("Pad", x, self.concatenated([before, absent, after], axis=0))

    def cast(self, x: Value, dtype: Any) -> Value:
        return self.op("Cast", x, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)) in float64, without an overflow where x is large."""
        shrinking = self.op("Exp", self.op("Neg", self.op("Abs", x)))
        return self.op("Add", self.op("Relu", x), self.op("Log", self.op("Add", shrinking, np.float64(1))))

    def nan_unless_finite(self, x: Value, n_axes: int) -> Value:
        """0 for a row whose numbers are all finite, else NaN, (row, 1): added to a result, it spoils what is unknown.

        Without it, a comparison on the way could turn NaN into a number.
        """
        summed = self.op("ReduceSum", self.op("Sub", x, x), np.arange(1, n_axes), keepdims=0)
        return self.unsqueezed(self.cast(summed, np.float64), 1)

    def model(self, outputs: dict[str, tuple[Value, Sequence[int]]], metadata: dict[str, str], about: str) -> Any:
        """The whole as an ONNX model; `outputs` are values of float64 and their sizes after the rows."""
        onnx = self.onnx
        ends = [onnx.helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        graph = onnx.helper.make_graph(
            [*self.nodes, *ends],
            "coverwell",
            [self._described(given.name, given.dtype, given.sizes) for given in self.inputs],
            [self._described(name, np.float64, sizes) for name, (_, sizes) in outputs.items()],
            list(self.constants.values()),
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="coverwell")
        model.doc_string = about
        onnx.helper.set_model_props(model, metadata)
        return model

    def _described(self, name: str, dtype: Any, sizes: Sequence[int]) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, ["row", *sizes])


def needed(package: str) -> Any:
    """An optional companion, or one sentence that names the extra that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(
            f"an export to ONNX needs {package}; install the extra `onnx`: pip install 'coverwell[onnx]'"
        ) from None
