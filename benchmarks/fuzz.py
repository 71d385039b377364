"""Random inputs to fit, predict, load, report and serve: only our errors and warnings, no hang, bounded memory.

Every case has a seed of its own, so that one that goes wrong can be run again alone: `--part predict --case 17`. Cases
run in processes of their own, watched from outside: one that is silent for too long is killed and counted as wrong, and
one that needs much more memory than it had at first is refused it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from machine import at_the_end, environment, place

import coverwell
from coverwell import errors

HERE = Path(__file__).parent
SEED = 0
# Module, and cases of a full and of a quick run.
PARTS = {
    "fit": ("fuzz_fit", 800, 8),
    "predict": ("fuzz_predict", 3500, 30),
    "load": ("fuzz_load", 2000, 40),
    "report": ("fuzz_report", 200, 3),
    "serve": ("fuzz_serve", 3500, 30),
}
LONGEST = 60  # seconds of one case
MOST_MEMORY = 2 * 2**30  # bytes of address space beyond what a process has before its first case
OUR_FILES = Path(coverwell.__file__).parent
# Packages whose checks of X and y are part of scikit-learn's contract for estimators; click's are those of options.
OF_OTHERS = ("sklearn/utils/", "sklearn/base.py", "click/")
KINDS = ValueError, TypeError  # and their kinds: errors of ours are among them, and scikit-learn's NotFittedError
OUR_OTHERS = errors.NonFiniteLossError, errors.NotEnoughMemoryError, ImportError

Step = tuple[str, Callable[[], Any]]
Case = Callable[[np.random.Generator], Iterator[Step]]


# What is wrong with one step.


def complaint(work: Callable[[], Any]) -> tuple[str, str | None]:
    """How it ended ("done" or the class of the error), and what is wrong with that, None if nothing is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work()
        except Exception as error:
            end, wrong = type(error).__name__, wrong_with(error)
        else:
            end, wrong = "done", None
    foreign = [one for one in caught if one.category.__module__ != errors.__name__ and not of_sklearn(one)]
    if wrong is None and foreign:
        one = foreign[0]
        wrong = f"warns {one.category.__name__}: {one.message} ({Path(one.filename).name}:{one.lineno})"
    return end, wrong


def wrong_with(error: BaseException) -> str | None:
    """None for an error with a message that we, or scikit-learn for us, raise on purpose: in a `raise` of our files."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [place for place, frame in enumerate(frames) if OUR_FILES in Path(frame.filename).parents]
    last, beyond = (frames[own[-1]], frames[own[-1] + 1 :]) if own else (None, frames)
    if beyond:
        on_purpose = any(part in beyond[0].filename for part in OF_OTHERS)
    else:
        on_purpose = last is not None and (last.line or "").lstrip().startswith("raise")
    meant = isinstance(error, KINDS + OUR_OTHERS) and on_purpose
    line = " ".join(str(error).split())
    if meant and line:
        return None
    return f"{type(error).__name__}: {line[:300]} ({where(error.__traceback__)})"


def of_sklearn(warned: warnings.WarningMessage) -> bool:
    """Its own classes, and what its checks of X say, which a report issues again."""
    says = str(warned.message).startswith("X has feature names, but")
    return says or "sklearn/utils/" in warned.filename or warned.category.__module__ == "sklearn.exceptions"


def where(trace: TracebackType | None) -> str:
    """The last place of ours, and the very last."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if OUR_FILES in Path(frame.filename).parents][-1:]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*own, frames[-1]]]
    return " > ".join(dict.fromkeys(places))


# One process: some cases, one line of JSON each.


