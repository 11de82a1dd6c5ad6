"""Answers of champion and challenger to the same requests: distances and statistics."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from drift.numerics.dependence import sequence_inflation
from exporter.errors import ProtocolError
from exporter.features.comparison.confidence import (
    LEAST_PAIRS,
    BoundedMean,
    Interval,
    doubt,
    mean_ratio,
    open_ratio,
    unseen_stalls,
    variance_ratio,
)
from exporter.features.comparison.paired_intervals import (
    paired_difference,
    proportion,
    quantile_ratio,
    without_missing,
)
from exporter.triton.tensors import FLOATS, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from exporter.features.comparison.comparison_settings import Metric
    from exporter.features.comparison.confidence import Values
    from exporter.triton.protocol_types import Array, InferReply, OutputTensor


MissingOutcome = Literal["champion_missing", "challenger_missing", "both_missing"]
AskedOutcome = Literal["both", "champion_failed", "challenger_failed", "both_failed"]
PairOutcome = AskedOutcome | MissingOutcome
MISSING_OUTCOMES: Final[tuple[MissingOutcome, ...]] = get_args(MissingOutcome)
PAIR_OUTCOMES: Final[tuple[PairOutcome, ...]] = (
    *get_args(AskedOutcome),
    *MISSING_OUTCOMES,
)
_QUANTILES: Final[Mapping[Metric, float]] = {
    "latency_p50": 0.5,
    "latency_p95": 0.95,
    "latency_p99": 0.99,
}
_MEANS: Final[Mapping[Metric, Callable[[Values, Values, float], Interval | None]]] = {
    "latency_mean": mean_ratio,
    "latency_variance": variance_ratio,
}
_TOLERATED_MISSING: Final = 0.25
"""Share of the requests beyond a quantile that may be missing, and not change it much."""
_MEAN_QUANTILE: Final = 0.99
"""Means and variances are made of stalls as rare as this."""
# An interval that moved less than the next per cent of pairs can move it is kept.
_RECOMPUTED_AFTER: Final = 0.01


@dataclass(frozen=True, slots=True)
class Answered:
    """One side of a pair. No reply is a failure, of the kind `failure`."""

    reply: InferReply | None
    failure: str = ""


class Pairs:
    """All pairs so far, in bounded memory. Thread-safe."""

    def __init__(
        self, metrics: tuple[Metric, ...], alpha: float, rule: Rule, tolerance: float
    ) -> None:
        self._metrics = metrics
        self._alpha = alpha / len(metrics)
        self._rule: Rule = rule
        self._tolerance = tolerance
        self._lock = threading.Lock()
        self._outcomes: Counter[PairOutcome] = Counter()
        self._distance = BoundedMean(self._alpha)
        # By pair, in order of time: what is correlated shows in this order alone.
        self._seconds = _Rows(2, np.float64)
        self._distances = _Rows(1, np.float32)
        self._agreed = _Rows(1, np.int8)
        self._gained = _Rows(1, np.int8)
        """1 where only the challenger is right, -1 where only the champion is."""
        self._answered = _Rows(1, np.int8)
        """1 where only the challenger answers, -1 where only the champion does."""
        self._found: dict[Metric, tuple[int, Interval]] = {}
        self.failure = ""
        self.untimed = ""
        """Reason why the durations do not show the models' speed; "" if they do."""

    @property
    def count(self) -> int:
        """Pairs of which both sides are known."""
        with self._lock:
            missing = sum(self._outcomes[outcome] for outcome in MISSING_OUTCOMES)
            return self._outcomes.total() - missing

    @property
    def outcomes(self) -> dict[PairOutcome, int]:
        """Return how many pairs ended how."""
        with self._lock:
            return {outcome: self._outcomes[outcome] for outcome in PAIR_OUTCOMES}

    def add_missing(self, outcome: MissingOutcome) -> None:
        """Count a pair of which a side was still busy with an earlier request."""
        with self._lock:
            self._outcomes[outcome] += 1

    def add(self, champion: Answered, challenger: Answered, label: int | None) -> None:
        """Add one pair; `label` is the true class where it is known."""
        ours, theirs = champion.reply, challenger.reply
        between, rights = None, None
        if ours is not None and theirs is not None:
            try:
                between = apart(
                    ours.outputs, theirs.outputs, self._rule, self._tolerance
                )
                if label is not None and not (_is_text(ours) or _is_text(theirs)):
                    rights = (
                        predicted(ours.outputs) == label,
                        predicted(theirs.outputs) == label,
                    )
            except ProtocolError as error:
                # Either of the two may have failed: they do not agree.
                between, self.failure = Apart(agree=False, distance=1.0), str(error)
        with self._lock:
            self._outcomes[_outcome(ours, theirs)] += 1
            self._answered.add((theirs is not None) - (ours is not None))
            self.failure = champion.failure or challenger.failure or self.failure
            if ours is not None and theirs is not None:
                self._seconds.add(ours.duration_seconds, theirs.duration_seconds)
            if between is not None:
                self._agreed.add(between.agree)
                self._distance.add(between.distance)
                self._distances.add(between.distance)
            if rights is not None:
                self._gained.add(rights[1] - rights[0])

    def intervals(self) -> dict[Metric, Interval]:
        """Return the interval of each metric's effect; unknown ones are absent."""
        with self._lock:
            seconds = self._seconds.copy()
            agreed, gained, answered, distances = (
                rows.copy()[0]
                for rows in (
                    self._agreed,
                    self._gained,
                    self._answered,
                    self._distances,
                )
            )
            distance = self._distance.interval
            both, total = self._outcomes["both_missing"], self._outcomes.total()
            champion, challenger = (
                (self._outcomes[outcome] + both) / max(1, total)
                for outcome in MISSING_OUTCOMES[:2]
            )
        find: dict[Metric, Callable[[], Interval | None]] = {
            "agreement": lambda: _agreement(agreed, self._alpha),
            "output_distance": lambda: _mean(distances, distance, self._alpha),
            "accuracy": lambda: _difference(gained, self._alpha),
            "success": lambda: _difference(answered, self._alpha),
        }
        found: dict[Metric, Interval] = {}
        for metric in self._metrics:
            interval = (
                find[metric]() if metric in find else self._latency(metric, seconds)
            )
            if interval is not None:
                found[metric] = _without_missing(metric, interval, champion, challenger)
        return found

    def _latency(self, metric: Metric, seconds: Values) -> Interval | None:
        count = seconds.shape[1]
        known = self._found.get(metric)
        if known is not None and count < known[0] * (1 + _RECOMPUTED_AFTER):
            return known[1]
        interval = self._interval(metric, seconds)
        if interval is not None:
            self._found[metric] = (count, interval)
        return interval

    def _interval(self, metric: Metric, seconds: Values) -> Interval | None:
        champion, challenger = seconds
        count = len(champion)
        if not count:
            return None
        if metric in _QUANTILES:
            q = _QUANTILES[metric]
            interval = quantile_ratio(champion, challenger, q, self._alpha)
            few = count < LEAST_PAIRS
            why = f"{count} of at least {LEAST_PAIRS} pairs" if few else ""
        elif metric in _MEANS:
            interval = _MEANS[metric](champion, challenger, self._alpha)
            why = unseen_stalls(count)
        else:
            return None
        if interval is not None and (why := self.untimed or why):
            return open_ratio(interval.estimate, interval.pairs, why)
        return interval


