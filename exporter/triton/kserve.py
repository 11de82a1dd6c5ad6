"""KServe's gRPC messages and stubs, out of tritonclient, without its clients.

`import tritonclient.grpc` brings both clients, rapidjson and protobuf's JSON format:
3 MB of the sidecar for nothing. So its generated modules are imported with the package's
own code left out; whoever imports the package later gets it whole, with these in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

from exporter.network import grpc_core  # noqa: F401 - the stubs import grpc themselves

_PACKAGE: Final = "tritonclient.grpc"


def _generated(*names: str) -> list[ModuleType]:
    if _PACKAGE in sys.modules:
        return [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    parent = importlib.import_module(_PACKAGE.partition(".")[0])
    empty = ModuleType(_PACKAGE)
    empty.__path__ = [f"{folder}/grpc" for folder in parent.__path__]
    sys.modules[_PACKAGE] = empty
    try:
        return [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    finally:
        del sys.modules[_PACKAGE]


# Made at run time; no type checker knows them.
service_pb2: Any
service_pb2_grpc: Any
service_pb2, service_pb2_grpc = _generated("service_pb2", "service_pb2_grpc")
