"""Two models twice: for the real Triton and for the fake one."""

from __future__ import annotations

import numpy as np
from fake_triton import FakeModel, FakeTensor

CONFIG = """
backend: "python"
max_batch_size: 8
input [
  { name: "X" data_type: TYPE_FP32 dims: [4] },
  { name: "S" data_type: TYPE_STRING dims: [1] optional: true }
]
output [{ name: "Y" data_type: TYPE_FP32 dims: [4] }]
dynamic_batching {}
instance_group [{ kind: KIND_CPU count: 1 }]
"""
DECOUPLED = """
backend: "python"
input [{ name: "X" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "Y" data_type: TYPE_INT32 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
model_transaction_policy { decoupled: true }
"""
DOUBLE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("Y", x * 2)]))
        return answers
"""
THREE = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                y = np.array([number], dtype=np.int32)
                sender.send(pb.InferenceResponse([pb.Tensor("Y", y)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def double(inputs):
    with np.errstate(over="ignore"):
        return {"Y": inputs["X"] * 2}


MODELS = (
    FakeModel(
        "m",
        inputs=(FakeTensor("X"), FakeTensor("S", "BYTES", (1,), optional=True)),
        outputs=(FakeTensor("Y"),),
        answer=double,
    ),
    FakeModel(
        "three",
        inputs=(FakeTensor("X", "INT32", (1,)),),
        outputs=(FakeTensor("Y", "INT32", (1,)),),
        max_batch_size=0,
        decoupled=True,
        responses=3,
    ),
)
