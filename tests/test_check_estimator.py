"""scikit-learn's own checks, in a fresh process as users run them.

In this process, the shape checks would refuse the wrong types that scikit-learn tries before our own checks can.

One check cannot pass: a weight of two is to give the predictions of the same row twice to seven digits, but networks
see other batches then (tests/test_weights.py compares the two in law). Another fits 16 rows, one of which weighs as
much as ten. They are worth five, and then a level of .9 has no rank.
"""

import json
import subprocess
import sys

import pytest

from coverwell import baselines

EQUIVALENCE, WORTH_FIVE = "check_sample_weight_equivalence_on_dense_data", "check_sample_weights_not_overwritten"
SCRIPT = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule
from coverwell.baselines import *
warnings.simplefilter("error")
for model in [{models}]:
    results = check_estimator(model, on_fail=None, on_skip=None, expected_failed_checks={expected})
    print(json.dumps([[result["check_name"], result["status"], str(result["exception"])] for result in results]))
"""
SMALL = (
    "network=MLP(hidden=16, layers=3, bins=4), folds=3, repeats=1, schedule=Schedule(max_rounds=3, learning_rate=0.01)"
)
SMALL_BASELINE = "network=MLP(hidden=16, layers=2, bins=0), members=1, max_epochs=10, learning_rate=0.05"


def assert_no_failure(*models, but=(EQUIVALENCE,)):
    script = SCRIPT.format(models=", ".join(models), expected=dict.fromkeys(but, "see above"))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # silent by default
    lines = done.stdout.splitlines()
    assert len(lines) == len(models)
    for model, line in zip(models, lines, strict=True):
        results = json.loads(line)
        assert len(results) > 40
        assert (model, [one for one in results if one[1] not in ("passed", "skipped", "xfail")]) == (model, [])
        failed = {name: reason for name, status, reason in results if status == "xfail"}
        assert (model, failed.keys()) == (model, set(but))
        assert "needs at least 9 rows, got 5" in failed.get(WORTH_FIVE, "needs at least 9 rows, got 5")
        assert {name for name, status, _ in results if status == "skipped"} <= {"check_array_api_input"}


@pytest.mark.parametrize("matching", ["sigma", pytest.param("iqr", marks=pytest.mark.slow)])
def test_scikit_learns_checks_pass(matching):
    assert_no_failure(f"MatchedRegressor(0.8, matching={matching!r}, random_state=0, {SMALL})")


def test_scikit_learns_checks_pass_for_the_classifier():
    assert_no_failure(f"MatchedClassifier(0.8, random_state=0, companions=(), {SMALL})")


def test_scikit_learns_checks_pass_for_every_baseline():
    assert_no_failure(*[f"{name}(random_state=0, {SMALL_BASELINE})" for name in baselines.__all__])


@pytest.mark.slow
@pytest.mark.parametrize("matching", ["sigma", "iqr"])
def test_scikit_learns_checks_pass_by_default(matching):
    assert_no_failure(f"MatchedRegressor(matching={matching!r})", but=(EQUIVALENCE, WORTH_FIVE))


@pytest.mark.slow
def test_scikit_learns_checks_pass_for_the_classifier_by_default():
    assert_no_failure("MatchedClassifier()", but=(EQUIVALENCE, WORTH_FIVE))


@pytest.mark.slow
@pytest.mark.parametrize("name", baselines.__all__)
def test_scikit_learns_checks_pass_for_every_baseline_by_default(name):
    assert_no_failure(f"{name}()")
