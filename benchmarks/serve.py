"""The service under load: rows per second and latency over real HTTP, and memory, with several clients at once.

`coverwell serve` runs as a process of its own on one thread, with the model of examples/flats.csv as a model file and
as an ONNX file. Clients are threads of this process with a connection each, which send the next request when they have
the answer. Rows per CPU second count the service's CPU alone, which other programs do not change.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from machine import at_the_end, environment, place

import coverwell
from coverwell import MatchedRegressor

HERE = Path(__file__).parent
FLATS, NEW = HERE.parent / "examples" / "flats.csv", HERE.parent / "examples" / "flats_new.csv"
SEED = 0
TARGET, GROUP, LEFT_OUT = "rent", "building", ("id", "building", "rent")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
TYPES = {"JSON": "application/json", "CSV": "text/csv"}
TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sizes:
    """How much is measured; every case ends after so many seconds or requests, whichever comes first."""

    rows: tuple[int, ...] = (1, 100, 10_000)
    clients: tuple[int, ...] = (1, 4)
    seconds: float = 4.0
    requests: int = 2_000
    warm_up: int = 1  # requests of each client, which do not count


FULL = Sizes()
QUICK = Sizes(rows=(1, 100), clients=(2,), seconds=0.5, requests=20)


# A service and its clients -------------------------------------------------------------------------------------------


def model_in(folder: Path) -> Path:
    """The model of the flats, by default settings, in a file."""
    rows = pl.read_csv(FLATS, try_parse_dates=True)
    model = MatchedRegressor([0.5, 0.9], random_state=SEED, device="cpu")
    coverwell.save(model.fit(rows.drop(LEFT_OUT), rows[TARGET], groups=rows[GROUP]), folder / "rent.safetensors")
    return folder / "rent.safetensors"


def body_of(n_rows: int, kind: str) -> bytes:
    """So many of the new flats, again and again, in one request."""
    rows = pl.read_csv(NEW)
    rows = pl.concat([rows] * -(-n_rows // len(rows)))[:n_rows].drop(LEFT_OUT)
    return rows.write_csv().encode() if kind == "CSV" else json.dumps({"rows": rows.to_dicts()}).encode()


@dataclass
class Served:
    """A running `coverwell serve`."""

    process: subprocess.Popen[str]
    port: int

    @property
    def bytes(self) -> int:
        """Memory now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        numbers = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / TICK

    def client(self) -> Client:
        return Client(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))


@dataclass
class Client:
    """One connection, which stays open; it is opened again if the service has closed it meanwhile."""

    connection: http.client.HTTPConnection
    n_opened_again: int = 0

    def ask(self, body: bytes | None, kind: str = "JSON", path: str = "/predict") -> tuple[int, bytes]:
        headers = {} if body is None else {"Content-Type": TYPES[kind]}
        try:
            self.connection.request("GET" if body is None else "POST", path, body, headers)
            answer = self.connection.getresponse()
        except ConnectionError:  # a service may close a connection on which nothing came for long
            self.connection.close()
            self.n_opened_again += 1
            self.connection.request("GET" if body is None else "POST", path, body, headers)
            answer = self.connection.getresponse()
        return answer.status, answer.read()


@contextmanager
def served(model: Path) -> Iterator[Served]:
    """`coverwell serve` on a free port of this machine, stopped at the end."""
    command = [sys.executable, "-m", "coverwell", "serve", str(model), "--port", "0", "--device", "cpu"]
    paths = {"PYTHONPATH": str(HERE.parent / "src")}
    with tempfile.TemporaryFile("w+") as log:  # a pipe that nobody reads would fill
        process = subprocess.Popen(command, env=os.environ | ONE_THREAD | paths, stderr=log, text=True)
        try:
            yield Served(process, _port(process, Path(f"/proc/self/fd/{log.fileno()}")))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _port(process: subprocess.Popen[str], log: Path, seconds: float = 120.0) -> int:
    """The port that the service says it listens at, once it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"at http://127\.0\.0\.1:(\d+);", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start: {log.read_text()}")


# Measuring -----------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the clients of a case found."""

    seconds: list[float] = field(default_factory=list)  # of each request
    wrong: int = 0  # answers that were not those of the first one


