"""The six tables are what their sources say they are, wherever they come from."""

import csv
import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from reproduction.data import tables
from reproduction.data.store import CATALOGUE
from reproduction.data.tables import TABLES, load_table

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


def original(folder: Path, name: str) -> bytes:
    """The uncompressed content of a table's file, read without our store."""
    plain = folder / "regression" / ABOUT[name]["file"]
    return plain.read_bytes() if plain.is_file() else gzip.decompress(Path(f"{plain}.gz").read_bytes())


def cells(folder: Path, name: str) -> list[list[str]]:
    separator = ABOUT[name]["separator"].replace(r"\s+", "") or None
    return [line.split(separator) for line in original(folder, name).decode().splitlines()]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"one of crime, red wine, .*, auto mpg; got 'bostn'"):
        load_table("bostn")


@pytest.mark.parametrize("name", TABLES)
def test_the_file_has_the_published_checksum(shared_data: Path, name: str) -> None:
    assert hashlib.sha256(original(shared_data, name)).hexdigest() == ABOUT[name]["sha256"]


@pytest.mark.parametrize("name", TABLES)
def test_size_and_target_are_as_published(data_folder: Path, name: str) -> None:
    table = load_table(name)
    n_rows, n_features, smallest, largest, mean = PUBLISHED[name]
    assert table.X.shape == (n_rows, n_features)
    assert table.y.shape == (n_rows,)
    assert table.y.min() == pytest.approx(smallest, abs=0.005)
    assert table.y.max() == pytest.approx(largest, abs=0.005)
    assert table.y.mean() == pytest.approx(mean, abs=0.005)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_complete_and_describes_itself(data_folder: Path, name: str) -> None:
    table = load_table(name)
    assert table.X.dtype == table.y.dtype == np.float64
    assert np.isfinite(table.X).all()
    assert np.isfinite(table.y).all()
    assert len(set(table.feature_names)) == table.X.shape[1]
    assert table.target_name not in table.feature_names
    assert "doi 10." in table.source
    assert "CC BY 4.0" in table.source or "no licence" in table.source
    assert table.notes


@pytest.mark.parametrize("spelling", ["auto mpg", "auto_mpg", "auto-mpg", "Auto MPG"])
def test_spaces_may_be_written_otherwise(data_folder: Path, spelling: str) -> None:
    assert load_table(spelling).name == "auto mpg"


def test_each_load_gives_arrays_of_its_own(data_folder: Path) -> None:
    load_table("boston").X[:] = 0
    assert load_table("boston").X.any()


def test_crime_columns_have_the_names_of_the_documentation(shared_data: Path) -> None:
    with (shared_data / "regression" / "communities_columns.csv").open() as lines:
        documented = list(csv.DictReader(lines))
    assert [column["name"] for column in documented] == CRIME_COLUMNS
    assert [c["name"] for c in documented if c["role"] == "non-predictive"] == CRIME_LEFT_OUT[:5]


def test_crime_leaves_out_exactly_the_columns_that_are_mostly_missing(shared_data: Path) -> None:
    missing = (np.array(cells(shared_data, "crime")) == "?").mean(axis=0)
    mostly = {name for name, share in zip(CRIME_COLUMNS, missing, strict=True) if share > 0.5}
    assert mostly | set(CRIME_LEFT_OUT[:5]) == set(CRIME_LEFT_OUT)
    assert len(CRIME_LEFT_OUT) == 5 + 22


def test_the_one_gap_of_crime_holds_the_mean_of_its_column(data_folder: Path) -> None:
    table = load_table("crime")
    at = [CRIME_COLUMNS.index(name) for name in table.feature_names]
    text = np.array(cells(data_folder, "crime"))[:, at]
    ((row, column),) = np.argwhere(text == "?")
    assert table.feature_names[column] == "OtherPerCap"
    known = np.delete(text[:, column], row).astype(float)
    assert table.X[row, column] == pytest.approx(known.mean(), rel=1e-12)
    np.testing.assert_array_equal(np.delete(table.X, row, axis=0), np.delete(text, row, axis=0).astype(float))


def test_parkinsons_groups_are_the_42_patients(data_folder: Path) -> None:
    table = load_table("parkinsons")
    assert table.groups is not None
    assert sorted(set(table.groups.tolist())) == list(range(1, 43))
    age = table.X[:, table.feature_names.index("age")]
    assert all(len(set(age[table.groups == patient])) == 1 for patient in range(1, 43))


def test_parkinsons_features_tell_neither_the_patient_nor_the_other_score(data_folder: Path) -> None:
    assert load_table("parkinsons").feature_names[:4] == ("age", "sex", "test_time", "Jitter(%)")
    assert {"subject#", "total_UPDRS"}.isdisjoint(load_table("parkinsons").feature_names)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "parkinsons"])
def test_the_other_tables_have_no_groups(data_folder: Path, name: str) -> None:
    assert load_table(name).groups is None


def test_auto_mpg_is_the_rows_with_a_known_horsepower(data_folder: Path) -> None:
    complete = [row[:8] for row in cells(data_folder, "auto mpg") if "?" not in row[:8]]
    table = load_table("auto mpg")
    np.testing.assert_array_equal(np.column_stack([table.y, table.X]), np.array(complete, dtype=float))


def test_the_first_boston_row_is_that_of_the_paper_of_1978(data_folder: Path) -> None:
    table = load_table("boston")
    assert table.X[0].tolist() == [0.00632, 18, 2.31, 0, 0.538, 6.575, 65.2, 4.09, 1, 296, 15.3, 396.9, 4.98]
    assert table.y[0] == 24
    assert (table.y == 50).sum() == 16


def test_gaps_are_dropped_by_row_or_filled_by_column() -> None:
    rows = np.array([[1.0, 2.0], [np.nan, 5.0], [3.0, 8.0]])
    assert tables._mended(rows, "drop").tolist() == [[1, 2], [3, 8]]
    assert tables._mended(rows, "fill").tolist() == [[1, 2], [2, 5], [3, 8]]


@pytest.mark.parametrize("name", [name for name in TABLES if "copy" in ABOUT[name]])
def test_a_packaged_copy_has_the_values_of_the_original(
    data_folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
