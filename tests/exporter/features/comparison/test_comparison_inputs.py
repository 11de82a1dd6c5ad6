"""Where inputs come from: the tap's latest, a file's rows, made up."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.access.mirror_hub import Mirrored
from exporter.errors import GoldenDataError
from exporter.features.comparison.comparison_inputs import (
    MAX_HELD_BYTES,
    FirstInputs,
    GoldenInputs,
    MirroredInputs,
    SyntheticInputs,
)
from exporter.triton.protocol_types import ModelSpec, TensorSpec

SPEC = ModelSpec(
    "m",
    "1",
    (TensorSpec("x", "FP32", (-1, 2)), TensorSpec("word", "BYTES", (-1, 1))),
    (TensorSpec("y", "FP32", (-1, 3)),),
    max_batch_size=8,
)


def mirrored(value, request_id="client-1", size=2):
    x = np.full((1, size), value, np.float32)
    return Mirrored("http", "m", "", request_id, {"x": x, "other": x})


@pytest.fixture
def golden(tmp_path):
    def write(**columns):
        path = tmp_path / "golden.npz"
        np.savez(path, **columns)
        return GoldenInputs(path, "label", seed=1)

    return write


def test_the_latest_mirrored_request_is_given_out_once():
    source = MirroredInputs()
    assert source.next(SPEC) is None
    source.add([mirrored(1), mirrored(2)])
    given = source.next(SPEC)
    assert given.arrays["x"].tolist() == [[2.0, 2.0]]
    # What the model does not take is not sent.
    assert given.arrays.keys() == {"x"}
    assert source.next(SPEC).arrays["x"][0, 0] == 1
    assert source.next(SPEC) is None


def test_our_own_requests_and_answers_alone_are_no_inputs():
    source = MirroredInputs()
    source.add([mirrored(1, "tritonwatch-probe-1"), Mirrored("http", "m", "", "r")])
    assert source.next(SPEC) is None


def test_what_waits_is_bounded_by_bytes_and_by_number():
    source = MirroredInputs()
    source.add([mirrored(n, size=1 << 20) for n in range(20)])
    held = 0
    while source.next(SPEC) is not None:
        held += 1
    assert held * 8 << 20 <= MAX_HELD_BYTES
    assert held > 0
    source.add([mirrored(0, size=MAX_HELD_BYTES)])
    assert source.next(SPEC) is None
    source.add([mirrored(n) for n in range(1000)])
    assert len(source._held) == 256


def test_every_row_of_a_file_comes_before_any_comes_again(golden):
    rows = np.arange(12, dtype=np.float64).reshape(6, 2)
    words = np.array([f"w{n}" for n in range(6)])
    source = golden(x=rows, word=words, label=np.arange(6))
    assert source.labelled
    for _ in range(2):
        given = [source.next(SPEC) for _ in range(6)]
        assert sorted(i.label for i in given) == list(range(6))
        for one in given:
            assert one.arrays["x"].dtype == np.float32
            assert one.arrays["x"].tolist() == [rows[one.label].tolist()]
            assert one.arrays["word"].tolist() == [[f"w{one.label}".encode()]]


def test_labels_of_a_regression_are_no_classes(golden):
    def given(*labels):
        words = np.array(["a"] * len(labels))
        rows = np.ones((len(labels), 2))
        return golden(x=rows, word=words, label=np.array(labels))

    assert {given(1.0, 1.0).next(SPEC).label} == {1}
    with pytest.raises(GoldenDataError, match=r"1\.7.*; want a class as an integer"):
        given(1.7, 1.7).next(SPEC)


def test_a_file_that_does_not_fit_names_file_field_and_row(golden, tmp_path):
    with pytest.raises(GoldenDataError, match=r"golden\.npz.*word"):
        golden(x=np.ones((3, 2))).next(SPEC)
    with pytest.raises(GoldenDataError, match=r"golden\.npz.*x"):
        golden(x=np.ones((3, 5)), word=np.array(["a"] * 3)).next(SPEC)
    with pytest.raises(GoldenDataError, match=r"row 0.*label.*cat|label.*row 0.*cat"):
        golden(x=np.ones((1, 2)), word=np.array(["a"]), label=np.array(["cat"])).next(
            SPEC
        )
    with pytest.raises(GoldenDataError, match="cannot be read"):
        GoldenInputs(tmp_path / "none.npz", "label", 0)
    with pytest.raises(GoldenDataError, match="suffix"):
        GoldenInputs(tmp_path / "golden.docx", "label", 0)


def test_made_up_inputs_are_new_every_time_and_repeat_with_the_seed():
    one, other = SyntheticInputs({}, 3), SyntheticInputs({}, 3)
    first = one.next(SPEC).arrays["x"]
    np.testing.assert_array_equal(first, other.next(SPEC).arrays["x"])
    assert not np.array_equal(first, one.next(SPEC).arrays["x"])


def test_the_first_source_that_has_something_is_taken():
    tap = MirroredInputs()
    both = FirstInputs((tap, SyntheticInputs({}, 0)))
    assert set(both.next(SPEC).arrays) == {"x", "word"}
    assert both.name == "synthetic"
    tap.add([mirrored(7)])
    assert both.next(SPEC).arrays["x"][0, 0] == 7
    assert both.name == "mirror"
