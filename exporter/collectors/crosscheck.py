"""Does Triton's metrics page say what its statistics API says?

They are two views of one count, and have disagreed in released versions: with latency
counters off, every request counter of the page stays at 0 (server#8125).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from exporter import catalogue, errors
from exporter.collectors.production import cross_checked
from exporter.exposition import parse_text
from exporter.samples import Sample
from exporter.upstream import CROSS_CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.inventory import ModelKey
    from exporter.triton.http import HttpClient
    from exporter.triton.model import ModelStatistics

Page = dict[tuple["ModelKey", str], float]
"""(model, statistics field) -> value, summed over GPUs and failure reasons."""


class CrossCheck:
    """Reads Triton's metrics page and holds it against the statistics."""

    def __init__(self, client: HttpClient, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds

    def read(self) -> Page:
        """The counters of the page; empty where the page cannot be had or read."""
        try:
            body = self._client.get("/metrics", timeout_seconds=self._timeout_seconds)
            series = parse_text(body)
        except (errors.TritonError, ValueError):
            # Metrics may be switched off; no page is no disagreement.
            return {}
        fields = {item.name: item.statistics_field for item in CROSS_CHECKED}
        page: Page = defaultdict(float)
        for name, labels, value in series:
            if name in fields and "model" in labels and "version" in labels:
                page[(labels["model"], labels["version"]), fields[name]] += value
        return dict(page)

    def compare(
        self,
        before: Mapping[ModelKey, ModelStatistics],
        page: Page,
        after: Mapping[ModelKey, ModelStatistics],
    ) -> Iterator[Sample]:
        """How far each counter of the page lies outside of [before, after]."""
        for (key, counter), value in page.items():
            if key not in before or key not in after:
                continue
            low = cross_checked(before[key])[counter]
            high = cross_checked(after[key])[counter]
            if high < low:
                continue  # reloaded between the two looks
            outside = max(low - value, value - high, 0)
            yield Sample(
                catalogue.STATISTICS_DISAGREEMENT,
                outside / max(high, 1),
                (*key, counter),
            )
