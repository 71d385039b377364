"""The service as OpenAPI: what a row of this model holds, with an example, and what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np

from coverwell._version import __version__
from coverwell.inputs.columns import Column
from coverwell.inputs.frames import listed
from coverwell.serve.bodies import Limits
from coverwell.serve.models import ServedModel

TYPES = {"numbers": "number", "booleans": "boolean", "text": "string", "times": "string"}
REFUSALS = {
    400: "not valid JSON or CSV",
    408: "the body did not come in time",
    413: "too many bytes or rows",
    415: "another content type than JSON or CSV",
    422: "columns, values or parameters that the model cannot use; `fields` names them",
}


def openapi(model: ServedModel, limits: Limits) -> dict[str, Any]:
    """The document of `/openapi.json`."""
    row, answer = {"$ref": "#/components/schemas/Row"}, {"$ref": "#/components/schemas/Answer"}
    tables = {"application/json": _table(row, _example(model)), "text/csv": {"schema": {"type": "string"}}}
    answers = {"application/json": _table(answer, None), "text/csv": {"schema": {"type": "string"}}}
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Refused"}}}
    predict = {
        "summary": "Predictions with their intervals or sets",
        "parameters": list(_parameters(model)),
        "requestBody": {"required": True, "content": tables},
        "responses": {
            "200": {"description": "One row for each row of the request", "content": answers},
            **{str(status): {"description": why, "content": refused} for status, why in REFUSALS.items()},
        },
    }
    others = {
        "/health": "Whether the service answers",
        "/info": "What the model is",
        "/metrics": "Counts for Prometheus",
    }
    limited = f"At most {limits.rows:,} rows and {limits.bytes:,} bytes a request."
    return {
        "openapi": "3.1.0",
        "info": {"title": f"coverwell: {model.path.name}", "version": __version__, "description": limited},
        "paths": {
            "/predict": {"post": predict},
            **{
                path: {"get": {"summary": what, "responses": {"200": {"description": what}}}}
                for path, what in others.items()
            },
        },
        "components": {"schemas": {"Row": _row(model), "Answer": _answer(model), "Refused": REFUSED}},
    }


def _table(row: dict[str, Any], example: dict[str, Any] | None) -> dict[str, Any]:
    """Rows, or columns, as a body of JSON."""
    by_row = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": row}}}
    columns = {"type": "object", "additionalProperties": {"type": "array"}}
    by_column = {"type": "object", "required": ["columns"], "properties": {"columns": columns}}
    return {"schema": {"oneOf": [by_row, by_column]}, **({} if example is None else {"example": {"rows": [example]}})}


def _row(model: ServedModel) -> dict[str, Any]:
    properties = {column.name: _property(column, fills_gaps=model.fills_gaps) for column in model.columns}
    required = list(properties)  # others are ignored
    return {"type": "object", "required": required, "properties": properties, "example": _example(model)}


def _property(column: Column, *, fills_gaps: bool) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": [TYPES[column.kind], "null"] if fills_gaps else TYPES[column.kind]}
    if column.kind == "text":
        kind["description"] = f"categories of the training: {listed(column.levels)}; others are read as rare ones"
    elif column.kind == "times":
        zone = "without a time zone" if column.zone is None else "with an offset"
        kind["description"] = f"a date, or a date and time, in ISO 8601, {zone}"
    return {**kind, "examples": [_value(column)]}


def _example(model: ServedModel) -> dict[str, Any]:
    return {column.name: _value(column) for column in model.columns}


def _value(column: Column) -> Any:
    """A usual value: the median, or the most frequent category."""
    match column.kind:
        case "numbers":
            return column.median
        case "booleans":
            return bool(column.median)
        case "text":
            return column.levels[0] if column.levels else "other"
    moment = np.datetime64(int(column.median), "us").astype("datetime64[s]")
    return f"{moment}{'' if column.zone is None else 'Z'}"


def _answer(model: ServedModel) -> dict[str, Any]:
    kinds: dict[str, Any] = {name: {"type": "number"} for name in model.answer_names(model.levels, ())}
    if model.classes is not None:
        labels = model.classes.tolist()
        for name in kinds:
            if name.startswith(f"{model.targets[0]}_set_"):
                kinds[name] = {"type": "array", "items": {"enum": labels}}
        kinds[model.targets[0]] = {"enum": labels}
    return {"type": "object", "properties": kinds}


def _parameters(model: ServedModel) -> Any:
    levels, shares = ", ".join(map(str, model.levels)), {"type": "string"}
    known = f"any; without it {levels}" if model.has_all_levels else f"those of the fit: {levels}"
    yield {"name": "coverage", "in": "query", "schema": shares, "description": f"levels, as 0.5,0.9: {known}"}
    if model.has_all_levels and model.classes is None:
        told = "also the quantiles at these shares, as 0.05,0.95"
        yield {"name": "quantiles", "in": "query", "schema": shares, "description": told}
    for name, told in {"delimiter": "between the columns of CSV", "decimal": "the decimal mark in CSV"}.items():
        yield {"name": name, "in": "query", "schema": {"type": "string"}, "description": told}


FIELD = {
    "type": "object",
    "properties": {
        "row": {"type": ["integer", "null"], "description": "counted from 1; null if all rows are meant"},
        "column": {"type": ["string", "null"]},
        "must": {"type": "string"},
        "got": {"type": "string"},
    },
}
REFUSED = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string", "description": "what is wrong, in one line"},
        "fields": {"type": "array", "items": FIELD, "description": "the first bad fields"},
        "n_fields": {"type": "integer", "description": "how many bad fields there are"},
    },
}
