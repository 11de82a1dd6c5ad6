"""One A/B comparison of two models, from production's statistics and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import catalogue
from exporter.errors import InvalidRequestError
from exporter.features.comparison.production_windows import Outcomes, Windows
from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_budget import Wait
    from exporter.features.comparison.comparison_settings import (
        ComparisonSettings,
        Metric,
    )
    from exporter.features.comparison.confidence import Interval
    from exporter.histograms.histogram import Histogram

    Floats = NDArray[np.float64]

_QUANTILES: Final[dict[Metric, float]] = {
    "latency_p50": 0.5,
    "latency_p95": 0.95,
    "latency_p99": 0.99,
}


class ProductionComparison:
    """Sends nothing; needs the traces collector for latencies."""

    inputs_name = "production"
    wait: Wait | None = None
    """Always None: no requests are sent, so none waits."""

    def __init__(self, settings: ComparisonSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._alpha = settings.alpha / len(settings.wanted)
        self.keys: tuple[ModelKey, ModelKey] | None = None
        self.problem = "the models have not been read yet"
        self.failure = ""
        self.windows = Windows()
        self._last: dict[ModelKey, Histogram] = {}
        self._results = Outcomes()
        self._counts: Floats | None = None

    @property
    def complete(self) -> bool:
        """Always False: it costs nothing to continue."""
        return False

    @property
    def outcomes(self) -> dict[str, int]:
        """Windows that can be compared."""
        return {"both": self.windows.count}

    @property
    def budget_used(self) -> dict[str, float | None]:
        """Return no shares: no requests are sent."""
        return {}

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def update(self) -> None:
        """Record the samples that are exposed now."""
        keys = self._resolve()
        if keys is None:
            return
        if keys != self.keys:
            self.keys, self.windows, self._last = keys, Windows(), {}
            self._results, self._counts = Outcomes(), None
        histograms: dict[ModelKey, Histogram] = {}
        counts = np.zeros((2, 2))
        counted: set[ModelKey] = set()
        for sample in self._access.exposed():
            if isinstance(sample, HistogramSample):
                if sample.spec is catalogue.REQUEST_DURATION:
                    model, version = sample.labels
                    histograms[model, version] = sample.histogram
            elif isinstance(sample, Sample) and sample.spec is catalogue.REQUESTS:
                model, version, outcome = sample.labels
                if (model, version) in keys:
                    side = keys.index((model, version))
                    counts[side, int(outcome != "success")] += sample.value
                    counted.add((model, version))
        # Statistics that are late are absent: that is no count of zero.
        if counted >= set(keys):
            if self._counts is not None and (counts >= self._counts).all():
                self._results.add(counts - self._counts)
            self._counts = counts
        self._window(histograms, keys)

    def intervals(self) -> dict[Metric, Interval]:
        """Return the interval of each metric's effect; unknown ones are absent."""
        found: dict[Metric, Interval | None] = {
            metric: self.windows.quantile_ratio(q, self._alpha)
            for metric, q in _QUANTILES.items()
            if metric in self._settings.wanted
        }
        if "latency_mean" in self._settings.wanted:
            found["latency_mean"] = self.windows.mean_ratio(self._alpha)
        if "success" in self._settings.wanted:
            found["success"] = self._results.difference(self._alpha)
        return {metric: i for metric, i in found.items() if i is not None}

    def _resolve(self) -> tuple[ModelKey, ModelKey] | None:
        board = self._access.board
        if not board.was_read:
            # The server was not polled yet: nothing is missing.
            return None
        try:
            champion, challenger = self._settings.models_in(board.current)
        except InvalidRequestError as error:
            self.problem = str(error)
            return None
        self.problem = ""
        return (
            champion.key,
            challenger.key,
        )

    def _window(
        self, histograms: dict[ModelKey, Histogram], keys: tuple[ModelKey, ModelKey]
    ) -> None:
        if not histograms.keys() >= set(keys):
            return
        if self._last.keys() >= set(keys):
            try:
                risen = [histograms[key].since(self._last[key]) for key in keys]
            except ValueError:
                # Reset, as after a reload of the traces collector.
                risen = []
            if risen:
                self.windows.add(risen[0], risen[1])
        self._last = {key: histograms[key].copy() for key in keys}
