"""Every metric of the catalogue: an objective and a chart on it count, or are refused."""

from __future__ import annotations

import json

import pytest
from fake_triton import FakeModel, FakeTriton
from surfaces import serving

from exporter.catalogue import CATALOGUE
from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.features.slo.slo_collector import EventCounter
from exporter.features.spc.spc_collector import Reader
from exporter.histograms.histogram import Histogram
from exporter.samples import BucketSample, HistogramSample, Sample

EVERY_METRIC = pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)


def objective(name: str) -> dict:
    return {
        "kind": "signal",
        "name": "judged",
        "objective_ratio": 0.9,
        "metric": name,
        "at_least": 0,
    }


def chart(name: str) -> dict:
    return {"kind": "spc", "signals": [{"name": "judged", "metric": name}]}


def accepted(name: str, **document):
    """The configuration, None where it is refused because of that metric."""
    try:
        return parse(json.dumps(document).encode(), "FILE", {})
    except ConfigError as error:
        if f"found metric {name!r}" in str(error):
            return None
        raise


def sample(spec, total: float):
    labels = tuple("x" for _ in spec.labels)
    if spec.kind != "histogram":
        return Sample(spec, total, labels)
    if spec.unit != "seconds":
        return BucketSample(spec, (total,) * len(spec.buckets), total, total, labels)
    histogram = Histogram()
    histogram.record(0.1, int(total))
    return HistogramSample(spec, histogram, labels)


@EVERY_METRIC
def test_an_objective_counts_or_is_refused(spec) -> None:
    config = accepted(spec.name, slos=[objective(spec.name)])
    gauge_or_counter = spec.kind in {"gauge", "counter", "summary"}
    assert (config is not None) == (gauge_or_counter and not spec.on_probe_only)
    if config is not None:
        counter = EventCounter(config.slos[0])
        for second in (1, 2):
            counter.add([sample(spec, second)], second)
        assert counter.good >= 1


@EVERY_METRIC
def test_a_chart_reads_it_or_is_refused(spec) -> None:
    config = accepted(spec.name, collectors=[chart(spec.name)])
    own = spec.name.startswith("triton_spc_")
    number = spec.kind != "info"
    assert (config is not None) == (number and not own and not spec.on_probe_only)
    if config is not None:
        reader = Reader(config.collectors[0].signals[0])
        values = [reader.read([sample(spec, second)], second) for second in (1, 2)]
        assert values[-1] is not None


async def test_whatever_is_on_the_page_is_there_to_be_judged() -> None:
    """Metrics of taps, reloads and the union of all probes too, not only of collectors."""
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            await served.until(lambda a: a.values("triton_requests_total"))
            sidecar = served.sidecar
            on_page = {s.spec.name for s in sidecar.samples()}
            judged = {s.spec.name for s in sidecar.access.exposed()}
            probe_only = {s.name for s in CATALOGUE if s.on_probe_only}
    assert judged == on_page
    assert not on_page & probe_only


@pytest.mark.parametrize(
    "metric", ["triton_model_serving", "tritonwatch_config_last_reload_successful"]
)
async def test_an_objective_on_what_is_added_last_counts(metric) -> None:
    slo = {**objective(metric), "at_least": 1}
    signal = {"name": "judged", "metric": metric, "learn_samples": 20}
    spc = {"kind": "spc", "interval_seconds": 0.2, "signals": [signal]}
    server = {"kind": "server", "interval_seconds": 0.2}
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake, slos=[slo], collectors=[server, spc]) as served:
            await served.until(
                lambda a: (
                    any(
                        a.values(
                            "triton_slo_events_total", slo="judged", outcome="good"
                        )
                    )
                    and any(a.values("triton_spc_samples_total", signal="judged"))
                )
            )


REFUSED = "found metric 'nope'; want a gauge"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"slos": [objective("nope")]},
            f"slos[0]: {REFUSED} or counter of METRICS.md",
        ),
        (
            {"collectors": [chart("nope")]},
            f"collectors[0].signals[0]: {REFUSED}, counter or histogram of METRICS.md",
        ),
        (
            {"slos": [{**objective("triton_up"), "labels": {"zone": "1"}}]},
            "slos[0]: found labels ['zone']; triton_up has []",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_can(document, message) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(json.dumps(document).encode(), "FILE", {})
    assert str(refused.value) == f"FILE: {message}"
