"""Which protocols a model is probed over."""

from __future__ import annotations

import contextlib

import pytest
from accesses import access_to

from exporter.access.inventory import Inventory
from exporter.features.synthetic.synthetic_probe import SyntheticSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import ModelSpec, TensorSpec


@pytest.mark.parametrize(
    ("protocols", "decoupled", "asked"),
    [
        (("grpc", "http"), False, ["grpc", "http"]),
        # One stream an interval is dear enough.
        (("grpc", "http"), True, ["grpc"]),
        (("http",), True, ["http"]),
    ],
)
def test_a_decoupled_model_is_asked_once(protocols, decoupled, asked):
    tensor = TensorSpec("x", "FP32", (1,))
    spec = ModelSpec("m", "1", (tensor,), (tensor,), decoupled=decoupled)
    with contextlib.closing(GrpcClient("127.0.0.1:1")) as grpc:
        access = access_to(grpc, http=HttpClient("127.0.0.1:1"))
        probe = SyntheticSettings(protocols=protocols).build(access)
        targets = probe.targets(Inventory(True, True, models={spec.key: spec}))
    assert [target.protocol for target in targets] == asked
