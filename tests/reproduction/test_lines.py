"""Results files: lines are added whole, a kill in the middle of a write is mended, and damage is never passed over."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coverwell
from reproduction.lines import ANY_VERSION, FORMAT, ResultsFileError, append, environment, only_writer, read

KEY = ("method", "data", "trial", "levels")


def line(trial=0, **changes):
    """A line with all fields; only the key and the version matter here."""
    whole = {"rmse": 0.5} | {"format": FORMAT, "method": "sigma-fit", "data": "boston", "trial": trial}
    return whole | {"levels": [0.5, 0.9], **environment("cpu")} | changes


def stored(path, **version):
    return read(path, fields=("format", *KEY, "rmse", "device", "versions"), key=KEY, **version)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "results.jsonl"


def test_what_is_added_is_read_again_in_its_order_and_reading_makes_no_file(path):
    assert stored(path) == []
    with pytest.raises(ValueError, match="JSON compliant"):
        append(path, [line(rmse=float("nan"))])
    assert not path.exists()
    append(path, [line(1), line(0)])
    append(path, [line(2)])
    assert stored(path) == [line(1), line(0), line(2)]


def test_the_environment_names_device_and_versions():
    found = environment("cpu")
    assert found["device"].endswith(" CPU")
    assert found["versions"]["coverwell"] == coverwell.__version__
    assert set(found["versions"]) == {"coverwell", "torch", "sklearn", "numpy", "python"}


@given(data=st.data())
def test_a_write_that_was_cut_anywhere_costs_at_most_its_last_line(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "results.jsonl"
    append(path, [line(0), line(1), line(2)])
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    ends = [k for k in range(len(content)) if content[k : k + 1] == b"\n"]
    whole = [line(k) for k, end in enumerate(ends) if end <= cut]
    assert stored(path) == whole
    assert path.read_bytes() == content[:cut]  # reading changes nothing
    append(path, [line(7)])
    assert stored(path) == [*whole, line(7)]


BAD_LINES = {
    "half a line in the middle": (b'{"format": 1, "method"', "expected one JSON object"),
    "an empty line": (b"", "expected one JSON object"),
    "bytes that are no text": (b"\xff\x00\xff", "expected one JSON object"),
    "a list": (b"[1, 2]", "expected one JSON object"),
    "another format": (json.dumps(line(9, format=2)).encode(), "expected format 1, got 2"),
    "no format": (b"{}", "expected format 1, got None"),
    "a missing field": (json.dumps({k: v for k, v in line(9).items() if k != "rmse"}).encode(), "lacks rmse"),
    "versions that are none": (json.dumps(line(9, versions=3)).encode(), "lacks the version of coverwell"),
    "another version": (json.dumps(line(9, versions={"coverwell": "0.0.1"})).encode(), "written by coverwell 0.0.1"),
    "the same run again": (json.dumps(line(0)).encode(), "the same run is in line 1"),
}


@pytest.mark.parametrize(("text", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_with_file_number_and_way_out_and_nothing_is_changed(path, text, message):
    append(path, [line(0), line(1)])
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + text + b"\n" + second)
    before = path.read_bytes()
    with pytest.raises(ResultsFileError, match=r"results\.jsonl, line 2: .*(--out|remove one)") as caught:
        stored(path)
    assert message in str(caught.value)
    assert path.read_bytes() == before


def test_lines_of_a_releases_development_belong_to_it_and_each_method_has_one_version(path):
    old = {"versions": {"coverwell": "1.2.0.dev3"}}
    append(path, [line(0, **old), line(1, **old)])
    assert len(stored(path, version="1.2.0")) == len(stored(path, version=None)) == 2
    with pytest.raises(ResultsFileError, match=r"written by coverwell 1\.2\.0\.dev3, expected 1\.2\.1"):
        stored(path, version="1.2.1")
    append(path, [line(0, method="hnn")])
    assert len(stored(path, version=None)) == len(stored(path, methods={"hnn", "bnn"})) == 3
    with pytest.raises(ResultsFileError, match=r"line 1: written by coverwell 1\.2\.0\.dev3, expected"):
        stored(path, methods={"sigma-fit"})
    append(path, [line(2)])
    with pytest.raises(ResultsFileError, match=r"line 4: written by .*, expected 1\.2\.0"):
        stored(path, version=None)
    assert len(stored(path, version=ANY_VERSION)) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")
def test_a_second_writer_is_refused_until_the_first_has_ended(path):
    with only_writer(path):
        with pytest.raises(ResultsFileError, match=r"another command is writing to .*--out"), only_writer(path):
            pass
        append(path, [line(0)])  # the first goes on
    with only_writer(path):
        append(path, [line(1)])
    assert len(stored(path)) == 2


def test_an_end_that_is_no_line_of_ours_is_not_cut_off(path):
    path.parent.mkdir()
    path.write_bytes(b"a shopping list")
    with pytest.raises(ResultsFileError, match="which is no line of ours"):
        append(path, [])
    assert path.read_bytes() == b"a shopping list"
