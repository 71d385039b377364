"""The service over HTTP: its end points, status codes, limits and counts."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from coverwell import __version__
from tests.serve.conftest import LIMITS, ROW, serving

BODY = {"rows": [ROW]}


def test_health_and_info_say_what_is_served(rent, kind):
    status, headers, content = rent.get("/health")
    assert (status, headers["content-type"], json.loads(content)) == (200, "application/json", {"status": "ok"})
    assert json.loads(rent.get("/info")[2]) == {
        "file": "rent.safetensors",
        "targets": ["rent"],
        "coverage": [0.5, 0.9],
        "any_coverage": True,
        "columns": {"area": "numbers", "city": "text", "sold": "times", "garden": "booleans"},
        "max_rows": LIMITS.rows,
        "max_bytes": LIMITS.bytes,
        "version": __version__,
    }
    assert json.loads(kind.get("/info")[2])["classes"] == ["large", "small", "usual"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "error"),
    [
        ("GET", "/predict", {}, 405, "/predict takes POST, got GET"),
        ("PUT", "/health", {}, 405, "/health takes"),
        ("GET", "/", {}, 404, "there is no '/'; there are /predict, /health,"),
        ("GET", "/health/", {"Host": "["}, 404, "there is no '/health/'; there are /predict, /health,"),
        ("GET", "/%0A%FF", {"Host": "["}, 404, "there is no '/\\n"),
        ("POST", "/predict", {}, 415, "got 'none'"),
        ("POST", "/predict", {"Content_Type": "application/xml"}, 415, "got 'application/xml'"),
        ("POST", "/predict", {"Content_Type": "text/csv; charset=latin-1"}, 415, "in UTF-8"),
        ("POST", "/predict", {"Content_Type": "text/csv", "Content_Encoding": "gzip"}, 415, "must not be compressed"),
        ("POST", "/predict?level=0.9", {"Content_Type": "text/csv"}, 422, "got 'level'"),
        ("POST", "/predict?coverage=2", {"Content_Type": "text/csv"}, 422, "got '2'"),
        ("POST", "/predict?coverage=nan", {"Content_Type": "text/csv"}, 422, "got 'nan'"),
        ("POST", "/predict?coverage=", {"Content_Type": "text/csv"}, 422, "strictly between 0 and 1"),
        ("POST", f"/predict?coverage={'0.5,' * 21}", {"Content_Type": "text/csv"}, 422, "20 shares at most"),
    ],
)
def test_what_is_not_asked_as_it_must_be_has_the_right_status(rent, method, path, headers, status, error):
    got, _, content = rent.send(method, path, None, **headers)
    assert got == status
    assert error in json.loads(content)["error"]


def test_classes_have_no_quantiles(kind):
    status, found = kind.json(BODY, "?quantiles=0.5")
    assert (status, "classes, which have no quantiles" in found["error"]) == (422, True)


@pytest.mark.parametrize("size", [LIMITS.bytes + 1, 4 * LIMITS.bytes])
def test_a_body_that_is_too_large_is_refused_whether_or_not_its_size_is_told(rent, size):
    body = b" " * size
    status, found = rent.json(body)
    assert (status, found["error"]) == (
        413,
        "a body may have 200,000 bytes at most, got more; send fewer rows a request",
    )
    status, _, _ = rent.send("POST", "/predict", iter([body[: size // 2], body[size // 2 :]]), Content_Type="text/csv")
    assert status == 413


def test_requests_that_come_together_are_answered_by_the_same_bytes(rent):
    def asked(_):
        return rent.send("POST", "/predict", json.dumps(BODY), Content_Type="application/json")[2]

    expected = asked(0)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(asked, range(80))) == {expected}


def test_metrics_count_requests_rows_errors_and_seconds(folder, capfd):
    with serving(folder / "rent.safetensors") as client:
        client.json({"rows": [ROW, ROW]})
        client.json({"rows": [ROW | {"area": "x", "city": 3}]})
        client.get("/nowhere%0A?at=all")
        _, headers, content = client.get("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = content.decode().splitlines()
    assert all(line.startswith("# ") or len(line.rsplit(" ", 1)) == 2 for line in lines)
    found = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}
    assert found['coverwell_requests_total{path="/predict",status="200"}'] == 1
    assert found['coverwell_requests_total{path="/predict",status="422"}'] == 1
    assert found['coverwell_requests_total{path="other",status="404"}'] == 1
    assert (found["coverwell_errors_total"], found["coverwell_rows_total"]) == (2, 2)
    assert found["coverwell_bad_fields_total"] == 2
    buckets = [value for name, value in found.items() if name.startswith("coverwell_predict_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["coverwell_predict_seconds_count"] == 2
    log = capfd.readouterr().err.splitlines()
    assert [line.split()[2:5] for line in log[:2]] == [["POST", "/predict", "200"], ["POST", "/predict", "422"]]
    assert " 200 2 rows " in log[0]


def test_a_client_that_leaves_in_the_middle_harms_nobody(rent):
    head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: 1000\r\n\r\narea,"
    with socket.create_connection(("127.0.0.1", rent.port)) as connection:
        connection.sendall(head.encode())
    with socket.create_connection(("127.0.0.1", rent.port), timeout=10) as connection:
        connection.sendall(b"\x00\xff no HTTP\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert rent.json(BODY)[0] == 200


def test_health_answers_while_rows_are_predicted(rent):
    rows = json.dumps({"rows": [ROW] * 500})
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            rent.send("POST", "/predict", rows, Content_Type="application/json")

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert [rent.get("/health")[0] for _ in range(20)] == [200] * 20
    finally:
        stop.set()
        thread.join()