class _Rows:
    """Columns of numbers in order of time, in an array that grows."""

    def __init__(self, rows: int, kind: type[np.generic]) -> None:
        self._held = np.empty((rows, 256), kind)
        self._count = 0

    def add(self, *column: float) -> None:
        """Append one column."""
        if self._count == self._held.shape[1]:
            self._held = np.concatenate((self._held, self._held), axis=1)
        self._held[:, self._count] = column
        self._count += 1

    def copy(self) -> Values:
        """Return all columns, as floats."""
        return self._held[:, : self._count].astype(np.float64)


def _without_missing(
    metric: Metric, interval: Interval, champion: float, challenger: float
) -> Interval:
    """Return what is known if these shares of the pairs had no champion or challenger.

    It was still busy with an earlier request: at best slow, at worst about to fail. What
    the missing pairs would have shown can only be worse than the others, so the end that
    speaks for that side opens (bounds of Manski, 2003, for missing outcomes).
    """
    if metric == "success":
        low, high = interval.low - challenger, interval.high + champion
        return replace(interval, low=max(-1.0, low), high=min(1.0, high))
    if metric not in _QUANTILES and metric not in _MEANS:
        return interval
    tolerated = _TOLERATED_MISSING * (1 - _QUANTILES.get(metric, _MEAN_QUANTILE))
    return without_missing(interval, champion, challenger, tolerated)


def _agreement(agreed: Values, alpha: float) -> Interval | None:
    """Share of pairs that agree, less 1."""
    found = sequence_inflation(agreed, bounded=True)
    if found is None:
        return _open(agreed, -1.0, 0.0, shift=-1.0)
    share = proportion(round(agreed.sum()), agreed.size, alpha, found.phi)
    return share and replace(
        share,
        estimate=share.estimate - 1,
        low=share.low - 1,
        high=share.high - 1,
    )


def _difference(signs: Values, alpha: float) -> Interval | None:
    """Share of pairs with 1 less the share with -1."""
    found = sequence_inflation(signs, bounded=True)
    if found is None:
        return _open(signs, -1.0, 1.0)
    gains, losses = (int(np.count_nonzero(signs == sign)) for sign in (1, -1))
    return paired_difference(gains, losses, signs.size, alpha, found.phi)


