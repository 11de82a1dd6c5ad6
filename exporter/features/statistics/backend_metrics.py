"""Exposes metrics of backends and of Triton's core that only its metrics page has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import BucketSample, Sample
from exporter.triton.upstream import FIRST_RESPONSE_BOUNDS_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.server_page import Page
    from exporter.samples import AnySample, MetricSpec

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
)  # fmt: skip


class BackendMetrics:
    """Exposes each page when it is read, and counts refused lines of all pages."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))

    def samples(self, page: Page, present: Collection[ModelKey]) -> Iterator[AnySample]:
        """Yield everything of models that the statistics list; of others nothing."""
        self._refused.update(page.refused)
        for reason, number in self._refused.items():
            yield Sample(catalogue.PAGE_REFUSED, number, (reason,))
        for (key, reason), failures in page.failures.items():
            if key in present:
                yield Sample(catalogue.REQUEST_FAILURES, failures, (*key, reason))
        for key in present:
            for field, value in page.backend.get(key, {}).items():
                if field in _SPECS:
                    spec, labels = _SPECS[field]
                    yield Sample(spec, value, (*key, *labels))
            if key in page.first_response:
                yield from _first_response(key, page.first_response[key])


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
