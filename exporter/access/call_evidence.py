"""The calls of one model's requests, inferred from the statistics around each.

The second smallest rise over all brackets is an upper bound of the calls of one request.
(Not the smallest: one bracket may miss what Triton books late.) It is taken where few other
requests fall into a bracket. Elsewhere the calls are what rises above the model's usual
rate, if that is significant; if not, none is assumed: 16 brackets cannot tell one call from
none among many others.
"""

from __future__ import annotations

import math
import statistics
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from exporter.access.own_traffic import HELD_BACK, NOTHING, Booking

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from exporter.access.inventory import ModelKey

    Rises = Mapping[ModelKey, Booking]

_BRACKETS_WITHOUT_CALLS: Final = 2
_BRACKETS_THAT_AGREE: Final = 6
_MOST_BRACKETS: Final = 16
_FEW_OTHERS: Final = 1.5
_MANY_OTHERS: Final = 5.0
_STANDARD_ERRORS: Final = 2.0
_MOST_UNUSED: Final = 8
"""Requests that end otherwise until undecided rises are given up."""


class Bracket(NamedTuple):
    """Increases of the statistics around one request."""

    rises: Rises
    ours: Rises = MappingProxyType({})
    """Part of the increases that other requests of ours may have caused, approximately."""
    totals: Mapping[ModelKey, int] = MappingProxyType({})
    """Requests that Triton had counted at its beginning."""
    began: float = 0.0
    seconds: float = 0.0
    surely_ours: Mapping[ModelKey, int] = MappingProxyType({})
    """Requests that others of ours have certainly caused."""

    @property
    def ended(self) -> float:
        """Time at which its second read was complete."""
        return self.began + self.seconds


class CallEvidence:
    """Brackets of requests to one model version with the same outcome."""

    def __init__(self) -> None:
        self.calls: dict[ModelKey, Booking] = {}
        """Calls by model, as far as known; `NOTHING` if a model is not called."""
        self.waiting: dict[ModelKey, Booking] = {}
        """Increases of other models over all requests: calls or production."""
        self._rises: dict[ModelKey, list[Booking]] = {}
        self._others: dict[ModelKey, list[float]] = {}
        self._clear: dict[ModelKey, list[Booking]] = {}
        self._requests = 0
        self.unused = 0
        """Requests with another outcome since the latest of these."""

    def given_up(self) -> Rises:
        """Return increases that stay undecided; called for each request with another outcome."""
        self.unused += 1
        if not self.waiting or self.unused < _MOST_UNUSED:
            return {}
        waiting, self.waiting, self._requests = self.waiting, {}, 0
        self._rises, self._others, self._clear = {}, {}, {}
        return waiting

    def decided_now(self) -> Rises:
        """Return the calls of the requests so far, as far as known; reset them."""
        called = {
            key: _times(_estimate(self._rises[key], self._others[key]), self._requests)
            for key in self.waiting
        }
        self.waiting, self._requests = {}, 0
        self._rises, self._others, self._clear = {}, {}, {}
        return called

    def add(
        self,
        bracket: Bracket,
        usual: Mapping[ModelKey, float],
        present: Collection[ModelKey],
        *,
        is_last: bool,
    ) -> dict[ModelKey, Booking]:
        """Add one request; return the calls of it and of those before it.

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
                # What rises all the time is not ours. A few may be: other models that we
                # ask call the same ones.
                others_usual = usual.get(key, 0.0)
                not_ours = (
                    math.floor(others_usual) if others_usual >= _MANY_OTHERS else 0
                )
                held = _less(rise, not_ours)
                self.waiting[key] = self.waiting.get(key, NOTHING) + held
        return called

    def add_unseen(self) -> dict[ModelKey, Booking]:
        """Add a request that was not bracketed; return its certain calls.

        What it may have called besides is held back, by the brackets so far.
        """
        if self._rises:
            self._requests += 1
        for key, rises in self._rises.items():
            held = NOTHING if key in self.calls else _estimate(rises, self._others[key])
            if held != NOTHING:
                self.waiting[key] = self.waiting.get(key, NOTHING) + held
        return {key: calls for key, calls in self.calls.items() if calls != NOTHING}

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
    """Return the booking without this number of requests."""
    if not requests:
        return booking
    return _scaled(booking, max(0, booking.requests - requests))


def _scaled(booking: Booking, requests: int) -> Booking:
    """Return this number of requests of those in `booking`."""
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
