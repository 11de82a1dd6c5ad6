"""Tokens of all models, and the busy time of those whose backend answers by itself.

A decoupled model may release its requests as soon as it has accepted them: Triton's
statistics then show milliseconds of work for answers that take seconds. If its backend sums
the times of its tokens, their increase between two reads is the time it worked, at most the
time between the reads, since requests run concurrently. That is exact for consecutive
requests and for a model that is never idle; in between, it is too long by the time in which
requests overlapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.access.own_traffic import OwnCounts
from exporter.features.statistics.token_counts import (
    TokenCounts,
    TokenEstimate,
    TokenRead,
    own_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.production_counts import Production
    from exporter.features.statistics.server_page import Page
    from exporter.samples import Sample

_NONE: Final = OwnCounts()


_NO_ESTIMATE: Final = TokenEstimate()


@dataclass(slots=True)
class BusyTime:
    """Seconds of work: at each read the longer of what statistics and backend report."""

    busy: float = 0.0
    production: float = 0.0
    is_reported: bool = False
    """True if the backend reports times of its tokens."""
    _at: float = 0.0
    _statistics: tuple[float, float] = (0.0, 0.0)
    _backend: float = 0.0
    _tokens: float = 0.0
    _own: int = 0
    _owed: int = 0
    """Own tokens whose answers are known, and which the backend did not show yet."""
    _share: float = 1.0
    _rises: tuple[float, float] = (0.0, 0.0)
    """Seconds of all and of production added since the page was last read."""

    def advance(
        self,
        at: float,
        statistics: tuple[float, float],
        page: Mapping[str, float] | None,
        ours: int,
    ) -> None:
        """Add what rose until `at`; `statistics` are seconds of all and of production.

        `ours` are the output tokens of our own requests so far.
        """
        rise, production = (
            now - then for now, then in zip(statistics, self._statistics, strict=True)
        )
        self._statistics = statistics
        self.busy += rise
        self.production += production
        self._rises = self._rises[0] + rise, self._rises[1] + production
        if page is not None and "token_seconds" in page:
            seconds = page["token_seconds"] + page.get("first_seconds", 0.0)
            tokens = page.get("output", 0.0)
            spent = seconds - self._backend if seconds >= self._backend else seconds
            made = tokens - self._tokens if tokens >= self._tokens else tokens
            self._owed = max(0, self._owed + ours - self._own)
            self._own = ours
            if made > 0:
                seen = min(self._owed, made)
                self._owed -= round(seen)
                self._share = 1.0 - seen / made
            worked = min(spent, at - self._at)
            if self.is_reported and worked > self._rises[0]:
                self.busy += worked - self._rises[0]
                # A counter: what the statistics took for production is not taken back.
                self.production += max(0.0, worked * self._share - self._rises[1])
            self.is_reported = True
            self._rises = 0.0, 0.0
            self._backend, self._tokens, self._at = seconds, tokens, at


class GeneratedWork:
    """Token counts and busy times of all models."""

    def __init__(self, access: Access, estimates: Mapping[str, TokenEstimate]) -> None:
        self._access = access
        self._estimates = estimates
        self._tokens: dict[ModelKey, TokenCounts] = {}
        """Counts of the models with a source of tokens."""
        self._first: frozenset[ModelKey] | None = None
        """Models of the first read."""
        self._page_read = False
        self._busy: dict[ModelKey, BusyTime] = {}

    def advance(
        self,
        at: float,
        page: Page | None,
        models: Mapping[ModelKey, Production],
        ledgers: tuple[Mapping[ModelKey, OwnCounts], Mapping[ModelKey, OwnCounts]],
    ) -> Iterator[Sample]:
        """Add one read; `ledgers` are ours before and after it."""
        before, after = ledgers
        if self._first is None:
            self._first = frozenset(models)
        for key, production in models.items():
            own = after.get(key, _NONE)
            backend = None if page is None else page.backend.get(key, {})
            seconds = production.all_busy_ns / 1e9, production.totals.busy_ns / 1e9
            busy = self._busy.setdefault(key, BusyTime())
            traced = self._access.work.traced.get(key)
            ours, _ = own_tokens(own, "output", one_each=traced is not None)
            busy.advance(at, seconds, backend, ours)
            estimate = self._estimates.get(key[0], _NO_ESTIMATE)
            if key not in self._tokens:
                if not backend and traced is None and estimate is _NO_ESTIMATE:
                    continue
                is_new = self._page_read or key not in self._first
                self._tokens[key] = TokenCounts(is_new)
            counts = self._tokens[key]
            own_before = before.get(key, _NONE)
            requests = production.totals.success
            read = TokenRead(requests, own_before, own, backend, traced, estimate)
            counts.advance(read)
            yield from counts.samples(key)
        self._page_read = self._page_read or page is not None

    def busy(self, key: ModelKey) -> BusyTime:
        """Return the busy time of a model."""
        return self._busy[key]

    def output_tokens(self, key: ModelKey) -> float | None:
        """Return production's output tokens; None if they or their busy time are unknown."""
        spec = self._access.board.current.models.get(key)
        if spec is not None and spec.decoupled and not self._busy[key].is_reported:
            return None
        counts = self._tokens.get(key)
        return None if counts is None else counts.total("output")

    def server_gone(self, own: Mapping[ModelKey, OwnCounts]) -> None:
        """Record our tokens that the server had answered when it became unreachable."""
        for key, counts in self._tokens.items():
            counts.server_gone(own.get(key, _NONE))

    def another_server(self) -> None:
        """Continue all totals from what another server reports at the next read."""
        for counts in self._tokens.values():
            counts.another_server()
        for busy in self._busy.values():
            busy.is_reported = False

    def forget(self, key: ModelKey) -> None:
        """Forget a model version that was unloaded."""
        self._tokens.pop(key, None)
        self._busy.pop(key, None)
