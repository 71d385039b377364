"""Benchmarks are no part of the package: they are scripts that import each other from their own folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last, so that it hides no other module
