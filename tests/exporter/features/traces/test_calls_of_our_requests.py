"""What a model calls to answer a request of ours is ours, whatever id it has itself."""

from __future__ import annotations

import pytest

from exporter.features.traces import trace_records
from exporter.features.traces.trace_spans import ANSWER_SECONDS, Span, SpanJoiner
from exporter.features.traces.traced_request import Identity, Marks

OURS = "tritonwatch-probe"
MARKS = {
    "REQUEST_START": 10,
    "QUEUE_START": 20,
    "COMPUTE_START": 30,
    "COMPUTE_INPUT_END": 40,
    "COMPUTE_OUTPUT_START": 50,
    "COMPUTE_END": 60,
    "REQUEST_END": 70,
}
NETWORK = {
    "GRPC_WAITREAD_END": 5,
    "GRPC_SEND_START": 80,
    "GRPC_SEND_END": 90,
}


def marks(times):
    found = Marks()
    for name, ns in times.items():
        found.add(name, ns)
    return found


def spans(model, span_id, parent_id, request_id, *, trace="t", child=False):
    """The spans of one request, in the order in which Triton ends them."""
    identity = Identity(model, "1", request_id, trace, child)
    yield Span("compute", f"c{span_id}", span_id, marks(MARKS))
    yield Span("model", span_id, parent_id, marks(MARKS), identity)
    if not child:
        yield Span("network", parent_id, "", marks(NETWORK))


def caller(request_id, trace="t"):
    return list(spans("caller", f"{trace}0", f"{trace}n", request_id, trace=trace))


def called(trace="t", request_id=""):
    return [
        *spans("deep", f"{trace}2", f"{trace}1", "", trace=trace, child=True),
        *spans("double", f"{trace}1", f"{trace}0", request_id, trace=trace, child=True),
    ]


def ids(joined):
    return sorted((trace.model, trace.request_id) for trace in joined.traces)


OF_OURS = [("caller", OURS), ("deep", OURS), ("double", OURS)]


@pytest.mark.parametrize("request_id", ["", "the-model-says"])
def test_spans_of_one_batch(request_id):
    joiner = SpanJoiner()
    assert ids(joiner.add([*called(request_id=request_id), *caller(OURS)], 0)) == (
        OF_OURS
    )
    assert joiner.waiting == 0


def test_calls_wait_for_the_request_that_caused_them():
    joiner = SpanJoiner()
    assert ids(joiner.add(called(), 0)) == []
    assert ids(joiner.add(caller("client", trace="another"), 1)) == [
        ("caller", "client")
    ]
    assert ids(joiner.add(caller(OURS), 5)) == OF_OURS
    assert joiner.waiting == 0


def test_calls_that_come_after_it_are_known_too():
    joiner = SpanJoiner()
    assert ids(joiner.add(caller(OURS), 0)) == OF_OURS[:1]
    assert ids(joiner.add(called(), 5)) == OF_OURS[1:]


@pytest.mark.parametrize("request_id", [OURS, "client"])
@pytest.mark.parametrize("later", [1, 60])
def test_calls_that_come_after_the_answer_do_not_wait(request_id, later):
    """Another batch has them, or the collector had to send that again."""
    joiner = SpanJoiner()
    assert ids(joiner.add(caller(request_id), 0)) == [("caller", request_id)]
    joiner.expire(later - 0.5)
    of_calls = OURS if request_id == OURS else ""
    found = ids(joiner.add(called(), later))
    assert found == [("deep", of_calls), ("double", of_calls)]
    assert joiner.waiting == 0


def test_calls_of_clients_keep_their_ids_and_wait_no_longer_than_others():
    joiner = SpanJoiner()
    found = joiner.add([*called(request_id="sub"), *caller("client")], 0)
    assert ids(found) == [("caller", "client"), ("deep", ""), ("double", "sub")]
    assert ids(joiner.add(called(trace="lost"), 0)) == []
    found = joiner.expire(ANSWER_SECONDS + 1)
    assert ids(found) == [("deep", ""), ("double", "")]
    assert (joiner.waiting, joiner._children) == (0, {})


def test_a_caller_waits_for_its_own_compute_unless_it_is_an_ensemble():
    compute, *others = caller("client")
    for is_ensemble in (False, True):
        joiner = SpanJoiner(is_ensemble=lambda _, found=is_ensemble: found)
        assert len(joiner.add([*called(), *others], 0.0).traces) == 2 + is_ensemble
        assert len(joiner.add([compute], 0.0).traces) == 1 - is_ensemble


def record(number, model, request_id="", parent=0):
    asked = f',"request_id":"{request_id}"' if request_id else ""
    child = f',"parent_id":{parent}' if parent else ""
    head = f'{{"id":{number},"model_name":"{model}","model_version":1{asked}{child}}}'
    times = MARKS if parent else MARKS | NETWORK
    stamps = (
        f'{{"id":{number},"timestamps":[{{"name":"{name}","ns":{ns}}}]}}'
        for name, ns in times.items()
    )
    return ",".join([head, *stamps])


@pytest.mark.parametrize("request_id", ["", "the-model-says"])
@pytest.mark.parametrize("caused_by", [OURS, "client"])
def test_records_of_a_file(request_id, caused_by):
    records = [
        record(3, "deep", parent=2),
        record(2, "double", request_id, parent=1),
        record(1, "caller", caused_by),
        record(5, "double", parent=4),
    ]
    parsed = trace_records.parse(f"[{','.join(records)}]".encode())
    found = {(trace.model, trace.request_id) for trace in parsed.traces}
    ours = caused_by == OURS
    assert found == {
        ("caller", caused_by),
        ("double", OURS if ours else request_id),
        ("deep", OURS if ours else ""),
        ("double", ""),
    }
    assert parsed.invalid == 0


def test_records_that_name_each_other_as_the_cause_end():
    records = [record(1, "a", parent=2), record(2, "b", parent=1)]
    parsed = trace_records.parse(f"[{','.join(records)}]".encode())
    assert [trace.request_id for trace in parsed.traces] == ["", ""]
