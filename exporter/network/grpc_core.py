"""gRPC as everything here imports it: who makes a call reads its own socket.

By default, gRPC's core has a poller of its EventEngine read each answer and hand it to the
thread that made the call. A blocking call pays for that change of threads with 25-30 us,
which a probe would report as the server's. The core's older client, polled by the caller
itself, is still behind the name of an experiment. Between calls nobody polls, so that a
connection that ends or comes about is noticed by the core's backup poller: at its default
of 5 s a server that came back would stay down for as long.

The core writes lines of its own to standard error, in no format of ours, at each failed
handshake for one. What it has to say comes with the error of the call, so they are off.

The core reads these variables once, when it is loaded; they are taken away again, so that
no process we start inherits them.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["grpc"]

_EXPERIMENTS: Final = "GRPC_EXPERIMENTS"
_VARIABLES: Final = {
    _EXPERIMENTS: "-event_engine_client",
    "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS": "100",
}

_LOG: Final = {"GRPC_VERBOSITY": "NONE"}
_LOG_OF_USER: Final = {"GRPC_VERBOSITY", "GRPC_TRACE"}

# A user who sets experiments, or asks for the core's log, gets exactly that.
_ours = {
    name: value
    for name, value in _VARIABLES.items()
    if name not in os.environ and _EXPERIMENTS not in os.environ
}
if not _LOG_OF_USER & os.environ.keys():
    _ours |= _LOG
os.environ.update(_ours)
try:
    import grpc
finally:
    for name in _ours:
        del os.environ[name]
