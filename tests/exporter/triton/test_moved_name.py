"""A name that comes to mean another server: how soon gRPC follows."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from name_server import NameServer
from waiting import patience

from exporter.errors import TritonError
from exporter.network.grpc_core import grpc
from exporter.triton.grpc import GrpcClient
from exporter.triton.kserve import service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Generator

OLD, NEW = "127.0.0.1", "127.0.0.2"


@contextlib.contextmanager
def server(host: str, port: int, version: str) -> Generator[int]:
    """A server that only says which version it is; its port."""

    def told(_: pb.ServerMetadataRequest, __: object) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name="triton", version=version)

    metadata = grpc.unary_unary_rpc_method_handler(
        told,
        request_deserializer=pb.ServerMetadataRequest.FromString,
        response_serializer=pb.ServerMetadataResponse.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ServerMetadata": metadata}
    )
    with ThreadPoolExecutor(1) as workers:
        running = grpc.server(workers, options=[("grpc.so_reuseport", 0)])
        running.add_generic_rpc_handlers((service,))
        bound = running.add_insecure_port(f"{host}:{port}")
        running.start()
        try:
            yield bound
        finally:
            running.stop(grace=0).wait(10)


def test_a_name_that_moves_is_followed_within_seconds() -> None:
    """By default gRPC's core resolves a name again after 30 s at the earliest."""
    with NameServer(OLD) as names, contextlib.ExitStack() as old:
        port = old.enter_context(server(OLD, 0, "1"))
        with server(NEW, port, "2"):
            address = f"dns://127.0.0.1:{names.port}/triton.test:{port}"
            with contextlib.closing(GrpcClient(address)) as client:
                assert client.server_info(timeout_seconds=patience()).version == "1"
                names.address = NEW
                old.close()
                moved = time.monotonic()
                version = None
                while version != "2":
                    assert time.monotonic() - moved < patience(10), (
                        f"{names.asked} questions"
                    )
                    with contextlib.suppress(TritonError):
                        version = client.server_info(timeout_seconds=1.0).version
                    time.sleep(0.1)
    assert names.asked >= 2
