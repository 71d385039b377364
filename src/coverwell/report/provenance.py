"""Where a report comes from: files with their sha256, the command, the date, versions and device."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from coverwell._version import __version__
from coverwell.report.library import library_versions
from coverwell.report.page import Section, Table
from coverwell.tensor_files import read_tensors
from coverwell.training import device_from

__all__ = ["Source", "provenance_section"]

BYTES_AT_A_TIME = 2**20


@dataclass(frozen=True)
class Source:
    """What a report was made from, as far as it is known.

    Attributes
    ----------
    model_file, data_file : Path, optional
        Named in the report with their sha256.
    command : str, optional
        What was typed.
    """

    model_file: Path | None = None
    data_file: Path | None = None
    command: str | None = None


def provenance_section(source: Source, model: Any) -> Section:
    """The section at the end of every report."""
    rows = [("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    if source.command is not None:
        rows.append(("command", source.command))
    for what, path in (("model file", source.model_file), ("data file", source.data_file)):
        if path is not None:
            rows += [(what, path.name), (f"sha256 of the {what}", _sha256(path))]
    rows += [("model", type(model).__name__), *_parameters(model)]
    if source.model_file is not None:
        written = read_tensors(source.model_file)[0]["versions"]
        rows.append(("versions that wrote the model", _listed(written)))
    rows += [("versions that made this report", _listed(_versions())), ("device", str(device_from(_device(model))))]
    table = Table("Where this report comes from", ("what", "value"), rows, texts=("what", "value"))
    lead = "What was run, on which files, so that somebody else can do it again and see the same."
    return Section("provenance", "How this was made", lead, [table])


def _parameters(model: Any) -> list[tuple[str, str]]:
    regressor = getattr(model, "regressor_", model)
    known = ("calibration", "random_state", "folds", "repeats")
    return [(name, str(getattr(regressor, name))) for name in known if hasattr(regressor, name)]


def _device(model: Any) -> str:
    device: str = getattr(model, "regressor_", model).device
    return device


def _versions() -> dict[str, str]:
    ours = {"coverwell": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return {**ours, "numpy": np.__version__, "scikit-learn": sklearn.__version__, **library_versions()}


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(BYTES_AT_A_TIME):
            digest.update(part)
    return digest.hexdigest()
