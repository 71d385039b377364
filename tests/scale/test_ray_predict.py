"""Predictions over a Ray Dataset: the columns of `coverwell predict`, with the values of the model itself."""

import numpy as np
import polars as pl
import pytest

from coverwell import MLP, MatchedRegressor, save
from coverwell.scale import predict_dataset

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")

# Ray's own: it touches its old settings whenever it makes its context.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.use_(push_based_shuffle|polars|arrow_tensor_v2). is deprecated:DeprecationWarning"
)

SMALL = {"network": MLP(hidden=4), "max_rounds": 1, "repeats": 1, "mean_epochs": 1, "interval_epochs": 1}


@pytest.fixture(scope="module")
def houses():
    """Rows with numbers, text, truths and gaps."""
    rng = np.random.default_rng(0)
    columns = {"size": rng.normal(size=90), "new": rng.integers(0, 2, 90).astype(bool)}
    frame = pl.DataFrame({**columns, "city": rng.choice(["a", "b"], 90)}).with_row_index("id")
    return frame.with_columns(pl.when(pl.col("id") % 7 > 0).then("size"), pl.when(pl.col("id") % 5 > 0).then("city"))


@pytest.fixture(scope="module")
def price(houses):
    """A model of columns with kinds, at two levels."""
    y = pl.Series("price", np.random.default_rng(1).normal(size=len(houses)))
    return MatchedRegressor(coverage=[0.5, 0.9], random_state=0, **SMALL).fit(houses.drop("id"), y)


@pytest.fixture
def dataset(connected, houses):
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data.from_arrow([houses[:40].to_arrow(), houses[40:].to_arrow()])  # two blocks


def test_a_dataset_gets_the_columns_of_predict_with_the_values_of_the_model(dataset, houses, price, tmp_path):
    save(price, tmp_path / "price.safetensors")
    said = predict_dataset(tmp_path / "price.safetensors", dataset, keep=["id", "city"]).to_pandas().sort_values("id")
    bounds = ["price_lower_0.5", "price_upper_0.5", "price_lower_0.9", "price_upper_0.9"]
    assert list(said) == ["id", "city", "price", *bounds]
    interval = price.predict_interval(houses.drop("id"))
    expected = np.stack([interval.lower, interval.upper], axis=2).reshape(len(houses), 4)
    np.testing.assert_allclose(said["price"], price.predict(houses.drop("id")), rtol=1e-12)
    np.testing.assert_allclose(said[bounds].to_numpy(np.float64), expected, rtol=1e-12)


@pytest.mark.slow
def test_a_model_without_names_takes_the_columns_in_order_but_for_what_is_kept(dataset, houses):
    X = houses.select(pl.col("size").fill_null(0.0), "new").cast(pl.Float64).to_numpy()
    model = MatchedRegressor(random_state=0, device="cpu", **SMALL).fit(X, X[:, 0] ** 2)
    rows = ray.data.from_arrow(pl.DataFrame({"a": X[:, 0], "id": houses["id"], "b": X[:, 1]}).to_arrow())
    said = predict_dataset(model, rows, keep=["id"], device="auto").to_pandas().sort_values("id")
    np.testing.assert_allclose(said.iloc[:, 1], model.predict(X), rtol=1e-12)
    assert model.device == "cpu"


def test_a_column_that_is_not_there_is_told_before_any_row_is_read(dataset, price):
    with pytest.raises(ValueError, match="must have the column city, that the model was fitted on; it has id, size"):
        predict_dataset(price, dataset.drop_columns(["city"]))
    with pytest.raises(ValueError, match="must have the column street, to keep"):
        predict_dataset(price, dataset, keep=["street"])


def test_a_column_that_would_come_twice_is_refused(dataset, price):
    with pytest.raises(ValueError, match="two columns named id"):
        predict_dataset(price, dataset, keep=["id", "id"])


def test_a_model_without_names_needs_as_many_columns_as_it_was_fitted_on(dataset):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = MatchedRegressor(random_state=0, **SMALL).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="without column names on 2 columns, but the dataset has 4"):
        predict_dataset(model, dataset)


def test_what_is_no_model_of_tables_is_refused(dataset):
    with pytest.raises(TypeError, match="must be a fitted regressor on tables or the path of one, got dict"):
        predict_dataset({}, dataset)
