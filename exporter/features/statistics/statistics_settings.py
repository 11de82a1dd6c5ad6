"""Settings of the statistics of production."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter.access.collector_base import CollectorSettings
from exporter.features.statistics import declared_calls
from exporter.features.statistics.chosen_series import MoreBackendMetrics
from exporter.features.statistics.declared_calls import DeclaredCalls
from exporter.features.statistics.token_counts import TokenEstimate
from exporter.features.statistics.watchers import WatcherSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access
    from exporter.features.statistics.statistics_collector import StatisticsCollector
    from exporter.settings import ModelMention


class StatisticsSettings(CollectorSettings):
    """Requests, inferences, queue time and compute time of production."""

    kind: Literal["statistics"] = "statistics"
    timeout_seconds: float = Field(default=2.0, gt=0, le=60)
    """Timeout of one request to the server."""
    cross_check: bool = Field(default=True)
    """Compare Triton's own metrics page with the statistics API, if the page can be
    read."""
    calls: DeclaredCalls = Field(default={}, max_length=10_000)
    """Calls that each Python model makes to other models (BLS) for one request:
    `{parent: {child: 1}}`, with the largest number if it varies, or `{parent: {}}` if
    it calls none. Calls made to answer our own requests then do not count as
    production.
    """
    watchers: tuple[WatcherSettings, ...] = Field(default=(), max_length=8)
    """Other sidecars that watch this server. Their requests count as unattributed, not
    as production.
    """

    token_estimates: dict[str, TokenEstimate] = Field(default={}, max_length=10_000)
    """Mean number of tokens per request, by model name, for models that report none."""
    backend_metrics: MoreBackendMetrics = Field(default={})
    """More metrics of backends, by a name of your choice, which becomes the label `name`
    of `triton_backend_value`: `{kv_blocks_used: {series: nv_trt_llm_kv_cache_block_metrics,
    labels: {kv_cache_block_type: used}}}`. Needs `cross_check`."""
    state_file: Path | None = Field(default=None)
    """File that keeps the latest reading across restarts, so that requests that Triton
    counted while tritonwatch was down are known. They count as unattributed.
    """

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models of declared calls."""
        return declared_calls.mentions(self.calls)

    def build(self, access: Access) -> StatisticsCollector:
        """The collector."""
        from exporter.features.statistics.statistics_collector import (  # noqa: PLC0415 - imports these settings
            StatisticsCollector,
        )

        return StatisticsCollector(self, access)
