"""The service's OpenAPI document: generated from the model's columns, and true."""

import json

import pytest
from jsonschema import Draft202012Validator

from tests.serve.conftest import ROW


def resolved(document, schema):
    """A schema with the components that it refers to."""
    return {**schema, "components": document["components"]}


@pytest.mark.parametrize("name", ["rent", "exported", "kind"])
def test_the_example_of_the_schema_is_valid_and_answered_as_the_schema_says(name, request):
    client = request.getfixturevalue(name)
    document = json.loads(client.get("/openapi.json")[2])
    assert (document["openapi"], sorted(document["paths"])) == ("3.1.0", ["/health", "/info", "/metrics", "/predict"])
    post = document["paths"]["/predict"]["post"]
    given = post["requestBody"]["content"]["application/json"]
    asked = Draft202012Validator(resolved(document, given["schema"]))
    asked.validate(given["example"])
    status, answer = client.json(given["example"])
    assert (status, "warnings" in answer) == (200, False)  # the example is a usual row
    told = post["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator(resolved(document, told)).validate(answer)
    assert list(document["components"]["schemas"]["Answer"]["properties"]) == list(answer["rows"][0])
    assert not asked.is_valid({"rows": [ROW | {"area": "80"}]})
    refused = client.json({"rows": [ROW | {"area": "80"}]})[1]
    Draft202012Validator(document["components"]["schemas"]["Refused"]).validate(refused)


def test_a_column_is_described_by_its_kind_and_categories(rent):
    row = json.loads(rent.get("/openapi.json")[2])["components"]["schemas"]["Row"]
    assert row["required"] == ["area", "city", "sold", "garden"]
    kinds = [about["type"] for about in row["properties"].values()]
    assert kinds == [["number", "null"], ["string", "null"], ["string", "null"], ["boolean", "null"]]
    told = row["properties"]["city"]["description"]
    assert told == "categories of the training: 'Bern', 'Oslo', 'Rome'; others are read as rare ones"
