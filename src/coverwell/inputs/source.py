"""How X becomes rows: a table or data frame, or images seen through frozen layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import narwhals as nw
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from coverwell.inputs.columns import Columns, columns_for
from coverwell.inputs.features import features_of
from coverwell.inputs.frames import as_column, columns_of, is_frame, is_named, read
from coverwell.inputs.images import images_of
from coverwell.inputs.scaling import LARGEST_NUMBER, Mirroring
from coverwell.networks.resnet import ResNet18
from coverwell.networks.team import ImageNetwork
from coverwell.options import stored
from coverwell.training.device import seeded

if TYPE_CHECKING:
    from coverwell.estimator import IntervalRegressor as Estimator

Array = NDArray[np.float64]
Read = NDArray[Any] | Callable[[np.random.RandomState], NDArray[Any]]

KINDS_OF_GROUPS: tuple[Any, ...] = (bool | np.bool_, Real, str, date | np.datetime64)
TARGETS: dict[str, Any] = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}


class InputSource(ABC):
    """How X becomes rows: fitted once, kept by the model as `source_`, written into model files.

    A source of images runs its trunk on the estimator's `device`, and uses the `cache` of its `network`.
    """

    names: tuple[str, ...] | None = None  # of the numbers of a row, if they have any
    row_shape: tuple[int, ...] = ()  # of one row, without the axis of views; empty until it is known
    columns: Columns | None = None  # how columns of a data frame with named columns become numbers
    mirroring: Mirroring | None = None  # what a mirror does to the targets, if mirror images are rows as well
    scaled: ClassVar[bool]  # whether rows are standardised, as those of tables, or used as they are

    @staticmethod
    def of(network: Any, interval_network: Any = None, before: InputSource | None = None) -> InputSource:
        """The source for these networks, not yet fitted.

        A recipe with a `trunk` takes images, any other a table; both networks must take the same. `before` is the
        source of a model that continues training: its columns or its trunk are used again.
        """
        takes_images, must = is_image_network(network), "network and interval_network must"
        if interval_network is not None and is_image_network(interval_network) != takes_images:
            got = f"{network!r} and {interval_network!r}; leave interval_network out to have the same twice"
            raise ValueError(f"{must} both take images or both take tables, got {got}")
        for name in ("size", "mirror", "weights") if takes_images and interval_network is not None else ():
            mine, yours = (getattr(recipe, name, None) for recipe in (network, interval_network))
            if mine != yours:
                same = f"have the same {name}, for they see the same features"
                raise ValueError(f"{must} {same}, got {mine!r} and {yours!r}")
        if not takes_images:
            return replace(before) if isinstance(before, TableSource) else TableSource()
        trunk = before.trunk if isinstance(before, ImageSource) else None
        return ImageSource(int(network.size), None if network.mirror is None else Mirroring(network.mirror), trunk)

    @abstractmethod
    def fit(self, X: Any, y: Any, estimator: Estimator) -> tuple[Read, NDArray[Any]]:
        """Check X and y, and learn how X is read: the rows, as `rows` gives them, and y, finite.

        For images, the rows are a function of a RandomState: cheaper checks come before features and random weights.
        """

    @property
    def table_columns(self) -> list[str] | None:
        """The columns that a table must have, in order; None for images, and for arrays without names."""
        if self.columns is not None:
            return list(self.columns.kinds)
        return None if self.names is None else list(self.names)

    @abstractmethod
    def rows(self, X: Any, estimator: Estimator | None) -> NDArray[Any]:
        """The numbers that networks are given: (row, feature), or (image, [view,] channel, height, width) on disk.

        Without an estimator, X must be a table with the fitted columns in their order; scikit-learn is not imported.
        """

    def shown(self, X: Any, rows: Any = slice(None), names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Some rows of the columns of a table, as users know them; `names` are for those of an array.

        They hold numbers, times or texts, and NaN, NaT or None where a value is missing.
        """
        if is_frame(X):
            given = columns_of(X)
            chosen = given if self.columns is None else self.columns.kinds
            return {name: as_column(given[name][rows]) for name in chosen}
        if names is None:
            names = self.names or [f"column {place}" for place in range(self.row_shape[0])]
        return {str(name): column for name, column in zip(names, np.asarray(X, np.float64)[rows].T, strict=True)}


