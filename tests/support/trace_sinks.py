"""A sink of traces, traces for it, and what it shows."""

from __future__ import annotations

from exporter import catalogue
from exporter.features.traces.trace_sink import SinkSettings, TraceSink
from exporter.features.traces.traced_request import RequestTrace
from exporter.samples import HistogramSample

RUN = "0a1b2c3d"
PHASES = (0.001, 0.002, 0.0, 0.004, 0.0, 0.001)


def trace(number=0, **changes):
    fields = {
        "model": "m",
        "version": "1",
        "request_id": "client",
        "trace_id": f"{number:032x}",
        "child": False,
        "protocol": "grpc",
        "begin_ns": number,
        "phases": PHASES,
        "total_seconds": 0.008,
        **changes,
    }
    return RequestTrace(**fields)


def sink(
    *,
    known=(("m", "1"),),
    unknown_models=2,
    wanted=lambda _: True,
    decoupled=(),
    token_responses=(),
    limits=None,
):
    sources = ("otlp", "file")
    return TraceSink(
        SinkSettings(
            300.0, unknown_models, sources, RUN, token_responses, limits or {}
        ),
        known=lambda: known,
        wanted=wanted,
        decoupled=lambda key: key[0] in decoupled,
        wall_clock=lambda: 1000.0,
    )


def histograms(target, spec, now=0.0):
    return {
        sample.labels: sample
        for sample in target.samples(now)
        if isinstance(sample, HistogramSample) and sample.spec is spec
    }


def values(target, spec, now=0.0):
    return {s.labels: s.value for s in target.samples(now) if s.spec is spec}


def records_of(target, source, outcome):
    """The number of records with this outcome so far."""
    return values(target, catalogue.TRACE_RECORDS).get((source, outcome), 0)
