"""Fitted estimators as ONNX files, which run without torch and from other languages."""

from coverwell.export.onnx_file import to_onnx

__all__ = ["to_onnx"]
