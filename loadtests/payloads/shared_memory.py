"""Inputs in System V-style shared memory that a server on the same host reads itself.

POSIX shared memory by name, as Triton's system shared memory extension wants it: the
requests then carry a region's name in place of the tensors.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import urllib3

from exporter.network.grpc_core import grpc
from exporter.triton.kserve import service_pb2, service_pb2_grpc
from exporter.triton.tensors import encode
from loadtests.errors import LoadError
from loadtests.payloads.bodies import Region
from loadtests.tls import grpc_credentials, ssl_context

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from exporter.triton.model import ModelSpec
    from loadtests.payloads.bodies import Row
    from loadtests.target import Target

pb: Final[Any] = service_pb2
_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
_TIMEOUT_SECONDS: Final = 10.0
_ALIGNMENT: Final = 64


@contextlib.contextmanager
def shared(
    target: Target, spec: ModelSpec, rows: Sequence[Row]
) -> Generator[list[Mapping[str, Region]]]:
    """Yield the location of each row's inputs, in a region registered with the server.

    Raises:
        LoadError: there is no shared memory here, or the server cannot read it.
    """
    content, places = _laid_out(spec, rows)
    name = f"tritonwatch-load-{os.getpid()}-{secrets.token_hex(4)}"
    file = _FOLDER / name
    try:
        with file.open("xb") as region:
            region.write(content)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise LoadError(
            f"cannot put {len(content)} bytes into {_FOLDER}: {error.strerror}"
        ) from None
    try:
        _register(target, name, len(content))
        try:
            yield [
                {
                    tensor: Region(name, offset, size)
                    for tensor, (offset, size) in row.items()
                }
                for row in places
            ]
        finally:
            with contextlib.suppress(LoadError):
                _unregister(target, name)
    finally:
        file.unlink(missing_ok=True)


def _laid_out(
    spec: ModelSpec, rows: Sequence[Row]
) -> tuple[bytes, list[dict[str, tuple[int, int]]]]:
    datatypes = {tensor.name: tensor.datatype for tensor in spec.inputs}
    content = bytearray()
    places: list[dict[str, tuple[int, int]]] = []
    for row in rows:
        place: dict[str, tuple[int, int]] = {}
        for name, array in row.inputs.items():
            data = encode(array, datatypes[name])
            place[name] = (len(content), len(data))
            content += data + bytes(-len(data) % _ALIGNMENT)
        places.append(place)
    return bytes(content), places


def _register(target: Target, name: str, size: int) -> None:
    if target.protocol == "http":
        region = {"key": f"/{name}", "offset": 0, "byte_size": size}
        _post(target, f"region/{name}/register", region)
        return
    request = pb.SystemSharedMemoryRegisterRequest(
        name=name, key=f"/{name}", offset=0, byte_size=size
    )
    _call(target, "SystemSharedMemoryRegister", request)


def _unregister(target: Target, name: str) -> None:
    if target.protocol == "http":
        _post(target, f"region/{name}/unregister", {})
        return
    request = pb.SystemSharedMemoryUnregisterRequest(name=name)
    _call(target, "SystemSharedMemoryUnregister", request)


def _call(target: Target, method: str, request: Any) -> None:
    credentials = grpc_credentials(target)
    channel = (
        grpc.insecure_channel(target.address)
        if credentials is None
        else grpc.secure_channel(target.address, credentials)
    )
    metadata = tuple((k.lower(), v) for k, v in target.headers.items())
    with channel:
        stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            getattr(stub, method)(request, timeout=_TIMEOUT_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            details: Any = error
            raise _refused(target, f"{details.details()}") from None


def _post(target: Target, path: str, document: dict[str, Any]) -> None:
    tls = ssl_context(target)
    scheme = "http" if tls is None else "https"
    url = f"{scheme}://{target.address}/v2/systemsharedmemory/{path}"
    with urllib3.PoolManager(ssl_context=tls) as pool:
        try:
            answer = pool.request(
                "POST",
                url,
                body=json.dumps(document).encode(),
                headers=dict(target.headers),
                timeout=_TIMEOUT_SECONDS,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _refused(target, str(error)) from None
    if answer.status != 200:  # noqa: PLR2004
        raise _refused(target, answer.data[:300].decode("utf-8", "replace"))


def _refused(target: Target, reason: str) -> LoadError:
    return LoadError(
        f"{target.address} does not take shared memory: {reason}; the server has to run "
        "on this host, see its /dev/shm and, from Triton 2.69 (26.05) on, be started "
        "with --allow-client-shm"
    )
