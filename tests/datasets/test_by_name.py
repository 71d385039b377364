"""One name is enough to get a table, a series or images."""

from pathlib import Path

import numpy as np
import pytest
from coverwell.datasets import BoxedImages, BoxOutsideImageWarning, Dataset, Series

from coverwell import datasets


def test_every_name_is_known_once() -> None:
    known = [*datasets.names(), *datasets.series_names(), *datasets.image_names()]
    assert len(set(known)) == len(known) == 13


def test_images_come_by_their_name_with_their_boxes_cut(reduced: Path) -> None:
    with pytest.warns(BoxOutsideImageWarning, match="for 1 of 6"):
        loaded = datasets.load("CUB")
    with pytest.warns(BoxOutsideImageWarning):
        expected = datasets.load_images("cub")
    assert isinstance(loaded, BoxedImages)
    assert np.array_equal(loaded.boxes, expected.boxes)
    assert loaded.images.key == expected.images.key


def test_tables_and_series_come_by_their_names(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    table, series = datasets.load("auto_mpg"), datasets.load("Bike-Sharing")
    assert isinstance(table, Dataset)
    assert np.array_equal(table.X, datasets.load_table("auto mpg").X)
    assert isinstance(series, Series)
    assert np.array_equal(series.y, datasets.load_series("bike sharing").y, equal_nan=True)


def test_an_unknown_name_is_refused_with_all_known_ones() -> None:
    with pytest.raises(ValueError, match=r"one of crime, red wine, .*, nsw2013, .*, air quality, cub; got 'birds'"):
        datasets.load("birds")