def work(part: str, numbers: range, folder: Path) -> None:
    case: Case = import_module(PARTS[part][0]).prepared(folder)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    say(ready=True)
    for number in numbers:
        say(case=number)
        started, ends, wrong = time.perf_counter(), Counter[str](), []
        for name, step in case(np.random.default_rng([SEED, list(PARTS).index(part), number])):
            end, found = complaint(step)
            ends[end] += 1
            if found is not None:
                wrong.append(f"{name}: {found}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        say(case=number, ends=ends, wrong=wrong, seconds=time.perf_counter() - started, memory=memory)


def say(**line: Any) -> None:
    print(json.dumps(line), file=SAID, flush=True)


SAID = sys.stdout  # what steps print goes elsewhere


# The processes, watched from outside.


def run_part(part: str, n_cases: int, folder: Path) -> dict[str, Any]:
    """All cases of a part: how their steps ended, and what went wrong."""
    ends, wrong, slowest, memory, number = Counter[str](), [], 0.0, 0, 0
    while number < n_cases:
        started = False
        for line in lines_of(part, range(number, n_cases), folder):
            if "ends" in line:
                number, slowest, memory = line["case"] + 1, max(slowest, line["seconds"]), max(memory, line["memory"])
                ends.update(line["ends"])
                wrong += [{"case": line["case"], "what": what} for what in line["wrong"]]
            elif "ready" in line:
                started = True
            elif "died" in line:  # in the case that had begun: the next process goes on behind it
                if not started:
                    raise RuntimeError(f"the part {part} cannot begin: {line['died']}")
                wrong.append({"case": number, "what": line["died"]})
                number += 1
    return {
        "cases": n_cases,
        "wrong": len({one["case"] for one in wrong}),
        "steps": sum(ends.values()),
        "ends": dict(ends.most_common()),
        "slowest": slowest,
        "memory": memory / 2**10,
        "found": wrong,
    }


def lines_of(part: str, numbers: range, folder: Path) -> Iterator[dict[str, Any]]:
    """The lines that a process says; last one that says how it died, if it did."""
    arguments = ["--part", part, "--from", str(numbers.start), "--to", str(numbers.stop), "--folder", str(folder)]
    command = [sys.executable, __file__, *arguments]
    with (folder / f"{part}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        assert process.stdout is not None
        threading.Thread(target=lambda out: [*map(said.put, out), said.put(b"")], args=(process.stdout,)).start()
        limit = 10 * LONGEST  # to fit the models of a part
        while True:
            try:
                line = said.get(timeout=limit)
            except queue.Empty:
                process.kill()
                process.wait()
                yield {"died": f"silent for {limit} seconds"}
                return
            if not line:
                break
            limit = LONGEST
            yield json.loads(line)
    if process.wait():
        yield {"died": f"the process ended with {process.returncode}: {last_line(folder / f'{part}.log')}"}


def last_line(log: Path) -> str:
    return next(reversed(log.read_text(errors="replace").split("\n")[-2:-1]), "")


# The report.


def report(results: dict[str, Any]) -> str:
    parts = results["parts"]
    n, n_wrong = (sum(part[name] for part in parts.values()) for name in ("cases", "wrong"))
    lines = ["| | cases | steps | done | our errors | wrong | slowest case (s) | memory (MB) |", "|---|" + "---|" * 7]
    for name, part in parts.items():
        done = part["ends"].get("done", 0)
        lines.append(
            f"| {name} | {part['cases']:,} | {part['steps']:,} | {done:,} | {part['steps'] - done:,} | {part['wrong']} "
            f"| {part['slowest']:.1f} | {part['memory']:,.0f} |"
        )
    texts = [
        "# Random inputs",
        f"`make fuzz`. {n:,} cases, {n_wrong} of them wrong. A case is one random input; its steps are what is then "
        "called. A step may end in an error of ours, with a message; it is wrong if it ends in any other, warns with "
        f"a class that is not ours, takes longer than {LONGEST} seconds or needs more than "
        f"{MOST_MEMORY / 2**30:g} GB beside what its process had before.",
        "\n".join(lines),
        *([found_in(parts)] if n_wrong else []),
        f"{results['seconds'] / 60:.1f} minutes.",
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def found_in(parts: dict[str, Any]) -> str:
    lines = [f"- {name} {one['case']}: {one['what']}" for name, part in parts.items() for one in part["found"]]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    global SAID
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundred cases: whether everything runs")
    parser.add_argument("--cases", type=int, help="so many of each part")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--case", type=int, help="only this one, of a part")
    parser.add_argument("--from", dest="first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--to", dest="end", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    if asked.end is not None:
        SAID, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
        work(asked.part[0], range(asked.first, asked.end), asked.folder)
        return 0
    if asked.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            work(asked.part[0], range(asked.case, asked.case + 1), Path(folder))
        return 0
    has_service = find_spec("coverwell.serve") is not None
    where, started, parts = environment(seed=SEED), time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        for part in asked.part or [name for name in PARTS if name != "serve" or has_service]:
            n_cases = asked.cases or PARTS[part][2 if asked.quick else 1]
            parts[part] = run_part(part, n_cases, Path(folder))
            print(f"{part}: {parts[part]['cases']} cases, {parts[part]['wrong']} wrong", file=sys.stderr)
    results = {"environment": at_the_end(where), "seconds": time.perf_counter() - started, "parts": parts}
    is_whole = not (asked.quick or asked.cases or asked.part)
    file = asked.out / ("fuzz.json" if is_whole else "fuzz-quick.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))
    return int(any(part["wrong"] for part in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
