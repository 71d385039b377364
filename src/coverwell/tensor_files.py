"""Tensor files that know their own sha256.

A tensor file is a safetensors file whose metadata has one entry, `coverwell`: a JSON object with

- `format`: a number that grows when older versions of coverwell cannot read the file;
- `versions`: of coverwell, torch, numpy and scikit-learn that wrote it;
- `sha256`: of the rest of this object (keys sorted) and of all tensors (name, type, shape and bytes, names sorted);
- whatever else its writer puts there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as safetensors_bytes

from coverwell._version import __version__
from coverwell.errors import ModelFileError
from coverwell.files import new_file

__all__ = ["TYPES", "malformed_means", "read_tensors", "write_tensors"]

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

FORMAT = 1
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, SafetensorError, TypeError, ValueError)


def write_tensors(path: Path, header: Header, arrays: Arrays) -> None:
    """Write a tensor file, whole or not at all; equal header and arrays give equal bytes."""
    packages = ("torch", "numpy", "scikit-learn")
    versions = {"coverwell": __version__, **{package: version(package) for package in packages}}
    header = {**header, "format": FORMAT, "versions": versions}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # the memory is written as it lies
    header["sha256"] = _sha256(header, arrays)
    content = safetensors_bytes(arrays, {"coverwell": _canonical(header)})
    with new_file(path) as file:
        file.write(content)


def read_tensors(path: Path) -> tuple[Header, Arrays]:
    """Header and arrays of a tensor file whose content has the sha256 that it states."""
    content = path.read_bytes()
    with malformed_means(f"{path} is damaged or not a model file", "take another copy, or save the model again"):
        entries = dict(deserialize(content))  # type: ignore[no-untyped-call]  # checks all lengths and offsets
        header = _header(path, content)
        arrays = {name: np.frombuffer(e["data"], TYPES[e["dtype"]]).reshape(e["shape"]) for name, e in entries.items()}
        if header.pop("sha256") != _sha256(header, arrays):
            raise ValueError("its content does not have the stored sha256")
    return header, arrays


@contextmanager
def malformed_means(what: str, way_out: str) -> Iterator[None]:
    """Turn what code raises that meets something `write_tensors` was never given into a `ModelFileError`."""
    try:
        yield
    except ModelFileError:
        raise
    except MALFORMED as error:
        raise ModelFileError(f"{what} ({type(error).__name__}: {error}); {way_out}") from error


def _header(path: Path, content: bytes) -> Header:
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    if "coverwell" not in metadata:
        raise ModelFileError(
            f"{path} is a safetensors file, but not one that coverwell.save wrote; load takes only those"
        )
    header: Header = json.loads(metadata["coverwell"])
    if {"format", "versions", "sha256"} - header.keys():
        raise ValueError("its header has no format, versions or sha256")
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {header['format']}, but coverwell {__version__} reads up to {FORMAT}; install the "
            f"version that wrote it, or a later one: {header['versions']}"
        )
    return header


def _canonical(header: Header) -> str:
    return json.dumps(header, sort_keys=True, separators=(",", ":"))


def _sha256(header: Header, arrays: Arrays) -> str:
    digest = hashlib.sha256(_canonical(header).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
