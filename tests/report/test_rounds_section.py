"""The record of the training, target by target and level by level."""

import numpy as np
import pytest
from coverwell.report.rounds_section import rounds_section

from coverwell import MLP
from coverwell.baselines import HeteroscedasticRegressor


def test_charts_hold_the_record_of_the_model(model):
    section = rounds_section(model, (0.5, 0.9), {0: "rent"})
    error, coverage, width, *_ = section.blocks
    assert [record["value"] for record in error.records] == pytest.approx([one.rmse for one in model.rounds_])
    assert [record["round"] for record in error.records] == [1, 2]
    assert [record["value"] for record in coverage.records] == pytest.approx([one.coverage[0] for one in model.rounds_])
    assert [record["value"] for record in width.records] == pytest.approx([one.width[0] for one in model.rounds_])
    assert coverage.records[0]["asked"] == 0.5
    assert len(section.blocks) == 5


def test_rounds_of_a_single_network_are_ten_epochs_each():
    X = np.random.default_rng(0).normal(size=(40, 1))
    made = HeteroscedasticRegressor(0.8, network=MLP(hidden=4), max_epochs=20, random_state=0).fit(X, X[:, 0])
    assert rounds_section(made, (0.8,), {0: "y"}).lead.startswith("Training went through 2 rounds of 10 epochs.")


def test_of_a_forecaster_the_shown_steps_alone_are_drawn(forecaster):
    section = rounds_section(forecaster.regressor_, (0.8, 0.9), {1: "two steps ahead"}, target_key="step")
    expected = np.array([one.rmse for one in forecaster.rounds_])[:, 1]
    assert [record["value"] for record in section.blocks[0].records] == pytest.approx(expected.tolist())
    assert section.blocks[0].when == {"step": 0}
