"""Models in files, each behind a server on a free port of this machine, and a client of it."""

import http.client
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell import MLP, MatchedClassifier, MatchedRegressor, Schedule, to_onnx
from coverwell.cli.serve import listening
from coverwell.serve.app import Service, server_of
from coverwell.serve.bodies import Limits
from coverwell.serve.models import load_served

BRIEF = {"network": MLP(hidden=6, bins=4), "folds": 2, "repeats": 1, "schedule": Schedule(max_rounds=1)}
BRIEF |= {"companions": (), "random_state": 0, "device": "cpu"}
LIMITS = Limits(bytes=200_000, rows=500)
ROW = {"area": 80.5, "city": "Bern", "sold": "2024-05-01", "garden": True}


def flats(n, seed=0):
    """Rows of all kinds of columns, with gaps."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 700, n)
    return pl.DataFrame(
        {
            "area": [None if i % 9 == 0 else float(value) for i, value in enumerate(rng.uniform(20, 150, n).round(1))],
            "city": [None if i % 11 == 0 else city for i, city in enumerate(rng.choice(["Bern", "Oslo", "Rome"], n))],
            "sold": [datetime(2023, 1, 1) + timedelta(days=int(day)) for day in days],
            "garden": rng.random(n) < 0.5,
        }
    )


@dataclass(frozen=True)
class Client:
    """Real requests over a real socket."""

    port: int

    def send(self, method, path, body=None, **headers):
        """Status, headers and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path):
        return self.send("GET", path)

    def json(self, content, query=""):
        """Status and content of the answer to a body of JSON, given as bytes or as what becomes JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, headers, answer = self.send("POST", f"/predict{query}", body, Content_Type="application/json")
        assert headers["content-type"] == "application/json"
        return status, json.loads(answer)

    def csv(self, text, query=""):
        status, _, answer = self.send("POST", f"/predict{query}", text, Content_Type="text/csv; charset=utf-8")
        return status, answer


@contextmanager
def serving(path, limits=LIMITS):
    """A client of a server in a thread of this process."""
    service = Service(load_served(path, device="cpu"), limits)
    with listening("127.0.0.1", 0) as listener:
        server = server_of(service.app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
            service.thread.shutdown()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """`rent.safetensors` and `rent.onnx`, a regressor at two levels; to be left as it is."""
    folder, rows = tmp_path_factory.mktemp("models"), flats(80)
    rent = rows["area"].fill_null(80).to_numpy() + np.random.default_rng(1).normal(size=80)
    model = MatchedRegressor([0.5, 0.9], **BRIEF).fit(rows, pl.Series("rent", rent))
    coverwell.save(model, folder / "rent.safetensors")
    kinds = pl.Series("kind", np.where(rent < 60, "small", np.where(rent < 100, "usual", "large")))
    coverwell.save(MatchedClassifier(0.9, **BRIEF).fit(rows, kinds), folder / "kind.safetensors")
    return folder


@pytest.fixture(scope="session")
def rent(folder):
    with serving(folder / "rent.safetensors") as client:
        yield client


@pytest.fixture(scope="session")
def exported_file(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "rent.onnx"
    to_onnx(coverwell.load(folder / "rent.safetensors"), path, precision="float64")
    return path


@pytest.fixture(scope="session")
def exported(exported_file):
    with serving(exported_file) as client:
        yield client


@pytest.fixture(scope="session")
def kind(folder):
    with serving(folder / "kind.safetensors") as client:
        yield client


@pytest.fixture(scope="session")
def new():
    """Rows that no model has seen."""
    return flats(40, seed=2)


def in_json(rows):
    """Rows as JSON spells them."""
    return [{**row, "sold": row["sold"].isoformat()} for row in rows.to_dicts()]
