"""The calendar as arithmetic, against numpy's."""

import numpy as np
import pytest
from coverwell.export.columns import features_from_codes, features_in_graph
from coverwell.export.graph import Graph, Input
from hypothesis import example, given
from hypothesis.strategies import datetimes, lists

from coverwell.inputs.columns import WEEKDAYS, Column, Columns, Times
from coverwell.inputs.frames import Values

onnxruntime = pytest.importorskip("onnxruntime")

NOTHING = Values(None, np.zeros(0), np.zeros(0, dtype=bool))
TIME = Columns((Column("t", Times("2020-02-29T12:00:00"), tuple(Times("2020-02-29").features(NOTHING))),))


@pytest.fixture(scope="module")
def made():
    """The features of a time, as an ONNX model."""
    graph = Graph()
    features = features_in_graph(graph, TIME, graph.input(Input("X", np.float64, (1,), "a time")))
    return graph.model({"features": (features, [len(TIME.feature_names)])}, {}, "a test")


@pytest.fixture(scope="module")
def session(made):
    return onnxruntime.InferenceSession(made.SerializeToString())


def features(session, seconds):
    (said,) = session.run(None, {"X": np.array(seconds, dtype=np.float64)[:, None]})
    return said


def seconds_of(*moments):
    return np.array(moments, dtype="datetime64[s]").astype(np.float64)


@given(moments=lists(datetimes(), min_size=1, max_size=20))
@example(moments=["2000-02-29", "1900-02-28", "1900-03-01", "2100-12-31T23:59:59", "0001-01-01", "9999-12-31"])
def test_every_feature_is_that_of_the_model(session, moments):
    seconds = seconds_of(*moments)
    expected = features_from_codes(TIME, seconds[:, None])  # sines are rounded there, after 12 digits
    np.testing.assert_allclose(features(session, seconds), expected, rtol=1e-15, atol=1e-12)


def test_the_leap_day_of_2000_was_a_tuesday(session):
    (row,) = features(session, seconds_of("2000-02-29T06:00"))
    told = dict(
        zip(("days", "year", "month sin", "month cos", "hour sin", "hour cos", *WEEKDAYS, "missing"), row, strict=True)
    )
    assert (told["days"], told["year"], told["missing"]) == (11016.25, 2000, 0)
    assert [told[day] for day in WEEKDAYS] == [0, 1, 0, 0, 0, 0, 0]
    assert (told["hour sin"], told["hour cos"]) == (1.0, pytest.approx(0, abs=1e-15))
    assert told["month sin"] == pytest.approx(np.sin(2 * np.pi * 59.25 / 366))


def test_no_operator_is_used_that_older_versions_of_onnxruntime_lack_in_float64(made):
    assert "Cos" not in {node.op_type for node in made.graph.node}  # 1.17 has the sine alone


def test_a_missing_time_is_the_median(session):
    missing, median = features(session, [np.nan, *seconds_of("2020-02-29T12:00")])
    np.testing.assert_array_equal(missing[:-1], median[:-1])
    assert (missing[-1], median[-1]) == (1, 0)
