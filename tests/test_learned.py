"""What is read from a file is checked before it is used, and before anything large is built."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from coverwell import MLP
from coverwell.learned import check_sizes, no_larger, numbers_in

FUZZ = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
WEIGHTS = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}


def test_the_numbers_of_a_recipe_are_those_of_all_recipes_inside():
    assert sorted(numbers_in((2, ((3,), 1), MLP(hidden=8, layers=2, bins=0)))) == [0, 0, 0, 1, 2, 2, 3, 8]


@pytest.mark.parametrize("sizes", [(10**6, ((3,), 1)), (1, ((0,), 1)), (1, ((3,), -1)), (1, ((1e308,), 1)), ("x",)])
def test_sizes_that_no_such_weights_can_have_are_refused(sizes):
    check_sizes(MLP(), (1, ((3,), 1)), WEIGHTS)
    with pytest.raises(ValueError, match="cannot be those of a network of 9 weights"):
        check_sizes(MLP(), sizes, WEIGHTS)


def test_a_network_of_very_many_layers_is_not_built():
    started = time.perf_counter()
    with pytest.raises(ValueError, match="cannot be those of a network of 9 weights"):
        check_sizes(MLP(layers=10**9), (1, ((3,), 1)), WEIGHTS)
    with (
        pytest.raises(ValueError, match="a network of 2 tensors would be built with more than 1020"),
        no_larger(WEIGHTS),
    ):
        nn.ModuleList(nn.Linear(1, 1, device="meta") for _ in range(10**6))
    assert time.perf_counter() - started < 5
    nn.Sequential(*[nn.Linear(1, 1, device="meta") for _ in range(1100)])  # afterwards all are built


def test_files_of_every_kind_of_model_that_were_changed_and_signed_again_end_in_no_other_error_than_ours(tmp_path):
    """Without the checks of shapes that tests have, in a process with bounded memory."""
    command = [sys.executable, FUZZ, "--part", "load", "--from", "0", "--to", "80", "--folder", tmp_path]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, timeout=300, text=True)
    found = [one for one in map(json.loads, done.stdout.splitlines()) if "ends" in one]
    assert len(found) == 80
    assert [wrong for one in found for wrong in one["wrong"]] == []
    ends = [one["ends"] for one in found]
    assert sum("ModelFileError" in one for one in ends) > 50
    assert sum(one.get("done", 0) > 5 for one in ends) > 10  # were loaded, and used