@stored
@dataclass(eq=False)
class TableSource(InputSource):
    """Rows of a table: data frames are read by columns, arrays as they are."""

    columns: Columns | None = None
    names: tuple[str, ...] | None = None
    row_shape: tuple[int, ...] = ()

    scaled: ClassVar[bool] = True

    def fit(self, X: Any, y: Any, estimator: Estimator) -> tuple[Read, NDArray[Any]]:
        from sklearn.utils.validation import check_X_y, validate_data

        rows: Array | None = None
        if not isinstance(X, np.ndarray) and not self.row_shape and (learned := columns_for(X)) is not None:
            self.columns, rows = learned
        elif self.columns is not None and (columns := self._columns_for(X)) is not None:
            rows = columns.transform(X)
        if rows is None:
            if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "biuf":
                _check_holds_numbers(X)
            table, targets = validate_data(estimator, X, y, ensure_all_finite=False, **TARGETS)
            checked = _finite(table, X)
        else:
            validate_data(estimator, X, y, skip_check_array=True)  # notes the names of the columns
            checked, targets = check_X_y(rows, y, **TARGETS)
        names = getattr(estimator, "feature_names_in_", None) if self.columns is None else self.columns.feature_names
        self.names, self.row_shape = None if names is None else tuple(map(str, names)), checked.shape[1:]
        return checked, targets

    def rows(self, X: Any, estimator: Estimator | None) -> Array:
        columns = self._columns_for(X)
        if estimator is None:
            table = np.asarray(X, dtype=np.float64) if columns is None else columns.transform(X)
            if table.shape[1:] != self.row_shape:
                raise ValueError(f"X must have {self.row_shape[0]} columns, as in the fit, got the shape {table.shape}")
            return _finite(table, X if columns is None else table)
        from sklearn.utils.validation import check_array, validate_data

        if columns is None:
            _check_holds_numbers(X)
            return _finite(validate_data(estimator, X, reset=False, ensure_all_finite=False), X)
        if columns.plain:  # scikit-learn's rule for names: all of them, no others, in their order
            validate_data(estimator, X, reset=False, skip_check_array=True)
        rows: Array = check_array(columns.transform(X))
        return rows

    def _columns_for(self, X: Any) -> Columns | None:
        """How X is read; a model of numbers alone takes arrays, and frames without names, as well."""
        return None if self.columns is None or (self.columns.plain and not is_named(X)) else self.columns


@stored
@dataclass(eq=False)
class ImageSource(InputSource):
    """Features that frozen layers, the trunk, make of images."""

    size: int  # of the square that images are squeezed to
    mirroring: Mirroring | None = None
    trunk: nn.Module | None = None
    row_shape: tuple[int, ...] = ()

    scaled: ClassVar[bool] = False

    def fit(self, X: Any, y: Any, estimator: Estimator) -> tuple[Read, NDArray[Any]]:
        from sklearn.utils.validation import validate_data

        images = images_of(X)
        targets = validate_data(estimator, y=y, multi_output=True, y_numeric=True)
        if len(images) != len(targets):
            raise ValueError(f"y must have one entry per image, got {len(targets)} for {len(images)} images")
        if len(images) < 2:
            raise ValueError(f"at least 2 images are needed to learn from, got {len(images)}")
        if self.mirroring is not None:
            self.mirroring.check(targets.astype(np.float64).reshape(len(targets), -1))

        def read(random_state: np.random.RandomState) -> NDArray[Any]:
            if self.trunk is None:
                with seeded(random_state.randint(2**31 - 1), torch.device("cpu")):  # without weights it is random
                    self.trunk = estimator.network.trunk()
            features = self.rows(images, estimator)
            self.row_shape = features.shape[1 if self.mirroring is None else 2 :]
            return features

        return read, targets

    def rows(self, X: Any, estimator: Estimator | None) -> NDArray[Any]:
        assert self.trunk is not None  # it is fitted
        assert estimator is not None  # it has the device
        how: dict[str, Any] = {"size": self.size, "mirrored": self.mirroring is not None, "device": estimator.device}
        cache = getattr(estimator.network, "cache", None)
        return features_of(X, self.trunk, cache=cache, verbose=estimator.verbose, **how)


def is_image_network(network: Any) -> bool:
    """Whether what a user gave as a network is a recipe for images."""
    return isinstance(network, ImageNetwork) and not isinstance(network, type)


def without_cache(network: Any) -> Any:
    """The network without the folder of its features: a model may be opened on another machine."""
    return replace(network, cache=None) if isinstance(network, ResNet18) else network


def _check_holds_numbers(X: Any) -> None:
    """Raise for images, and for a frame or array of anything but numbers: dates would count some unit of time."""
    if getattr(X, "ndim", None) == 4:
        way_out = "give network=ResNet18(...) for images, or a table (row, feature)"
        raise ValueError(f"the network takes tables, but X has the shape {tuple(X.shape)}, as images have; {way_out}")
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise ValueError(f"X must hold numbers, got {X.dtype}; convert it, or give a data frame")
    for name, series in columns_of(X).items() if not isinstance(X, np.ndarray) and is_frame(X) else ():
        values = read(series)  # numbers and booleans, some of which may be missing
        if values.kind in ("text", "times") or (values.kind and series.dtype == nw.Duration):
            found = f"{series.to_native().dtype}, such as {values.shown(int(values.missing.argmin()))}"
            raise ValueError(f"X must hold numbers, as in training, but column {name!r} holds {found}; convert it")


