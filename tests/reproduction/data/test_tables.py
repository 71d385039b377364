"""The tables are what their sources say they are, wherever they come from."""

import csv
import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from reproduction.data.store import CATALOGUE
from reproduction.data.tables import DEVELOPMENT_TABLES, MORE_TABLES, TABLES, load_table

ABOUT = CATALOGUE["tables"]
CRIME_COLUMNS, CRIME_LEFT_OUT = (ABOUT["crime"][name].split() for name in ("columns", "leave_out"))

# rows, features, then smallest, largest and mean target, the mean to the digits that the sources print
PUBLISHED = {
    "crime": (1994, 100, 0, 1, 0.238),
    "red wine": (1599, 11, 3, 8, 5.636),
    "white wine": (4898, 11, 3, 9, 5.878),
    "parkinsons": (5875, 19, 5.04, 39.51, 21.30),
    "boston": (506, 13, 5, 50, 22.53),
    "auto mpg": (392, 7, 9, 46.6, 23.45),  # 23.51 over the 398 rows, the 6 without horsepower included
}
# rows, features and values of the target of the development tables beside them
MORE = {
    "concreteslump": (103, 7, 90),
    "autos": (159, 25, 145),
    "stock": (536, 11, 535),
    "pendulum": (630, 9, 629),
    "energy": (768, 8, 586),
    "solar": (1066, 10, 8),
    "gas": (2565, 128, 35),
    "skillcraft": (3338, 19, 3286),
    "sml": (4137, 26, 3495),
    "pol": (15_000, 26, 11),
    "elevators": (16_599, 18, 61),
    "kin40k": (40_000, 8, 35_127),
}


def cells(folder, name):
    """The cells of a table's file, read without our store."""
    plain = folder / "regression" / ABOUT[name]["file"]
    content = plain.read_bytes() if plain.is_file() else gzip.decompress(Path(f"{plain}.gz").read_bytes())
    separator = ABOUT[name]["separator"].replace(r"\s+", "") or None
    return [line.split(separator) for line in content.decode().splitlines()]


@pytest.mark.parametrize("name", TABLES)
def test_size_and_target_are_as_published_and_nothing_is_missing(data_folder, name):
    table = load_table(name.upper().replace(" ", "-"))
    n_rows, n_features, *target = PUBLISHED[name]
    assert (table.name, table.X.shape, table.y.shape) == (name, (n_rows, n_features), (n_rows,))
    assert [table.y.min(), table.y.max(), table.y.mean()] == pytest.approx(target, abs=0.005)
    assert table.X.dtype == table.y.dtype == np.float64
    assert np.isfinite(np.column_stack([table.X, table.y])).all()
    assert len(set(table.feature_names)) == n_features
    assert table.target_name not in table.feature_names
    assert (table.groups is not None) == (name == "parkinsons")
    assert "doi 10." in table.source
    assert "CC BY 4.0" in table.source or "no licence" in table.source


@pytest.mark.parametrize("name", MORE)
def test_a_development_table_has_its_size_centred_columns_and_its_last_column_as_target(data_folder, name):
    table = load_table(name)
    n_rows, n_features, n_values = MORE[name]
    assert (table.X.shape, table.y.shape, len(np.unique(table.y))) == ((n_rows, n_features), (n_rows,), n_values)
    whole = np.column_stack([table.X, table.y])
    np.testing.assert_allclose(whole.mean(axis=0), 0, atol=1e-4 * whole.std() + 1e-4)  # rounded to five digits
    with gzip.open(data_folder / "regression_more" / f"{name}.csv.gz", "rt") as lines:
        first = [float(cell) for cell in next(lines).split(",")]
    np.testing.assert_array_equal(whole[0], first)
    assert (table.feature_names[0], table.target_name, table.groups) == ("x1", "y", None)
    assert f"folder {name}" in table.source


def test_development_tables_are_the_papers_six_and_the_twelve_more():
    assert tuple(MORE) == MORE_TABLES
    assert (*PUBLISHED, *MORE) == DEVELOPMENT_TABLES


def test_crime_leaves_out_exactly_what_is_not_predictive_or_mostly_missing(data_folder):
    with (data_folder / "regression" / "communities_columns.csv").open() as lines:
        documented = list(csv.DictReader(lines))
    assert [column["name"] for column in documented] == CRIME_COLUMNS
    assert [c["name"] for c in documented if c["role"] == "non-predictive"] == CRIME_LEFT_OUT[:5]
    missing = (np.array(cells(data_folder, "crime")) == "?").mean(axis=0)
    mostly = {name for name, share in zip(CRIME_COLUMNS, missing, strict=True) if share > 0.5}
    assert mostly | set(CRIME_LEFT_OUT[:5]) == set(CRIME_LEFT_OUT)
    assert len(CRIME_LEFT_OUT) == 5 + 22


def test_the_one_gap_of_crime_holds_the_mean_of_its_column(data_folder):
    table = load_table("crime")
    at = [CRIME_COLUMNS.index(name) for name in table.feature_names]
    text = np.array(cells(data_folder, "crime"))[:, at]
    ((row, column),) = np.argwhere(text == "?")
    assert table.feature_names[column] == "OtherPerCap"
    known = np.delete(text[:, column], row).astype(float)
    assert table.X[row, column] == pytest.approx(known.mean(), rel=1e-12)
    np.testing.assert_array_equal(np.delete(table.X, row, axis=0), np.delete(text, row, axis=0).astype(float))


def test_parkinsons_groups_are_the_42_patients_and_no_feature_names_them(data_folder):
    table = load_table("parkinsons")
    assert sorted(set(table.groups.tolist())) == list(range(1, 43))
    age = table.X[:, table.feature_names.index("age")]
    assert all(len(set(age[table.groups == patient])) == 1 for patient in range(1, 43))
    assert table.feature_names[:4] == ("age", "sex", "test_time", "Jitter(%)")
    assert {"subject#", "total_UPDRS"}.isdisjoint(table.feature_names)


def test_auto_mpg_is_the_rows_with_a_known_horsepower(data_folder):
    complete = [row[:8] for row in cells(data_folder, "auto mpg") if "?" not in row[:8]]
    table = load_table("auto mpg")
    np.testing.assert_array_equal(np.column_stack([table.y, table.X]), np.array(complete, dtype=float))


def test_the_first_boston_row_is_that_of_the_paper_of_1978(data_folder):
    table = load_table("boston")
    assert table.X[0].tolist() == [0.00632, 18, 2.31, 0, 0.538, 6.575, 65.2, 4.09, 1, 296, 15.3, 396.9, 4.98]
    assert (table.y[0], (table.y == 50).sum()) == (24, 16)


@pytest.mark.parametrize("name", [name for name in TABLES if "copy" in ABOUT[name]])
def test_a_packaged_copy_has_the_values_of_the_original(data_folder, name, tmp_path, monkeypatch):
    package = ABOUT[name]["copy"]["package"]
    if find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed (extra: data)")
    expected = load_table(name)
    monkeypatch.delenv("COVERWELL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # empty: only the package is left
    packaged = load_table(name)
    np.testing.assert_array_equal(packaged.X, expected.X)
    np.testing.assert_array_equal(packaged.y, expected.y)
    assert packaged.feature_names == expected.feature_names
    assert not list(tmp_path.iterdir())  # nothing was downloaded
