"""Values as people read them."""

import numpy as np
import pytest
from coverwell.report.wording import as_text, shortened_name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.datetime64("NaT"), "missing"),
        (np.datetime64("2024-01-31T00:00"), "2024-01-31"),
        (np.datetime64("2024-01-31T10:30:00"), "2024-01-31 10:30"),
        (np.datetime64("2024-01-31T10:30:05"), "2024-01-31 10:30:05"),
        (1.0, "1"),
        (0.1 + 0.2, "0.3"),
        ("Oslo", "Oslo"),
    ],
)
def test_a_value_is_told_in_as_few_signs_as_it_needs(value, text):
    assert as_text(value) == text


def test_long_names_end_in_an_ellipsis():
    assert shortened_name("x" * 100) == "x" * 33 + "…"
    assert shortened_name("short") == "short"
