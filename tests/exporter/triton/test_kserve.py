"""The generated modules of tritonclient, with and without the rest of it."""

from __future__ import annotations

import os

import pytest
from commands import python


def run(code: str) -> None:
    python(code, env={**os.environ, "PYTHONWARNINGS": "error"})


def test_the_clients_are_not_imported() -> None:
    run(
        "import sys, exporter.triton.grpc\n"
        "assert 'rapidjson' not in sys.modules\n"
        "assert 'tritonclient.grpc' not in sys.modules\n"
    )


@pytest.mark.parametrize("first", ["exporter.triton.kserve", "tritonclient.grpc"])
def test_in_either_order_both_have_the_same_messages(first) -> None:
    run(
        f"import {first}\n"
        "import tritonclient.grpc as package\n"
        "from exporter.triton.kserve import service_pb2, service_pb2_grpc\n"
        "assert package.service_pb2 is service_pb2\n"
        "assert package.service_pb2_grpc is service_pb2_grpc\n"
        "assert package.InferenceServerClient\n"
    )
