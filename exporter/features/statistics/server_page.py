"""All values used from Triton's metrics page: read once, compared with the statistics, exposed.

Backends and models write to this page, too. Series of Triton's own that a model registered
with other labels are recognised by these and refused. What a model adds to one of Triton's
own series, or under another model's name to a backend's, cannot be detected on the page; the
former shows as a disagreement with the statistics, from which production is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from exporter import catalogue, errors
from exporter.features.statistics.chosen_series import Chosen, ChosenSeries, model_of
from exporter.features.statistics.production_counts import cross_checked
from exporter.samples import BucketSample, Sample
from exporter.triton.metrics_page import lines_of, read_page
from exporter.triton.upstream import (
    BACKEND,
    CROSS_CHECKED,
    FAILURE_REASONS,
    FAILURES,
    FIRST_RESPONSE,
    FIRST_RESPONSE_BOUNDS_MS,
    OWN_LABELS,
    PENDING,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.samples import AnySample, MetricSpec
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import ModelStatistics

log = structlog.get_logger()

MAX_SERIES: Final = 100_000
MAX_BACKEND_SERIES: Final = 10_000
"""Limit of their own, so that series of models do not displace those of Triton."""

_FIELDS: Final = {item.name: item.statistics_field for item in CROSS_CHECKED}
_HISTOGRAM: Final = {
    f"{FIRST_RESPONSE.name}_{part}": part for part in ("bucket", "sum", "count")
}
_OWN_LINES: Final = lines_of([*_FIELDS, PENDING.name, *_HISTOGRAM])
_BACKEND_LINES: Final = lines_of({item.name for item in BACKEND})
_BACKEND_FIELDS: Final = {(item.name, *item.label): item.field for item in BACKEND}
_LABELS: Final = {
    FAILURES: OWN_LABELS | {"reason"},
    f"{FIRST_RESPONSE.name}_bucket": OWN_LABELS | {"le"},
}
_SELECTING: Final = {item.name: item.label[0] for item in BACKEND}


@dataclass(frozen=True, slots=True)
class Page:
    """The series of Triton's metrics page that are read."""

    counters: Mapping[tuple[ModelKey, str], float]
    """(model, statistics field) -> value, summed over GPUs and failure reasons."""
    pending: Mapping[ModelKey, float]
    """Requests that wait for an instance."""
    failures: Mapping[tuple[ModelKey, str], float] = field(default_factory=dict)
    """Failed requests by reason."""
    first_response: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)
    """Cumulative counts by bound in milliseconds, "sum" and "count"."""
    backend: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)
    """Values that its backend reports, by field of `upstream.BACKEND`."""
    chosen: Mapping[ModelKey, Chosen] = field(default_factory=dict)
    """Values of the series that the configuration names."""
    refused: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Lines by the reason for which they were not used."""


_NONE: Final = ChosenSeries({})


def page_of(body: bytes, chosen: ChosenSeries = _NONE) -> Page:
    """Read a metrics page; lines that cannot be read are counted."""
    own = read_page(body, _OWN_LINES, most_series=MAX_SERIES)
    refused = own.refused
    counters: dict[tuple[ModelKey, str], float] = defaultdict(float)
    failures: dict[tuple[ModelKey, str], float] = defaultdict(float)
    first: dict[ModelKey, dict[str, float]] = defaultdict(dict)
    pending: dict[ModelKey, float] = {}
    for name, labels, value in own.series:
        if "model" not in labels or "version" not in labels:
            continue
        known = _LABELS.get(name, OWN_LABELS)
        if not all(label in known or label.startswith("_") for label in labels):
            refused["foreign_labels"] += 1
            continue
        key = labels["model"], labels["version"]
        if name in _FIELDS:
            counters[key, _FIELDS[name]] += value
            if name == FAILURES and "reason" in labels:
                reason = labels["reason"]
                if reason not in FAILURE_REASONS:
                    reason = FAILURE_REASONS[-1]
                failures[key, reason] += value
        elif name == PENDING.name:
            # The model has a series, and each of its GPUs has one that may stay 0.
            pending[key] = pending.get(key, 0.0) + value
        else:
            part = _HISTOGRAM[name]
            part = labels.get("le", "") if part == "bucket" else part
            first[key][part] = first[key].get(part, 0.0) + value
    backend = _backend(body, refused)
    more = chosen.read(body, refused)
    return Page(dict(counters), pending, failures, dict(first), backend, more, refused)


def _backend(body: bytes, refused: Counter[str]) -> dict[ModelKey, dict[str, float]]:
    page = read_page(body, _BACKEND_LINES, most_series=MAX_BACKEND_SERIES)
    refused.update(page.refused)
    found: dict[ModelKey, dict[str, float]] = defaultdict(dict)
    for name, labels, value in page.series:
        label = _SELECTING[name]
        field_name = _BACKEND_FIELDS.get((name, label, labels.get(label, "")))
        key = model_of(labels)
        if field_name is None or key is None:
            continue
        is_ratio = field_name == "kv_cache"
        if value < 0 or (is_ratio and value > 1):
            refused["value"] += 1
            continue
        # Each engine of one model has series of its own.
        fields = found[key]
        before = fields.get(field_name, 0.0)
        fields[field_name] = max(before, value) if is_ratio else before + value
    return dict(found)


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
    """Reads Triton's metrics page and compares it with the statistics.

    They are two views of one count, and have disagreed in released versions: with latency
    counters off, every request counter of the page stays at 0 (server#8125). Only their
    increases are compared: a reload sets the statistics to 0 while the page continues
    (Triton 2.51, executed).
    """

    def __init__(
        self,
        client: HttpClient,
        timeout_seconds: float,
        chosen: ChosenSeries = _NONE,
    ) -> None:
        self._client = client
        self._chosen = chosen
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
                    remedy="if the address is wrong, set target.metrics; if there is no page, set "
                    "cross_check of the collector statistics to false",
                )
            self._is_readable = False
            return None
        if not self._is_readable:
            log.info("metrics_page_read_again", address=self._client.address)
        self._is_readable = True
        return page_of(body, self._chosen)

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


_SPECS: Final[dict[str, tuple[MetricSpec, tuple[str, ...]]]] = {
    "running": (catalogue.BACKEND_RUNNING, ()),
    "waiting": (catalogue.BACKEND_WAITING, ()),
    "kv_cache": (catalogue.BACKEND_KV_CACHE, ()),
    "preemptions": (catalogue.BACKEND_PREEMPTIONS, ()),
    "prefix_queries": (catalogue.BACKEND_PREFIX_QUERIES, ()),
    "prefix_hits": (catalogue.BACKEND_PREFIX_HITS, ()),
    "input": (catalogue.BACKEND_TOKENS, ("input",)),
    "output": (catalogue.BACKEND_TOKENS, ("output",)),
}
REFUSALS: Final = (
    "malformed", "too_long", "too_many", "value", "duplicate", "foreign_labels",
    "bounds",
)  # fmt: skip


class BackendMetrics:
    """Exposes each page when it is read, and counts refused lines of all pages."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))

    def samples(self, page: Page, present: Collection[ModelKey]) -> Iterator[AnySample]:
        """Yield everything of models that the statistics list; of others nothing."""
        self._refused.update(page.refused)
        first = {
            key: list(_first_response(key, page.first_response[key]))
            for key in present
            if key in page.first_response
        }
        # Triton's own bounds can be replaced, and these are exposed by no others.
        self._refused["bounds"] += sum(not samples for samples in first.values())
        for reason, number in self._refused.items():
            yield Sample(catalogue.PAGE_REFUSED, number, (reason,))
        for (key, reason), failures in page.failures.items():
            if key in present:
                yield Sample(catalogue.REQUEST_FAILURES, failures, (*key, reason))
        for key in present:
            for name, value in page.backend.get(key, {}).items():
                if name in _SPECS:
                    spec, labels = _SPECS[name]
                    yield Sample(spec, value, (*key, *labels))
            for (spec, name), value in page.chosen.get(key, {}).items():
                yield Sample(spec, value, (*key, name))
            yield from first.get(key, ())


def _first_response(key: ModelKey, read: Mapping[str, float]) -> Iterator[BucketSample]:
    counts = {bound: read[bound] for bound in read.keys() - {"sum", "count"}}
    bounds = {_number(bound): number for bound, number in counts.items()}
    found = [bounds.get(bound) for bound in FIRST_RESPONSE_BOUNDS_MS]
    known = [number for number in (*found, read.get("count")) if number is not None]
    is_whole = len(known) == len(found) + 1 and "sum" in read
    if is_whole and known == sorted(known) and known[0] >= 0:
        yield BucketSample(
            catalogue.SERVER_FIRST_RESPONSE,
            tuple(known[:-1]),
            known[-1],
            read["sum"] / 1e3,
            key,
        )


def _number(bound: str) -> float:
    try:
        return float(bound)
    except ValueError:
        return -1.0
