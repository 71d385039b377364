"""Every bad field of a request is found and named; nothing that is sent brings an error of the service itself."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coverwell.serve.bodies import MOST_NAMED
from tests.serve.conftest import ROW

GAP = ", or null where it is missing"
NUMBER, FLAG, TEXT = f"be a finite number{GAP}", f"be true or false{GAP}", f"be text{GAP}"
TIME = f"be a date and time without a time zone, as 2025-03-20 or 2025-03-20T14:30{GAP}"
HUGE = "1" + 400 * "0"


@pytest.mark.parametrize(
    ("column", "value", "must", "got"),
    [
        ("area", '"80"', NUMBER, "'80'"),
        ("area", "true", NUMBER, "true"),
        ("area", "NaN", NUMBER, "NaN"),
        ("area", "-1e999", NUMBER, "-Infinity"),
        ("area", HUGE, NUMBER, f"{HUGE[:60]}..."),
        ("area", "[1]", NUMBER, "a list"),
        ("city", "3", TEXT, "3"),
        ("city", '"\\ud800"', TEXT, "'\\ud800'"),
        ("city", '{"a": 1}', TEXT, "an object"),
        ("garden", "1", FLAG, "1"),
        ("garden", '"yes"', FLAG, "'yes'"),
        ("sold", "20240501", TIME, "20240501"),
        ("sold", '"01/05/2024"', TIME, "'01/05/2024'"),
        ("sold", '"2024-02-30"', TIME, "'2024-02-30'"),
        ("sold", '"2024-05-01T10:00Z"', TIME, "'2024-05-01T10:00Z'"),
        ("sold", f'"{"9" * 99}"', TIME, f"'{'9' * 60}...'"),
    ],
)
def test_a_bad_field_is_named_with_its_row_what_must_hold_and_what_came(rent, column, value, must, got):
    bad = json.dumps(ROW)[:-1] + f', "{column}": {value}}}'
    bad = bad.replace(json.dumps({column: ROW[column]})[1:-1] + ", ", "", 1)
    status, found = rent.json(f'{{"rows": [{json.dumps(ROW)}, {bad}]}}'.encode())
    assert (status, found["n_fields"]) == (422, 1)
    assert found["fields"] == [{"row": 2, "column": column, "must": must, "got": got}]
    assert found["error"] == f"row 2, column {column} must {must}, got {got}"


def test_all_bad_fields_are_counted_and_the_first_are_named(rent):
    rows = [{"area": "x", "city": 1, "garden": True, "sold": "never"} for _ in range(50)]
    status, found = rent.json({"rows": [ROW, *rows]})
    assert (status, found["n_fields"], len(found["fields"])) == (422, 150, MOST_NAMED)
    assert [(f["row"], f["column"]) for f in found["fields"][:4]] == [
        (2, "area"),
        (2, "city"),
        (2, "sold"),
        (3, "area"),
    ]
    assert found["error"].endswith("got 'x' (and 149 more bad fields)")


def test_bad_fields_of_csv_are_named_too(rent):
    status, found = rent.csv("garden,area,city,sold\nmaybe,inf,Rome,2024-05-01\ntrue,1.5x,Rome,2024-05-01\n,,,soon\n")
    assert status == 422
    found = [(field["row"], field["column"], field["got"]) for field in json.loads(found)["fields"]]
    assert found == [(1, "area", "'inf'"), (1, "garden", "'maybe'"), (2, "area", "'1.5x'"), (3, "sold", "'soon'")]


@pytest.mark.parametrize("gap", [None, "absent"])
def test_a_value_may_be_missing_but_must_be_said_to_be(rent, gap):
    row = ROW | {"area": None}
    if gap == "absent":
        del row["area"]
    status, found = rent.json({"rows": [ROW, row]})
    if gap is None:
        assert status == 200
    else:
        assert found["error"] == f"row 2, column area must {NUMBER}, got no such column"


def test_a_column_that_is_not_there_is_named_and_a_similar_one_suggested(rent):
    row = {"Area": 3, **ROW}
    del row["area"]
    _, found = rent.json({"rows": [row, row]})
    assert found["fields"] == [
        {"row": None, "column": "area", "must": "be given", "got": "no such column; did you mean 'Area'?"}
    ]
    assert json.loads(rent.csv("Area,city,sold,garden\n1,Bern,2024-05-01,true\n")[1])["fields"] == found["fields"]
    assert rent.json({"columns": {name: [value] for name, value in row.items()}})[1]["fields"] == found["fields"]


def test_other_columns_are_ignored_as_in_predict(rent):
    (_, with_other), (_, without) = rent.json({"rows": [ROW | {"id": {"any": "thing"}}]}), rent.json({"rows": [ROW]})
    assert with_other == without


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "the body must be valid JSON"),
        (b'{"rows": [', 400, "the body must be valid JSON"),
        (b'{"rows": [], "rows": []}', 400, "a name comes twice"),
        (b'{"rows": [{"area": "\xff"}]}', 400, "the body must be UTF-8 text, but byte 20 is not"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b"1" * 9_000, 400, "the body must be valid JSON"),
        (b"3", 422, "the body must be"),
        (b'{"rows": {}}', 422, "the body must be"),
        (b'{"rows": [], "columns": {}}', 422, "the body must be"),
        (b'{"rows": []}', 422, "must hold at least one row"),
        (b'{"rows": [3, null]}', 422, "row 1 must be an object of columns, got 3 (and 1 more bad field)"),
        (b'{"columns": {"area": [1], "city": []}}', 422, "columns must be lists of one length"),
        (b'{"columns": {"area": 1}}', 422, "columns must be lists of one length"),
        (b'{"columns": {}}', 422, "must hold at least one row"),
        (b'{"rows": [%s]}' % b",".join([b"{}"] * 501), 413, "500 rows at most, got 501"),
    ],
)
def test_a_body_that_is_no_table_of_json_is_refused(rent, body, status, error):
    got, found = rent.json(body)
    assert got == status
    assert error in found["error"]


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        (b"", 400, "is empty"),
        (b"area,city,sold,garden\n", 400, "has a header but no rows"),
        (b"area,area\n1,2\n", 400, "has area more than once"),
        (b"area,city,sold,garden\n1,2\n", 400, "line 2 of request.csv has 2 fields, but its header has 4"),
        (b'area,city,sold,garden\n1,"Bern,2024-05-01,true\n', 400, "quote that is not closed"),
        (b"area,city,sold,garden\n1,B\xffrn,2024-05-01,true\n", 400, "line 2 has the byte 0xff; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00", 400, "must be UTF-8 text"),
        (b"area;city;sold;garden\n1;Bern;2024-05-01;true\n", 400, "give delimiter=';'"),
        (b"a," * 10_001 + b"\n", 413, "10,000 columns at most"),
        (b"area,city,sold,garden\n" + b"\n" * 600, 413, "500 rows at most, got 601 lines"),
    ],
)
def test_a_text_that_is_no_table_is_refused(rent, text, status, error):
    got, found = rent.csv(text)
    assert got == status
    assert error in json.loads(found)["error"]


def test_other_marks_of_csv_are_parameters(rent):
    (_, expected), text = rent.csv("area,city,sold,garden\n80.5,Bern,2024-05-01,true\n"), "80,5;Bern;2024-05-01;true\n"
    assert rent.csv(f"area;city;sold;garden\n{text}", "?delimiter=;&decimal=,") == (200, expected)
    assert rent.csv(f"area;city;sold;garden\n{text}", "?delimiter=ab")[0] == 400
    tabs = "area\tcity\tsold\tgarden\n80.5\tBern\t2024-05-01\ttrue\n"
    assert rent.csv(tabs, "?delimiter=tab") == (200, expected)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.fixed_dictionaries({name: VALUES | st.just(value) for name, value in ROW.items()}), max_size=4)


@settings(max_examples=100)
@given(content=VALUES | st.builds(lambda rows: {"rows": rows}, ROWS))
def test_any_json_is_answered_or_refused(rent, content):
    status, found = rent.json(content)
    assert status in (200, 400, 413, 422)
    assert ("error" in found) == (status != 200)


@settings(max_examples=100)
@given(text=st.binary() | st.text().map(str.encode), begin=st.sampled_from([b"", b"area,city,sold,garden\n"]))
def test_any_bytes_are_answered_or_refused(rent, text, begin):
    assert rent.csv(begin + text)[0] in (200, 400, 413, 422)
    assert rent.json(text)[0] in (400, 422)
