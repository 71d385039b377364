"""The lowest versions are those of pyproject.toml."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("lowest_versions.py")


def test_every_dependency_but_torch_is_pinned_to_its_lower_limit():
    done = subprocess.run([sys.executable, str(SCRIPT), "tables", "plots"], check=True, capture_output=True, text=True)
    pinned = dict(line.split("==") for line in done.stdout.splitlines())
    assert {"numpy", "scikit-learn", "click", "polars", "matplotlib"} <= set(pinned)
    assert "torch" not in pinned
    assert all(version[0].isdigit() for version in pinned.values())
