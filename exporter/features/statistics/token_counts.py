"""Production's tokens, from the best available source.

A backend's counters include the tokens of everybody's requests and start over with a
reload. The tokens that answers to our own requests report are subtracted. The backend
may count a token of ours before or after we have its answer, so its counters are
compared with the ledger of our requests while none of them is under way, or once those
that were under way at the read of the counters have ended; the total is the highest
difference so far. It is too high by at most the tokens of requests whose tokens are
unknown (`OwnTokens.unknown`), and exact as soon as our requests pause.

Tokens that a backend counted between the last read and its end are lost. Our own tokens
among them are known if the server was seen to be gone; after a reload they are
subtracted from what is counted next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import Field

from exporter import catalogue
from exporter.access.own_traffic import NOTHING, OwnCounts
from exporter.access.work_board import Direction, KnownTokens, ModelWork
from exporter.features.statistics.busy_time import BusyTime
from exporter.samples import Sample
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.production_counts import Production
    from exporter.features.statistics.server_page import Page

DIRECTIONS: Final[tuple[Direction, ...]] = ("input", "output")
_MOST_WAITS: Final = 12
_MEAN_READS: Final = 60
"""Number of reads over whose requests the mean number of tokens is taken."""
_MOST_UNKNOWN: Final = 10_000
"""Requests of production to which a mean applies: Triton traces 1 in 1,000 by default."""


class TokenEstimate(Settings):
    """Mean tokens of a request, for models that report none."""

    input: float | None = Field(default=None, ge=0, le=1e9)
    """Tokens of the prompt."""
    output: float | None = Field(default=None, ge=0, le=1e9)
    """Tokens of the answer."""


@dataclass(frozen=True, slots=True)
class TokenRead:
    """Everything known of one model version at one read of the statistics."""

    requests: int
    """Successful requests of production so far."""
    own_before: OwnCounts
    """The ledger of our own requests before the page was read."""
    own: OwnCounts
    """The same after the page was read."""
    page: Mapping[str, float] | None
    """Values of its backend by field; None if the metrics page could not be read."""
    traced: KnownTokens | None
    """Traced responses; None unless each response is one token."""
    estimate: TokenEstimate
    """As configured."""
    answered: Mapping[Direction, KnownTokens] = field(default_factory=dict)
    """Mirrored answers that report their tokens."""


@dataclass(slots=True)
class _BackendTotal:
    """One counter of a backend, less the tokens of our own requests."""

    base: float
    value: float = 0.0
    """Value at the last read."""
    ended: float = 0.0
    """Sum of the last values of counters that started over."""
    lost: float = 0.0
    """Tokens of our own requests that no counter showed before it started over."""
    own: float = 0.0
    """Tokens of our own requests at the last read."""
    own_when_gone: float | None = None
    awaited: tuple[float, frozenset[int]] | None = None
    """Tokens counted at a read, and the own requests then under way, which have to end
    before the ledger includes theirs."""
    total: float = 0.0
    is_another: bool = False
    """True if the next value is of another server."""
    counted_elsewhere: float = 0.0
    """Tokens since the last read that other sources counted, and the next value includes."""

    def advance(self, value: float, own: float, requests: OwnCounts) -> None:
        if self.counted_elsewhere or self.is_another:
            self.awaited = None
        self.base += self.counted_elsewhere
        self.counted_elsewhere = 0.0
        if self.is_another:
            self.is_another = False
            self.ended = self.lost = 0.0
            self.base = value - own - self.total
        elif value < self.value:
            self.ended += self.value
            if self.own_when_gone is not None:
                self.lost += max(0.0, self.own_when_gone - self.own)
        self.value, self.own, self.own_when_gone = value, own, None
        counted, under_way = self.ended + value - self.base, requests.under_way
        if self.awaited is None or not under_way:
            self.awaited = counted, under_way
        if self.awaited[1].isdisjoint(under_way):
            self.total = max(self.total, self.awaited[0] - (own - self.lost))
            self.awaited = (counted, under_way) if under_way else None


@dataclass(slots=True)
class _RecentMean:
    """Mean tokens of a request at the latest reads."""

    value: float | None = None
    """The previous one while no request comes; None before the first."""
    _unknown: int = 0
    """Requests since the latest one whose tokens are known."""
    _reads: deque[KnownTokens] = field(
        default_factory=lambda: deque([KnownTokens(0, 0)], maxlen=_MEAN_READS)
    )

    def advance(self, known: KnownTokens | None, requests: int) -> float | None:
        """Return the mean with one more read, in which production did `requests`."""
        if known is None:
            return None
        first, latest = self._reads[0], self._reads[-1]
        is_news = known.requests > latest.requests
        self._unknown = 0 if is_news else self._unknown + requests
        self._reads.append(known)
        if known.requests > first.requests:
            rise = known.tokens - first.tokens
            self.value = rise / (known.requests - first.requests)
        return self.value if self._unknown <= _MOST_UNKNOWN else None


@dataclass(slots=True)
class TokenCounts:
    """Tokens of one model version, from its first read on.

    `is_new` is whether it came, or its backend began to count, while we watched: all
    that is counted is ours to count then.
    """

    is_new: bool
    _waits: int = 0
    _unread: int = 0
    """Consecutive reads without the page."""
    _requests: int = 0
    _backend: dict[Direction, _BackendTotal] = field(default_factory=dict)
    _unknown: dict[Direction, int] = field(default_factory=dict)
    _others: dict[tuple[Direction, str], float] = field(default_factory=dict)
    _traced: _RecentMean = field(default_factory=_RecentMean)
    _answered: dict[Direction, _RecentMean] = field(
        default_factory=lambda: {one: _RecentMean() for one in DIRECTIONS}
    )
    _untraced: int = 0
    """Output requests without a mean, which count once there is one."""
    _one_each: bool = False
    """True if each response is one token."""
    _guessed: dict[Direction, float] = field(default_factory=dict)
    """Tokens of other sources while the page, and so the backend, could not be read."""

    def advance(self, read: TokenRead) -> None:
        """Add what production did since the read before."""
        requests = read.requests - self._requests
        self._requests = read.requests
        mean = self._traced.advance(read.traced, requests)
        self._one_each = read.traced is not None
        self._unread = self._unread + 1 if read.page is None else 0
        for direction in DIRECTIONS:
            known = read.answered.get(direction)
            answered = self._answered[direction].advance(known, requests)
            if self._count_backend(direction, read):
                continue
            if answered is not None:
                self._add(direction, "answers", requests * answered)
            elif mean is not None and direction == "output":
                self._add(direction, "responses", (self._untraced + requests) * mean)
                self._untraced = 0
            elif (tokens := getattr(read.estimate, direction)) is not None:
                self._add(direction, "estimate", requests * tokens)
            elif read.traced:
                self._untraced += requests * (direction == "output")
        if read.page is not None:
            self._guessed.clear()

    def server_gone(self, own: OwnCounts) -> None:
        """Record our tokens that the server had answered when it became unreachable."""
        for direction, total in self._backend.items():
            if total.own_when_gone is None:
                total.own_when_gone = float(
                    own_tokens(own, direction, one_each=self._one_each)[0]
                )

    def another_server(self) -> None:
        """Continue the totals from what another server reports at the next read."""
        for total in self._backend.values():
            total.is_another = True

    @property
    def awaits_quiet(self) -> bool:
        """True if we should send nothing during the next read."""
        return bool(self._waits) and not self._backend

    def total(self, direction: Direction) -> float | None:
        """Return the tokens of all sources, or None without a source."""
        found = [n for (d, _), n in self._others.items() if d == direction]
        if direction in self._backend:
            found.append(self._backend[direction].total)
        return sum(found) if found else None

    def samples(self, key: ModelKey) -> Iterator[Sample]:
        """Yield each source's total, and the own requests whose tokens cannot be subtracted."""
        for direction, backend in self._backend.items():
            labels = (*key, direction, "backend")
            yield Sample(catalogue.TOKENS, backend.total, labels)
            unknown = self._unknown.get(direction, 0)
            yield Sample(catalogue.TOKENS_OWN_UNKNOWN, unknown, (*key, direction))
        for (direction, source), number in self._others.items():
            yield Sample(catalogue.TOKENS, number, (*key, direction, source))

    def _count_backend(self, direction: Direction, read: TokenRead) -> bool:
        """Return whether a backend counts these tokens, now or when the page returns."""
        value = None if read.page is None else read.page.get(direction)
        if value is None:
            return direction in self._backend and 0 < self._unread <= _MOST_WAITS
        known, unknown = own_tokens(read.own, direction, one_each=self._one_each)
        total = self._backend.get(direction)
        if total is None:
            base = self._guessed.get(direction, 0.0)
            if not self.is_new:
                # What it counted before our first read is not ours to count.
                self._waits += 1
                is_quiet = read.own == read.own_before and read.own.in_flight == NOTHING
                if not is_quiet and self._waits < _MOST_WAITS:
                    return False
                base = float(value - known)
            total = self._backend[direction] = _BackendTotal(base, value)
        total.advance(value, float(known), read.own)
        self._unknown[direction] = unknown
        return True

    def _add(self, direction: Direction, source: str, tokens: float) -> None:
        before = self._others.get((direction, source), 0.0)
        self._others[direction, source] = before + max(0.0, tokens)
        self._guessed[direction] = self._guessed.get(direction, 0.0) + max(0.0, tokens)
        if direction in self._backend:
            self._backend[direction].counted_elsewhere += max(0.0, tokens)


