"""`kill -9` at random moments of fits, predictions, reports and grids: nothing is lost, doubled or half-written.

Every command is first run undisturbed, which gives its time and its result. Then it is killed: at a moment drawn from
that time, or while it writes a file. What is there afterwards must be the old file or a whole one, and a checkpoint
that can be read. The same command again must end with the same result, and no other file may be left.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import pstats
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from machine import at_the_end, environment, place, threads

from coverwell import MatchedRegressor
from coverwell.files import new_file
from coverwell.model_file import read_tensors

HERE = Path(__file__).parent
SEED = 0
OLD = b"the file of before"
WRITING = "while it writes", "at any time"
LONGEST = 300.0  # seconds of a command
KEEP = "checkpoint.py", "keep"
COST_ROWS = 300, 5000
MOST_TRIES = 20  # for a kill: a command may end before it is due

Content = Callable[[Path], Any]


# What is killed ------------------------------------------------------------------------------------------------------


def model_in(path: Path) -> str:
    """All of a model file but for the seconds of its rounds."""
    header, arrays = read_tensors(path)
    digest = hashlib.sha256(re.sub(r'"seconds": [^,}]+', "", json.dumps(header, sort_keys=True)).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def page_in(path: Path) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "", path.read_text())


def lines_in(path: Path) -> list[dict[str, Any]]:
    """The results of a grid in the order of their keys: a line that is doubled or lacking shows."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(({**line, "seconds": 0} for line in lines), key=lambda line: json.dumps(line, sort_keys=True))


@dataclass(frozen=True)
class Command:
    """A command in a folder of its own, what it writes, and how often it is killed."""

    words: str
    out: str
    content: Content
    kills: int
    quick_kills: int
    others: tuple[str, ...] = ()  # further files that it writes
    keeps_half_lines: bool = False  # lines are added to a file, and the last one may break off


BRIEF = "--target y --max-rounds 3 --folds 2 --device cpu --resume --force"
TABLES = "table1.md", "table1.csv", "intervals.md", "intervals.csv"
COMMANDS = {
    "fit": Command(f"-m coverwell fit rows.csv {BRIEF} --out model", "model", model_in, 28, 2),
    "fit --streamed": Command(
        f"-m coverwell fit rows.parquet --streamed {BRIEF} --out model", "model", model_in, 28, 2
    ),
    "predict, CSV": Command(
        "-m coverwell predict fitted many.csv --force --out found.csv", "found.csv", Path.read_bytes, 11, 1
    ),
    "predict, Parquet": Command(
        "-m coverwell predict fitted many.csv --force --out found.parquet", "found.parquet", Path.read_bytes, 11, 1
    ),
    "report": Command("-m coverwell report fitted rows.csv --force --out page.html", "page.html", page_in, 11, 1),
    "grid": Command(
        "-m reproduction table1 --quick --methods hnn,quantiles --data boston,auto-mpg --trials 2 --levels 0.5,0.9 "
        "--device cpu --out grid",
        "grid/quick/results.jsonl",
        lines_in,
        11,
        1,
        tuple(f"grid/quick/{name}" for name in TABLES),
        keeps_half_lines=True,
    ),
}


def write_inputs(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    frame = pl.DataFrame(rng.normal(size=(20_000, 3)), schema=["a", "b", "c"])
    frame = frame.with_columns(y=pl.col("a").sin() + 0.3 * pl.Series(rng.normal(size=20_000)))
    frame[:300].write_csv(folder / "rows.csv")
    frame[:1000].write_parquet(folder / "rows.parquet")
    frame.write_csv(folder / "many.csv")
    run(f"-m coverwell fit rows.csv {BRIEF} --out fitted", folder).check_returncode()


def run(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words.split()]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONGEST)


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


