"""The methods of Table 2: what each is told, and that a change of it cannot go unseen."""

import json
import pickle

import pytest
from coverwell.experiments.methods import named_among
from coverwell.experiments.series_methods import (
    PICTURED,
    SERIES_METHODS,
    Linear,
    Networks,
    series_configuration,
)

from coverwell import LSTM

NETWORKS = [method for method in SERIES_METHODS if isinstance(method, Networks)]


def method(slug):
    return named_among(SERIES_METHODS, [slug])[0]


def test_names_and_titles_are_unique():
    for name in ("slug", "title"):
        found = [getattr(one, name) for one in SERIES_METHODS]
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("one", NETWORKS, ids=lambda one: one.slug)
def test_every_forecaster_can_be_built_and_sees_24_steps_and_gaps(one):
    for quick in (False, True):
        forecaster = one.build(3, "cpu", quick=quick)
        assert (forecaster.past, forecaster.horizon, forecaster.missing, forecaster.live) == (24, 1, "fill", True)
        told = getattr(forecaster, "regressor", forecaster)
        assert (told.coverage, told.random_state) == (0.95, 3)
        if quick:
            assert told.network.hidden == 8
    assert pickle.loads(pickle.dumps(one)) == one  # it travels to workers


def test_the_baselines_have_the_same_lstm_but_for_their_dropout():
    networks = {one.slug: one.network for one in NETWORKS if one.kind == "paper's baseline"}
    assert networks.pop("mc-dropout") == LSTM(hidden=128, layers=2, dropout=0.5)
    assert set(networks.values()) == {LSTM(hidden=128, layers=2, dropout=0.1)}


def test_as_published_leaves_nothing_out_and_forecasts_the_values_themselves():
    for slug, matching in (("sigma-fit-published", "sigma"), ("iqr-fit-published", "iqr")):
        forecaster = method(slug).build(0, "cpu")
        told = forecaster.regressor
        assert not forecaster.differences
        assert (told.folds, told.calibration, told.interval_loss, told.matching) == (None, None, "paper", matching)
        assert told.network == LSTM(hidden=128, layers=2, dropout=0.0, shortcut=False)


def test_the_stored_settings_are_json_and_name_all_that_could_change():
    told = series_configuration()
    assert json.loads(json.dumps(told)) == told
    assert list(told) == [one.slug for one in SERIES_METHODS]
    assert told["sigma-fit-covariates-refit"]["seen"] == ["hour", "weekday", "past_covariates"]
    assert told["sigma-fit-covariates-refit"]["parameters"]["refit_every"] == "336"
    assert "refit" not in told["sigma-fit"]
    assert told["hnn"]["regressor_parameters"]["max_epochs"] == "60"
    assert told["ar48"]["lags"] == 48


def test_the_figure_shows_the_default_and_the_one_with_everything():
    assert [one.slug for one in PICTURED] == ["sigma-fit", "sigma-fit-covariates-refit"]


def test_linear_methods_are_told_their_lags():
    assert {one.slug: one.lags for one in SERIES_METHODS if isinstance(one, Linear)} == {"persistence": 0, "ar48": 48}
