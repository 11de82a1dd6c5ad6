"""What the sink counts, what it leaves out, and what it holds at most."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from accesses import access_to
from trace_sinks import PHASES, RUN, histograms, records_of, sink, trace, values

from exporter import catalogue
from exporter.access.own_traffic import OwnTraffic
from exporter.features.traces.trace_sink import (
    FORGET_SECONDS,
    OUTCOMES,
    REMEMBERED,
)
from exporter.features.traces.traced_request import RequestTrace
from exporter.features.traces.traces_collector import TracesSettings
from exporter.taps.tap_route import TapRequest


def test_a_client_request_counts_in_total_and_phases():
    target = sink()
    target.add("otlp", [trace(1), trace(2)], 0.0)
    total = histograms(target, catalogue.REQUEST_DURATION)["m", "1"].histogram
    assert (total.count, total.sum) == (2, pytest.approx(0.016))
    phases = histograms(target, catalogue.REQUEST_PHASE_DURATION)
    assert phases["m", "1", "queue"].histogram.sum == pytest.approx(0.004)
    assert records_of(target, "otlp", "request") == 2


def test_children_and_partial_requests_count_in_phases_only():
    target = sink()
    inside = (None, 0.002, 0.0, 0.004, 0.0, None)
    target.add("otlp", [trace(1, child=True, phases=inside)], 0.0)
    target.add("otlp", [trace(2, total_seconds=None, phases=inside)], 0.0)
    assert histograms(target, catalogue.REQUEST_DURATION) == {}
    phases = histograms(target, catalogue.REQUEST_PHASE_DURATION)
    assert {labels[2]: s.histogram.count for labels, s in phases.items()} == {
        "queue": 2,
        "compute_input": 2,
        "compute_infer": 2,
        "compute_output": 2,
    }
    assert (
        records_of(target, "otlp", "child"),
        records_of(target, "otlp", "partial"),
    ) == (
        1,
        1,
    )


@pytest.mark.parametrize(
    ("run", "outcome"), [(RUN, "own"), ("4e5f6a7b", "watcher"), (f"1{RUN}", "watcher")]
)
def test_requests_of_any_tritonwatch_and_their_children_are_no_latency(run, outcome):
    target = sink()
    probe = OwnTraffic(run_id=run).new_request_id("synthetic")
    target.add(
        "otlp",
        [trace(1, request_id=probe), trace(2, request_id=probe, child=True)],
        0.0,
    )
    assert histograms(target, catalogue.REQUEST_PHASE_DURATION) == {}
    assert histograms(target, catalogue.REQUEST_DURATION) == {}
    found = {name: records_of(target, "otlp", name) for name in ("own", "watcher")}
    assert found == {"own": 0, "watcher": 0} | {outcome: 2}


def test_a_trace_that_comes_twice_counts_once_whatever_the_source():
    target = sink()
    target.add("file", [trace(1), trace(2)], 0.0)
    target.add("file", [trace(2), trace(3)], 1.0)
    assert records_of(target, "file", "request") == 3
    assert records_of(target, "file", "duplicate") == 1


def test_an_ensembles_steps_of_one_trace_are_no_copies_of_each_other():
    target = sink(known=[("a", "1"), ("b", "1"), ("m", "1")])
    same = {"trace_id": "f" * 32, "begin_ns": 7}
    target.add(
        "otlp",
        [
            trace(**same),
            trace(**same, model="a", child=True),
            trace(**same, model="b", child=True),
        ],
        0.0,
    )
    assert records_of(target, "otlp", "duplicate") == 0


@pytest.mark.slow
def test_a_million_model_names_are_dropped_and_counted():
    target = sink(unknown_models=2)
    rest = ("1", "client", "", False, "grpc", 0, PHASES, 0.008)
    for start in range(0, 1_000_000, 50_000):
        names = range(start, start + 50_000)
        target.add("otlp", (RequestTrace(f"m{n}", *rest) for n in names), 0.0)
    target.add("otlp", [trace(2_000_000)], 0.0)
    assert records_of(target, "otlp", "unknown_model") == 1_000_000 - 2
    assert len(histograms(target, catalogue.REQUEST_DURATION)) == 3
    assert len(target._seen) + len(target._seen_before) <= REMEMBERED


def test_a_model_that_was_unknown_stays_when_the_server_lists_it():
    known = []
    target = sink(known=known, unknown_models=1)
    target.add("otlp", [trace(1, model="a")], 0.0)
    known.append(("a", "1"))
    target.add("otlp", [trace(2, model="b")], 0.0)
    assert {key[0] for key in histograms(target, catalogue.REQUEST_DURATION)} == {
        "a",
        "b",
    }


def test_a_model_that_went_is_forgotten_in_time():
    known = [("m", "1")]
    target = sink(known=known)
    target.add("otlp", [trace(1)], 0.0)
    known.clear()
    assert histograms(target, catalogue.REQUEST_DURATION, FORGET_SECONDS)
    assert not histograms(target, catalogue.REQUEST_DURATION, FORGET_SECONDS + 1)


def test_models_that_are_not_looked_at_are_left_out():
    target = sink(wanted=lambda name: name != "m")
    target.add("otlp", [trace(1)], 0.0)
    assert records_of(target, "otlp", "filtered") == 1
    assert histograms(target, catalogue.REQUEST_DURATION) == {}


def test_quantiles_come_with_their_interval_and_only_where_the_count_carries_them():
    rng = np.random.default_rng(1)
    times = rng.lognormal(-5, 1, 1000)
    target = sink()
    traces = [trace(n, total_seconds=float(t)) for n, t in enumerate(times)]
    for start in range(0, 1000, 50):
        target.add("otlp", traces[start : start + 50], start / 5.0)
    shown = values(target, catalogue.REQUEST_LATENCY, 200.0)
    assert {labels[2] for labels in shown} == {"0.5", "0.9", "0.95", "0.99"}
    bounds = values(target, catalogue.REQUEST_LATENCY_CI, 200.0)
    worth = values(target, catalogue.REQUEST_LATENCY_EFFECTIVE, 200.0)
    assert worth.keys() == shown.keys()
    for (*key, q), value in shown.items():
        exact = np.quantile(times, float(q), method="inverted_cdf")
        assert value == pytest.approx(exact, rel=0.012)
        assert bounds[*key, q, "lower"] <= value <= bounds[*key, q, "upper"]


def test_without_slots_of_time_there_are_quantiles_but_no_intervals():
    target = sink()
    target.add("otlp", [trace(n) for n in range(500)], 0.0)
    assert len(values(target, catalogue.REQUEST_LATENCY)) == 4
    assert values(target, catalogue.REQUEST_LATENCY_CI) == {}
    assert set(values(target, catalogue.REQUEST_LATENCY_EFFECTIVE).values()) == {0.0}


def test_the_window_slides_and_the_histogram_stays():
    target = sink()
    target.add("otlp", [trace(n) for n in range(100)], 0.0)
    assert values(target, catalogue.REQUEST_LATENCY, 1.0)
    assert not values(target, catalogue.REQUEST_LATENCY, 1000.0)
    assert (
        histograms(target, catalogue.REQUEST_DURATION, 1000.0)["m", "1"].histogram.count
        == 100
    )


def test_exemplars_carry_the_trace_id_of_the_latest_request_of_their_bucket():
    target = sink()
    target.add("otlp", [trace(1), trace(2), trace(3, total_seconds=0.9)], 0.0)
    (sample,) = histograms(target, catalogue.REQUEST_DURATION).values()
    assert {(e.labels["trace_id"][-1], e.value) for e in sample.exemplars} == {
        ("2", 0.008),
        ("3", 0.9),
    }


@pytest.mark.parametrize("trace_id", ["", "a" * 33, 'x"}', "é", "a b"])
def test_an_id_that_is_none_makes_no_exemplar(trace_id):
    target = sink()
    target.add("otlp", [trace(1, trace_id=trace_id)], 0.0)
    (sample,) = histograms(target, catalogue.REQUEST_DURATION).values()
    assert sample.exemplars == ()


def test_every_outcome_is_there_from_the_start():
    shown = values(sink(), catalogue.TRACE_RECORDS)
    assert set(shown) == {(s, o) for s in ("otlp", "file") for o in OUTCOMES}
    assert set(shown.values()) == {0}


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
        answer = route.answer(TapRequest(raw, {"content-type": "application/json"}))
        assert answer.status == 200
        return counted(traces, "otlp")

    assert "invalid" not in sent(spoilt=0)
    assert sent(spoilt=3)["invalid"] == 3
