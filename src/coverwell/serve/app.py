"""The service: predictions of one model over HTTP, in the kind in which rows came, JSON or CSV.

A single thread predicts, so that requests never share the model, and the event loop stays free for others.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coverwell._version import __version__
from coverwell.options import levels_from
from coverwell.prediction import BETWEEN_CLASSES, class_names
from coverwell.serve.bodies import Limits, RefusedError, frame_of_csv, frame_of_json
from coverwell.serve.metrics import CONTENT_TYPE, Metrics
from coverwell.serve.models import Levels, ServedModel
from coverwell.serve.schema import openapi
from coverwell.tables import COMMA, POINT, needed_polars

JSON, CSV = "application/json", "text/csv"
PATHS = ("/predict", "/health", "/info", "/metrics", "/openapi.json")
PARAMETERS = ("coverage", "quantiles", "delimiter", "decimal")
MOST_SHARES = 20  # levels, or quantiles, of a request
BODY_SECONDS = 60.0  # in which a body must have come
MOST_AT_ONCE = 64  # connections and requests; more are answered with 503
SECONDS_OPEN = 75  # of a connection on which nothing comes; longer than proxies keep theirs
SECONDS_TO_END = 30  # for requests that are being answered when the service is stopped
READ_AT_MOST = 8  # times the allowed bytes are read before an answer, so that clients see it
ROWS_IN_LOG = "coverwell.rows"


@dataclass(frozen=True)
class Asked:
    """The parameters of a request."""

    levels: Levels
    shares: Levels
    delimiter: str
    decimal: str


class Service:
    """One model behind HTTP; `app` is what a server runs."""

    def __init__(self, model: ServedModel, limits: Limits | None = None) -> None:
        self.model, self.limits = model, limits or Limits()
        self.metrics = Metrics(counts_outside=model.counts_outside)
        self.thread = ThreadPoolExecutor(1, "predict")
        self._schema = json.dumps(openapi(model, self.limits))

    @property
    def app(self) -> ASGIApp:
        endpoints: dict[str, Any] = {
            "/health": lambda _: answer({"status": "ok"}),
            "/info": lambda _: answer(self.about),
            "/metrics": lambda _: Response(self.metrics.text(), media_type=CONTENT_TYPE),
            "/openapi.json": lambda _: Response(self._schema, media_type=JSON),
        }
        routes = [Route(path, _asynchronous(endpoint)) for path, endpoint in endpoints.items()]
        handlers: dict[Any, Any] = {HTTPException: _other_status, RefusedError: self._refused, Exception: _failed}
        routes.append(Route("/predict", self.predict, methods=["POST"]))
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # /health/ is another path
        return Counted(app, self.metrics)

    @property
    def about(self) -> dict[str, Any]:
        model, limits = self.model, self.limits
        classes = {} if model.classes is None else {"classes": model.classes.tolist()}
        known = {"file": model.path.name, "targets": list(model.targets), **classes, "coverage": list(model.levels)}
        columns = {column.name: column.kind for column in model.columns}
        limited = {"max_rows": limits.rows, "max_bytes": limits.bytes}
        return {**known, "any_coverage": model.has_all_levels, "columns": columns, **limited, "version": __version__}

    async def predict(self, request: Request) -> Response:
        kind, asked = _content_type(request), self._asked(request.query_params)
        body = await self._body(request)
        work = self._predicted_csv if kind == CSV else self._predicted_json
        content, n_rows = await asyncio.get_running_loop().run_in_executor(self.thread, work, body, asked)
        request.scope[ROWS_IN_LOG] = n_rows
        return Response(content, media_type=kind)

    def _asked(self, query: QueryParams) -> Asked:
        if unknown := [name for name in query if name not in PARAMETERS]:
            raise RefusedError(422, f"parameters may be {', '.join(PARAMETERS)}, got {unknown[0][:60]!r}")
        levels, shares, model = _shares(query, "coverage"), _shares(query, "quantiles"), self.model
        if not model.has_all_levels and (other := set(levels) - set(model.levels)):
            known = ", ".join(map(str, model.levels))
            must = f"coverage must be of {known}, the levels that {model.path.name} was exported with"
            raise RefusedError(422, f"{must}, got {min(other)}; the .safetensors model has others")
        if shares and (model.classes is not None or not model.has_all_levels):
            what = "classes, which have no quantiles" if model.classes is not None else "no quantiles"
            raise RefusedError(422, f"{model.path.name} predicts {what}; leave out the parameter quantiles")
        marks = query.get("delimiter", COMMA), query.get("decimal", POINT)
        return Asked(levels or model.levels, shares, *("\t" if mark == "tab" else mark for mark in marks))

    async def _body(self, request: Request) -> bytes:
        limit, size, parts = self.limits.bytes, 0, list[bytes]()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size <= limit:
                        parts.append(part)
                    elif size > READ_AT_MOST * limit:
                        break
        except TimeoutError:
            raise RefusedError(408, f"a body must come within {BODY_SECONDS:g} s") from None
        if size > limit:
            raise RefusedError(413, f"a body may have {limit:,} bytes at most, got more; send fewer rows a request")
        return b"".join(parts)

    def _predicted_json(self, body: bytes, asked: Asked) -> tuple[bytes, int]:
        rows, form = frame_of_json(body, self.model, self.limits)
        found, told = self._answered(rows, asked, in_text=False)
        if form == "rows":
            content = f'{{"rows":{found.write_json()}'
        else:
            content = f'{{"columns":{json.dumps(found.to_dict(as_series=False))}'
        warned = f',"warnings":{json.dumps(told)}' if told else ""
        return f"{content}{warned}}}\n".encode(), len(rows)

    def _predicted_csv(self, body: bytes, asked: Asked) -> tuple[bytes, int]:
        classes = self.model.classes
        if classes is not None and any(BETWEEN_CLASSES in name for name in class_names(classes)):
            what = f"a class has {BETWEEN_CLASSES} in its name, which stands between classes in CSV"
            raise RefusedError(422, f"{what}; ask in JSON")
        rows = frame_of_csv(body, self.model, self.limits, asked.delimiter, asked.decimal)
        return self._answered(rows, asked, in_text=True)[0].write_csv().encode(), len(rows)

    def _answered(self, rows: Any, asked: Asked, *, in_text: bool) -> tuple[Any, list[str]]:
        try:
            names = self.model.answer_names(asked.levels, asked.shares)
            found = self.model.answer(rows, asked.levels, asked.shares, in_text=in_text)
        except ValueError as error:  # such as a level that the fit has no ranks for
            raise RefusedError(422, " ".join(str(error).split())) from error
        self.metrics.rows += len(rows)
        if self.metrics.outside is not None and found.n_outside is not None:
            self.metrics.outside += found.n_outside
        return needed_polars().DataFrame(dict(zip(names, found.columns, strict=True))), found.warnings

    async def _refused(self, request: Request, error: RefusedError) -> Response:
        self.metrics.bad_fields += error.content.get("n_fields", 0)
        return answer(error.content, error.status)


def server_of(app: ASGIApp) -> uvicorn.Server:
    """A server of HTTP/1.1; it stops at SIGINT and SIGTERM when all requests have their answers."""
    how: dict[str, Any] = {"http": "h11", "ws": "none", "loop": "asyncio", "lifespan": "off"}
    how |= {"log_config": None, "access_log": False, "server_header": False, "proxy_headers": False}
    how |= {"limit_concurrency": MOST_AT_ONCE, "timeout_keep_alive": SECONDS_OPEN}
    return uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=SECONDS_TO_END, **how))


def answer(content: dict[str, Any], status: int = 200, headers: Any = None) -> Response:
    return Response(json.dumps(content) + "\n", status, headers, media_type=JSON)


def _asynchronous(endpoint: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Answered in the event loop, while another request is predicted."""

    async def at_once(request: Request) -> Response:
        return endpoint(request)

    return at_once


