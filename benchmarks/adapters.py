"""The suites by which skpro and sktime check estimators, run on our adapters; `make test-adapters` runs it.

No test of a suite is left out. The result goes to results/adapters.json, its text to results/adapters.md, and the exit
code says whether all have passed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import at_the_end, environment, place

HERE = Path(__file__).parent
SEED = 0  # of the estimators in `get_test_params`
SUITES = {  # what is checked, by whose check_estimator, and where that keeps the list of its tests
    "coverwell.skpro.SkproRegressor": ("skpro.utils", "skpro.registry._base_classes_tests"),
    "coverwell.skpro.QuantileDistribution": ("skpro.utils", "skpro.registry._base_classes_tests"),
    "coverwell.sktime.SktimeForecaster": ("sktime.utils.estimator_checks", "sktime.tests.test_class_register"),
}
KINDS = ("failed", "skipped", "without a case")  # what is listed by name
Results = dict[str, Any]


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def checked(estimator: str) -> Results:
    """How many tests have passed, and what became of the others, by the name of the test."""
    checker, registry = SUITES[estimator]
    adapter, start = named(estimator), time.perf_counter()
    results: dict[str, Any] = named(f"{checker}.check_estimator")(adapter, verbose=False)
    others = {name: result for name, result in results.items() if result != "PASSED"}
    skipped = {name: result for name, result in others.items() if isinstance(result, str)}  # "SKIPPED: ..."
    suites = import_module(registry).get_test_classes_for_obj(adapter)
    of_suites = {name for suite in suites for name in dir(suite) if name.startswith("test_")}
    return {
        "estimator": estimator,
        "package": checker.partition(".")[0],
        "functions": len(of_suites),
        "passed": len(results) - len(others),
        "skipped": skipped,
        "failed": {name: repr(result)[:300] for name, result in others.items() if name not in skipped},
        "without a case": sorted(of_suites - {name.partition("[")[0] for name in results}),
        "seconds": round(time.perf_counter() - start, 1),
    }


def measure() -> Results:
    packages = {package: version(package) for package in ("skpro", "sktime", "scikit-base", "scikit-learn", "pandas")}
    where = environment(packages=packages, seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suites' own, and those of fits that are as short as tests need them
        found = [checked(estimator) for estimator in SUITES]
    return {"environment": at_the_end(where), "found": found}


def report(results: Results) -> str:
    lines = [
        "| adapter | checked by | test functions | cases passed | skipped | failed | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    versions = results["environment"]["versions"]
    for one in results["found"]:
        suite = f"{one['package']} {versions[one['package']]}"
        counts = f"{one['functions']} | {one['passed']} | {len(one['skipped'])} | {len(one['failed'])}"
        lines.append(f"| `{one['estimator']}` | {suite} | {counts} | {one['seconds']:.0f} |")
    texts = [
        "# The suites of skpro and sktime",
        "`make test-adapters`. `check_estimator` of each package on the small models of `get_test_params`, one thread. "
        "No test was excluded.",
        "\n".join(lines),
        *[
            f"{one['estimator']}: {kind}: {listed(one[kind])}."
            for one in results["found"]
            for kind in KINDS
            if one[kind]
        ],
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def listed(tests: Any) -> str:
    return ", ".join(f"{name} ({tests[name]})" if isinstance(tests, dict) else name for name in tests)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    results = measure()
    file = asked.out / "adapters.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))
    sys.exit(any(one["failed"] for one in results["found"]))


if __name__ == "__main__":
    main()
