"""Results as lines of JSON: added whole, read whole, each with its versions and device."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

import coverwell


def environment(device: str) -> dict[str, Any]:
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    versions = {"coverwell": coverwell.__version__, "torch": torch.__version__, "sklearn": sklearn.__version__}
    name = torch.cuda.get_device_name() if on_gpu else platform.machine() + " CPU"
    return {"device": name, "versions": {**versions, "numpy": np.__version__, "python": platform.python_version()}}


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one whole line, or none of it."""
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a results file; a last line that was cut off by a kill is dropped from the file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]
