"""Fuzz targets: Triton's metrics page, to which every model writes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from exporter.features.statistics.server_page import REFUSALS, BackendMetrics, page_of
from exporter.output.exposition import parse_text, render
from exporter.samples import BucketSample, Sample

if TYPE_CHECKING:
    from exporter.access.inventory import ModelKey

_GOOD = b'\nnv_inference_count{model="kept",version="7"} 3\n'
_KEPT: ModelKey = ("kept", "7")


def fuzz_metrics_page(data: bytes) -> None:
    """Whatever it holds, a line after it is read, and what is exposed is a page."""
    page = page_of(data + _GOOD)
    assert page.counters[_KEPT, "inferences"] >= 3 or page.refused
    assert set(page.refused) <= set(REFUSALS)
    models = {_KEPT, *page.backend, *page.first_response, *page.pending}
    samples = list(BackendMetrics().samples(page, models))
    for sample in samples:
        if isinstance(sample, Sample):
            assert math.isfinite(sample.value)
        else:
            assert isinstance(sample, BucketSample)
            assert list(sample.counts) == sorted(sample.counts)
    names = {sample.spec.name for sample in samples}
    exposed = {name for name, _, _ in parse_text(render(samples)[0])}
    assert names <= {name.removesuffix("_bucket") for name in exposed}


TARGETS = {"metrics_page": fuzz_metrics_page}
