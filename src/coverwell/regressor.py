"""MatchedRegressor: its parameters, and what it adds to a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from coverwell.calibration import Calibration
from coverwell.companions import FOREST
from coverwell.copies import Copies
from coverwell.edges import EdgeRates, edge_rates
from coverwell.estimator import Coverage, IntervalRegressor, Trained
from coverwell.matched import MatchedEstimator, NetworkChoice
from coverwell.networks.mlp import MLP
from coverwell.options import Schedule, stored
from coverwell.paper.algorithm import History
from coverwell.paper.losses import IntervalLoss
from coverwell.paper.matching import Matching
from coverwell.predictor import FittedTeam
from coverwell.training.device import device_from
from coverwell.training.rows import Rows


# Parameters are the fields of a dataclass, as in all our estimators.
@stored
@dataclass(eq=False, repr=False)
class MatchedRegressor(MatchedEstimator, IntervalRegressor):
    """Regression with a prediction interval for every row, from two teams of networks trained in turns.

    Parameters
    ----------
    coverage : float or sequence of float, default=0.9
        The share of new rows that the interval is to contain; several levels give nested intervals from one fit.
    matching : "balanced", "sigma", "iqr", None or an object with `Matching`'s methods, default="balanced"
        How F's uncertainty is matched to I's widths; "sigma" and "iqr" are the paper's, "balanced" is Sigma Fit in
        which easy and hard rows weigh alike for the mean; None trains F on the squared error alone.
    network, interval_network : recipe such as `MLP(...)`, or a function (n_features, n_outputs) -> nn.Module
        The two networks; None is a small smooth `MLP`. A given `network` also serves for the intervals if there is no
        `interval_network`. With a `ResNet18(...)`, X are images; see there for its settings.
    folds : int, scikit-learn splitter or None, default=5
        Who trains on what; None is the paper's literal training, where nobody is left out.
    repeats : int or "auto", default="auto"
        How many members leave each row out; "auto" takes more on small tables, and 2 for images.
    interval_loss : "quantile", "paper", `QuantileLoss(...)` or `PaperLoss(...)`, default="quantile"
        What shapes the widths: the pinball loss, or Eqs. 3 and 4. The objects carry the weights.
    shape : "both" or "interval", default="both"
        Which network decides where intervals are wide and where narrow: both (the geometric mean of I's half-width and
        that of F's own matched uncertainty), or I alone. Only I is trained to cover, so with `calibration=None`, and
        with IQR Fit, it is always I alone.
    calibration : "local", "cross", "cv+", "split", None or an object such as `Split(size=0.3)`, default="local"
        How the learned intervals are stretched to the asked level; see `coverwell.calibration` for what each promises.
    hold_for : name or place of a column of X, or several, optional
        Coverage is held within each group of rows that have the same value there, not only on average; groups of few
        rows are drawn towards all rows. With several columns, for the groups of each. With "local", rows with the same
        gaps are such a group by themselves. Needs ranks that can be kept apart: "local", "cross" or "split".
    companions : sequence of "forest" and regressors, default=("forest",)
        Learners beside F, for tables. They are fitted on the same folds, and what they predict out of fold decides how
        much each counts in the prediction. A regressor is any with scikit-learn's `fit` and `predict`, also a pipeline;
        it sees the rows as numbers, with columns of text and dates encoded. With `()`, the networks are alone.
    schedule : Schedule, optional
        How long and in which steps the networks train; None is `Schedule()`.
    warm_start : bool, default=False
        Whether another call of `fit` continues from the networks and units that the last one left, for data that have
        grown. Out-of-fold outputs stay honest only if no row changes its fold: give `folds` that ensure it.
    device : str, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState or None
        Same seed, device, thread count and versions: same bits.
    verbose : int, default=0
        1 shows what the fit is doing, and since when.

    Attributes
    ----------
    rounds_ : list of Round
        One record per round.
    predictor_ : Predictor
        The trained networks with their scalings and calibration, as one `torch.nn.Module`.
    source_ : InputSource
        How X becomes rows; it holds the frozen layers of a network for images.
    out_of_fold_ : OutOfFold or None
        Predictions and bounds for the training rows, by members that left them out.
    worst_slices_ : tuple of WorstSlice
        Where these cover less than was asked, by one and two columns; empty for images.
    factor_ : ndarray (target, level) or None
        By how much the learned intervals are stretched.
    column_scales_ : ndarray (column,) or None
        What F looks at: its learned scale of each column, over the largest.
    columns_ : Columns or None
        How columns of a data frame with named columns become numbers.
    n_features_in_, feature_names_in_, target_names_ : what was fitted; for images, the targets alone.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(n_samples=80, n_features=3, noise=10.0, random_state=0)
    >>> model = MatchedRegressor(coverage=0.8, schedule=Schedule(max_rounds=2), repeats=1, random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval(X[:5])
    >>> bool((lower < upper).all())
    True
    """

    coverage: Coverage = 0.9
    matching: str | Matching | None = "balanced"
    _: KW_ONLY
    network: NetworkChoice = None
    interval_network: NetworkChoice = None
    folds: Any = 5
    repeats: int | str = "auto"
    interval_loss: str | IntervalLoss = "quantile"
    shape: str = "both"
    calibration: Any = "local"
    hold_for: Any = None
    companions: Sequence[Any] = (FOREST,)
    schedule: Schedule | None = None
    warm_start: bool = False
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def check_params(self) -> None:
        super().check_params()
        if self.shape not in ("both", "interval"):
            raise ValueError(f"shape must be 'both' or 'interval', got {self.shape!r}")

    def set_fitted(
        self, rows: Rows, trained: Trained, history: History, jobs: slice, calibration: Calibration | None = None
    ) -> None:
        super().set_fitted(rows, trained, history, jobs, calibration)
        assert rows.given is not None  # rows of a fit know what they were made from
        for team in self.predictor_.fitted_teams:
            if team.shape is not None:
                team.copies = Copies.of(*rows.given, team.inputs, team.shape.grid, rows.given_weight)
                team.edges = self.edge_rates(rows, team, team.shape.grid)
                team.to(device_from(self.device))

    def edge_rates(self, rows: Rows, team: FittedTeam, levels: tuple[float, ...]) -> EdgeRates | None:
        """How much half-widths grow beyond the range of training."""
        altered, correction = rows.altered, self.predictor_.correction
        if altered is None or altered.estimate is None or correction.factor is None:
            return None
        assert rows.given is not None  # rows of a fit know what they were made from
        assert self.out_of_fold_ is not None  # what has made the estimate
        mean, spread = team.scaled(self.out_of_fold_.prediction), team.inputs.spread.cpu().numpy()
        factor = correction.factor[:, [correction.levels.index(level) for level in levels]].cpu().numpy()
        return edge_rates(altered, rows.given[0], mean, spread, factor, levels)


# Paper: nothing is left out, Eqs. 2 to 5 and 7 or 10 as printed (with means for sums), y in [0, 1], no calibration
# afterwards. The paper gives five linear layers, but neither their width nor the batch size.
AS_PUBLISHED: dict[str, Any] = {
    "matching": "sigma",
    "companions": (),
    "folds": None,
    "interval_loss": "paper",
    "shape": "interval",
    "calibration": None,
    "network": MLP(hidden=64, layers=5, dropout=0.0, bins=0),
    "schedule": Schedule(mean_epochs=10, interval_epochs=10, max_rounds=50, patience=6, learning_rate=1e-3, growth=1.0),
}
