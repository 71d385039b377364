"""Shapes are checked in every test; one thread; reproducible examples in CI."""

import os
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

# Before they are imported: every shape in a signature becomes a check.
jaxtyping.install_import_hook(["coverwell", "reproduction"], "beartype.beartype")

torch.set_num_threads(1)

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the public data files, beside the repository; skips where there is none."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the public data files are not in {folder}")
    return folder


@pytest.fixture(scope="session")
def imagenet_file() -> Path:
    """The ImageNet trunk, beside the repository; skips where it is absent."""
    path = Path(__file__).parents[2] / "shared" / "weights" / "resnet18_imagenet_through_layer3.pth"
    if not path.is_file():
        pytest.skip(f"the weights are not in {path.parent}")
    return path
