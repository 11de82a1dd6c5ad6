"""FakeTriton scripted to spoil its outputs: values, dtypes, shapes, bytes."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from fault_clients import BINARY, grpc_infer, http_infer, numpy_infer, statistics
from triton_clients import message, stub

from exporter.testing import (
    EmptyTensor,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Filled,
    MissingOutput,
    ShortTensor,
    Slow,
    WrongDtype,
    WrongShape,
)


class TestTensors:
    PAIR = FakeModel(
        "m",
        outputs=(FakeTensor("A"), FakeTensor("B"), FakeTensor("I", "INT32", (2,))),
    )

    @pytest.fixture
    def fake(self):
        with FakeTriton([self.PAIR]) as server:
            yield server

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 0.5])
    def test_outputs_can_hold_one_value_everywhere(self, fake, value):
        fake.on("infer").reply(Filled(value))
        answer = numpy_infer(fake)
        for name in ("A", "B"):
            np.testing.assert_array_equal(
                answer.as_numpy(name), np.full((1, 4), value, np.float32)
            )
        integers = answer.as_numpy("I")
        assert (integers == 0).all() if math.isfinite(value) else integers.any()
        _, body = http_infer(fake)
        data = json.loads(body)["outputs"][0]["data"]
        np.testing.assert_array_equal(data, [value] * 4)

    def test_nan_stands_bare_in_json_as_triton_writes_it(self, fake):
        fake.on("infer").reply(Filled(math.nan))
        assert b"[NaN,NaN,NaN,NaN]" in http_infer(fake)[1]

    def test_one_element_of_one_output_can_be_nan(self, fake):
        fake.on("infer").reply(Filled(math.nan, elements=1, output="B"))
        answer = numpy_infer(fake)
        assert np.isnan(answer.as_numpy("B")).tolist() == [[True, False, False, False]]
        assert np.isfinite(answer.as_numpy("A")).all()

    def test_a_wrong_dtype_is_declared_and_encoded(self, fake):
        fake.on("infer").reply(WrongDtype("INT64", output="A"))
        answer = grpc_infer(fake)
        assert [each.datatype for each in answer.outputs] == ["INT64", "FP32", "INT32"]
        assert [len(raw) for raw in answer.raw_output_contents] == [32, 16, 8]

    @pytest.mark.parametrize(
        ("scripted", "shape"),
        [
            (WrongShape(output="A"), [1, 5]),
            (WrongShape((2, 3, 4), output="A"), [2, 3, 4]),
            (WrongShape((), output="A"), []),
            (WrongShape((0, 4), output="A"), [0, 4]),
        ],
    )
    def test_a_wrong_shape_has_as_many_elements(self, fake, scripted, shape):
        fake.on("infer").reply(scripted)
        answer = grpc_infer(fake)
        assert list(answer.outputs[0].shape) == shape
        assert len(answer.raw_output_contents[0]) == 4 * math.prod(shape)
        assert list(answer.outputs[1].shape) == [1, 4]

    def test_an_empty_tensor_is_a_success_with_the_declared_shape_and_no_bytes(
        self, fake
    ):
        fake.on("infer").reply(EmptyTensor())
        answer = grpc_infer(fake)
        assert [list(each.shape) for each in answer.outputs] == [[1, 4], [1, 4], [1, 2]]
        assert list(answer.raw_output_contents) == [b"", b"", b""]
        status, body = http_infer(fake, body=BINARY)
        assert status == 200
        assert b'"shape":[1,4],"parameters":{"binary_data_size":0}' in body
        status, body = http_infer(fake)
        assert status == 500
        assert b"does not match size of output for 'A'" in body
        assert statistics(fake)["inference_stats"]["success"]["count"] == 3

    def test_a_short_tensor_lacks_its_last_bytes(self, fake):
        whole = grpc_infer(fake).raw_output_contents[0]
        fake.on("infer").reply(ShortTensor(3, output="A"))
        assert grpc_infer(fake).raw_output_contents[0] == whole[:-3]

    def test_an_output_can_be_missing(self, fake):
        fake.on("infer").reply(MissingOutput("A"))
        assert [each.name for each in grpc_infer(fake).outputs] == ["B", "I"]
        fake.on("infer").reply(MissingOutput())
        assert not grpc_infer(fake).outputs

    def test_faults_combine_in_order_and_with_time(self, fake):
        fake.on("infer").reply(
            Slow(0.05), WrongShape((3,), output="A"), Filled(7, output="A")
        )
        began = time.monotonic()
        answer = numpy_infer(fake)
        assert time.monotonic() - began >= 0.05
        assert answer.as_numpy("A").tolist() == [7, 7, 7]

    def test_streamed_answers_are_spoilt_too(self, fake):
        fake.on("infer").reply(EmptyTensor())
        with stub(fake) as service:
            (answer,) = service.ModelStreamInfer(iter([message()]), timeout=10)
        assert list(answer.infer_response.raw_output_contents) == [b""] * 3

    def test_text_outputs_are_retyped_and_reshaped_but_not_filled(self):
        model = FakeModel("m", outputs=(FakeTensor("T", "BYTES", (3,)),))
        with FakeTriton([model]) as fake:
            fake.on("infer").reply(Filled(1.0))
            words = numpy_infer(fake).as_numpy("T").ravel().tolist()
            assert all(word.startswith(b"word-") for word in words)
            fake.on("infer").reply(WrongShape((2,)))
            assert numpy_infer(fake).as_numpy("T").tolist() == words[:2]
            fake.on("infer").reply(WrongDtype("FP32"))
            assert numpy_infer(fake).as_numpy("T").dtype == np.float32
