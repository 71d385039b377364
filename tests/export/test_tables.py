"""Regressors on tables as graphs: what their columns are called, and rows to check them on."""

import numpy as np
import pandas as pd

from coverwell import MLP, MatchedRegressor
from coverwell.export.tables import draft_of_table

BRIEF = {"network": MLP(hidden=3), "folds": 2, "repeats": 1, "max_rounds": 1, "random_state": 0, "device": "cpu"}


def test_columns_have_the_names_of_the_frame_or_are_counted(random_regressor):
    counted = draft_of_table(random_regressor(n_features=2)[0], np.float32).told["columns"]
    assert counted == [{"name": "column 0", "kind": "numbers"}, {"name": "column 1", "kind": "numbers"}]
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = MatchedRegressor(0.8, **BRIEF).fit(pd.DataFrame(rows, columns=["a", "b"]), rows[:, 0])
    named = draft_of_table(model, np.float32).told["columns"]
    assert [(column["name"], column["missing"]) for column in named] == [("a", "NaN"), ("b", "NaN")]


def test_examples_are_spread_as_the_training_rows_were(random_regressor):
    model, _ = random_regressor(n_features=3)
    draft, inputs = draft_of_table(model, np.float32), model.ensembles_[0].inputs
    scaled = (draft.examples["X"] - inputs.centre) / inputs.spread
    n = scaled.size
    assert abs(scaled.mean()) < 4 / np.sqrt(n)  # four standard errors
    assert abs(scaled.std() - 1) < 4 / np.sqrt(2 * n)
