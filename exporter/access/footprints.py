"""Learns which models a model calls by itself, from the statistics around our requests.

A Python model may call others (BLS), which no configuration says. A request of ours to it
is bracketed by two reads of all statistics; what rose between them is a call of that
request, production, or another request of ours (`call_evidence.py`).

Until a model's calls are known, what rose above the usual rate is held back; then as much
as was called is ours, and the rest production. A model that calls others for some requests
only is taken for one that calls none. What is known is checked from time to time: two
requests of 16 that raised less correct it.

The reads take a small share of the time, so that with many models only some requests are
bracketed; and with very many, the calls of only some models are learnt.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from exporter.access.call_evidence import CallEvidence
from exporter.access.own_traffic import NOTHING, Booking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from exporter.access.call_evidence import Bracket, Rises
    from exporter.access.inventory import ModelKey
    from exporter.triton.model import ModelSpec

_PATIENCE_SECONDS: Final = 30.0
"""Time without a request after which a model's calls are decided from its brackets."""
_MOST_TRIES: Final = 64
"""Maximum of bracketed requests; after that the calls are decided from them."""
_SPACE_SECONDS: Final = 0.4
"""Time between two brackets of a model."""
_REQUESTS_PER_CHECK: Final = 10
"""One request in ten to a model with known calls is bracketed, as a check."""
_SHARE_OF_TIME: Final = 0.02
"""Share of the time that all brackets together may spend on reading statistics."""
_CREDIT_SECONDS: Final = 60.0
"""Seconds that may be spent at once: enough for a hundred models at the start."""
_MOST_PAIRS: Final = 10_000
"""Limit of calling models times called models, which bounds memory."""


class _Learned:
    """The calls known of one model version; failed requests have calls of their own."""

    def __init__(self) -> None:
        self.tries = 0
        self.since_check = 0
        self.has_failed = False
        self.is_silent = False
        self.present: frozenset[ModelKey] = frozenset()
        self.last: Bracket | None = None
        self.evidence = {False: CallEvidence(), True: CallEvidence()}

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

    def is_complete(self, *, failed: bool) -> bool:
        known = self.evidence[failed].calls
        return self.tries >= _MOST_TRIES or known.keys() >= self.present

    def calls(self, *, failed: bool) -> Rises:
        evidence, other = self.evidence[failed], self.evidence[not failed]
        calls = evidence.calls or other.calls
        return {key: booking for key, booking in calls.items() if booking != NOTHING}


class Footprints:
    """The calls of every Python model that got a request. Thread-safe."""

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
        """Return the known increases of other models by the next request."""
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            return {} if learned is None else learned.calls(failed=learned.has_failed)

    def wants_bracket(self, spec: ModelSpec, present: Collection[ModelKey]) -> bool:
        """Return whether to bracket the next request; `present` are all models."""
        key = (spec.name, spec.version)
        with self._lock:
            learned = self._learned.get(key)
            if learned is None:
                if (len(self._learned) + 1) * len(present) > _MOST_PAIRS:
                    return False
                learned = self._learned[key] = _Learned()
            if not learned.present.issuperset(present):
                # It may call models now that it could not call before.
                learned.present |= frozenset(present)
                learned.tries = 0
            if learned.is_silent:
                return False
            # Between two brackets the usual rate is measured.
            if (
                learned.last
                and self._clock() < learned.last.ended + self._space_seconds
            ):
                return False
            if learned.is_complete(failed=learned.has_failed) or not self._has_credit():
                return False
            learned.tries += 1
            return True

    def are_known(self, spec: ModelSpec) -> bool:
        """Return whether all calls of the next request are known."""
        with self._lock:
            learned = self._learned.get((spec.name, spec.version))
            return (
                learned is None
                or learned.is_silent
                or learned.is_complete(failed=learned.has_failed)
            )

    def wants_check(self, spec: ModelSpec) -> bool:
        """Return whether to bracket the next request to check its known calls."""
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
        """Add a request that was answered; return its known calls.

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
            evidence = learned.evidence[failed]
            if bracket is None:
                if learned.is_complete(failed=failed):
                    return _sum(learned.calls(failed=failed), given_up)
                return _sum(evidence.add_unseen(), given_up)
            is_last = learned.tries >= _MOST_TRIES
            usual = learned.usual(bracket)
            called = evidence.add(bracket, usual, learned.present, is_last=is_last)
            return _sum(called, given_up)

    def overdue(self) -> Rises:
        """Decide for models without recent requests; return their calls."""
        called: Rises = {}
        with self._lock:
            before = self._clock() - _PATIENCE_SECONDS
            for learned in self._learned.values():
                if learned.last is not None and learned.last.ended < before:
                    for evidence in learned.evidence.values():
                        called = _sum(called, evidence.decided_now())
        return called

    def waiting(self) -> Rises:
        """Return rises around our requests that are still to be decided, by model."""
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
        """Reset a model that was loaded again; return its undecided calls."""
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