async def _other_status(request: Request, error: HTTPException) -> Response:
    """Unknown paths and methods."""
    path = request.scope["path"][:60]  # of a URL, the Host would be a part, and may be anything
    what = f"there is no {path!r}; there are {', '.join(PATHS)}" if error.status_code == 404 else error.detail
    if error.status_code == 405:
        what = f"{path} takes {(error.headers or {}).get('Allow')}, got {request.method[:20]}"
    return answer({"error": what}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return answer({"error": "the service failed; its log says where"}, 500)


def _content_type(request: Request) -> str:
    """JSON or CSV."""
    kind, *others = (part.strip().lower() for part in request.headers.get("content-type", "").split(";"))
    charset = next((other.partition("=")[2].strip('"') for other in others if other.startswith("charset=")), "utf-8")
    if kind not in (JSON, CSV) or charset not in ("utf-8", "utf8"):
        got = f"got {request.headers.get('content-type', 'none')[:60]!r}"
        raise RefusedError(415, f"the Content-Type must be {JSON} or {CSV}, in UTF-8, {got}")
    if (packed := request.headers.get("content-encoding", "identity")) != "identity":
        raise RefusedError(415, f"a body must not be compressed, got the Content-Encoding {packed[:20]!r}")
    return kind


def _shares(query: QueryParams, name: str) -> Levels:
    """The shares of a parameter, ascending, as 0.5,0.9 or given again; none if it is absent."""
    texts = ",".join(query.getlist(name)).split(",") if name in query else []
    if len(texts) > MOST_SHARES:
        raise RefusedError(422, f"{name} may hold {MOST_SHARES} shares at most, got {len(texts)}")
    try:
        return levels_from(sorted({float(text) for text in texts})) if texts else ()
    except ValueError:
        must = f"{name} must be shares strictly between 0 and 1, as 0.5,0.9"
        raise RefusedError(422, f"{must}, got {','.join(texts)[:60]!r}") from None


class Counted:
    """An application whose answers are counted, with a line of log for each."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except ClientDisconnect:
            status = 499  # as nginx calls it; nobody hears the answer
        finally:
            seconds = time.perf_counter() - start
            self.metrics.add(scope["path"] if scope["path"] in PATHS else "other", status, seconds)
            _log(scope, status, seconds)


def _log(scope: Scope, status: int, seconds: float) -> None:
    client = (scope.get("client") or ["?"])[0]
    path = scope.get("raw_path", b"").decode("ascii", "backslashreplace").partition("?")[0][:100]
    rows = f" {scope[ROWS_IN_LOG]} rows" if ROWS_IN_LOG in scope else ""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{now} {client} {scope['method'][:20]} {path} {status}{rows} {1e3 * seconds:.1f} ms", file=sys.stderr)
