"""What a model warns of stands in the page, and is still said."""

import warnings

import pytest
from coverwell.report.heard import heard_warnings, notes_on


def warn_thrice():
    for _ in range(3):
        warnings.warn("rows lie far outside", UserWarning, stacklevel=1)


def test_each_text_is_kept_once_and_said_again():
    with pytest.warns(UserWarning, match="far outside") as said, heard_warnings() as texts:
        warn_thrice()
    assert texts == ["rows lie far outside"]
    assert len(said) == 1


def test_warnings_about_other_packages_are_said_and_not_kept():
    with pytest.warns(DeprecationWarning, match="old"), heard_warnings() as texts:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert texts == []


def test_of_very_many_the_first_are_shown_and_the_others_counted():
    notes = notes_on([f"row {number}" for number in range(13)])
    assert [note.text for note in notes[:2]] == ["Warning while predicting: row 0", "Warning while predicting: row 1"]
    assert notes[-1].text == "There were 3 more warnings."
    assert len(notes) == 11
    assert notes_on([]) == []
