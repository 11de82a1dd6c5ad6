"""The one answer that the responses of a stream make, and what is not kept of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ProtocolError
from exporter.own_requests.answer_checks import joined_outputs, reply_fault
from exporter.triton import streamed_reply
from exporter.triton.protocol_types import ModelSpec, OutputTensor, TensorSpec
from exporter.triton.streamed_reply import MAX_GAPS, StreamedReply
from exporter.triton.tensors import encode

TEXT = TensorSpec("text", "BYTES", (-1,))
N = TensorSpec("n", "FP32", (-1,))
SPEC = ModelSpec("m", "1", (), (TEXT, N), decoupled=True)
BATCHED = ModelSpec("m", "1", (), (TEXT, N), max_batch_size=4, decoupled=True)


def text(*words, name="text"):
    array = np.array([word.encode() for word in words], np.object_)
    return OutputTensor(name, "BYTES", array.shape, encode(array, "BYTES"))


def numbers(values):
    array = np.array(values, np.float32)
    return OutputTensor("n", "FP32", array.shape, encode(array, "FP32"))


def reply_of(*responses):
    streamed = StreamedReply(0.0)
    for number, outputs in enumerate(responses, start=1):
        streamed.add(outputs, float(number))
    return streamed.ended(10.0)


def joined(*responses, spec=SPEC):
    return joined_outputs(spec, reply_of(*responses))


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_text_is_joined_value_by_value(pairs):
    found = joined(*((text(*pair),) for pair in pairs))["text"]
    assert [value.decode() for value in found] == [
        "".join(words) for words in zip(*pairs, strict=True)
    ]


def test_a_response_without_an_output_adds_nothing_to_it():
    found = joined((text("a"),), (numbers([1]),), (text("b"), numbers([2, 3])))
    assert found["text"].tolist() == [b"ab"]
    assert found["n"].tolist() == [1, 2, 3]


def test_numbers_of_a_batch_stay_in_their_rows():
    found = joined((numbers([[1], [2]]),), (numbers([[3, 4], [5, 6]]),), spec=BATCHED)
    assert found["n"].tolist() == [[1, 3, 4], [2, 5, 6]]


@pytest.mark.parametrize(
    ("responses", "spec"),
    [
        (((text("a"),), (text("a", "b"),)), SPEC),
        (((numbers([1]),), (numbers([[1]]),)), SPEC),
        (((numbers([1]),), (numbers([1]),)), BATCHED),
        (((numbers([[1]]),), (numbers([[1], [2]]),)), BATCHED),
        (((text("a"),), (OutputTensor("text", "FP32", (1,), b"abcd"),)), SPEC),
    ],
)
def test_responses_that_make_no_one_answer_are_refused(responses, spec):
    with pytest.raises(ProtocolError, match="they cannot be joined"):
        joined(*responses, spec=spec)


def test_a_fault_is_reported_with_the_number_of_its_response():
    nan = reply_of((numbers([1]),), (numbers([float("nan")]),), (numbers([1]),))
    found = reply_fault(SPEC, nan, frozenset({"nan"}))
    assert found == "response 2 of 3: output 'n' holds 1 NaN"
    stranger = reply_of((text("a"),), (text("a", name="other"),))
    found = reply_fault(SPEC, stranger, frozenset())
    assert found == "response 2 of 2: output 'text' is missing; found ['other']"


def test_what_is_kept_of_a_stream_is_bounded(monkeypatch):
    monkeypatch.setattr(streamed_reply, "MAX_KEPT_BYTES", 10_000)
    whole = reply_of((text("x" * 20_000),))
    assert not whole.is_cut
    assert joined_outputs(SPEC, whole)["text"].tolist() == [b"x" * 20_000]
    cut = reply_of(*[(text("x"),)] * (MAX_GAPS + 10))
    assert cut.is_cut
    assert cut.responses == MAX_GAPS + 10
    assert 0 < len(cut.streamed) < 100
    assert len(cut.gap_seconds) == MAX_GAPS
    assert reply_fault(SPEC, cut, frozenset()) is None
    with pytest.raises(ProtocolError, match=r"it has 10010 responses, and the first"):
        joined_outputs(SPEC, cut)


def test_a_stream_without_responses_is_whole_and_empty():
    empty = reply_of()
    assert (empty.responses, empty.is_cut, empty.streamed) == (0, False, ())
    assert empty.first_response_seconds is None
