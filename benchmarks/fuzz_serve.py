"""Odd requests to the service, over a real socket: every answer has a status that says what is wrong, and never 500."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_inputs as odd
import numpy as np
import pandas as pd
from fuzz_inputs import chosen
from fuzz_models import IN_NAMED_COLUMNS, Step, files_in, rows_for

SERVED = "regressor", "classifier", "two_classes", "plain"
LIMITS = {"bytes": 100_000, "rows": 200}
STATUSES = 200, 400, 404, 405, 408, 411, 413, 415, 422, 431
CSV, JSON = "text/csv", "application/json"
KINDS = CSV, JSON, "text/csv; charset=utf-8", "text/csv; charset=latin-1", "text/html", "", "application/json; x=\x0b"
VALUES = (
    None, 0, 1.5, -1, 1e308, 10**400, True, "", "gas", "1,5", "2024-05-01", [], [1], {}, {"a": 1}, "é🏠", "NaN",
    float("nan"), float("inf"), "x" * 5000,
)  # fmt: skip
METHODS = "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "X"
PATHS = "/", "/health", "/metrics", "/info", "/openapi.json", "/predict/x", "/%C3%A9", "//", "/%00"
QUERIES = (
    "?coverage=0.5", "?coverage=0.3,0.6", "?coverage=2", "?coverage=x", "?quantiles=0.1", "?quantiles=0",
    "?delimiter=;", "?delimiter=tab", "?delimiter=%00", "?decimal=,", "?decimal=", "?more=1",
)  # fmt: skip


def prepared(folder: Path) -> Callable[[np.random.Generator], Iterator[Step]]:
    paths = files_in(folder)
    ports = {name: port_of(paths[name]) for name in SERVED}

    def case(rng: np.random.Generator) -> Iterator[Step]:
        name = chosen(rng, SERVED)
        method, path, body, headers = request(rng, name)
        yield f"{name}: {method} {path[:60]}", lambda: answered(ports[name], method, path, body, headers)
        yield f"{name}: afterwards", lambda: answered(ports[name], "GET", "/health", None, {})

    return case


def port_of(path: Path) -> int:
    """Where a model is served, by a thread of this process."""
    from coverwell.serve.app import Service, server_of
    from coverwell.serve.bodies import Limits
    from coverwell.serve.models import load_served

    service, listener = (
        Service(load_served(path, device="cpu"), Limits(**LIMITS)),
        socket.create_server(("127.0.0.1", 0)),
    )
    server = server_of(service.app)
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port: int = listener.getsockname()[1]
    return port


def answered(port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
    """Send a request; raises unless the answer is one that the service means."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
    finally:
        connection.close()
    if status not in STATUSES:
        raise AssertionError(f"status {status}: {content[:200]!r}")
    if status >= 400 and not readable(content, method):
        raise AssertionError(f"status {status} without a reason: {content[:200]!r}")


def readable(content: bytes, method: str) -> bool:
    """Whether an error has a message; those about bytes that are no HTTP are the server's own."""
    return method == "HEAD" or content.startswith(b"Invalid HTTP") or bool(json.loads(content).get("error"))


def request(rng: np.random.Generator, name: str) -> tuple[str, str, bytes | None, dict[str, str]]:
    if rng.random() < 0.05:
        return chosen(rng, METHODS), chosen(rng, PATHS), None, {}
    kind = chosen(rng, (CSV, JSON)) if rng.random() < 0.9 else chosen(rng, KINDS)
    body = csv_body(rng, name) if kind.startswith(CSV) else json_body(rng, name)
    if rng.random() < 0.25:
        body = odd.spoilt_bytes(body, rng)
    headers = {"Content-Type": kind} if kind.isprintable() else {}
    if rng.random() < 0.03:
        headers["Content-Encoding"] = "gzip"
    return "POST", f"/predict{chosen(rng, QUERIES) if rng.random() < 0.3 else ''}", body, headers


def rows(rng: np.random.Generator, name: str) -> pd.DataFrame:
    known = pd.DataFrame(rows_for(name))
    n = int(chosen(rng, (0, 1, 2, 3, 30, 300)))
    found = known.iloc[rng.integers(len(known), size=n)].reset_index(drop=True)
    if rng.random() < 0.4 and name in IN_NAMED_COLUMNS:
        column = chosen(rng, list(found.columns))
        found[column] = pd.Series(odd.column(rng, n), index=found.index)
    if rng.random() < 0.1:
        found = found.iloc[:, : int(rng.integers(4))]
    return found if rng.random() < 0.9 else odd.frame(rng, n)


def csv_body(rng: np.random.Generator, name: str) -> bytes:
    return rows(rng, name).to_csv(index=False).encode(errors="replace")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    value = getattr(value, "item", lambda: value)()
    missing = value is None or value is pd.NaT or value is pd.NA or value != value
    return None if missing else value if isinstance(value, bool | int | float | str) else str(value)


def json_body(rng: np.random.Generator, name: str) -> bytes:
    frame = rows(rng, name)
    names = list(map(str, frame.columns))
    table = [dict(zip(names, map(plain, row), strict=True)) for row in frame.itertuples(index=False)]
    content: Any = {"rows": table}
    kind = rng.integers(16)
    if kind == 0:
        content = {"columns": {key: [row.get(key) for row in table] for key in (table[0] if table else {})}}
    elif kind == 1:
        content = chosen(rng, VALUES)
    elif kind == 2:
        content = {"rows": chosen(rng, VALUES)}
    elif kind == 3 and table:
        table[rng.integers(len(table))] = chosen(rng, VALUES)
    elif kind == 4 and table:
        row = table[rng.integers(len(table))]
        row[chosen(rng, [*row, "more"])] = chosen(rng, VALUES)
    elif kind == 5:
        content = {"columns": {key: chosen(rng, VALUES) for key in ("a", "rooms")}, "rows": table}
    if rng.random() < 0.02:
        return b"[" * 50_000
    return json.dumps(content, ensure_ascii=rng.random() < 0.5).encode()
