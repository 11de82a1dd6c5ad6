"""The embedded Triton's answers, right under every numpy.

The tests run on every environment found: `.triton`, and those that
TRITONWATCH_TEST_ENVIRONMENTS names, separated by colons (make one with
`.ci/venv PYTHON FOLDER requirements-triton.lock`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from embedded_servers import ask, scaling, write_model

from exporter.triton import backend

pytestmark = pytest.mark.triton

DTYPES = {
    "BOOL": bool,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "STRING": object,
}

TRANSPOSE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([transposed(t) for t in r.inputs()]) for r in requests]

def transposed(tensor):
    assert isinstance(tensor, pb.Tensor)
    array = tensor.as_numpy()
    output = pb.Tensor("T_" + tensor.name(), array.T)
    again = output.as_numpy()
    assert again.dtype == array.dtype and (again == array.T).all(), tensor.name()
    return output
"""


def environments():
    named = os.environ.get("TRITONWATCH_TEST_ENVIRONMENTS", "").split(":")
    return ["nearest", *filter(None, named)]


@pytest.fixture(params=environments())
def environment(request, triton_environment):
    if request.param == "nearest":
        return triton_environment
    return Path(request.param)


def array_of(name, shape, rng):
    values = rng.integers(0, 100, shape)
    if name == "STRING":
        text = [f"é{value}".encode() * (value % 4) for value in values.ravel()]
        return np.array(text, object).reshape(shape)
    if name == "BOOL":
        return values % 2 == 0
    return values.astype(DTYPES[name])


@pytest.fixture
def transposing(environment, start_triton, tmp_path):
    """A client of a server whose one model transposes a matrix of every type."""
    lines = ['backend: "python"']
    for name in DTYPES:
        tensor = f"data_type: TYPE_{name} dims: [ -1, -1 ]"
        lines.append(f'input [ {{ name: "{name}" optional: true {tensor} }} ]')
        lines.append(f'output [ {{ name: "T_{name}" {tensor} }} ]')
    repository = write_model(tmp_path / "m", "transpose", "\n".join(lines), TRANSPOSE)
    server = start_triton(repository, environment=environment)
    with contextlib.closing(triton_grpc.InferenceServerClient(server.grpc)) as client:
        yield client


def test_tensors_of_every_type_and_layout_pass_unharmed(transposing) -> None:
    rng = np.random.default_rng(0)
    for shape in [(2, 3), (1, 1), (1, 7), (200, 40), (0, 3)]:
        arrays = {name: array_of(name, shape, rng) for name in DTYPES}
        inputs = []
        for name, array in arrays.items():
            datatype = "BYTES" if name == "STRING" else name
            inputs.append(triton_grpc.InferInput(name, list(shape), datatype))
            inputs[-1].set_data_from_numpy(array)
        result = transposing.infer("transpose", inputs)
        for name, array in arrays.items():
            output = result.as_numpy(f"T_{name}")
            assert output.shape == array.T.shape, (name, shape)
            assert output.dtype == array.dtype, (name, shape)
            assert np.array_equal(output, array.T), (name, shape)


def test_no_environment_is_written_to_and_no_repository(
    environment, start_triton, tmp_path
) -> None:
    site = backend.inspect(environment).site / "pytriton"
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    repository = scaling(tmp_path / "models")
    server = start_triton(repository, environment=environment)
    assert ask(server) == [2.0, 4.0, 8.0]
    server.kill()
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    assert not list(repository.rglob("__pycache__"))
