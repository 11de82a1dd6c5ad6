"""gRPC as everything here imports it: who makes a call reads its own socket.

By default, gRPC's core has a poller of its EventEngine read each answer and hand it to the
thread that made the call. A blocking call pays for that change of threads with 25-30 us,
which a probe would report as the server's. The core's older client, polled by the caller
itself, is still behind the name of an experiment. The core reads that name once, when it
is loaded; it is taken away again, so that no process we start inherits it.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["grpc"]

_VARIABLE: Final = "GRPC_EXPERIMENTS"

if _VARIABLE in os.environ:
    # Whoever set it knows what they want.
    import grpc
else:
    os.environ[_VARIABLE] = "-event_engine_client"
    try:
        import grpc
    finally:
        del os.environ[_VARIABLE]
