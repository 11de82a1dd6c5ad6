"""Traces that contradict themselves, from a file and over OTLP, in what is exposed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from accesses import access_to

from exporter import catalogue
from exporter.features.traces.traces_collector import TracesSettings
from exporter.taps.tap_route import TapRequest

OTLP = Path(__file__).parents[3] / "data" / "traces" / "otlp" / "triton-2.51.json"
MARKS = ("GRPC_WAITREAD_END", "REQUEST_START", "REQUEST_END", "GRPC_SEND_END")
DAYS_NS = 2 * 86_400 * 10**9


def collector(**settings):
    return TracesSettings.model_validate(settings).build(access_to(SimpleNamespace()))


def counted(collector, source):
    """The records of a source by outcome, where there are any."""
    return {
        sample.labels[1]: sample.value
        for sample in collector.collect()
        if sample.spec is catalogue.TRACE_RECORDS
        and sample.labels[0] == source
        and sample.value
    }


def records(number, *marks_ns):
    yield {"id": number, "model_name": "m", "model_version": 1}
    for name, ns in zip(MARKS, marks_ns, strict=True):
        yield {"id": number, "timestamps": [{"name": name, "ns": ns}]}


def test_invalid_ones_of_a_file_are_counted_beside_the_others(tmp_path):
    start = 10**12
    found = [
        *records(1, start, start + 1, start + 2, start + 3),
        *records(2, start, start + 1, start + 2, start - 5),
        *records(3, start, start + 1, start + 2, start + DAYS_NS),
    ]
    (tmp_path / "t.json.0").write_text(json.dumps(found, separators=(",", ":")))
    files = {"path": str(tmp_path / "t.json"), "read_existing": True}
    outcomes = counted(collector(otlp=None, files=files), "file")
    assert outcomes.pop("invalid") == 2
    assert sum(outcomes.values()) == 1


def test_invalid_ones_over_otlp_are_counted_beside_the_others():
    def sent(*, spoilt):
        body = json.loads(OTLP.read_bytes())
        spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        networks = [span for span in spans if span["name"] == "InferRequest"]
        for span in networks[:spoilt]:
            event = span["events"][-1]
            event["timeUnixNano"] = str(int(event["timeUnixNano"]) + DAYS_NS)
        traces = collector()
        (route,) = traces.routes()
        raw = json.dumps(body).encode()
        answer = route.answer(
            TapRequest(raw, raw, {"content-type": "application/json"})
        )
        assert answer.status == 200
        return counted(traces, "otlp")

    assert "invalid" not in sent(spoilt=0)
    assert sent(spoilt=3)["invalid"] == 3