# Killing -------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One kill, what it left, and what is wrong with that."""

    command: str
    moment: str
    seconds: float  # from the start to the kill
    old: bool  # whether the output was there before
    left: str = ""
    wrong: list[str] = field(default_factory=list)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def kill(command: Command, folder: Path, due: float, n_parts: int) -> float | None:
    """Kill the command after so many seconds, or when it writes its n-th file; None if it has ended before."""
    words, start, seen = [sys.executable, *command.words.split()], time.perf_counter(), set()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, start_new_session=True, **streams) as process:
        while process.poll() is None:
            seconds = time.perf_counter() - start
            seen |= set(folder.rglob("*.part")) if n_parts else set()
            if len(seen) >= n_parts if n_parts else seconds >= due:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return seconds if process.returncode == -signal.SIGKILL else None
            time.sleep(0.0005 if n_parts else min(0.01, due - seconds))
    return None


def faults_after_the_kill(command: Command, folder: Path, expected: Any, *, old: bool) -> tuple[str, list[str]]:
    """What the kill has left of the output, and what is wrong with it."""
    out, checkpoint, wrong = folder / command.out, folder / f"{command.out}.checkpoint", []
    left = "nothing"
    if out.exists():
        left = "the old file" if old and out.read_bytes() == OLD else "a whole file"
        if left == "a whole file" and not command.keeps_half_lines and not same(command, out, expected):
            left, wrong = "a damaged file", ["half-written"]
        if command.keeps_half_lines:
            left = f"{len(out.read_bytes().splitlines())} lines"
    elif old:
        wrong.append("the old file is lost")
    if checkpoint.exists():
        try:
            left += f", a checkpoint of {read_tensors(checkpoint)[0]['checkpoint']['rounds']} rounds"
        except (ValueError, KeyError) as error:
            wrong.append(f"the checkpoint cannot be read: {error}")
    return left, wrong


def same(command: Command, out: Path, expected: Any) -> bool:
    try:
        return bool(command.content(out) == expected)
    except (ValueError, KeyError, OSError):
        return False


def faults_after_the_next_run(command: Command, folder: Path, before: set[str], expected: Any) -> list[str]:
    done, wrong = run(command.words, folder), []
    if done.returncode:
        return [f"the next run ended with {done.returncode}: {done.stderr.strip()[-300:]}"]
    if not same(command, folder / command.out, expected):
        wrong.append("the next run gave another result")
    if left := files_in(folder) - before - {command.out, *command.others}:
        wrong.append(f"files are left: {sorted(left)}")
    return wrong


def cases(name: str, command: Command, inputs: Path, n_kills: int, rng: np.random.Generator) -> Iterator[Case]:
    with TemporaryDirectory() as made:
        seconds, expected, n_parts = undisturbed(command, fresh(inputs, Path(made, "undisturbed"), command))
        print(f"{name}: {seconds:.1f} s undisturbed, {n_parts} files written", flush=True)
        for number in range(n_kills):
            writing, old = bool(number % 2) and n_parts > 0, number % 4 > 1 and not command.keeps_half_lines
            for again in range(MOST_TRIES):
                folder = fresh(inputs, Path(made, f"{number}-{again}"), command, old=old)
                before, due = files_in(folder) - {command.out}, float(rng.uniform(0, seconds))
                at = kill(command, folder, due, int(rng.integers(1, n_parts + 1)) if writing else 0)
                if at is not None:
                    break
            else:
                raise RuntimeError(f"{name} always ended before it was killed")
            case = Case(name, WRITING[0 if writing else 1], round(at, 3), old)
            case.left, case.wrong = faults_after_the_kill(command, folder, expected, old=old)
            case.wrong += faults_after_the_next_run(command, folder, before, expected)
            yield case


def fresh(inputs: Path, folder: Path, command: Command, *, old: bool = False) -> Path:
    """A folder with the inputs, and with an old output if asked."""
    folder.mkdir()
    for path in inputs.iterdir():
        (folder / path.name).hardlink_to(path)
    if old:
        (folder / command.out).write_bytes(OLD)
    return folder


def undisturbed(command: Command, folder: Path) -> tuple[float, Any, int]:
    """Seconds, result, and how many files are written one after the other."""
    start, seen = time.perf_counter(), set()
    words = [sys.executable, *command.words.split()]
    with subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            seen |= set(folder.rglob("*.part"))
            time.sleep(0.0005)
    if process.returncode:
        raise SystemExit(f"{command.words} ended with {process.returncode} without a kill")
    return time.perf_counter() - start, command.content(folder / command.out), len(seen)


