"""scikit-learn's own checks, in a fresh process as users run them.

In this process, the shape checks would refuse the wrong types that scikit-learn tries before our own checks can.
"""

import json
import subprocess
import sys

import pytest

from coverwell import baselines

SCRIPT = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.baselines import *
warnings.simplefilter("error")
for model in [{models}]:
    results = check_estimator(model, on_fail=None, on_skip=None)
    print(json.dumps([[result["check_name"], result["status"], str(result["exception"])] for result in results]))
"""
SMALL = (
    "network=MLP(hidden=16, layers=3, bins=4), folds=3, repeats=1, schedule=Schedule(max_rounds=3, learning_rate=0.01)"
)
SMALL_BASELINE = "network=MLP(hidden=16, layers=2, bins=0), members=1, max_epochs=10, learning_rate=0.05"


def assert_no_failure(*models):
    command = [sys.executable, "-c", SCRIPT.format(models=", ".join(models))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # silent by default
    lines = done.stdout.splitlines()
    assert len(lines) == len(models)
    for model, line in zip(models, lines, strict=True):
        results = json.loads(line)
        assert len(results) > 40
        assert (model, [result for result in results if result[1] not in ("passed", "skipped")]) == (model, [])
        assert {name for name, status, _ in results if status == "skipped"} <= {"check_array_api_input"}


@pytest.mark.parametrize("matching", ["sigma", pytest.param("iqr", marks=pytest.mark.slow)])
def test_scikit_learns_checks_pass(matching):
    assert_no_failure(f"MatchedRegressor(matching={matching!r}, random_state=0, {SMALL})")


def test_scikit_learns_checks_pass_for_every_baseline():
    assert_no_failure(*[f"{name}(random_state=0, {SMALL_BASELINE})" for name in baselines.__all__])


@pytest.mark.slow
@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_scikit_learns_checks_pass_by_default(matching):
    assert_no_failure(f"MatchedRegressor(matching={matching!r})")


@pytest.mark.slow
@pytest.mark.parametrize("name", baselines.__all__)
def test_scikit_learns_checks_pass_for_every_baseline_by_default(name):
    assert_no_failure(f"{name}()")
