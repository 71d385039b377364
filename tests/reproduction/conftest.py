"""Result lines that look like results and are none."""

import math

import pytest

from reproduction.data.series import SERIES
from reproduction.domains.boxes import BoxStudy
from reproduction.domains.series import readings_of
from reproduction.methods import BOX_METHODS, SERIES_METHODS

STEPS = {"nsw2013": 1800, "tas2016": 1800, "traffic": 300}
SCALE = dict(zip(SERIES, (100.0, 60.0, 20.0, 1.3e8, 20.0, 0.6), strict=True))


def _intervals(size, coverage, worst):
    return {"coverage": coverage, "width": 4 * size, "interval_score": 5 * size, "worst_rolling_coverage": worst}


def made_up_line(method, data, reading="observed", trial=0, *, size=1.0, live=0.951, static=0.9, worst=0.92):
    """The line of a run whose error is `size` times that of the series above."""
    error = size * SCALE[data] * (1 + 0.01 * trial)
    line = {"format": 1, "method": method, "data": data, "reading": reading, "trial": trial, "seed": trial}
    line |= {"coverage": 0.95, "n_train": 3000, "n_test": 7000, "rmse": error, "rate": 0.05, "n_refits": 0}
    line |= {"static": _intervals(error, static, 0.8), "live": _intervals(1.1 * error, live, worst)}
    line |= {"rounds": 3, "fit_seconds": 1.5, "backtest_seconds": 0.5}
    line |= {"device": "made up", "versions": {"coverwell": "0.0", "torch": "0.0"}}
    if method in ("persistence", "ar48"):
        line["fixed_rate"] = {"rate": 0.05, **_intervals(1.2 * error, 0.949, 0.91)}
    if method in ("sigma-fit", "sigma-fit-covariates-refit"):
        line |= {"excerpt": _excerpt(data, error), "rolling": _path(data)}
    return line


def _excerpt(data, error):
    """A wave; every tenth value lies outside, every 25th is missing."""
    wave = [error * (10 + 3 * math.sin(k / 8)) for k in range(336)]
    y = [None if k % 25 == 7 else value + (3 * error if k % 10 == 0 else 0) for k, value in enumerate(wave)]
    reaches = {"lower": -2, "upper": 2, "static_lower": -4, "static_upper": 4}
    bounds = {name: [value + reach * error for value in wave] for name, reach in reaches.items()}
    return {"start": "2013-08-26T06:00:00", "step_seconds": STEPS.get(data, 3600), "y": y, "prediction": wave, **bounds}


def _path(data):
    steps = list(range(499, 7000, 65))
    static = [0.9 + 0.05 * math.sin(k / 9) for k in range(len(steps))]
    clock = {"start": "2013-05-01T00:00:00", "step_seconds": STEPS.get(data, 3600)}
    return {**clock, "steps": steps, "live": [0.95] * len(steps), "static": static}


@pytest.fixture(scope="module")
def data_folder(shared_data):
    """The public files, in the folder that COVERWELL_DATA names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERWELL_DATA", str(shared_data))
        yield shared_data


@pytest.fixture(scope="session")
def series_line():
    return made_up_line


@pytest.fixture(scope="session")
def series_lines():
    """Every method on every series in both readings, as the grid runs them; two seeds of HNN on one series."""
    sizes = {method.slug: 1.3 - 0.03 * place for place, method in enumerate(SERIES_METHODS)}
    lines = [
        made_up_line(method, data, reading, size=size)
        for method, size in sizes.items()
        for data in SERIES
        for reading in readings_of(data)
        if (method, data) != ("sigma-fit-covariates", "traffic")
    ]
    return [*lines, made_up_line("hnn", "nsw2013", trial=1, size=sizes["hnn"])]


# Boxes.

IN_PERCENT = {
    "rmse": [5.0, 4.0, 7.0, 6.0],
    "width": [16.0, 11.0, 22.0, 24.0],
    "constant_width": [20.0, 13.75, 25.0, 30.0],
    "interval_score": [18.0, 13.0, 26.0, 27.0],
}


def made_up_box_line(method, trial=0, *, data="cub", size=1.0, iou=0.84, reached=0.955, joint=0.956):
    """The line of a run whose errors and widths are `size` times those above; pixels are four times per cent."""
    errors = size * (1 + 0.01 * trial)
    line = {"format": 1, "method": method, "data": data, "weights": "made-up.pth (sha256 00000000)", "trial": trial}
    line |= {"layer4": "fresh", "seed": trial, "coverage": 0.95, "n_train": 5994, "n_test": 5794}
    line |= {"iou": iou, "reached": [reached] * 4, "together": 0.87}
    ranks = method in ("sigma-fit", "iqr-fit", "small")
    line["joint"] = {"reached": joint, "width": {"percent": [20.0] * 4, "pixels": [80.0] * 4}} if ranks else None
    line["percent"] = {name: [errors * value for value in values] for name, values in IN_PERCENT.items()}
    # A constant width is the same for all runs: with another error, the ratio is another.
    line["percent"]["constant_width"] = IN_PERCENT["constant_width"]
    line["pixels"] = {name: [4 * value for value in values] for name, values in line["percent"].items()}
    line |= {"rounds": 4, "fit_seconds": 12.5, "predict_seconds": 2.0}
    line |= {"device": "made up", "versions": {"coverwell": "0.0", "torch": "0.0"}}
    if any(one.in_figure for one in BOX_METHODS if one.slug == method):
        shifts = enumerate({"narrowest": 5.0, "median": 30.0, "widest": 150.0}.items())
        line["examples"] = {name: [_example(100 * at + k, by + k) for k in range(3)] for at, (name, by) in shifts}
    return line


def _example(number, reach):
    """A box of 200 x 150 in an image of 500 x 400, or turned, whose numbers may be off by `reach` pixels."""
    size = [500, 400] if number % 2 == 0 else [400, 500]
    prediction = [110.0, 130.0, 200.0, 150.0]
    bounds = {name: [value + by for value in prediction] for name, by in (("lower", -reach), ("upper", reach))}
    about = {"image_id": number, "size": size, "width_percent": reach / 2}
    return {**about, "truth": [120.0, 125.0, 190.0, 160.0], "prediction": prediction, **bounds}


@pytest.fixture(scope="session")
def box_line():
    return made_up_box_line


@pytest.fixture(scope="session")
def box_lines():
    """Every method of the study, two seeds of HNN."""
    lines = [made_up_box_line(method.slug, size=1.3 - 0.05 * place) for place, method in enumerate(BoxStudy().methods)]
    return [*lines, made_up_box_line("hnn", 1)]
