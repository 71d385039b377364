"""scikit-learn's own checks, in a fresh process as users run them.

Here, the shape checks of this test run would refuse the wrong types that scikit-learn tries, before our own checks can.
"""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from coverwell import MLP, MatchedRegressor
warnings.simplefilter("error")
results = check_estimator(MatchedRegressor({parameters}), on_fail=None, on_skip=None)
print(json.dumps([[result["check_name"], result["status"], str(result["exception"])] for result in results]))
"""
SMALL = "network=MLP(hidden=16, layers=3, bins=4), folds=3, repeats=1, max_rounds=3, learning_rate=0.01"


def assert_no_failure(parameters):
    command = [sys.executable, "-c", SCRIPT.format(parameters=parameters)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # silent by default
    results = json.loads(done.stdout)
    assert len(results) > 40
    assert [result for result in results if result[1] not in ("passed", "skipped")] == []
    assert {name for name, status, _ in results if status == "skipped"} <= {"check_array_api_input"}


@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_scikit_learns_checks_pass(matching):
    assert_no_failure(f"matching={matching!r}, random_state=0, {SMALL}")


@pytest.mark.slow
@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_scikit_learns_checks_pass_by_default(matching):
    assert_no_failure(f"matching={matching!r}")
