"""Envelopes whose arrays follow as they lie in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift import codec
from drift.errors import StateError

ARRAYS = {
    "sums": np.arange(12, dtype=np.float64).reshape(3, 2, 2) / 7,
    "cells": np.arange(6, dtype=np.uint32).reshape(2, 3),
    "totals": np.array([2**60, -1]),
    "none": np.zeros((0, 4)),
}
PAYLOAD = {"a": [1, {"text": 'new\nline and "array"'}, None], **ARRAYS}


def envelope(payload=PAYLOAD):
    return b"".join(codec.packed("watch", 2, payload))


def test_values_and_arrays_come_back_as_they_were():
    found = codec.unpacked(envelope(), "watch", 2)
    assert found["a"] == PAYLOAD["a"]
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype  # type: ignore[attr-defined]
        assert np.array_equal(found[name], array), name


def test_arrays_are_written_from_where_they_lie():
    array = np.arange(1000.0)
    parts = codec.packed("watch", 2, {"sums": array})
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts)
    assert sum(len(part) for part in parts) < array.nbytes + 300


def test_what_does_not_lie_in_one_piece_and_other_types_are_written_too():
    across, small = np.arange(6.0).reshape(2, 3).T, np.array([1, 2], np.int8)
    found = codec.unpacked(envelope({"across": across, "small": small}), "watch", 2)
    assert np.array_equal(found["across"], across)
    assert found["small"] == [1, 2]


def test_every_flipped_byte_and_every_cut_is_noticed():
    data = envelope()
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(StateError):
            codec.unpacked(flipped, "watch", 2)
        with pytest.raises(StateError):
            codec.unpacked(data[:place], "watch", 2)


@pytest.mark.parametrize(
    "told",
    [
        {"array": "<f8", "shape": [9], "at": 0},
        {"array": "<f8", "shape": [1], "at": 1 << 40},
        {"array": "<f8", "shape": [1], "at": -8},
        {"array": "<f8", "shape": [-1], "at": 0},
        {"array": "<f8", "shape": [1 << 62, 1 << 62], "at": 0},
        {"array": "O", "shape": [1], "at": 0},
        {"array": "<f8", "shape": "all", "at": 0},
        {"array": "<f8"},
        {"array": None, "shape": None, "at": None},
    ],
)
def test_an_array_that_cannot_be_there_is_refused(told):
    """Such a file is whole, and its checksum is right."""
    with pytest.raises(StateError):
        codec.unpacked(envelope({"sums": np.zeros(1), "other": told}), "watch", 2)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_envelope_or_a_state_error(data):
    for read in (codec.decode, codec.unpacked):
        with pytest.raises(StateError):
            read(data, "watch", 2)
    assert isinstance(codec.version_of(data), str)


def test_a_checksum_tells_one_envelope_from_another_and_refuses_damage():
    one, other = codec.encode("x", 1, {"a": 1}), codec.encode("x", 1, {"a": 2})
    digests = {codec.digest_of(data, "x", 1) for data in (one, other, one)}
    assert len(digests) == 2
    assert codec.digest_of(one, "x", 1).encode() in one
    with pytest.raises(StateError):
        codec.digest_of(one[:-1], "x", 1)
