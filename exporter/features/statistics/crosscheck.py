"""Compares Triton's metrics page with its statistics API.

They are two views of one count, and have disagreed in released versions: with latency
counters off, every request counter of the page stays at 0 (server#8125). Only their
increases are compared: a reload sets the statistics to 0 while the page continues (Triton
2.51, executed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from exporter import catalogue, errors
from exporter.features.statistics.production_counts import cross_checked
from exporter.features.statistics.server_page import page_of
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.server_page import Page
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import ModelStatistics

log = structlog.get_logger()


@dataclass(slots=True)
class _Reference:
    """Difference between metrics page and statistics when first compared.

    The page was read between two reads of the statistics, so the difference is a range; it
    is 0 where it can be.
    """

    apart_least: float
    apart_most: float
    count: int
    """The statistics then; differences are relative to their increase since."""
    latest: int
    latest_page: float

    @classmethod
    def of(cls, low: int, page: float, high: int) -> _Reference:
        least, most = page - high, page - low
        if least <= 0 <= most:
            least = most = 0.0
        return cls(least, most, low, high, page)

    def started_over(self, page: float, high: int) -> bool:
        return high < self.latest or page < self.latest_page

    def disagreement(self, low: int, page: float, high: int) -> float:
        """Return how far the page is outside the range of the statistics, by their rise."""
        self.latest, self.latest_page = high, page
        outside = max(low + self.apart_least - page, page - high - self.apart_most, 0)
        return outside / max(high - self.count, 1)


class CrossCheck:
    """Reads Triton's metrics page and compares it with the statistics."""

    def __init__(self, client: HttpClient, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._references: dict[tuple[ModelKey, str], _Reference] = {}
        self._is_readable = True

    def read(self) -> Page | None:
        """Read the page; None if it is not available."""
        try:
            body = self._client.get("/metrics", timeout_seconds=self._timeout_seconds)
        except errors.TritonError as error:
            # Metrics may be switched off; no page is no disagreement.
            if self._is_readable:
                log.warning(
                    "metrics_page_not_read",
                    address=self._client.address,
                    reason=str(error),
                    remedy="set target.metrics to its address, or cross_check of the "
                    "collector statistics to false; metrics from it are absent",
                )
            self._is_readable = False
            return None
        if not self._is_readable:
            log.info("metrics_page_read_again", address=self._client.address)
        self._is_readable = True
        return page_of(body)

    def compare(
        self,
        before: Mapping[ModelKey, ModelStatistics],
        page: Page,
        after: Mapping[ModelKey, ModelStatistics],
    ) -> Iterator[Sample]:
        """Yield the disagreement of each counter, and the pending requests."""
        # Increases missed by an unreadable page are judged with the next one.
        references = self._references
        if page.counters:
            self._references = {}
        for (key, counter), value in page.counters.items():
            if key not in before or key not in after:
                continue
            low = cross_checked(before[key])[counter]
            high = cross_checked(after[key])[counter]
            if high < low:
                continue  # reloaded between the two reads
            reference = references.get((key, counter))
            if reference is None or reference.started_over(value, high):
                reference = _Reference.of(low, value, high)
            self._references[key, counter] = reference
            yield Sample(
                catalogue.STATISTICS_DISAGREEMENT,
                reference.disagreement(low, value, high),
                (*key, counter),
            )
        for key in page.pending.keys() & after.keys():
            yield Sample(catalogue.PENDING_REQUESTS, page.pending[key], key)
