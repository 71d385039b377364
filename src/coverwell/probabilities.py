"""Probabilities that mean what they say: smooth calibrators learned from out-of-fold rows, and Venn-Abers intervals.

Every calibrator has a few numbers and keeps an order: that of the classes of a row or, where there are two classes,
that of the rows. The one that is kept has the lowest log loss on rows that it was not fitted on; none is kept unless it
is better than the probabilities as they are.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.calibration import weighted_mean
from coverwell.options import stored

Array = NDArray[np.float64]
Probabilities = Float[Tensor, "row class"]

SMALLEST = 1e-12  # probability, before its logarithm
FOLDS = 5
CLEAR = 1.0  # standard errors by which a calibrator must lower the log loss
PENALTY = 1.0  # of a parameter's square, in rows: what few rows say is drawn towards leaving probabilities alone
MOST_ROWS = 20_000  # that a calibrator is learned from
MOST_SCORES = 1000  # that a Venn-Abers predictor keeps


class Calibrator(nn.Module):
    """Probabilities from probabilities; with parameters of zero, they stay as they are."""

    n_parameters: ClassVar[int]
    for_two: ClassVar[bool]  # for two classes alone; the others are for more
    least: ClassVar[tuple[float, ...] | None] = None  # that each parameter may be; any number otherwise
    parameters_: Tensor

    def __init__(self, values: Array) -> None:
        super().__init__()
        if np.shape(values) != (self.n_parameters,):
            raise ValueError(f"{type(self).__name__} has {self.n_parameters} numbers, got the shape {np.shape(values)}")
        self.register_buffer("parameters_", torch.as_tensor(np.asarray(values, dtype=np.float64)))

    @property
    def values(self) -> Tensor:
        return self.parameters_

    def forward(self, p: Probabilities) -> Probabilities:
        return self.calibrated(p, self.parameters_.to(p))

    def calibrated(self, p: Probabilities, values: Tensor) -> Probabilities:
        raise NotImplementedError


@stored
class Temperature(Calibrator):
    """All logits divided by one temperature (Guo et al. 2017), here exp(-t)."""

    n_parameters = 1
    for_two = False

    def calibrated(self, p: Probabilities, values: Tensor) -> Probabilities:
        return (p.clamp_min(SMALLEST).log() * values[0].exp()).softmax(dim=-1)


@stored
class MixedTemperature(Calibrator):
    """A mixture of tempered, given and equal probabilities (ensemble temperature scaling, Zhang et al. 2020)."""

    n_parameters = 3
    for_two = False
    least = (-np.inf, 0.0, 0.0)

    def calibrated(self, p: Probabilities, values: Tensor) -> Probabilities:
        tempered = (p.clamp_min(SMALLEST).log() * values[0].exp()).softmax(dim=-1)
        _, given, equal = values.unbind()
        return (tempered + given * p + equal / p.shape[-1]) / (1 + given + equal)


class _OfTwo(Calibrator):
    """The logit of the second class as a function of what it was."""

    for_two = True

    def calibrated(self, p: Probabilities, values: Tensor) -> Probabilities:
        second = torch.sigmoid(self.logit(p.clamp(SMALLEST, 1 - SMALLEST), values))
        return torch.stack([1 - second, second], dim=-1)

    def logit(self, p: Probabilities, values: Tensor) -> Tensor:
        raise NotImplementedError


@stored
class Beta(_OfTwo):
    """Logits that grow at different speeds towards either class, and shifted (Kull, Silva Filho and Flach 2017)."""

    n_parameters = 3

    def logit(self, p: Probabilities, values: Tensor) -> Tensor:
        return values[0].exp() * p[:, 1].log() - values[1].exp() * p[:, 0].log() + values[2]


@stored
class Platt(_OfTwo):
    """The logit, stretched and shifted (Platt 1999)."""

    n_parameters = 2

    def logit(self, p: Probabilities, values: Tensor) -> Tensor:
        return values[0].exp() * (p[:, 1].log() - p[:, 0].log()) + values[1]


@stored
class Quadratic(_OfTwo):
    """A logit that bends: stretched by different factors on either side of even odds, smoothly, and shifted."""

    n_parameters = 3

    def logit(self, p: Probabilities, values: Tensor) -> Tensor:
        z = p[:, 1].log() - p[:, 0].log()
        # With b = tanh: z + b |z| in the large, so slopes 1 - b and 1 + b, and a parabola around zero.
        return values[0].exp() * (z + values[1].tanh() * ((1 + z.square()).sqrt() - 1)) + values[2]


CALIBRATORS: tuple[type[Calibrator], ...] = (Temperature, MixedTemperature, Platt, Beta, Quadratic)


def fit_calibrator(p: Array, y: Array, weight: Array | None, seed: int) -> Calibrator | None:
    """The calibrator with the lowest log loss on rows it was not fitted on; None if all of them would rather harm.

    p (row, class) are out-of-fold probabilities, y (row, class) is 1 at the class of a row.
    """
    rng = np.random.default_rng(seed)
    if len(p) > MOST_ROWS:
        some = np.sort(rng.choice(len(p), MOST_ROWS, replace=False))
        p, y, weight = p[some], y[some], None if weight is None else weight[some]
    fold = rng.permutation(np.arange(len(p)) % FOLDS)
    before = losses(torch.from_numpy(p), y)
    best, least = None, weighted_mean(before, weight)
    for kind in CALIBRATORS:
        if kind.for_two != (p.shape[1] == 2):
            continue
        found = np.empty(len(p))
        for number in range(FOLDS):
            inside, outside = fold != number, fold == number
            own = fitted(kind, p[inside], y[inside], None if weight is None else weight[inside])
            found[outside] = losses(own(torch.from_numpy(p[outside])), y[outside])
        gain = before - found
        error = float(np.std(gain, ddof=1)) / np.sqrt(len(gain))
        if weighted_mean(found, weight) < least and weighted_mean(gain, weight) > CLEAR * error:
            best, least = kind, weighted_mean(found, weight)
    return None if best is None else fitted(best, p, y, weight)


def losses(p: Tensor, y: Array) -> Array:
    """The log loss of every row."""
    found: Array = -(p.clamp_min(SMALLEST).log().numpy() * y).sum(axis=1)
    return found


def fitted(kind: type[Calibrator], p: Array, y: Array, weight: Array | None) -> Calibrator:
    """A calibrator of one kind with the lowest log loss."""
    from scipy.optimize import minimize

    rows, classes = torch.from_numpy(p), torch.from_numpy(y)
    own = torch.ones(len(p), dtype=rows.dtype) if weight is None else torch.from_numpy(weight / weight.mean())
    shape = kind(np.zeros(kind.n_parameters))

    def objective(values: Array) -> tuple[float, Array]:
        at = torch.from_numpy(values).requires_grad_(True)
        log_p = shape.calibrated(rows, at).clamp_min(SMALLEST).log()
        loss = -(own[:, None] * classes * log_p).sum() + PENALTY * at.square().sum()
        (gradient,) = torch.autograd.grad(loss, at)
        return float(loss.detach()) / len(p), gradient.numpy() / len(p)

    bounds = None if kind.least is None else [(least, np.inf) for least in kind.least]
    found = minimize(objective, np.zeros(kind.n_parameters), jac=True, method="L-BFGS-B", bounds=bounds)
    return kind(found.x)


@stored
class VennAbers(nn.Module):
    """Two probabilities for the second of two classes, one for each class that the row may have (Vovk and Petej 2014).

    Each comes from an isotonic regression of out-of-fold rows with the row among them, under one of its two labels. If
    the rows are exchangeable, one of the two is calibrated: the one of the label that the row turns out to have.

    Parameters
    ----------
    scores : (score,), ascending
    low, high : (score + 1,), the probabilities of a row between two of them
    """

    scores: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, scores: Array, low: Array, high: Array) -> None:
        super().__init__()
        if not len(low) == len(high) == len(scores) + 1:
            raise ValueError(f"{len(scores)} scores part {len(scores) + 1} places, got {len(low)} and {len(high)}")
        for name, values in {"scores": scores, "low": low, "high": high}.items():
            self.register_buffer(name, torch.as_tensor(np.asarray(values, dtype=np.float64)))

    @classmethod
    def of(cls, p: Array, is_second: NDArray[np.bool_], weight: Array | None) -> VennAbers:
        """From the out-of-fold probabilities of the second class; near ones are taken as one, where there are many."""
        from sklearn.isotonic import isotonic_regression

        weight = np.ones(len(p)) if weight is None else weight / weight.mean()
        if len(np.unique(p)) > MOST_SCORES:
            edges = np.quantile(p, np.linspace(0, 1, MOST_SCORES + 1), method="lower")
            p = edges[(np.searchsorted(edges, p, side="right") - 1).clip(0, MOST_SCORES - 1)]
        scores, place = np.unique(p, return_inverse=True)
        n, second = np.bincount(place, weight), np.bincount(place, weight * is_second)
        low, high = np.empty((2, len(scores) + 1))
        for number in range(len(scores) + 1):
            counts, hits = np.insert(n, number, 1.0), np.insert(second / n, number, 0.0)
            low[number] = isotonic_regression(hits, sample_weight=counts, y_min=0, y_max=1)[number]
            hits[number] = 1.0
            high[number] = isotonic_regression(hits, sample_weight=counts, y_min=0, y_max=1)[number]
        return cls(scores, low, high)

    def forward(self, p: Float[Tensor, " row"]) -> tuple[Float[Tensor, " row"], Float[Tensor, " row"]]:
        """Lower and upper probability of the second class."""
        p = p.to(self.scores).contiguous()
        # A row with a known score counts as one of its rows: after them under the first label, before under the second.
        after, before = torch.searchsorted(self.scores, p, right=True), torch.searchsorted(self.scores, p)
        return self.low[after], self.high[before]