# What checkpoints cost -----------------------------------------------------------------------------------------------


def cost(n_rows: int) -> dict[str, Any]:
    """Of a default fit with a checkpoint after every round: the seconds in `Checkpoint.keep`, of those of the fit."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n_rows, 10))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n_rows)
    with TemporaryDirectory() as folder, cProfile.Profile() as profile:
        path = Path(folder, "checkpoint")
        start = time.perf_counter()
        model = MatchedRegressor(device="cpu", random_state=SEED).fit(X, y, checkpoint=path)
        seconds, megabytes = time.perf_counter() - start, path.stat().st_size / 1e6
    calls = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
    ((n, kept),) = [(times[0], times[3]) for (file, _, name), times in calls if (Path(file).name, name) == KEEP]
    known = {"rows": n_rows, "rounds": len(model.rounds_), "seconds": seconds, "megabytes": megabytes}
    return {**known, "checkpoints": n, "seconds each": kept / n, "share": kept / seconds}


# What came out -------------------------------------------------------------------------------------------------------


def report(stored: dict[str, Any]) -> str:
    found = stored["cases"]
    rows = ["| command | kills | while it wrote | fits resumed from a checkpoint | wrong |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(case["command"] for case in found):
        own = [case for case in found if case["command"] == name]
        writing, resumed = (
            sum(part in case[key] for case in own)
            for key, part in (("moment", WRITING[0]), ("left", "a checkpoint of"))
        )
        rows.append(f"| {name} | {len(own)} | {writing} | {resumed} | {sum(bool(case['wrong']) for case in own)} |")
    wrong = [case for case in found if case["wrong"]]
    prices = [
        f"{one['rows']:,} rows, {one['seconds']:.1f} s: {one['checkpoints']} checkpoints of {one['megabytes']:.1f} MB, "
        f"{1000 * one['seconds each']:.0f} ms each, {one['share']:.1%} of the fit"
        for one in stored["costs"]
    ]
    left = Counter(case["left"] for case in found).most_common()
    text = [
        "# kill -9",
        f"{len(found)} kills, {len(wrong)} with something wrong. Made by `make kill`; see the head of "
        "`benchmarks/kill.py` for what is checked after each.",
        "\n".join(rows),
        "What the kills left: " + "; ".join(f"{what} {n}" for what, n in left) + ".",
        f"Default fits on one thread with a checkpoint after every round: {'; '.join(prices)}.",
        *(f"**Wrong**: {case['command']}, {case['seconds']} s: {'; '.join(case['wrong'])}" for case in wrong),
        place(stored["environment"]),
    ]
    return "\n\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few kills, in about a minute")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    rng, cases_found, name = np.random.default_rng(SEED), [], "kill-quick" if arguments.quick else "kill"
    where = environment(packages={"polars": pl.__version__}, seed=SEED)
    with threads(1):
        costs = list(map(cost, COST_ROWS[:1] if arguments.quick else COST_ROWS))
    with TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        for case in in_turns(Path(folder), rng, quick=arguments.quick):
            cases_found.append(asdict(case))
            stored = {"environment": at_the_end(where), "costs": costs, "cases": cases_found}
            write(stored, arguments.out / name)
            wrong = "; ".join(case.wrong)
            print(f"{case.command}, {case.seconds:.2f} s, {case.moment}: {case.left} {wrong}", flush=True)
    print(report(stored))
    if any(case["wrong"] for case in cases_found):
        raise SystemExit(1)


def in_turns(inputs: Path, rng: np.random.Generator, *, quick: bool) -> Iterator[Case]:
    """A case of each command, then another, until all are done."""
    left = [
        cases(name, command, inputs, command.quick_kills if quick else command.kills, rng)
        for name, command in COMMANDS.items()
    ]
    while left:
        for own in list(left):
            if (case := next(own, None)) is None:
                left.remove(own)
            else:
                yield case


def write(stored: dict[str, Any], path: Path) -> None:
    for ending, content in ((".json", json.dumps(stored, indent=1)), (".md", report(stored))):
        with new_file(path.with_suffix(ending)) as file:
            file.write(content.encode())


if __name__ == "__main__":
    main()
