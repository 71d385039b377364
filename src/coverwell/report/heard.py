"""What a model warns of while it speaks: kept for the page, and said again for whoever runs it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coverwell.report.page import Text
from coverwell.report.wording import counted

__all__ = ["heard_warnings", "notes_on"]

MOST_SHOWN = 10
CALLER_OF_A_REPORT = 5  # calls above this one: the line that asked for the report


@contextmanager
def heard_warnings() -> Iterator[list[str]]:
    """A list that holds the users' warnings of the block when it has ended, each text once."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    different = {(warning.category, str(warning.message)): warning for warning in caught}
    for warning in different.values():
        warnings.warn(warning.message, warning.category, stacklevel=CALLER_OF_A_REPORT)
    texts += [text for category, text in different if issubclass(category, UserWarning)]


def notes_on(texts: Sequence[str]) -> list[Text]:
    """What was heard, as a page says it."""
    shown = [Text(f"Warning while predicting: {text}", "note") for text in texts[:MOST_SHOWN]]
    more = len(texts) - len(shown)
    return [*shown, Text(f"There were {counted(more, 'more warning')}.", "note")] if more else shown
