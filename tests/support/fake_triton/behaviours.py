"""The vocabulary of FakeTriton's scripts: each way in which a server can misbehave.

A behaviour is a frozen record. Several go together in one reply, for instance
``fake.on("infer").reply(Slow(0.5), Filled(math.nan))``. Four families:

- when the answer comes: `Slow`, `Hung`
- what it says instead: `Status`, `NotReady`, `Body`
- how its bytes arrive: `Garbage`, `HalfAnswer`, `Dropped`, `Dripping`
- what is wrong inside: tensors (`WrongDtype`, `WrongShape`, `Filled`, `EmptyTensor`,
  `ShortTensor`, `MissingOutput`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Counted = Literal["no", "success", "REJECTED", "CANCELED", "BACKEND", "OTHER"]


@dataclass(frozen=True, slots=True)
class Slow:
    """Answer `seconds` late; the statistics show the time in `phase`.

    The work goes on and is counted when the client has given up, as in Triton, whose
    backends cannot be interrupted. `phase="network"` leaves no trace in the statistics.
    """

    seconds: float
    phase: Literal["compute_infer", "network"] = "compute_infer"


@dataclass(frozen=True, slots=True)
class Hung:
    """Never answer; the connection stays open until the client leaves or stop()."""


@dataclass(frozen=True, slots=True)
class Status:
    """Fail: `grpc` is the status code on gRPC, `http` the one on HTTP.

    `counted` says where the statistics put a failed inference: the reason of
    nv_inference_request_failure, "no" for a request refused before it was scheduled,
    or "success" (what Triton 2.51 does with an error response of its Python backend).
    """

    grpc: str
    http: int
    message: str
    counted: Counted = "no"


UNAVAILABLE: Final = Status("UNAVAILABLE", 503, "the server is not ready")
QUEUE_FULL: Final = Status(
    "UNAVAILABLE", 503, "Exceeds maximum queue size", counted="REJECTED"
)
INTERNAL: Final = Status("INTERNAL", 500, "the backend failed", counted="BACKEND")
PYTHON_BACKEND_ERROR: Final = Status(
    "INTERNAL", 500, "the model raised TritonError", counted="success"
)
INVALID_ARGUMENT: Final = Status("INVALID_ARGUMENT", 400, "the request does not fit")
NOT_FOUND: Final = Status("NOT_FOUND", 404, "Request for unknown model")


@dataclass(frozen=True, slots=True)
class NotReady:
    """Say "no": gRPC false, HTTP 400, as Triton does (live and ready, server and model)."""


@dataclass(frozen=True, slots=True)
class Body:
    """A well-framed answer with this content: HTTP 200 or one gRPC message of it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are neither HTTP nor HTTP/2, then the end of the connection."""


@dataclass(frozen=True, slots=True)
class HalfAnswer:
    """Half of the answer, then the end of the connection.

    HTTP promises the whole Content-Length; gRPC is reset inside the message: half of the
    body (HTTP) or of the first data frame (gRPC) arrives.
    """


@dataclass(frozen=True, slots=True)
class Dropped:
    """The connection is reset before the first byte of the answer."""


@dataclass(frozen=True, slots=True)
class Dripping:
    """The answer's body arrives byte by byte, `interval_seconds` apart.

    Every single read succeeds in time: only a deadline for the whole answer ends it.
    """

    interval_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class WrongDtype:
    """Outputs come as INT64, consistently encoded."""


@dataclass(frozen=True, slots=True)
class WrongShape:
    """Outputs come with a last axis that is longer by one."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Outputs hold `value` everywhere.

    NaN and infinities leave integer, boolean and BYTES outputs as they are.
    """

    value: float


@dataclass(frozen=True, slots=True)
class EmptyTensor:
    """Success, the declared shape, and 0 bytes of data.

    What Triton's Python backend answers under numpy >= 2; in JSON over HTTP this is
    status 500, as there.
    """

    output: str | None = None
    """The only one; None: every output."""


@dataclass(frozen=True, slots=True)
class ShortTensor:
    """Success with the declared shape, but the last byte is not there."""


@dataclass(frozen=True, slots=True)
class MissingOutput:
    """Success without this output (None: without any)."""

    output: str | None = None


GARBAGE: Final = bytes(range(256))
Delivery = Garbage | HalfAnswer | Dropped | Dripping
TensorFault = (
    WrongDtype | WrongShape | Filled | EmptyTensor | ShortTensor | MissingOutput
)
Behaviour = Slow | Hung | Status | NotReady | Body | Delivery | TensorFault
