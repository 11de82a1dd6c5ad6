"""Streamed answers of the real Triton, beside the times at which their clients had them."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from monitoring import free_port
from streaming_models import Streams, write_streaming_models
from traced_tritons import (
    Collector,
    Sender,
    files_of_five,
    records,
    requests,
    traced,
    traces_config,
)

from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_spans import SpanJoiner
from exporter.features.traces.traced_request import PHASES

pytestmark = pytest.mark.triton

MANY, FEW = 10, 5
STREAM = (30, 20, 20, 20)
# Four kinds of requests to `scripted`; see `clients`.
REQUESTS = 2 * MANY + 2 * FEW
STREAMED = REQUESTS - FEW
RESPONSES = 2 * MANY * len(STREAM) + FEW + 3 * FEW
LIMITS = {
    "any": {"models": "scripted", "first_response_seconds": 600, "total_seconds": 600},
    "early": {"models": "scripted", "first_response_seconds": 0.02},
    "brisk": {
        "models": "scripted",
        "mean_gap_seconds": 0.005,
        "first_response_seconds": 600,
    },
}


def clients(triton):
    """Requests of every kind, and by their ids the times that their clients noted."""
    streams, noted = Streams(triton), {}
    for number in range(MANY):
        for name, send in (("grpc", streams.over_grpc), ("http", streams.over_http)):
            key = f"{name}-{number}"
            noted[key] = send(STREAM, request_id=key)
    for number in range(FEW):
        key = f"generate-{number}"
        noted[key] = streams.over_http(
            [30], how="generate", final_ms=20, request_id=key
        )
        streams.over_grpc([30, 20], empty_final=True)
        streams.over_grpc([30, 20], model="around")
    Sender(triton.grpc).rows("double", FEW)
    return noted


def assert_counts(page):
    said = {"model": "scripted"}
    # `/generate` answers in one response, which is not streamed.
    counted = page.value("triton_request_first_response_seconds_count", **said)
    assert counted == STREAMED
    assert page.value("triton_request_responses_sum", **said) == RESPONSES
    gaps = page.value("triton_request_response_gap_seconds_count", **said)
    assert gaps == RESPONSES - REQUESTS
    first = page.value("triton_request_first_response_seconds_sum", **said)
    assert first >= 0.030 * STREAMED
    assert page.value("triton_request_responses_sum", model="around") == 2 * FEW
    unary = page.all("triton_request_first_response_seconds_count", model="double")
    assert unary == []
    for outcome in ("invalid", "malformed", "unknown_model", "partial", "duplicate"):
        assert records(page, outcome) == 0


def assert_goodput(page):
    """By what the model was told to sleep, so that a busy machine changes nothing."""
    found = {
        name: tuple(
            page.value("triton_request_goodput_total", limits=name, outcome=outcome)
            for outcome in ("met", "missed")
        )
        for name in LIMITS
    }
    assert found == {
        "any": (REQUESTS, 0),
        "early": (0, STREAMED),
        "brisk": (0, STREAMED),
    }


def assert_phases(page):
    phase = "triton_request_phase_duration_seconds"
    count, total = (
        {
            name: page.sum(f"{phase}_{what}", model="scripted", phase=name)
            for name in PHASES
        }
        for what in ("count", "sum")
    )
    # How long the steps of the ensemble worked is not known.
    assert (count["queue"], count["compute_infer"]) == (REQUESTS + FEW, REQUESTS)
    assert count["compute_output"] == 0
    # Over HTTP nobody knows when an answer was sent.
    assert count["network_out"] == MANY + FEW
    slept = 2 * MANY * sum(STREAM) + FEW * (30 + 20) + FEW * (30 + 20)
    assert total["compute_infer"] >= slept / 1000
    assert total["network_out"] < total["compute_infer"]


def assert_times_are_the_clients(traces, noted):
    """In the median: what a busy machine adds to one response is not the marks' doing."""
    found = {trace.request_id: trace for trace in traces}
    firsts, gaps = [], []
    for key, (start, *times) in noted.items():
        responses = found[key].responses
        assert responses.number == len(times)
        if not key.startswith("generate"):
            firsts.append(times[0] - start - responses.first_seconds)
        seen = [after - before for before, after in pairwise(times)]
        gaps += [abs(a - b) for a, b in zip(seen, responses.gaps, strict=True)]
    # The client's own stack comes before the first mark and after each.
    assert min(firsts) > 0
    assert statistics.median(firsts) < 0.030
    assert statistics.median(gaps) < 0.005