def load_of(service: Served, body: bytes, kind: str, n_clients: int, sizes: Sizes) -> dict[str, Any]:
    """Latencies and rates of clients that ask for the same rows at the same time."""
    expected = service.client().ask(body, kind)
    if expected[0] != 200:
        raise RuntimeError(f"the service refused rows: {expected[1][:500]!r}")
    tally, ready = Tally(), threading.Barrier(n_clients + 1)

    def ask() -> None:
        client = service.client()
        for _ in range(sizes.warm_up):
            client.ask(body, kind)
        ready.wait()
        end = time.perf_counter() + sizes.seconds
        for _ in range(-(-sizes.requests // n_clients)):
            start = time.perf_counter()
            if start >= end:
                break
            tally.wrong += client.ask(body, kind) != expected
            tally.seconds.append(time.perf_counter() - start)

    threads = [threading.Thread(target=ask) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    cpu, start = service.cpu, time.perf_counter()
    for thread in threads:
        thread.join()
    wall, cpu = time.perf_counter() - start, max(service.cpu - cpu, 1 / TICK)
    p50, p99 = np.quantile(tally.seconds, [0.5, 0.99]).tolist()
    n = len(tally.seconds)
    return {
        "requests": n,
        "wrong": tally.wrong,
        "p50": p50,
        "p99": p99,
        "wall": wall,
        "cpu": cpu,
        "bytes": service.bytes,
    }


def measure(sizes: Sizes) -> dict[str, Any]:
    packages = {name: version(name) for name in ("starlette", "uvicorn", "onnxruntime", "polars")}
    where, found = environment(packages=packages, seed=SEED), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        model = model_in(Path(folder))
        exported = Path(folder) / "rent.onnx"
        coverwell.to_onnx(coverwell.load(model), exported)
        for path in (model, exported):
            with served(path) as service:
                start = service.bytes
                for kind, n_rows, n_clients in product(TYPES, sizes.rows, sizes.clients):
                    about = {"model": path.suffix, "kind": kind, "rows": n_rows, "clients": n_clients, "start": start}
                    found.append(about | load_of(service, body_of(n_rows, kind), kind, n_clients, sizes))
                    print(found[-1], file=sys.stderr)
    return {"environment": at_the_end(where), "sizes": asdict(sizes), "found": found}


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    sizes, found = results["sizes"], results["found"]
    heads = ("model", "body", "rows", "clients", "requests", "p50, ms", "p99, ms", "rows per second")
    heads += ("rows per CPU second", "memory, MB")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in found:
        rows = case["requests"] * case["rows"]
        lines.append(
            f"| {case['model']} | {case['kind']} | {case['rows']:,} | {case['clients']} | {case['requests']:,} | "
            f"{1e3 * case['p50']:,.1f} | {1e3 * case['p99']:,.1f} | {rows / case['wall']:,.0f} | "
            f"{rows / case['cpu']:,.0f} | {case['bytes'] / 1e6:,.0f} |"
        )
    n, wrong = (sum(case[what] for case in found) for what in ("requests", "wrong"))
    starts = {case["model"]: f"{case['start'] / 1e6:,.0f} MB with {case['model']}" for case in found}
    texts = [
        "# The service under load",
        "`make bench-serve`. `coverwell serve` on one thread, with the default model of examples/flats.csv (9 columns, "
        f"two levels), over HTTP on the same machine. Each case takes {sizes['seconds']:g} s, or "
        f"{sizes['requests']:,} requests if they come first. Rows per CPU second count the service's CPU alone.",
        "\n".join(lines),
        f"{n:,} answers were compared with the first of their case, {wrong} differed. Before the first request the "
        f"service takes {' and '.join(starts.values())}. Memory is that after the case, in the order of the table.",
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few requests, seconds: whether everything runs")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = measure(QUICK if asked.quick else FULL)
    file = asked.out / ("serve-quick.json" if asked.quick else "serve.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
