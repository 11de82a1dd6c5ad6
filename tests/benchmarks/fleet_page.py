"""What a sidecar beside many models exposes, from its own meters filled with numbers.

Run as a program it serves that page: `python fleet_page.py PORT MODELS`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
from figures import SEED

from exporter import catalogue
from exporter.access.own_traffic import OwnCounts
from exporter.access.probe_base import Target, Verdict
from exporter.features.statistics.production_counts import Production
from exporter.features.statistics.watched_model import WatchedModel
from exporter.network.admission import Admission
from exporter.network.listening import bind, make_server
from exporter.runtime.health import Meter
from exporter.runtime.probe_meter import ProbeMeter
from exporter.samples import BucketSample, HistogramSample, Sample
from exporter.triton.protocol_types import ModelStatistics
from exporter.web.routes import Surface

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporter.access.inventory import ModelKey
    from exporter.samples import AnySample

PROBES = 400
"""Verdicts of each target: enough for every quantile up to 0.99."""


class Fleet:
    """The samples of as many models, gathered anew at every call as the sidecar does."""

    ready = True

    def __init__(self, models: int) -> None:
        rng = np.random.default_rng(SEED)
        self._keys = [(f"ranker_{number}_fp16", "3") for number in range(models)]
        self._probes = ProbeMeter("synthetic", 300.0, time.time)
        self._models: list[WatchedModel] = []
        self._runs = Meter("statistics", time.monotonic, time.time)
        self._runs.succeeded(0.004)
        for key in self._keys:
            self._fill(key, rng)

    def samples(self) -> Iterator[AnySample]:
        """Everything known now."""
        yield from self._probes.samples(time.monotonic(), 1e9)
        for model in self._models:
            key = model.raw.key
            yield Sample(catalogue.MODEL_READY, 1, key)
            yield Sample(catalogue.MODEL_SERVING, 1, key)
            yield Sample(catalogue.MODEL_LOADS, 1, key)
            yield from model.samples(OwnCounts(PROBES), time.monotonic())
            for counter in ("success", "failure", "inferences", "executions"):
                labels = (*key, counter)
                yield Sample(catalogue.STATISTICS_DISAGREEMENT, 0.0, labels)
        yield from self._runs.samples()

    def _fill(self, key: ModelKey, rng: np.random.Generator) -> None:
        seconds = rng.lognormal(-6.5, 0.4, PROBES)
        now = time.monotonic()
        for protocol in ("grpc", "http"):
            for number, value in enumerate(seconds.tolist()):
                at = now - 290 + 290 * number / PROBES
                verdict = Verdict("ok", value, f"tritonwatch-synthetic-1a2b-{number}")
                self._probes.record(Target(key, protocol), verdict, at)
        production = Production(OwnCounts())
        totals = production.totals
        totals.success, totals.inferences, totals.executions = (
            int(n) for n in rng.integers(1, 10**9, 3)
        )
        totals.busy_ns, totals.queue_ns, totals.request_ns = rng.uniform(1e9, 1e14, 3)
        totals.compute_ns = {p: rng.uniform(1e9, 1e14) for p in totals.compute_ns}
        totals.batches = {int(n): int(n) * 1000 for n in rng.integers(1, 64, 12)}
        self._models.append(WatchedModel(production, ModelStatistics(*key)))


def fleet_of(series: int) -> Fleet:
    """The smallest fleet that exposes at least so many series."""
    each = series_in(Fleet(2).samples()) - series_in(Fleet(1).samples())
    return Fleet(-(-series // each))


def series_in(samples: Iterable[AnySample]) -> int:
    """Lines of a page that are no comments."""
    return sum(
        len(sample.spec.buckets) + 3
        if isinstance(sample, HistogramSample | BucketSample)
        else 1
        for sample in samples
    )


def _serve(port: int, series: int) -> None:
    surface = Surface(fleet_of(series), None)  # type: ignore[arg-type]
    with bind("127.0.0.1", port) as listener:
        asyncio.run(make_server(surface, Admission().web).serve(sockets=[listener]))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