@pytest.fixture(scope="module")
def streaming(repository):
    write_streaming_models(repository)
    return repository


@pytest.fixture
def collector():
    collector = Collector(free_port())
    yield collector
    collector.close()


def test_streams_in_spans(streaming, settings, start_sidecar, collector):
    url = f"opentelemetry,url={collector.url}/v1/traces"
    quick = "opentelemetry,bsp_schedule_delay=300"
    with traced(streaming, "mode=opentelemetry", url, quick) as triton:
        sidecar = start_sidecar(
            traces_config(
                settings,
                triton,
                collector.tap_port,
                limits=LIMITS,
            )
        )
        # Our own streams are left out.
        sidecar.wait(
            lambda page: page.sum("triton_probe_total", model="scripted", outcome="ok")
        )
        noted = clients(triton)
        page = sidecar.wait(
            lambda page: (
                requests(page, "scripted") == REQUESTS
                and requests(page, "around") == requests(page, "double") == FEW
            )
        )
        assert_counts(page)
        assert_goodput(page)
        assert_phases(page)
        assert records(page, "own") > 0
        joiner = SpanJoiner(is_ensemble=lambda key: key[0] == "around")
        traces = [
            trace
            for _, body in list(collector.bodies)
            for trace in joiner.add(otlp_traces.from_json(body).spans, 0.0).traces
        ]
        assert_times_are_the_clients(traces, noted)


def test_streams_in_files(streaming, settings, start_sidecar, tmp_path):
    path = tmp_path / "trace.json"
    with traced(streaming, *files_of_five(path)) as triton:
        config = traces_config(
            settings, triton, 0, otlp=None, files={"path": str(path)}
        )
        config["probes"] = []
        sidecar = start_sidecar(config)
        sidecar.wait(lambda page: page.sum("triton_model_ready", model="scripted"))
        noted = clients(triton)
        page = sidecar.wait(
            lambda page: (
                requests(page, "scripted") == REQUESTS
                and requests(page, "around") == requests(page, "double") == FEW
            )
        )
        assert_counts(page)
        assert_phases(page)
        traces = [
            trace
            for file in tmp_path.glob("trace.json.*")
            for trace in trace_records.parse(file.read_bytes()).traces
        ]
        assert_times_are_the_clients(traces, noted)


@pytest.mark.parametrize(
    ("options", "taken"),
    [((), False), (("opentelemetry,bsp_max_export_batch_size=3",), True)],
    ids=["default", "small batches"],
)
def test_answers_too_large_for_one_body_are_counted_in_small_batches(
    streaming, settings, start_sidecar, options, taken
):
    many, port = 12, free_port()
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    slow = "opentelemetry,bsp_schedule_delay=4000"
    with traced(streaming, "mode=opentelemetry", url, slow, *options) as triton:
        # An answer of 500 responses takes about 65 kB.
        config = traces_config(settings, triton, port, otlp={"max_body_bytes": 150_000})
        config["probes"] = []
        sidecar = start_sidecar(config)
        streams = Streams(triton)
        for _ in range(many):
            assert len(streams.over_grpc([0] * 500)) == 501
        said = {"source": "otlp"}
        refused = "tritonwatch_tap_requests_total"
        if taken:
            page = sidecar.wait(lambda page: requests(page, "scripted") == many)
            assert page.sum(refused, outcome="too_large", **said) == 0
            assert page.sum("triton_request_responses_sum") == 500 * many
            return
        page = sidecar.wait(lambda page: page.sum(refused, outcome="too_large", **said))
        assert requests(page, "scripted") < many
        assert "trace_body_too_large" in sidecar.log
        assert "bsp_max_export_batch_size" in sidecar.log
