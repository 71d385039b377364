"""What onnxruntime computes with a module."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from coverwell.onnx import OLDEST_TORCH, proto_of


class Graph(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = deepcopy(module)

    def forward(self, *inputs):
        return self.module(*inputs)


def onnx_outputs(module, rows):
    """The outputs of the exported module for rows; skips where nothing can be exported."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        pytest.skip("torch is too old to export a model")
    proto = proto_of(Graph(module), {"X": rows})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": rows})
