"""Production's figures from the statistics API, without our own requests."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from exporter import catalogue, errors
from exporter.access.own_traffic import NOTHING, OwnCounts
from exporter.access.work_board import WorkSnapshot
from exporter.features.statistics import declared_calls
from exporter.features.statistics.chosen_series import ChosenSeries
from exporter.features.statistics.production_counts import Production
from exporter.features.statistics.server_page import BackendMetrics, CrossCheck
from exporter.features.statistics.several_servers import SeveralServers
from exporter.features.statistics.token_counts import GeneratedWork
from exporter.features.statistics.unwatched_gap import UnwatchedGap
from exporter.features.statistics.watched_model import WatchedModel
from exporter.features.statistics.watchers import Watchers
from exporter.samples import Sample
from exporter.system.local_server import LocalServer, same_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.server_page import Page
    from exporter.features.statistics.statistics_settings import StatisticsSettings
    from exporter.samples import AnySample
    from exporter.system.local_server import ServerProcess
    from exporter.triton.grpc import GrpcClient
    from exporter.triton.protocol_types import ModelStatistics


log = structlog.get_logger()


class _AnotherServerError(errors.UnavailableError):
    """The server's name resolves to another server than at the last read."""


class StatisticsCollector:
    """Turns Triton's cumulative statistics into production counters that never fall."""

    def __init__(self, settings: StatisticsSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        access.own.calls = settings.calls
        self._watchers = Watchers(settings.watchers, settings.timeout_seconds)
        self._server = LocalServer(access.grpc.address)
        self._several = SeveralServers(access.clock)
        self._moves = access.grpc.moves
        """Moves of the server's name that the bases take into account."""
        path = settings.state_file
        self._gap = None if path is None else UnwatchedGap(path)
        self._known: dict[ModelKey, WatchedModel] = {}
        self._started = False
        self._unread: set[ModelKey] = set()
        """Models that were ready, but had no statistics yet: not new when they have some."""
        self._work_since = -math.inf
        """Monotonic seconds of the latest read that became a base."""
        self._is_absence_logged = False
        self._own_when_gone: dict[ModelKey, OwnCounts] = {}
        """The ledger when the server became unreachable, until the model is back."""
        self._backends = BackendMetrics()
        self._page: Page | None = None
        """Triton's metrics page as of the latest read."""
        self._generated = GeneratedWork(access, settings.token_estimates)
        self._cross_check = (
            CrossCheck(
                access.metrics,
                settings.timeout_seconds,
                ChosenSeries(settings.backend_metrics),
            )
            if settings.cross_check and access.metrics is not None
            else None
        )

    def collect(self) -> Sequence[AnySample]:
        """Read the statistics once; nothing where another server has none.

        Raises:
            TritonError: the server did not answer.
        """
        try:
            return self._read_once()
        except errors.UnsupportedError:
            info = self._access.board.current.info or self._access.grpc.server_info(
                timeout_seconds=self._settings.timeout_seconds
            )
            if info.is_triton:
                raise
            self._log_absence(info.product)
            return []

    def _read_once(self) -> list[AnySample]:
        if self._has_all_bases():
            with contextlib.suppress(_AnotherServerError):
                return self._collected(self._access.own.snapshot())
        with self._access.own.paused() as settled:
            return self._collected(settled)

    def _log_absence(self, server: str) -> None:
        if not self._is_absence_logged:
            self._is_absence_logged = True
            log.info(
                "statistics_not_offered",
                server=server,
                reason="only Triton has statistics: metrics of production are absent",
            )

    def _has_all_bases(self) -> bool:
        return self._started and not any(
            known.base_reads_left and not known.missing
            for known in self._known.values()
        )

    def _collected(self, ours_before: dict[ModelKey, OwnCounts]) -> list[AnySample]:
        # Our requests that had finished before: the next read of statistics includes them.
        samples: list[AnySample] = []
        listed = {e.key for e in self._access.board.current.index if e.ready}
        server = self._server.process()
        try:
            after = self._read_statistics(samples, is_one_process=server is not None)
        except errors.UnavailableError:
            self._note_gone(self._access.own.snapshot())
            raise
        server = same_process(server, self._server.process())
        self._check_name()
        # The ledger is read after the statistics and counts what is in flight, so that
        # a probe which Triton has already counted is never taken for production.
        own = self._access.own.snapshot()
        self._watchers.read(is_base=not self._has_all_bases())
        read_at = self._access.clock()
        for key, raw in after.items():
            is_new = self._started and key not in self._unread
            if key not in self._known and not is_new:
                # Requests before our start are not counted.
                self._known[key] = WatchedModel(
                    Production(OwnCounts()),
                    raw,
                    base_reads_left=_MOST_BASE_READS,
                    is_counted=False,
                )
            ours = self._watchers.joined(
                key, own.get(key, OwnCounts()), raw.success.count + raw.fail.count
            )
            before = ours_before.get(key, OwnCounts())
            known = self._known.get(key)
            if known is not None and known.base_reads_left:
                self._work_since = read_at
                # The base includes the requests of watchers until now.
                of_watchers = ours.possible - own.get(key, OwnCounts()).possible
                base = replace(before, possible=before.possible + of_watchers)
                is_quiet = before.in_flight == NOTHING and before == own.get(
                    key, OwnCounts()
                )
                self._set_base(known, raw, server, base, is_quiet=is_quiet)
                if known.is_counted:  # what is not counted yet is not zero
                    samples += known.samples(ours, read_at)
                continue
            samples += self._samples(key, raw, server, (before, ours))
        samples += self._generated.advance(
            read_at,
            self._page,
            {key: self._known[key].production for key in after},
            (ours_before, own),
        )
        samples += [
            *self._watchers.samples(),
            *declared_calls.samples(
                self._settings.calls, self._access.board.current, own
            ),
            *self._several.samples(is_one_process=server is not None),
            Sample(catalogue.SERVER_CHANGES, self._moves),
        ]
        self._watchers.forget(after)
        self._forget(after)
        self._unread = listed - after.keys()
        self._started = True
        if self._has_all_bases():
            # A model that is unloaded stays: without its totals, all of its past would be
            # the increase of the window in which it returns.
            work = {
                key: self._generated.work(key, known.production)
                for key, known in self._known.items()
                if not known.base_reads_left
            }
            self._access.work.publish(WorkSnapshot(read_at, work, self._work_since))
            if self._gap is not None:
                self._gap.save(after, server, self._access.grpc.host.known)
        return samples

    def _set_base(
        self,
        known: WatchedModel,
        raw: ModelStatistics,
        server: ServerProcess | None,
        own: OwnCounts,
        *,
        is_quiet: bool,
    ) -> None:
        """Count from this read on, if none of our requests was in flight around it.

        None is, but where one takes longer than a pause. `own` is the ledger before the
        read. After the last try it is the base all the same: each request then under
        way may cost production one, once.
        """
        key = raw.key
        known.base_reads_left = 0 if is_quiet else known.base_reads_left - 1
        known.is_counted |= not known.base_reads_left
        known.production = known.production.rebased(own)
        known.raw, known.missing, known.server = raw, 0, server
        self._own_when_gone.pop(key, None)
        if self._gap is not None and not known.base_reads_left:
            addresses = self._access.grpc.host.known
            gap = self._gap.requests(key, raw, server, addresses) - own.ended.requests
            known.production.totals.unattributed += max(0, gap)

    def _check_name(self) -> None:
        """Start over if the server's name resolves to another server than before.

        Requests that the new server has already counted are not production of the
        observed time.

        Raises:
            _AnotherServerError: it does; either of the two may have given the last answer.
        """
        grpc = self._access.grpc
        grpc.follow()
        if grpc.moves == self._moves:
            return
        self._moves = grpc.moves
        for client in (self._access.http, self._access.metrics):
            if client is not None:
                client.close()
        for known in self._known.values():
            known.base_reads_left = _MOST_BASE_READS
            known.production.resets += 1
        self._started = False
        self._own_when_gone.clear()
        self._generated.another_server()
        log.warning(
            "another_server", target=grpc.address, addresses=sorted(grpc.host.known)
        )
        raise _AnotherServerError(
            f"{grpc.address} is now a different server; its counts start with the "
            "next read"
        )

    def _note_gone(self, own: dict[ModelKey, OwnCounts]) -> None:
        """Keep the own requests that a server had counted before it became unreachable.

        The first failed read determines them: later requests may have been answered by
        the next server. The server did not count requests that failed before the last
        read.
        """
        self._generated.server_gone(own)
        for key, now in own.items():
            first = self._own_when_gone.get(key, now)
            self._own_when_gone[key] = replace(
                first,
                possible=now.possible,
                failed=now.failed,
                executed_failures=now.executed_failures,
            )

    def _read_statistics(
        self, samples: list[AnySample], *, is_one_process: bool
    ) -> dict[ModelKey, ModelStatistics]:
        before = self._read(self._access.grpc)
        page = None if self._cross_check is None else self._cross_check.read()
        self._page = page
        between = None
        if not is_one_process and self._several.is_due():
            between = self._several.read(self._read_anew)
        if page is None and between is None:
            return before
        # A second read brackets both: their values must be between the two.
        after = self._read(self._access.grpc)
        if self._cross_check is not None and page is not None:
            samples += self._cross_check.compare(before, page, after)
            samples += self._backends.samples(page, after)
        if between is not None:
            self._several.compare(before, between, after)
        return after

    def _read_anew(self) -> dict[ModelKey, ModelStatistics]:
        client = self._access.grpc.again()
        try:
            return self._read(client)
        finally:
            client.close()

    def _read(self, client: GrpcClient) -> dict[ModelKey, ModelStatistics]:
        entries = client.statistics(timeout_seconds=self._settings.timeout_seconds)
        return {
            entry.key: entry
            for entry in entries
            if self._access.models.matches(entry.name)
        }

    def _samples(
        self,
        key: ModelKey,
        raw: ModelStatistics,
        server: ServerProcess | None,
        own_around: tuple[OwnCounts, OwnCounts],
    ) -> Iterator[AnySample]:
        own_before, own = own_around
        known = self._known.get(key)
        booked = (
            0 if known is None else known.production.totals.failures_booked_as_success
        )
        own_when_gone = self._own_when_gone.pop(key, None)
        if known is None:
            # A model that came while we watched is counted from its first request.
            known = self._known[key] = WatchedModel(Production(OwnCounts()), raw)
            known.production.advance(None, raw, own, own_before)
        else:
            resets = known.production.resets
            known.production.advance(
                known.raw,
                raw,
                own,
                own_before,
                own_when_gone,
                is_new_server=None not in (known.server, server)
                and known.server != server,
            )
            if known.production.resets != resets:
                self._access.board.reloaded(key)
        known.raw, known.missing, known.server = raw, 0, server
        if known.production.totals.failures_booked_as_success > booked:
            known.doubtful_until = self._access.clock() + _DOUBTFUL_SECONDS
        yield from known.samples(own, self._access.clock())

    def _forget(self, present: dict[ModelKey, ModelStatistics]) -> None:
        # A reload takes a model away for a moment; its counters shall survive that.
        for key in [key for key in self._known if key not in present]:
            self._known[key].missing += 1
            missing_long = self._known[key].missing > _KEEP_MISSING_RUNS
            if missing_long and self._access.own.forget(key):
                del self._known[key]
                self._generated.forget(key)
                self._own_when_gone.pop(key, None)


_KEEP_MISSING_RUNS: Final = 120
_MOST_BASE_READS: Final = 6
"""Maximum of reads of the statistics before a model's production is counted."""
_DOUBTFUL_SECONDS: Final = 600.0
"""Time after the last failure that was counted as a success."""
