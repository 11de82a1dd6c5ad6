"""A KServe-v2 server without Triton's extensions, and a Triton asked like one."""

from __future__ import annotations

import numpy as np
import pytest
from fake_triton import FakeModel, FakeTriton, Status

from exporter.cli import main
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec, TensorSpec
from loadtests.errors import PlanError
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import require_fit
from loadtests.target import Target

MISSING = Status("UNIMPLEMENTED", 404, "Method not found!")
EXTENSIONS = ("model_config", "statistics", "repository_index", "trace_setting")


@pytest.fixture
def plain():
    """A server that knows the protocol and nothing beyond it."""
    with FakeTriton([FakeModel("m")]) as fake:
        for extension in EXTENSIONS:
            fake.on(extension).reply(MISSING)
        yield fake


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_without_extensions_is_loaded(plain, capfd, protocol) -> None:
    arguments = ["--model", "m", "--protocol", protocol, "--concurrency", "2"]
    arguments += ["--address", getattr(plain, protocol), "--duration", "0.3"]
    status = main(["load", "run", "--quiet", *arguments])
    out, err = capfd.readouterr()
    assert (status in {0, 3}, err) == (True, ""), out
    assert "correct answers per second  " in out
    assert "Errors" not in out


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_model_that_is_not_there_is_still_told(plain, capfd, protocol) -> None:
    arguments = ["--model", "nope", "--protocol", protocol, "--concurrency", "1"]
    status = main(
        ["load", "run", *arguments, "--address", getattr(plain, protocol)],
    )
    assert status == 1
    assert "has no model 'nope' to load" in capfd.readouterr().err


def test_the_signature_is_the_metadata_s_where_there_is_no_configuration(plain) -> None:
    client = GrpcClient(plain.grpc)
    spec = client.model_spec("m", "", timeout_seconds=5)
    client.close()
    assert [tensor.name for tensor in spec.inputs]
    assert spec.max_batch_size == 0


@pytest.mark.parametrize(
    ("datatype", "values", "told"),
    [
        ("FP32", np.array([[np.nan]], np.float32), "not JSON compliant"),
        ("BYTES", np.array([[b"\xff"]], object), "can't decode"),
    ],
)
def test_what_json_cannot_hold_is_told(datatype, values, told) -> None:
    spec = ModelSpec("m", "", (TensorSpec("x", datatype, (1, 1)),), (), 0)
    with pytest.raises(PlanError, match=told) as caught:
        body_of(spec, Row({"x": values}), "http", binary=False)
    assert "use --protocol grpc" in str(caught.value)


def test_a_model_that_says_nothing_of_itself_is_told() -> None:
    spec = ModelSpec("m", "", (), (), 0)
    with pytest.raises(PlanError, match="has no inputs"):
        require_fit(spec, Target("grpc", "localhost:8001"))
