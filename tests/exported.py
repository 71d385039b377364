"""What onnxruntime computes with a module."""

from copy import deepcopy

import onnxruntime
from torch import nn

from coverwell.onnx import proto_of


class Graph(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = deepcopy(module)

    def forward(self, *inputs):
        return self.module(*inputs)


def onnx_outputs(module, rows):
    """The outputs of the exported module for rows; their number is free."""
    proto = proto_of(Graph(module), {"X": rows})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": rows})