def _finite(table: NDArray[Any], X: Any) -> Array:
    """The table as float64: the user's own memory where torch can read it, as a copy might not fit beside it."""
    rows: Array = table.astype(np.float64, copy=not (table.flags.forc and table.flags.writeable))
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        what = "NaN" if np.isnan(rows[row, column]) else "infinity"
        name = f" ({list(columns_of(X))[column]!r})" if is_frame(X) else ""
        way_out = "leave those rows out, or fit on a data frame with named columns, in which gaps are filled"
        found = f"Input X contains {what} in row {row}, column {column}{name}, both counted from 0"
        raise ValueError(f"{found}; every number must be finite: {way_out}")
    return rows


def checked_groups(groups: ArrayLike, n_rows: int) -> NDArray[Any]:
    """The group of each row: all texts, all numbers or all times, and none missing."""
    from sklearn.utils.validation import check_array, column_or_1d

    one_each: NDArray[Any] = column_or_1d(np.asarray(groups, dtype=object))
    if len(one_each) != n_rows:
        raise ValueError(f"groups must have one entry per row, got {len(one_each)} for {n_rows} rows")
    # Arrays of booleans, numbers or text have one kind and no gaps; 1 beside "1" would become the same in an array.
    first_kind = None
    for row, group in enumerate(() if isinstance(groups, np.ndarray) and groups.dtype.kind in "biuU" else one_each):
        found = f"{group!r} in row {row} (counted from 0)"
        # Each library has its own sign for a missing value; NaN and NaT differ from themselves.
        is_missing = isinstance(group, Real | date | np.datetime64) and group != group
        if group is None or type(group).__name__ == "NAType" or is_missing:
            raise ValueError(f"groups must have a value in every row, got {found}; fill it in")
        kind = next((kind for kind in KINDS_OF_GROUPS if isinstance(group, kind)), type(group))
        first_kind = first_kind or kind
        if kind != first_kind:
            raise ValueError(f"groups must be of one kind, got {one_each[0]!r} in row 0 and {found}; convert them")
    checked: NDArray[Any] = column_or_1d(check_array(groups, ensure_2d=False, dtype=None))
    return checked


def checked_weight(sample_weight: Any, n_rows: int) -> Array | None:
    """How much each row counts; None where all count alike."""
    given: NDArray[Any] = np.asarray(sample_weight)
    if given.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one number per row, got the shape {given.shape} for {n_rows} rows")
    if given.dtype.kind not in "biuf":
        others = [value for value in given.tolist() if not isinstance(value, Real)]
        if others:
            raise ValueError(f"sample_weight must hold numbers, got {others[0]!r}; convert it")
    weight: Array = given.astype(np.float64)
    if (wrong := ~((weight >= 0) & (weight <= LARGEST_NUMBER))).any():
        row = int(wrong.argmax())
        found = f"{weight[row]:g} in row {row} (counted from 0); zero leaves a row out"
        raise ValueError(f"sample_weight must lie in [0, {LARGEST_NUMBER:g}], got {found}")
    if not weight.any():
        raise ValueError("sample_weight must be above zero for some rows, got zero for all of them")
    return None if (weight == weight[0]).all() else weight


def target_names_of(y: Any, targets: NDArray[Any]) -> tuple[str, ...]:
    """The names that a series or data frame of targets carries, or y, y0, y1, ...; `targets` is y as an array."""
    if hasattr(y, "columns"):
        return tuple(str(name) for name in y.columns)
    if getattr(y, "name", None) not in (None, ""):  # polars calls a series without a name ""
        return (str(y.name),)
    n_targets = 1 if targets.ndim == 1 else targets.shape[1]
    return ("y",) if n_targets == 1 else tuple(f"y{t}" for t in range(n_targets))


def targets_by_name(y: Any, names: Sequence[str], what: str = "y") -> Any:
    """Targets in the order of the fit: the columns of a data frame by name where there are several."""
    given = {str(name): name for name in getattr(y, "columns", ())}
    if len(given) > 1 and set(given) == set(names):
        return np.column_stack([np.asarray(y[given[name]]) for name in names])
    if len(given) > 1 and tuple(names) != tuple(f"y{place}" for place in range(len(names))):  # fitted with names
        raise ValueError(f"{what} must have the targets {', '.join(names)}, as in training, got {', '.join(given)}")
    return y
