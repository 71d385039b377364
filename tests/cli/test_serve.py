"""`coverwell serve`: one command from a model file to a service, which stops when it is told to."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import coverwell
from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.cli.serve import listening

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    x = np.random.default_rng(2).normal(size=(60, 2))
    small = MatchedRegressor(
        0.8, network=MLP(hidden=4), folds=2, repeats=1, companions=(), schedule=Schedule(max_rounds=1)
    )
    path = tmp_path_factory.mktemp("plain") / "plain.safetensors"
    coverwell.save(small.fit(x, x[:, 0]), path)
    return path


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_stopped(plain, stop):
    arguments = [sys.executable, "-m", "coverwell", "serve", plain, "--port", "0", "--device", "cpu"]
    variables = {**os.environ, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(arguments, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"at (http://127\.0\.0\.1:\d+); its schema is at /openapi\.json", process.stderr.readline())[1]
        body = json.dumps({"rows": [{"column 0": 0.5, "column 1": 1}]}).encode()
        request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert [*json.load(answer)["rows"][0]] == ["y", "y_lower_0.8", "y_upper_0.8"]
    finally:
        process.send_signal(stop)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert re.fullmatch(r"\S+Z 127\.0\.0\.1 POST /predict 200 1 rows [\d.]+ ms\nstopped\n", log)


def test_connections_send_at_once():
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_one_line(refused, plain):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = refused("serve", plain, "--port", port)
    assert line == f"cannot listen at 127.0.0.1, port {port} (Address already in use); give another --host or --port"


def test_an_address_that_is_not_this_machines_is_one_line(refused, plain):
    assert refused("serve", plain, "--host", "192.0.2.1", "--port", 0).startswith(
        "cannot listen at 192.0.2.1, port 0 ("
    )


def test_a_file_that_holds_no_model_is_one_line(refused, folder):
    assert "is damaged or not a model file" in refused("serve", folder / "test.csv", "--port", 0)
