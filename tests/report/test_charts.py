"""Every specification is one that Vega-Lite draws."""

import re

import pytest
import vl_convert

from coverwell.report import charts

PART = {"place": 0, "name": "city: Oslo", "rows": 9, "coverage": 0.5, "low": 0.4, "high": 0.7, "band_low": 0.6}
PART |= {"band_high": 0.9, "asked": 0.8, "fits": False, "chance": "x"}
BAND = {"time": 3, "y": 1.0, "prediction": 1.1, "lower": 0.5, "upper": 2.0, "static_lower": 0.6, "static_upper": 1.9}
BOX = {"name": "true", "left": 0.1, "right": 0.6, "top": 0.2, "bottom": 0.5, "picture": None}
POINT = {"asked": 0.9, "reached": 0.8, "low": 0.7, "high": 0.95, "fits": True, "chosen": True}


@pytest.mark.parametrize(
    ("spec", "record", "mark"),
    [
        (charts.calibration_spec(), POINT, "coverage reached"),
        (
            charts.width_and_error_spec(),
            {"width": 2, "error": 1, "low": 0.5, "high": 2, "rows": 3, "inside": 1},
            "point",
        ),
        (charts.parts_spec(1), PART, "city: Oslo"),
        (
            charts.shifts_spec(1),
            {"place": 0, "name": "area", "difference": 1, "low": -1, "high": 1, "fits": True},
            "area",
        ),
        (charts.residuals_spec(0), {"row": 1, "prediction": 2, "residual": 1, "first_level": 1}, "point"),
        (charts.histogram_spec("values"), {"low": 0, "high": 1, "rows": 3}, "values"),
        (charts.rounds_spec("RMSE", 1), {"round": 1, "value": 3, "asked": None}, "RMSE"),
        (charts.rounds_spec("coverage", 1, share=True), {"round": 1, "value": 0.5, "asked": 0.9}, "coverage"),
        (charts.bands_spec("load", dates=False), {**BAND, "fits": False}, "load"),
        (charts.bands_spec("load", dates=True), {**BAND, "time": "2024-01-31T10:00:00", "fits": True}, "load"),
        (
            charts.rolling_spec(dates=False),
            {"time": 4, "live": 0.9, "static": 0.8, "asked": 0.9},
            "coverage of the window",
        ),
        (charts.box_spec(), BOX, "#D55E00"),
    ],
)
def test_a_specification_draws_its_record(spec, record, mark):
    whole = {**spec, "data": {"values": [record]}, "width": 300}
    svg = vl_convert.vegalite_to_svg(whole)
    assert mark in svg
    assert "NaN" not in svg


def test_ticks_of_rounds_are_whole_numbers():
    for n_rounds in (1, 2, 3, 7, 100):
        (layer,) = charts.rounds_spec("RMSE", n_rounds)["layer"]
        ticks = layer["encoding"]["x"]["axis"]["values"]
        assert ticks[0] == 1
        assert ticks[-1] == n_rounds
        assert len(set(ticks)) == len(ticks) <= 5


@pytest.mark.parametrize(("value", "label"), [(3e100, "e+100"), (4e-30, "e-30"), (101325.25, "101,32")])
def test_labels_of_very_large_and_small_numbers_are_short(value, label):
    record = {"row": 1, "prediction": value, "residual": 1, "first_level": 1}
    records = [record, {**record, "prediction": 1.00001 * value}]
    svg = vl_convert.vegalite_to_svg({**charts.residuals_spec(0), "data": {"values": records}, "width": 300})
    labels = re.findall(r"<text[^>]*>([-+,.e\d]+)</text>", svg.replace("−", "-"))
    assert any(label in one for one in labels)
    assert max(map(len, labels)) < 13
