"""One model version as the statistics collector knows it, and its series."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter import catalogue
from exporter.samples import BucketSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.inventory import ModelKey
    from exporter.access.own_traffic import OwnCounts
    from exporter.features.statistics.production_counts import Production, Totals
    from exporter.samples import AnySample
    from exporter.system.local_server import ServerProcess
    from exporter.triton.protocol_types import ModelStatistics


@dataclass(slots=True)
class WatchedModel:
    """Production of a model version, and the latest read of its statistics."""

    production: Production
    raw: ModelStatistics
    missing: int = field(default=0)
    doubtful_until: float = field(default=-math.inf)
    """Monotonic seconds; failures that Triton booked as successes were seen before."""
    base_reads_left: int = field(default=0)
    """Reads that may still be skipped until one is free of our requests; 0 once
    counted."""
    is_counted: bool = field(default=True)
    """False until its first base was taken."""
    server: ServerProcess | None = field(default=None)
    """The process that answered the latest read, if it can be found."""

    def samples(self, own: OwnCounts, now: float) -> Iterator[AnySample]:
        """Yield its series; `now` is monotonic seconds."""
        raw, production = self.raw, self.production
        key = raw.key
        yield from _of_production(key, production.totals, own)
        yield Sample(catalogue.OUTCOMES_DOUBTFUL, now < self.doubtful_until, key)
        yield Sample(catalogue.STATISTICS_RESETS, production.resets, key)
        yield Sample(catalogue.CACHE, raw.cache_hit.count, (*key, "hit"))
        yield Sample(catalogue.CACHE, raw.cache_miss.count, (*key, "miss"))


def _of_production(
    key: ModelKey, totals: Totals, own: OwnCounts
) -> Iterator[AnySample]:
    yield Sample(catalogue.REQUESTS, totals.success, (*key, "success"))
    yield Sample(catalogue.REQUESTS, totals.failure, (*key, "failure"))
    yield Sample(catalogue.INFERENCES, totals.inferences, key)
    yield Sample(catalogue.EXECUTIONS, totals.executions, key)
    yield Sample(catalogue.BUSY, totals.busy_ns / 1e9, key)
    yield Sample(catalogue.QUEUE, totals.queue_ns / 1e9, key)
    yield Sample(catalogue.REQUEST_SECONDS, totals.request_ns / 1e9, key)
    for phase, ns in totals.compute_ns.items():
        yield Sample(catalogue.COMPUTE, ns / 1e9, (*key, phase))
    yield Sample(catalogue.OWN_REQUESTS, own.ok, (*key, "success"))
    yield Sample(catalogue.OWN_REQUESTS, own.failed, (*key, "failure"))
    yield Sample(catalogue.OWN_UNRESOLVED, own.unresolved.requests, key)
    yield Sample(catalogue.UNATTRIBUTED_REQUESTS, totals.unattributed, key)
    yield Sample(
        catalogue.FAILURES_BOOKED_AS_SUCCESS, totals.failures_booked_as_success, key
    )
    yield BucketSample(
        catalogue.BATCH_SIZE,
        tuple(
            sum(count for size, count in totals.batches.items() if size <= bound)
            for bound in catalogue.BATCH_BOUNDS
        ),
        sum(totals.batches.values()),
        sum(size * count for size, count in totals.batches.items()),
        key,
    )
