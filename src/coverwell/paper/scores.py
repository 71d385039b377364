"""Scores of classes: how badly each class fits what F says of a row. A set holds the classes whose score is small.

A score orders the classes of a row; the set of a level holds those up to a threshold, so sets of higher levels contain
those of lower ones. I learns the conditional quantile of the honest score of the true class.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from coverwell.options import check_number, named, stored

Probabilities = Float[Tensor, "*batch class"]
Scores = Float[Tensor, "*batch class"]


@runtime_checkable
class Score(Protocol):
    """How badly each class fits; see `LeastLikely` for an example to copy."""

    name: ClassVar[str | None] = "custom"

    def of(self, probability: Probabilities) -> Scores:
        """The score of every class, from probabilities that sum to one; the likeliest class has the lowest."""


def check_score(score: Score, n_classes: int) -> None:
    """Raise unless a score gives every class a finite number, the likeliest the lowest, for any leading axes."""
    falling = torch.linspace(2, -2, n_classes, dtype=torch.float64).softmax(dim=0)
    p = torch.stack([falling, falling.roll(1), torch.full_like(falling, 1 / n_classes)]).expand(2, 3, n_classes)
    found, must = score.of(p), "conformity_score must give each class a finite number, and the likeliest the lowest"
    if not isinstance(found, Tensor) or found.shape != p.shape:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{must}: a tensor of shape {tuple(p.shape)} for probabilities of that shape, got {got}")
    lowest = found.amin(dim=-1)  # of equal probabilities, which a sort takes in any order, any may have it
    if not found.isfinite().all() or (found.gather(-1, p.argmax(dim=-1, keepdim=True))[..., 0] > lowest)[:, :2].any():
        raise ValueError(f"{must}, but {score!r} gives {found[0, 0].tolist()} for {p[0, 0].tolist()}")


@named("conformity_score", "probability")
@dataclass(frozen=True)
class LeastLikely:
    """One minus the probability of the class (Sadinle, Lei and Wasserman 2019): the smallest sets on average."""

    def of(self, probability: Probabilities) -> Scores:
        return 1 - probability


@named("conformity_score", "adaptive")
@dataclass(frozen=True)
class Adaptive:
    """The probability of the class and of all likelier ones (Romano, Sesia and Candes 2020), without randomisation."""

    def of(self, probability: Probabilities) -> Scores:
        ordered, order = probability.sort(dim=-1, descending=True)
        return torch.zeros_like(probability).scatter(-1, order, ordered.cumsum(dim=-1))


@named("conformity_score", "regularised")
@dataclass(frozen=True)
class Regularised:
    """The adaptive score with a penalty on classes far down the order (Angelopoulos et al. 2021).

    Parameters
    ----------
    penalty : float
        For every place beyond `free`.
    free : int
        Places without penalty.
    """

    penalty: float = 0.05
    free: int = 2

    def __post_init__(self) -> None:
        check_number("penalty", self.penalty, least=0.0)
        check_number("free", self.free, least=0, whole=True)

    def of(self, probability: Probabilities) -> Scores:
        ordered, order = probability.sort(dim=-1, descending=True)
        place = torch.arange(1, probability.shape[-1] + 1, device=probability.device, dtype=probability.dtype)
        scores = ordered.cumsum(dim=-1) + self.penalty * (place - self.free).clamp_min(0)
        return torch.zeros_like(probability).scatter(-1, order, scores)


@stored
@dataclass(frozen=True)
class Contiguous:
    """A score for classes that have an order: a class scores at least what lies between it and the likeliest one.

    So a set has no gaps. Where probabilities fall to both sides of one peak, it is the set of the score itself.

    Parameters
    ----------
    score : Score
    order : tuple of int
        The places of the classes, from the lowest class to the highest.
    """

    score: Score
    order: tuple[int, ...]

    name: ClassVar[str | None] = "contiguous"

    def of(self, probability: Probabilities) -> Scores:
        chosen = list(self.order)
        scores = self.score.of(probability)[..., chosen]
        columns, peak = list(scores.unbind(dim=-1)), probability[..., chosen].argmax(dim=-1)
        # Outwards from the peak, class by class: a running maximum that starts at the peak.
        for place in range(1, len(columns)):
            from_peak = peak < place
            columns[place] = torch.where(from_peak, torch.maximum(columns[place], columns[place - 1]), columns[place])
        for place in range(len(columns) - 2, -1, -1):
            from_peak = peak > place
            columns[place] = torch.where(from_peak, torch.maximum(columns[place], columns[place + 1]), columns[place])
        back = [chosen.index(place) for place in range(len(chosen))]
        return torch.stack(columns, dim=-1)[..., back]
