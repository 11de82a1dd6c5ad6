"""Trace files as Triton writes them, and as nobody should."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from exporter.features.traces import trace_records

FILES = Path(__file__).parents[3] / "data" / "traces" / "files"
MS = 1_000_000


def stamps(number, start, **shifts):
    """The records of one gRPC request of 10 ms, as Triton words them."""
    at = {
        "GRPC_WAITREAD_START": -900,
        "GRPC_WAITREAD_END": 0,
        "REQUEST_START": 1,
        "QUEUE_START": 1,
        "COMPUTE_START": 3,
        "COMPUTE_INPUT_END": 4,
        "COMPUTE_OUTPUT_START": 7,
        "COMPUTE_END": 8,
        "REQUEST_END": 9,
        "INFER_RESPONSE_COMPLETE": 8,
        "GRPC_SEND_START": 8,
        "GRPC_SEND_END": 10,
        **shifts,
    }
    return [
        f'{{"id":{number},"timestamps":[{{"name":"{name}","ns":{start + ms * MS}}}]}}'
        for name, ms in at.items()
        if ms is not None
    ]


def who(number, *, model="m", request_id=None, parent=None):
    asked = "" if request_id is None else f',"request_id":"{request_id}"'
    child = "" if parent is None else f',"parent_id":{parent}'
    return f'{{"id":{number},"model_name":"{model}","model_version":1{asked}{child}}}'


def array(*parts):
    flat = [r for part in parts for r in ([part] if isinstance(part, str) else part)]
    return ("[" + ",".join(flat) + "]").encode()


START = 10**12


def test_the_phases_of_a_request_add_up_to_its_total():
    (trace,) = trace_records.parse(array(who(1), stamps(1, START))).traces
    assert trace.total_seconds == pytest.approx(0.010)
    assert trace.phases == pytest.approx((0.001, 0.002, 0.001, 0.003, 0.001, 0.002))
    assert sum(trace.phases) == pytest.approx(trace.total_seconds)
    assert (trace.model, trace.version, trace.protocol) == ("m", "1", "grpc")
    assert not trace.child


def test_records_of_many_traces_in_any_order_are_the_same_traces():
    parts = [r for n in range(1, 50) for r in (who(n), *stamps(n, START + n * 10**9))]
    ordered = trace_records.parse(array(parts)).traces
    random.Random(1).shuffle(parts)  # noqa: S311 - an order, no secret
    shuffled = trace_records.parse(array(parts)).traces
    assert len(ordered) == 49
    assert sorted(shuffled, key=lambda t: t.begin_ns) == ordered


@pytest.mark.parametrize(
    "request_id",
    [
        'a"}],"x":[{\\',
        "line\nfeed\r\t",
        "\x00\x01\x7f",
        '","parent_id":5',
        '","parent_id":5}',
        "][}{",
        '"}]',
        "\\",
        '"',
        "é中",
    ],
)
def test_a_hostile_request_id_costs_nothing(request_id):
    data = array(
        who(1), stamps(1, START), who(2, request_id=request_id), stamps(2, START)
    )
    parsed = trace_records.parse(data)
    assert [t.request_id for t in parsed.traces] == ["", request_id]
    assert [t.child for t in parsed.traces] == [False, False]
    assert (parsed.malformed, parsed.invalid) == (0, 0)


def test_a_request_id_that_ends_its_record_and_begins_another_costs_only_itself():
    forged = 'x"},{"id":1,"timestamps":[{"name":"GRPC_SEND_END","ns":1}]},{"id":3,"q":"'
    data = array(who(1), stamps(1, START), who(2, request_id=forged), stamps(2, START))
    parsed = trace_records.parse(data)
    assert sorted(t.trace_id for t in parsed.traces) == ["1", "2"]
    assert all(t.total_seconds == pytest.approx(0.010) for t in parsed.traces)
    assert parsed.malformed == 1


def test_a_forged_mark_makes_a_trace_invalid_and_not_faster():
    forged = 'x"},{"id":1,"timestamps":[{"name":"GRPC_WAITREAD_END","ns":5}]},{"id":9,"'
    data = array(who(1), stamps(1, START), who(2, request_id=forged), stamps(2, START))
    parsed = trace_records.parse(data)
    assert [t.trace_id for t in parsed.traces] == ["2"]
    assert parsed.invalid == 1


def test_a_truncated_array_gives_the_traces_that_are_whole():
    data = array(who(1), stamps(1, START), who(2), stamps(2, START))
    for end in range(len(data)):
        parsed = trace_records.parse(data[:end])
        for trace in parsed.traces:
            assert trace.total_seconds in (None, pytest.approx(0.010))
    whole = data[: data.index(b'{"id":2')]
    assert [t.trace_id for t in trace_records.parse(whole).traces] == ["1"]


@pytest.mark.parametrize("file", sorted(FILES.iterdir()), ids=lambda p: p.name)
def test_a_real_file_is_complete_and_no_part_of_it_is(file):
    data = file.read_bytes()
    assert trace_records.is_complete(data)
    cuts = [end for end in range(len(data)) if trace_records.is_complete(data[:end])]
    # The hostile id of this recording holds what the end of an array looks like.
    hostile = data.find(b'"}],"x"')
    assert cuts == ([hostile + 3] if hostile >= 0 else [])


def test_every_trace_of_the_real_files_is_read():
    parsed = [
        trace_records.parse(file.read_bytes()) for file in sorted(FILES.iterdir())
    ]
    traces = [trace for part in parsed for trace in part.traces]
    assert sum(p.malformed + p.invalid for p in parsed) == 0
    assert len(traces) == 21
    children = {(t.model, t.request_id) for t in traces if t.child}
    assert children == {(m, f"p{n}") for m in ("ident", "double") for n in range(3)}
    hits = [t for t in traces if t.model == "cached" and t.phases[3] is None]
    assert len(hits) == 2
    assert all(t.total_seconds > t.phases[0] + t.phases[-1] for t in hits)
    assert {t.protocol for t in traces if not t.child} == {"grpc", "http"}


def test_a_decoupled_request_lasts_until_its_last_answer():
    more = stamps(1, START, GRPC_SEND_END=25)[-1]
    (trace,) = trace_records.parse(array(who(1), stamps(1, START), more)).traces
    assert trace.total_seconds == pytest.approx(0.025)
    assert sum(trace.phases) == pytest.approx(0.025)


def test_answers_sent_while_the_model_computes_are_in_its_phase():
    early = stamps(1, START, GRPC_SEND_START=5, GRPC_SEND_END=6, COMPUTE_END=30)
    (trace,) = trace_records.parse(array(who(1), early)).traces
    assert trace.total_seconds == pytest.approx(0.006)
    assert trace.phases == pytest.approx((0.001, 0.002, 0.001, 0.002, 0, 0))


def test_a_request_nobody_waited_for_has_no_total():
    gone = stamps(1, START, GRPC_SEND_START=None, GRPC_SEND_END=None)
    (trace,) = trace_records.parse(array(who(1), gone)).traces
    assert trace.total_seconds is None
    assert trace.phases[-1] is None
    assert trace.phases[3] == pytest.approx(0.003)


@pytest.mark.parametrize(
    "marks",
    [
        {"GRPC_SEND_END": -5},
        {"GRPC_SEND_END": 86_400_001},
        {"GRPC_SEND_END": 9_300_000_000_000},
        # A file that ends too early.
        {"GRPC_SEND_START": None, "GRPC_SEND_END": None, "REQUEST_END": None},
    ],
)
def test_a_trace_that_contradicts_itself_is_invalid(marks):
    parsed = trace_records.parse(array(who(1), stamps(1, START, **marks)))
    assert parsed.traces == []
    assert parsed.invalid == 1


def test_tensors_between_the_timestamps_are_passed_by():
    tensor = '{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"x","data":"1"}}'
    parsed = trace_records.parse(array(who(1), tensor, stamps(1, START)))
    assert len(parsed.traces) == 1
    assert parsed.malformed == 0


def test_recorded_files_with_tensors_yield_every_trace():
    recorded = sorted((FILES.parent / "tensors").iterdir())
    parsed = [trace_records.parse(path.read_bytes()) for path in recorded]
    assert [len(one.traces) for one in parsed] == [4, 4, 1]


@pytest.mark.parametrize(
    "unit",
    [
        b'{"id":1,"model_name":"',
        b'{"id":1,"model_name":"m","model_version":1,"request_id":"',
        b',{"id":',
        b'"},{"id":1,"model_name":"m","model_version":1,"request_id":"x","parent_id":',
        b'{"id":1,"timestamps":[{"name":"',
        b'"',
    ],
)
def test_time_grows_with_the_size_alone(unit):
    def seconds(size):
        data = b"[" + unit * (size // len(unit))
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            trace_records.parse(data)
            best = min(best, time.process_time() - started)
        return best

    # Quadratic would be 16 times 4; the rest is room for a busy machine.
    assert seconds(1 << 21) < 40 * max(seconds(1 << 17), 1e-4)
