"""What the service counts, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts since the start."""

    def __init__(self, *, counts_outside: bool) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.buckets: Counter[float] = Counter()  # of the seconds of predictions, each request in one
        self.seconds = 0.0
        self.rows = self.bad_fields = 0
        self.outside: int | None = 0 if counts_outside else None

    def add(self, path: str, status: int, seconds: float) -> None:
        self.requests[path, status] += 1
        if path == "/predict":
            self.buckets[next((limit for limit in SECONDS if seconds <= limit), float("inf"))] += 1
            self.seconds += seconds

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("coverwell_requests_total", "counter", "Requests, by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'coverwell_requests_total{{path="{path}",status="{status}"}} {count}'
        errors = sum(count for (_, status), count in self.requests.items() if status >= 400)
        yield from _counter("coverwell_errors_total", "Requests that were refused or failed.", errors)
        yield from _counter("coverwell_bad_fields_total", "Values that were refused.", self.bad_fields)
        yield from _counter("coverwell_rows_total", "Rows that were predicted.", self.rows)
        if self.outside is not None:
            told = "Predicted rows outside the training range."
            yield from _counter("coverwell_rows_outside_total", told, self.outside)
        name, total = "coverwell_predict_seconds", 0
        yield from _head(name, "histogram", "Seconds from the first byte of a request to the last of its answer.")
        for limit in (*SECONDS, float("inf")):
            total += self.buckets[limit]
            yield f'{name}_bucket{{le="{"+Inf" if limit == float("inf") else limit}"}} {total}'
        yield f"{name}_sum {self.seconds!r}"
        yield f"{name}_count {total}"


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"


def _counter(name: str, told: str, count: int) -> Iterator[str]:
    yield from _head(name, "counter", told)
    yield f"{name} {count}"
