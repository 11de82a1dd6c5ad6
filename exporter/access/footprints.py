"""Learns which models a model calls by itself, from what our requests to it raise.

A Python model may call others (BLS), which no configuration says. A request of ours to it
is bracketed by two reads of all statistics; what rose between them is a call of that
request, production, or another request of ours. The second smallest rise over all brackets
is an upper bound of the calls of one request. (Not the smallest: one bracket may miss what
Triton books late.) It is taken where few other requests fall into a bracket. Elsewhere the
calls are what rises above the model's usual rate, if that is significant; if not, none is
assumed: 16 brackets cannot tell one call from none among many others.

Until a model's calls are known, what rose above the usual rate is held back; then as much
as was called is ours, and the rest production. A model that calls others for some requests
only is taken for one that calls none. What is known is checked from time to time: two
requests of 16 that raised less correct it.

The reads take a small share of the time, so that with many models only some requests are
bracketed; and with very many, the calls of only some models are learnt.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from exporter.access.own_traffic import HELD_BACK, NOTHING, Booking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.triton.model import ModelSpec

    Rises = Mapping[ModelKey, Booking]

_BRACKETS_WITHOUT_CALLS: Final = 2
_BRACKETS_THAT_AGREE: Final = 6
_MOST_BRACKETS: Final = 16
_FEW_OTHERS: Final = 1.5
_STANDARD_ERRORS: Final = 2.0
_MOST_UNUSED: Final = 8
"""Requests that end otherwise until undecided rises are given up."""
_MOST_TRIES: Final = 64
"""So many requests are bracketed at most; then what is known has to do."""
_SPACE_SECONDS: Final = 0.4
"""From one bracket of a model to its next."""
_REQUESTS_PER_CHECK: Final = 10
"""One request in so many to a model with known calls is bracketed, to check them."""
_SHARE_OF_TIME: Final = 0.02
"""Share of the time that all brackets together may spend on reading statistics."""
_CREDIT_SECONDS: Final = 60.0
"""Seconds that may be spent at once: enough for a hundred models at the start."""
_MOST_PAIRS: Final = 10_000
"""Models that may call, times models that may be called: what memory is kept for."""


class Bracket(NamedTuple):
    """The rises in the statistics around one request."""

    rises: Rises
    ours: Rises = MappingProxyType({})
    """Of those that other requests of ours may have raised, by how much about."""
    totals: Mapping[ModelKey, int] = MappingProxyType({})
    """Requests that Triton had counted at its beginning."""
    began: float = 0.0
    seconds: float = 0.0
    surely_ours: Mapping[ModelKey, int] = MappingProxyType({})
    """Requests that others of ours have surely raised."""

    @property
    def ended(self) -> float:
        """When its second read was over."""
        return self.began + self.seconds


class _Evidence:
    """The brackets of requests to one model version that ended alike."""

    def __init__(self) -> None:
        self.calls: dict[ModelKey, Booking] = {}
        """For each model of which it is known; `NOTHING` if it is not called."""
        self.waiting: dict[ModelKey, Booking] = {}
        """Rises of the others, all requests together: calls or production."""
        self._rises: dict[ModelKey, list[Booking]] = {}
        self._others: dict[ModelKey, list[float]] = {}
        self._clear: dict[ModelKey, list[Booking]] = {}
        self._requests = 0
        self.unused = 0
        """Requests that ended otherwise since the latest of these."""

    def given_up(self) -> Rises:
        """Return rises whose decision will not come; called for each request that ends otherwise."""
        self.unused += 1
        if not self.waiting or self.unused < _MOST_UNUSED:
            return {}
        waiting, self.waiting, self._requests = self.waiting, {}, 0
        self._rises, self._others, self._clear = {}, {}, {}
        return waiting

    def add(
        self,
        bracket: Bracket,
        usual: Mapping[ModelKey, float],
        present: Collection[ModelKey],
        *,
        is_last: bool,
    ) -> dict[ModelKey, Booking]:
        """Take in one request; returns what it and those before it have called.

        `usual` requests would have shown in its bracket without it. With `is_last` every
        model is known afterwards, as well as it can be.
        """
        self._requests += 1
        called: dict[ModelKey, Booking] = {}
        for key in present:
            surely_ours = bracket.surely_ours.get(key, 0)
            rise = _less(bracket.rises.get(key, NOTHING), surely_ours)
            if key in self.calls:
                self._check(key, rise)
                called[key] = self.calls[key]
                continue
            rises = self._rises.setdefault(key, [])
            clear = self._clear.setdefault(key, [])
            others = self._others.setdefault(key, [])
            rises.append(rise)
            ours = bracket.ours.get(key, NOTHING).requests
            others.append(max(usual.get(key, 0.0), ours) - surely_ours)
            if key not in bracket.ours:
                clear.append(rise)
            if is_last or _is_enough(rises, clear):
                calls = _estimate(rises, others)
                self.calls[key] = calls
                called[key] = _times(calls, self._requests)
                self.waiting.pop(key, None)
                del self._rises[key], self._clear[key], self._others[key]
            elif rise != NOTHING:
                # What rises all the time is not ours; less than one request may be.
                excess = max(0, rise.requests - math.floor(usual.get(key, 0.0)))
                held = _scaled(rise, excess)
                self.waiting[key] = self.waiting.get(key, NOTHING) + held
        return called

    def _check(self, key: ModelKey, rise: Booking) -> None:
        """Correct calls that two of the latest requests have not made."""
        if self.calls[key] == NOTHING:
            return
        rises = self._rises.setdefault(key, [])
        rises.append(rise)
        most = _combined(rises)
        if len(rises) > 1 and most.requests < self.calls[key].requests:
            self.calls[key] = most
        if len(rises) >= _MOST_BRACKETS or self.calls[key] == NOTHING:
            del self._rises[key]


class _Learned:
    """What is known of one model version; requests that fail have calls of their own."""

    def __init__(self) -> None:
        self.tries = 0
        self.since_check = 0
        self.has_failed = False
        self.is_silent = False
        self.present: frozenset[ModelKey] = frozenset()
        self.last: Bracket | None = None
        self.evidence = {False: _Evidence(), True: _Evidence()}

    def usual(self, bracket: Bracket) -> dict[ModelKey, float]:
        """Requests in so long a time, by the rates between the bracket before and this."""
        before, self.last = self.last, bracket
        if before is None:
            return {}
        between = bracket.began - before.began - before.seconds
        if between <= bracket.seconds / 2:
            return {}
        share = bracket.seconds / between
        return {
            key: share
            * max(
                0,
                total
                - before.totals.get(key, total)
                - before.rises.get(key, NOTHING).requests,
            )
            for key, total in bracket.totals.items()
        }

    def calls(self, *, failed: bool) -> Rises:
        evidence, other = self.evidence[failed], self.evidence[not failed]
        calls = evidence.calls or other.calls
        return {key: booking for key, booking in calls.items() if booking != NOTHING}


class Footprints:
    """The calls of every Python model that was asked. Thread-safe."""

    def __init__(
        self,
        *,
        credit_seconds: float = _CREDIT_SECONDS,
        space_seconds: float = _SPACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._learned: dict[ModelKey, _Learned] = {}
        self._space_seconds = space_seconds
        self._most_credit = self._credit = credit_seconds
        self._credited_at = clock()
        self._clock = clock

    def calls(self, spec: ModelSpec) -> Rises:
        """Return what the next request raises elsewhere, so far as is known."""
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            return {} if learned is None else learned.calls(failed=learned.has_failed)

    def wants_bracket(self, spec: ModelSpec, present: Collection[ModelKey]) -> bool:
        """Say whether to bracket the next request; `present` are all models."""
        key = (spec.name, spec.version)
        with self._lock:
            learned = self._learned.get(key)
            if learned is None:
                if (len(self._learned) + 1) * len(present) > _MOST_PAIRS:
                    return False
                learned = self._learned[key] = _Learned()
            if not learned.present.issuperset(present):
                # What it could not call before it may call now.
                learned.present |= frozenset(present)
                learned.tries = 0
            if learned.is_silent or learned.tries >= _MOST_TRIES:
                return False
            # Between two brackets the usual rate is measured.
            if (
                learned.last
                and self._clock() < learned.last.ended + self._space_seconds
            ):
                return False
            known = learned.evidence[learned.has_failed].calls
            if known.keys() >= learned.present or not self._has_credit():
                return False
            learned.tries += 1
            return True

    def wants_check(self, spec: ModelSpec) -> bool:
        """Say whether to bracket the next request to check its known calls."""
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            if (
                learned is None
                or learned.is_silent
                or not learned.calls(failed=learned.has_failed)
            ):
                return False
            learned.since_check += 1
            if learned.since_check < _REQUESTS_PER_CHECK or not self._has_credit():
                return False
            learned.since_check = 0
            return True

    def has_read(self, seconds: float) -> None:
        """Count the time that was spent on reading statistics."""
        with self._lock:
            self._credit -= seconds

    def _has_credit(self) -> bool:
        now = self._clock()
        earned = (now - self._credited_at) * _SHARE_OF_TIME
        self._credit = min(self._most_credit, self._credit + earned)
        self._credited_at = now
        return self._credit > 0

    def add(self, spec: ModelSpec, bracket: Bracket | None, *, failed: bool) -> Rises:
        """Take in a request that was answered; returns what is known to be called.

        `failed` is whether the answer was an error; `bracket` is None where none was
        read. The calls returned may be those of earlier requests too.
        """
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            if learned is None:
                return {}
            learned.has_failed, learned.is_silent = failed, False
            given_up = learned.evidence[not failed].given_up()
            learned.evidence[failed].unused = 0
            if bracket is None:
                return _sum(learned.calls(failed=failed), given_up)
            is_last = learned.tries >= _MOST_TRIES
            evidence = learned.evidence[failed]
            usual = learned.usual(bracket)
            called = evidence.add(bracket, usual, learned.present, is_last=is_last)
            return _sum(called, given_up)

    def waiting(self) -> Rises:
        """What rose around requests of ours and is still to be decided, by model."""
        found: dict[ModelKey, Booking] = {}
        with self._lock:
            for learned in self._learned.values():
                for key, rise in _undecided(learned).items():
                    found[key] = found.get(key, NOTHING) + rise
        return found

    def unanswered(self, spec: ModelSpec) -> None:
        """Bracket no further request until one is answered."""
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            if learned is not None:
                learned.is_silent = True

    def forget(self, key: ModelKey) -> Rises:
        """Begin anew for a model that was loaded again; returns what was undecided."""
        with self._lock:
            learned = self._learned.pop(key, None)
        return {} if learned is None else _undecided(learned)


def _sum(one: Rises, other: Rises) -> Rises:
    if not other:
        return one
    keys = one.keys() | other.keys()
    return {key: one.get(key, NOTHING) + other.get(key, NOTHING) for key in keys}


def _undecided(learned: _Learned) -> Rises:
    found: dict[ModelKey, Booking] = {}
    for evidence in learned.evidence.values():
        for key, rise in evidence.waiting.items():
            found[key] = found.get(key, NOTHING) + rise
    return found


def _is_enough(rises: Sequence[Booking], clear: Sequence[Booking]) -> bool:
    calls = _combined(rises)
    if calls == NOTHING:
        return len(rises) >= _BRACKETS_WITHOUT_CALLS
    agreed = all(rise == calls for rise in clear)
    return len(rises) >= _MOST_BRACKETS or (
        agreed and len(clear) >= _BRACKETS_THAT_AGREE
    )


def _times(calls: Booking, count: int) -> Booking:
    batches = {size: count * number for size, number in calls.batches.items()}
    return Booking(count * calls.requests, count * calls.inferences, batches)


def _estimate(rises: Sequence[Booking], others: Sequence[float]) -> Booking:
    """The calls of one request, of which `others` would have shown in each bracket."""
    calls = _combined(rises)
    # Of 16 brackets with so few others, nearly always two have none.
    if calls == NOTHING or statistics.fmean(others) <= _FEW_OTHERS:
        return calls
    excess = [rise.requests - o for rise, o in zip(rises, others, strict=True)]
    mean = statistics.fmean(excess)
    spread = statistics.stdev(excess) if len(excess) > 1 else 0.0
    error = _STANDARD_ERRORS * spread / math.sqrt(len(excess))
    count = min(round(mean), calls.requests) if mean - error > 1 / 2 else 0
    return _scaled(calls, count)


def _less(booking: Booking, requests: int) -> Booking:
    """Without so many requests."""
    if not requests:
        return booking
    return _scaled(booking, max(0, booking.requests - requests))


def _scaled(booking: Booking, requests: int) -> Booking:
    """So many requests of those of `booking`."""
    if requests == booking.requests:
        return booking
    if not requests:
        return NOTHING
    share = requests / booking.requests
    batches = {size: round(share * count) for size, count in booking.batches.items()}
    return Booking(
        requests,
        round(share * booking.inferences),
        {size: count for size, count in batches.items() if count},
    )


def _combined(rises: Sequence[Booking]) -> Booking:
    """The second smallest of each number."""
    batches = {
        size: _second([rise.executions(size) for rise in rises])
        for size in {size for rise in rises for size in rise.batches}
    }
    return Booking(
        _second([rise.requests for rise in rises]),
        _second([rise.inferences for rise in rises]),
        {size: count for size, count in batches.items() if count},
    )


def _second(values: Sequence[int]) -> int:
    ordered = sorted(values)
    return min(ordered[min(1, len(ordered) - 1)], HELD_BACK)
