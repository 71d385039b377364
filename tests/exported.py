"""What onnxruntime computes with a module."""

import io
import logging
import warnings
from contextlib import redirect_stdout

import onnxruntime
import torch


@torch.no_grad()
def onnx_outputs(module, rows):
    """The outputs of the exported module for rows; their number is free."""
    shapes = ({0: torch.export.Dim("row")},)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()):
            graph = torch.export.export(
                module.eval(), (torch.from_numpy(rows[:3]),), dynamic_shapes=shapes, strict=False
            )
            proto = torch.onnx.export(graph, dynamo=True, opset_version=18, optimize=True).model_proto
    finally:
        logging.disable(logging.NOTSET)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})