def _mean(values: Values, paired: Interval | None, alpha: float) -> Interval | None:
    """Mean of values in [0, 1]; `paired` is its interval if pairs are independent."""
    found = sequence_inflation(values)
    if found is None:
        return _open(values, 0.0, 1.0)
    if paired is None or found.phi <= 1.0:
        return paired
    length = 2 * found.length
    whole = values[: values.size // length * length]
    batches = BoundedMean(alpha)
    for mean in whole.reshape(-1, length).mean(axis=1).tolist():
        batches.add(mean)
    interval = batches.interval
    worth = values.size / found.phi
    return interval and replace(interval, pairs=values.size, effective_pairs=worth)


def _open(
    values: Values, low: float, high: float, *, shift: float = 0.0
) -> Interval | None:
    """An interval that claims nothing, with the reason; None before the first pair."""
    if not values.size:
        return None
    why = doubt(None, values.size)
    return Interval(float(values.mean()) + shift, low, high, values.size, 0.0, why)


def _outcome(champion: InferReply | None, challenger: InferReply | None) -> PairOutcome:
    if champion is None:
        return "both_failed" if challenger is None else "champion_failed"
    return "challenger_failed" if challenger is None else "both"


Rule = Literal["auto", "argmax", "close"]
_CLASSES: Final = 2


@dataclass(frozen=True, slots=True)
class Apart:
    """Comparison of two answers: agreement, and distance in [0, 1], 0 where they are equal."""

    agree: bool
    distance: float


def apart(
    champion: Sequence[OutputTensor],
    challenger: Sequence[OutputTensor],
    rule: Rule,
    tolerance: float,
) -> Apart:
    """Compare every output that both have.

    The distance of two float outputs is |a - b| / (|a| + |b|) in the Euclidean norm,
    which the triangle inequality keeps in [0, 1]; of others the share of unequal
    elements. The largest counts. NaN and Inf are equal to themselves alone.

    Raises:
        ProtocolError: an output's bytes do not fill its shape.
    """
    theirs = {output.name: output for output in challenger}
    agree, distance = True, 0.0
    for ours in champion:
        other = theirs.get(ours.name)
        if other is None:
            continue
        a, b = decode(ours), decode(other)
        if a.shape != b.shape:
            return Apart(agree=False, distance=1.0)
        floats = ours.datatype in FLOATS and other.datatype in FLOATS
        distance = max(distance, _distance(a, b) if floats else _unequal(a, b))
        agree = agree and _agree(a, b, rule, tolerance, floats=floats)
    return Apart(agree, distance)


def predicted(outputs: Sequence[OutputTensor]) -> int | None:
    """Return the class that the first output names or scores highest, or None.

    Raises:
        ProtocolError: its bytes do not fill its shape.
    """
    if not outputs:
        return None
    scores = decode(outputs[0])
    if outputs[0].datatype == "BYTES" or not scores.size:
        return None
    if scores.size == 1:
        value = float(scores.flat[0])
        return round(value) if np.isfinite(value) else None
    flat = scores.reshape(-1)
    if outputs[0].datatype in FLOATS and not np.isfinite(flat.astype(float)).all():
        return None
    return int(flat.argmax())


def _is_text(reply: InferReply) -> bool:
    """Return whether the output that `predicted` reads has no numbers."""
    return bool(reply.outputs) and reply.outputs[0].datatype == "BYTES"


def _distance(a: Array, b: Array) -> float:
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    odd = ~(np.isfinite(x) & np.isfinite(y))
    if odd.any():
        if not np.array_equal(x[odd], y[odd], equal_nan=True):
            return 1.0
        x, y = x[~odd], y[~odd]
    largest = max(np.abs(x).max(initial=0), np.abs(y).max(initial=0))
    if not largest:
        return 0.0
    # Scaled, since squares of large values overflow and of small ones vanish.
    x, y = x / largest, y / largest
    lengths = float(np.linalg.norm(x) + np.linalg.norm(y))
    return min(1.0, float(np.linalg.norm(x - y)) / lengths)


def _unequal(a: Array, b: Array) -> float:
    return float(np.mean(a != b)) if a.size else 0.0


def _agree(a: Array, b: Array, rule: Rule, tolerance: float, *, floats: bool) -> bool:
    if not floats:
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    classes = x.ndim > 0 and x.shape[-1] >= _CLASSES
    if rule == "argmax" or (rule == "auto" and classes):
        finite = np.isfinite(x).all() and np.isfinite(y).all()
        same = x.size == 0 or np.array_equal(x.argmax(-1), y.argmax(-1))
        return bool(same and (finite or np.array_equal(x, y, equal_nan=True)))
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance / 1e3, equal_nan=True))