def own_tokens(
    own: OwnCounts, direction: Direction, *, one_each: bool
) -> tuple[int, int]:
    """Return tokens of our own requests, and how many requests have unknown ones.

    `one_each` is True if each response is one output token.
    """
    if direction == "input":
        return own.input_tokens.known, own.input_tokens.unknown
    tokens = own.output_tokens
    if one_each:
        return tokens.known + tokens.responses, tokens.unknown - tokens.answered
    return tokens.known, tokens.unknown


_NONE: Final = OwnCounts()
_NO_ESTIMATE: Final = TokenEstimate()


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
        self._is_ensemble: dict[ModelKey, bool] = {}
        """Kept while a model is unloaded, when the inventory lacks it."""

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
            answered: dict[Direction, KnownTokens] = {
                direction: known
                for direction in DIRECTIONS
                if (known := self._access.work.answers_of(key[0], direction))
            }
            if key not in self._tokens:
                is_known = backend or answered or traced is not None
                if not is_known and estimate is _NO_ESTIMATE:
                    continue
                is_new = self._page_read or key not in self._first
                self._tokens[key] = TokenCounts(is_new)
            counts = self._tokens[key]
            own_before = before.get(key, _NONE)
            requests = production.totals.success
            read = TokenRead(
                requests, own_before, own, backend, traced, estimate, answered
            )
            counts.advance(read)
            yield from counts.samples(key)
        self._page_read = self._page_read or page is not None

    def work(self, key: ModelKey, production: Production) -> ModelWork:
        """Return the work of a model whose statistics were read at least once."""
        spec, busy = self._access.board.current.models.get(key), self._busy[key]
        counts = self._tokens.get(key)
        if spec is not None:
            # Where no step is watched, its time is all that is known of their work.
            self._is_ensemble[key] = any(
                self._access.models.matches(step) for step, _ in spec.steps
            )
            if spec.decoupled and not busy.is_reported:
                # The time in which its tokens were generated is not known.
                counts = None
        return ModelWork(
            busy_seconds=busy.busy,
            production_busy_seconds=busy.production,
            inferences=production.totals.inferences,
            requests=production.totals.success + production.totals.failure,
            output_tokens=None if counts is None else counts.total("output"),
            is_ensemble=self._is_ensemble.get(key, False),
            is_doubtful=production.totals.failures_booked_as_success > 0,
            is_busy_reported=busy.is_reported_now,
        )

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
        self._is_ensemble.pop(key, None)
