"""Outcomes of a few rows that can be worked out by hand, small models of flats and images, and a small forecaster."""

import html
import json
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from torch import nn

from coverwell import LSTM, MLP, MatchedClassifier, MatchedForecaster, MatchedRegressor, Schedule
from coverwell.description import ModelDescription
from coverwell.evaluation import Outcome, outcome_of
from coverwell.networks.team import LoopTeam
from coverwell.report.page import rendered

BRIEF = Schedule(max_rounds=1)
SHORT = Schedule(max_rounds=2)

N_TRAIN, SIDE = 120, 32


def outcome_by_hand(y, lower, upper, *, asked=0.8, name="rent", **more):
    """One target at one level, predicted as 0."""
    y, lower, upper = (np.asarray(values, dtype=float)[:, None] for values in (y, lower, upper))
    return Outcome(y, np.zeros_like(y), lower[..., None], upper[..., None], (asked,), (name,), **more)


@pytest.fixture(scope="session")
def by_hand():
    return outcome_by_hand


class Page:
    """A page in parts: the text of each section, its paragraphs by tone, and the tables of its charts."""

    def __init__(self, content):
        self.html = content.replace("\u00a0", " ")
        self.sections = dict(re.findall(r'<section id="(\w+)"(.*?)</section>', self.html, re.DOTALL))
        self.tables = json.loads(re.search(r'id="report-data">(.*?)</script>', self.html, re.DOTALL)[1])["tables"]

    def text(self, key):
        return self._plain(self.sections[key])

    def paragraphs(self, key, tone=r"\w+"):
        return [self._plain(one) for one in re.findall(rf'<p class="{tone}">(.*?)</p>', self.sections[key], re.DOTALL)]

    def _plain(self, content):
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", content)).split())


@pytest.fixture(scope="session")
def page_of():
    """Makes the page of an outcome and a description, or reads that of a file."""

    def make(outcome, described=None):
        return Page(outcome.read_text("utf-8") if described is None else rendered(outcome, described, title="A title"))

    return make


def flats_frame(n, *, odd_city=None, seed=0):
    """Rents by area and city; those of `odd_city` scatter eight times as much."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 120, n).round(1)
    city = rng.choice(["Rome", "Oslo", "Bern", "Lima"], n)
    noise = rng.normal(size=n) * np.where(city == odd_city, 8.0, 1.0)
    return pl.DataFrame(
        {
            "area": [None if place % 15 == 0 else value for place, value in enumerate(area)],
            "city": city,
            "listed": np.datetime64("2024-01-01") + rng.integers(0, 300, n),
            "garden": rng.random(n) < 0.5,
            "rent": (area / 10 + noise).round(3),
        }
    )


@pytest.fixture(scope="session")
def flats():
    """Makes rows; see `flats_frame`."""
    return flats_frame


@pytest.fixture(scope="session")
def model():
    """Fitted at two levels to 120 rows of flats; to be left as it is."""
    rows = flats_frame(N_TRAIN)
    regressor = MatchedRegressor([0.5, 0.9], network=MLP(hidden=8), schedule=SHORT, folds=3, repeats=1, random_state=0)
    return regressor.fit(rows.drop("rent"), rows["rent"].to_numpy())


@pytest.fixture(scope="session")
def evaluated(model):
    """Makes an outcome of the model on rows of flats, and describes the model."""

    def make(rows, **more):
        return outcome_of(model, rows.drop("rent"), rows["rent"].to_numpy(), **more), ModelDescription(model)

    return make


@pytest.fixture(scope="session")
def series():
    """400 hours of a daily wave, of which the forecaster has seen 200; from the 300th on they are noisier."""
    n, rng = 400, np.random.default_rng(3)
    noise = 0.3 * rng.normal(size=n) * np.where(np.arange(n) >= 300, 3, 1)
    values = 10 + 2 * np.sin(np.arange(n) * 2 * np.pi / 24) + noise
    return pd.Series(values.round(3), index=pd.date_range("2024-01-01", periods=n, freq="h", name="when"), name="load")


@pytest.fixture(scope="session")
def forecaster(series):
    """To be left as it is."""
    network = LSTM(hidden=4)
    made = MatchedForecaster(coverage=[0.8, 0.9], past=12, horizon=2, network=network, schedule=BRIEF, folds=2)
    return made.set_params(random_state=0).fit(series[:200])


GRADES = ["poor", "fair", "good"]


def graded_frame(n, *, seed=0):
    """Pupils with a grade that their work and luck decide."""
    rng = np.random.default_rng(seed)
    work, town = rng.normal(size=n).round(3), rng.choice(["Rome", "Oslo"], n)
    score = work + 0.5 * rng.normal(size=n)
    return pl.DataFrame({"work": work, "town": town, "grade": np.array(GRADES)[np.digitize(score, [-0.6, 0.6])]})


@pytest.fixture(scope="session")
def graded():
    """Makes rows; see `graded_frame`."""
    return graded_frame


@pytest.fixture(scope="session")
def classifier():
    """Fitted at two levels to 90 pupils with grades in their order; to be left as it is."""
    rows = graded_frame(90)
    brief = {"network": MLP(hidden=4), "schedule": BRIEF, "folds": 3, "repeats": 1, "random_state": 0}
    made = MatchedClassifier([0.5, 0.9], ordered=GRADES, hold_for="class", companions=(), **brief)
    return made.fit(rows.drop("grade"), rows["grade"].rename("grade").to_pandas())


def shown(n):
    """Images (n, 3, side, side) with a bright rectangle, and its box in fractions of the sides."""
    rng = np.random.default_rng(0)
    made, boxes = rng.integers(0, 60, (n, 3, SIDE, SIDE), dtype=np.uint8), np.empty((n, 4))
    for image, box in zip(made, boxes, strict=True):
        left, top, width, height = rng.integers(4, 12, 4)
        image[:, top : top + height, left : left + width] = 230
        box[:] = np.array([left, top, width, height]) / SIDE
    return made, boxes


@dataclass(frozen=True)
class Small:
    """A network for images that is far faster than a ResNet-18."""

    defaults: ClassVar[dict[str, float]] = {"mean_epochs": 2, "interval_epochs": 2, "max_rounds": 1, "repeats": 1}

    size: int = SIDE
    mirror: str | None = None
    cache: str | None = None

    def trunk(self):
        return nn.AvgPool2d(SIDE // 4)

    def build(self, n_members, input_shape, n_outputs):
        n_inputs = math.prod(input_shape)
        members = [nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, n_outputs)) for _ in range(n_members)]
        return LoopTeam(members, n_outputs)


@pytest.fixture(scope="session")
def image_model():
    """Makes a model of boxes in images, fitted to 24 of 40, and gives the other 16 with their boxes."""

    def make(coverage=0.8, n_targets=4, **options):
        given, boxes = shown(40)
        made = MatchedRegressor(coverage, network=Small(**options), folds=2, device="cpu", random_state=0)
        return made.fit(given[:24], boxes[:24, :n_targets]), given[24:], boxes[24:, :n_targets]

    return make
