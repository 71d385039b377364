"""Alarms for a stream of rows: whether intervals miss too often, and whether inputs are no longer what they were.

Both are bets against a claim, and the money won is the evidence against it (an e-process). The claim is that x in
[0, 1], such as 1 for a miss and 0 for a hit, has at most the mean a, given all rows before. A bet that its rate is
q > a multiplies its stake by

    f(x) = (1 - x) (1 - q) / (1 - a) + x q / a,

which is rising and linear in x, with mean 1 where x has the mean a: under the claim no stake grows on average. Stakes
come out of a reserve that starts at 1, bit by bit and on a plan that does not depend on the rows. So the money, stakes
and reserve, is a non-negative supermartingale that starts at 1, and by Ville's inequality

    P(the money ever reaches 1 / false_alarms) <= false_alarms,    however long the stream, and whenever one looks.

Half of the reserve is staked on the first row, for what is wrong from the start. The other half lasts: early stakes
melt away in a long quiet time, and what breaks after it finds fresh ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coverwell.options import check_share, stored

if TYPE_CHECKING:
    from coverwell.estimator import CalibratedEstimator

Array = NDArray[np.float64]
Numbers = ArrayLike | float | int  # numpy counts a float as array-like by way of complex, which type checks do not

ODDS = np.array([1.3, 1.8, 3.0])  # the bets: how many times the odds of a miss have risen
ROWS_TO_SPREAD = 100  # in the first so many rows the reserve falls to 0.7 of what the first row leaves
MOST_MONEY = 1e100  # more is thrown away: nothing overflows, and the claim is only ever favoured by it
PER_OCTAVE, N_BINS = 64, 2048  # of unlikeness: a resolution of 1 % between 2^-16 and 2^16
SEED = 0  # of how ties between rows are broken


def reserve(n_rows: int) -> float:
    """The money that is not staked after so many rows."""
    return 0.5 / math.sqrt(1 + n_rows / ROWS_TO_SPREAD) if n_rows else 1.0


def staked(stakes: Array, x: Array | float, n_rows: int, allowed: float) -> Array:
    """The stakes (..., bet) after the row of this number, from 1, in which x (..., 1) was seen."""
    hit, gain = _factors(allowed)
    fresh = (reserve(n_rows - 1) - reserve(n_rows)) / len(ODDS)
    after: Array = np.minimum((stakes + fresh) * (hit + gain * x), MOST_MONEY)
    return after


@cache
def _factors(allowed: float) -> tuple[Array, Array]:
    """What a hit multiplies each stake by, and how much more a miss does."""
    rate = ODDS * allowed / (1 - allowed + ODDS * allowed)
    hit = (1 - rate) / (1 - allowed)
    return hit, rate / allowed - hit


@dataclass
class Evidence:
    """The money won so far against the claim that x has at most the mean `allowed`."""

    allowed: float
    n_rows: int = 0
    total: float = 0.0  # of x
    largest: float = 1.0  # the most money there ever was
    stakes: Array = field(default_factory=lambda: np.zeros(len(ODDS)))

    def add(self, x: float) -> None:
        self.n_rows += 1
        self.total += x
        self.stakes = staked(self.stakes, x, self.n_rows, self.allowed)
        self.largest = max(self.largest, float(self.stakes.sum()) + reserve(self.n_rows))


@stored
class CoverageMonitor:
    """An alarm for intervals that miss too often, which may be looked at after every row.

    If every row is missed with probability at most 1 - `coverage`, whatever came before, the alarm ever rings with
    probability at most `false_alarms`, in streams of any length. Intervals that are too wide never ring it. The same
    holds for the alarms of all groups together, and for the one on inputs if the order of the rows means nothing. An
    alarm that has rung stays; make a new monitor when the cause is gone.

    Parameters
    ----------
    coverage : float, the share of rows that the intervals should contain
    false_alarms : float, the largest probability of an alarm without a cause
    state : str, optional, the `state` of a monitor to go on from

    Attributes
    ----------
    n_rows : int, rows so far
    n_missed : float, rows that were missed; of several targets, the mean over the targets
    coverage_ : float, the share of rows inside so far, NaN before the first
    evidence : float, against the coverage, the most there ever was; the alarm rings at 1 / false_alarms
    alarm : bool, whether it has rung
    group_evidence : dict, the same for each group, corrected for the number of groups
    group_alarms : list of str, the groups whose alarm has rung
    input_evidence, input_alarm : the same for the inputs
    rung : list of str, all alarms that have rung, in words
    state : str, all of this as JSON

    Examples
    --------
    Intervals for 90 % that cover 80 %:

    >>> import numpy as np
    >>> y = np.random.default_rng(0).normal(size=400)
    >>> monitor = CoverageMonitor(0.9).update(y, np.full(400, -1.28), np.full(400, 1.28))
    >>> monitor.n_rows, monitor.coverage_, monitor.alarm
    (400, 0.8, True)
    >>> CoverageMonitor(0.9, state=monitor.state).alarm
    True
    """

    def __init__(self, coverage: float = 0.9, *, false_alarms: float = 0.01, state: str | None = None) -> None:
        check_share("coverage", coverage)
        check_share("false_alarms", false_alarms)
        self.coverage, self.false_alarms = float(coverage), float(false_alarms)
        self._misses, self._inputs = Evidence(1 - self.coverage), Evidence(0.5)
        self._groups: dict[str, Evidence] = {}  # in the order in which they appeared
        self._counts = np.zeros(N_BINS, dtype=np.int64)  # rows by unlikeness
        if state is not None:
            self._restore(state)

    def update(self, y: Numbers, lower: Numbers, upper: Numbers, groups: Any = None) -> CoverageMonitor:
        """Take in one row or several in their order; returns the monitor. Bad rows raise, and change nothing.

        Parameters
        ----------
        y, lower, upper : numbers, or arrays (row,) or (row, target)
            Of several targets, the share that is missed counts: on average that share is what the coverage allows.
        groups : optional, a name for each row, such as its district; kept as text
        """
        missed = _missed(_numbers("y", y), _numbers("lower", lower), _numbers("upper", upper))
        names = [] if groups is None else _names(groups, len(missed))
        for x in missed.tolist():
            self._misses.add(x)
        for name, x in zip(names, missed.tolist(), strict=False):
            self._groups.setdefault(name, Evidence(1 - self.coverage)).add(x)
        return self

    def update_inputs(self, unlikeness: Numbers) -> CoverageMonitor:
        """Take in how unlike the training rows each of these rows is, in their order, as `unlikeness` measures it.

        The claim is that rows could as well have come in any other order. Then the rank of a row among those so far is
        uniform and says nothing about later ones (smoothed conformal p-values), and x is that rank. Rows that become
        more unlike are noticed. Those that were so from the first row on are not, unless rows like those of the
        training come first.
        """
        values = np.atleast_1d(_numbers("unlikeness", unlikeness))
        if values.ndim != 1 or not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"unlikeness must be a finite number of at least 0 for each row, got {unlikeness!r:.80}")
        octaves = np.log2(np.maximum(values, np.finfo(float).tiny))
        bins = np.clip(np.floor(octaves * PER_OCTAVE) + N_BINS // 2, 0, N_BINS - 1).astype(int)
        draws = np.random.Generator(np.random.PCG64(SEED).advance(self._inputs.n_rows)).random(len(bins))
        for place, draw in zip(bins.tolist(), draws.tolist(), strict=True):
            self._counts[place] += 1
            below = int(self._counts[:place].sum()) + draw * int(self._counts[place])
            self._inputs.add(below / (self._inputs.n_rows + 1))
        return self

    @property
    def n_rows(self) -> int:
        return self._misses.n_rows

    @property
    def n_missed(self) -> float:
        return self._misses.total

    @property
    def coverage_(self) -> float:
        return 1 - self.n_missed / self.n_rows if self.n_rows else math.nan

    @property
    def evidence(self) -> float:
        return self._misses.largest

    @property
    def alarm(self) -> bool:
        return self._rings(self.evidence)

    @property
    def input_evidence(self) -> float:
        return self._inputs.largest

    @property
    def input_alarm(self) -> bool:
        return self._rings(self.input_evidence)

    @property
    def group_evidence(self) -> dict[str, float]:
        # The rows of the j-th group to appear are a stream of their own, whose money reaches j (j + 1) / false_alarms
        # with probability at most false_alarms / (j (j + 1)). Over all j, however many, these sum to false_alarms.
        numbered = enumerate(self._groups.items(), start=1)
        return {name: found.largest / (j * (j + 1)) for j, (name, found) in numbered}

    @property
    def group_alarms(self) -> list[str]:
        return [name for name, evidence in self.group_evidence.items() if self._rings(evidence)]

    @property
    def rung(self) -> list[str]:
        rung = [word for word, rings in (("coverage", self.alarm), ("inputs", self.input_alarm)) if rings]
        return rung + [f"group {name}" for name in self.group_alarms]

    def __str__(self) -> str:
        return self.summary(self.rung)

    def summary(self, rung: Sequence[str]) -> str:
        """The coverage and the evidence in words, and of the alarms that have rung these."""
        if not self.n_rows:
            return "no rows yet"
        reached = f"coverage {self.coverage_:.3f} of {self.n_rows:,} rows where {self.coverage:g} was asked"
        evidence = f"evidence {self.evidence:#.3g}, an alarm from {1 / self.false_alarms:g} on"
        alarms = f"ALARM: {', '.join(rung)}" if rung else "no alarm"
        return f"{reached}; {evidence}; {alarms}"

    @property
    def state(self) -> str:
        asked = {name: getattr(self, name) for name in ("coverage", "false_alarms")}
        found = {"misses": _content(self._misses), "inputs": _content(self._inputs)}
        groups = {name: _content(evidence) for name, evidence in self._groups.items()}
        counts = {str(place): int(self._counts[place]) for place in np.flatnonzero(self._counts)}
        return json.dumps({**asked, **found, "groups": groups, "counts": counts})

    def _restore(self, state: str) -> None:
        try:
            content = json.loads(state)
            theirs = {name: content[name] for name in ("coverage", "false_alarms")}
            misses, inputs = _evidence(content["misses"]), _evidence(content["inputs"])
            groups = {name: _evidence(found) for name, found in content["groups"].items()}
            counts = np.zeros(N_BINS, dtype=np.int64)
            for place, count in content["counts"].items():
                counts[int(place)] = count
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"this is not the state of a CoverageMonitor ({error!r}); start with a new one") from None
        mine = {name: getattr(self, name) for name in theirs}
        if mine != theirs:
            asked, had = (" and ".join(f"{name}={value!r}" for name, value in one.items()) for one in (mine, theirs))
            raise ValueError(f"the state is of a monitor with {had}, this one has {asked}; ask for the same")
        self._misses, self._inputs, self._groups, self._counts = misses, inputs, groups, counts

    def _rings(self, evidence: float) -> bool:
        return evidence >= 1 / self.false_alarms


def unlikeness(model: CalibratedEstimator, X: Any) -> Array:
    """How unlike the training rows each row of X is: the mean square of its scaled inputs, about 1 in training."""
    return model.predictor_.inputs.unlikeness(model.source_.rows(X, model))


def _content(evidence: Evidence) -> Mapping[str, Any]:
    return {**asdict(evidence), "stakes": evidence.stakes.tolist()}


def _evidence(content: Mapping[str, Any]) -> Evidence:
    return Evidence(**{**content, "stakes": np.array(content["stakes"], dtype=np.float64).reshape(ODDS.shape)})


def _numbers(name: str, values: Numbers) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers, got {values!r:.80}; convert it first") from None


def _missed(y: Array, lower: Array, upper: Array) -> Array:
    """Whether each row was missed; of several targets, the share of those that were."""
    if not y.shape == lower.shape == upper.shape or y.ndim > 2:
        shapes = f"got {y.shape}, {lower.shape} and {upper.shape}; give one interval for each y"
        raise ValueError(f"y, lower and upper must have the same shape, of rows or of rows and targets, {shapes}")
    for name, values in (("y", y), ("lower", lower), ("upper", upper)):
        if (gaps := np.isnan(values)).any():
            raise ValueError(f"{name} must not be NaN, got {gaps.sum()} such values; leave these rows out")
    if (crossed := lower > upper).any():
        pair = f"{lower[crossed][0]:g} and {upper[crossed][0]:g}"
        raise ValueError(f"lower must not lie above upper, got {pair}; give them in the order y, lower, upper")
    missed: Array = np.atleast_1d((y < lower) | (y > upper)).astype(np.float64)
    return missed if missed.ndim == 1 else missed.mean(axis=1)


def _names(groups: Any, n_rows: int) -> list[str]:
    names = np.atleast_1d(np.asarray(groups)).tolist()
    if len(names) != n_rows:
        raise ValueError(f"groups must name a group for each of {n_rows} rows, got {len(names)}")
    if any(name is None or name != name for name in names):
        raise ValueError("every row must have a group, got None or NaN; name one for rows without, such as 'unknown'")
    return list(map(str, names))
