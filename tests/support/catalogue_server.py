"""A /metrics page with every metric of the catalogue, in the forms a Prometheus may keep.

The labels are those that the given queries ask for, so that a query which is empty here is
empty because of the form of the series and not because the scene lacks something.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import promql
from monitoring import Job, Prometheus
from receiver import Asked, Receiver

from exporter.catalogue import CATALOGUE
from exporter.histograms.histogram import Histogram
from exporter.output.exposition import render
from exporter.samples import BucketSample, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from exporter.samples import AnySample, MetricSpec

FORMS = ("classic", "native", "both")
PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
    "encoding=delimited"
)
# What is a latency, and so has native buckets beside the classic ones.
LATENCIES = {s.name for s in CATALOGUE if s.kind == "histogram" and s.unit == "seconds"}


class CatalogueServer(Receiver):
    """Counters and histograms rise with every scrape, what is a time is now, all else is 1.

    `latency_seconds` may be changed.
    """

    def __init__(self, queries: Iterable[str]) -> None:
        self.latency_seconds = 0.01
        self._labels = _asked_for(queries)
        self._histogram = Histogram()
        self._scrapes = 0
        self._lock = threading.Lock()
        super().__init__()

    def answer(self, asked: Asked) -> tuple[bytes, dict[str, str]]:
        """One scrape."""
        histograms_only = "classic-only" in asked.path
        accept = "" if histograms_only else asked.headers.get("accept", "")
        with self._lock:
            self._scrapes += 1
            self._histogram.record(self.latency_seconds, 100)
            samples = [
                sample
                for sample in self._samples()
                if not histograms_only or sample.spec.name in LATENCIES
            ]
            return render(samples, accept=accept)

    def _samples(self) -> Iterator[AnySample]:
        for spec in CATALOGUE:
            values = (sorted(self._labels[spec.name, label]) for label in spec.labels)
            for labels in itertools.product(*values):
                yield self._sample(spec, labels)

    def _sample(self, spec: MetricSpec, labels: tuple[str, ...]) -> AnySample:
        if spec.name in LATENCIES:
            return HistogramSample(spec, self._histogram, labels)
        if spec.kind == "histogram":
            counts = (float(self._scrapes),) * len(spec.buckets)
            return BucketSample(spec, counts, self._scrapes, self._scrapes, labels)
        if spec.kind == "counter":
            return Sample(spec, self._scrapes, labels)
        now = spec.name.endswith("_timestamp_seconds")
        return Sample(spec, time.time() if now else 1, labels)


def _asked_for(queries: Iterable[str]) -> dict[tuple[str, str], set[str]]:
    """The values of each label of each metric that some query asks for, and one more."""
    found = {(s.name, label): {"x"} for s in CATALOGUE for label in s.labels}
    for query in queries:
        for selector in promql.selectors(query):
            for label, values in selector.wanted.items():
                if (selector.metric, label) in found:
                    found[selector.metric, label] |= values
    return found


def watched(
    folder: Path,
    servers: Sequence[CatalogueServer],
    form: str,
    *,
    rules: dict[str, str] | None = None,
) -> Prometheus:
    """A Prometheus that keeps the histograms of `servers` in one of FORMS.

    A Prometheus from 2.45 on keeps both with `scrape_classic_histograms` (from 3.0 on
    `always_scrape_classic_histograms`). Debian's 2.42 has no such option: two jobs with the
    same labels, one of which reads text, leave the same series.
    """
    ports = [server.port for server in servers]
    jobs: list[Any] = [Job(ports)]
    if form == "both":
        jobs.append(_ClassicOnly(ports, name="classic"))
    native = ("native-histograms",) if form != "classic" else ()
    return Prometheus(folder, *jobs, rules=rules, features=native)


class _ClassicOnly(Job):
    """The same target, read as text, under the labels of the first job."""

    def as_config(self) -> dict[str, Any]:
        relabel = {"target_label": "job", "replacement": "tritonwatch"}
        return {
            **super().as_config(),
            "metrics_path": "/classic-only",
            "relabel_configs": [relabel],
        }


def empty(prometheus: Prometheus, queries: Sequence[str]) -> set[str]:
    """Those of the queries that have no result."""
    return {query for query in queries if not prometheus.query(query)}
