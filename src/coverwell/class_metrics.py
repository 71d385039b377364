"""Metrics of classes as plain functions of arrays: probabilities that mean what they say, and the size of sets.

`y` are labels `(n,)`, `probability` is `(n, class)`, in the order of `classes`; without these, labels are places from
0. `coverwell.metrics` offers all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.options import check_count

Array = NDArray[np.float64]

SMALLEST = 1e-12  # probability, before its logarithm
BINS = 15


class Reliability(NamedTuple):
    """Bins of rows by the probability of their likeliest class."""

    confidence: Array  # the mean probability
    accuracy: Array  # the share of rows that have this class
    n_rows: NDArray[np.intp]


def brier_score(y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None) -> float:
    """Mean over the rows of the squared distance between probabilities and the class that came: 0 to 2.

    Examples
    --------
    >>> round(brier_score([0, 1], [[0.8, 0.2], [0.4, 0.6]]), 3)
    0.2
    """
    p, places = _checked(y, probability, classes)
    return float(((p - np.eye(p.shape[1])[places]) ** 2).sum(axis=1).mean())


def log_loss(y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None) -> float:
    """Mean of minus the logarithm of the probability of the class that came.

    Examples
    --------
    >>> round(log_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.6931
    """
    p, places = _checked(y, probability, classes)
    return float(-np.log(p[np.arange(len(p)), places].clip(SMALLEST)).mean())


def reliability(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None, *, n_bins: int = BINS
) -> Reliability:
    """How often the likeliest class is the right one, next to its probability, in bins of about as many rows each.

    Examples
    --------
    >>> found = reliability([0, 1, 0, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]], n_bins=2)
    >>> found.confidence.round(2).tolist(), found.accuracy.tolist()
    ([0.65, 0.85], [0.0, 1.0])
    """
    check_count("n_bins", n_bins)
    p, places = _checked(y, probability, classes)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == places
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if len(part)]
    means = [(confidence[part].mean(), right[part].mean(), len(part)) for part in parts]
    found_confidence, accuracy, n_rows = map(np.array, zip(*means, strict=True))
    return Reliability(found_confidence, accuracy, n_rows)


def reliability_error(
    y: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None, *, n_bins: int = BINS
) -> float:
    """The mean distance between confidence and accuracy over bins of rows, "expected calibration error" (ECE).

    Chance alone makes it larger than 0; see `expected_reliability_error`.

    Examples
    --------
    >>> round(reliability_error([0, 1], [[0.8, 0.2], [0.8, 0.2]], n_bins=1), 3)
    0.3
    """
    found = reliability(y, probability, classes, n_bins=n_bins)
    return float(np.average(np.abs(found.confidence - found.accuracy), weights=found.n_rows))


def expected_reliability_error(probability: ArrayLike, *, n_bins: int = BINS) -> float:
    """The mean of `reliability_error` if all probabilities were right, by the normal law of the bins' shares.

    Examples
    --------
    >>> round(expected_reliability_error(np.full((100, 2), 0.5), n_bins=1), 3)  # sqrt(2 / pi) sqrt(.25 / 100)
    0.04
    """
    check_count("n_bins", n_bins)
    p = _probabilities(probability)
    confidence = np.sort(p.max(axis=1))
    spreads = [np.sqrt((part * (1 - part)).sum()) for part in np.array_split(confidence, n_bins)]
    return float(np.sqrt(2 / np.pi) * np.sum(spreads) / len(p))


def coverage_by_set_size(inside: ArrayLike, size: ArrayLike) -> dict[int, tuple[float, int]]:
    """For each size of set the share of the rows whose class is inside, and how many rows have it.

    Examples
    --------
    >>> coverage_by_set_size([True, False, True], [1, 1, 2])
    {1: (0.5, 2), 2: (1.0, 1)}
    """
    rows, sizes = np.asarray(inside), np.asarray(size)
    if rows.dtype != np.bool_ or rows.ndim != 1 or rows.shape != sizes.shape or not len(rows):
        must = "inside must be True or False for each of at least one row, and size a number for each"
        raise ValueError(f"{must}, got {rows.dtype} {rows.shape} and {sizes.shape}")
    counts, n_inside = np.bincount(sizes), np.bincount(sizes, rows)
    return {int(n): (float(n_inside[n] / counts[n]), int(counts[n])) for n in np.flatnonzero(counts)}


def places_of(y: ArrayLike, classes: ArrayLike) -> NDArray[np.intp]:
    """The place of each label among the classes; raises for a class that is not there."""
    labels, known = np.asarray(y), np.asarray(classes)
    places = places_or_none(labels, known)
    if (places < 0).any():
        shown = ", ".join(map(str, known[:10].tolist())) + (", ..." if len(known) > 10 else "")
        strange = labels[places.argmin()]
        raise ValueError(
            f"y has classes that were not fitted, such as {strange}; the classes are {shown}; leave out others"
        )
    return places


def places_or_none(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The place of each label among the classes, -1 for a class that is not there."""
    place = {label: number for number, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.intp)


def _probabilities(probability: ArrayLike) -> Array:
    p: Array = np.asarray(probability, dtype=np.float64)
    if p.ndim != 2 or not p.size or not np.isfinite(p).all() or not np.allclose(p.sum(axis=1), 1) or p.min() < 0:
        must = "probability must be (n, class), numbers of at least 0 that sum to one in each row"
        raise ValueError(f"{must}, got the shape {p.shape}")
    return p


def _checked(y: Any, probability: ArrayLike, classes: ArrayLike | None) -> tuple[Array, NDArray[np.intp]]:
    p = _probabilities(probability)
    labels = np.asarray(y)
    if labels.shape != (len(p),):
        raise ValueError(f"y must have one class for each of {len(p)} rows, got the shape {labels.shape}")
    known = np.arange(p.shape[1]) if classes is None else np.asarray(classes)
    if known.shape != (p.shape[1],):
        raise ValueError(f"classes must have one label for each of {p.shape[1]} columns, got {known.shape}")
    return p, places_of(labels, known)
