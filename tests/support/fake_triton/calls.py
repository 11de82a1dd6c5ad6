"""A call as the fake understands it, and what it replies, free of either protocol."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fake_triton.behaviours import Body, Status
from fake_triton.inference import InferAnswer
from fake_triton.journal import KEPT_DATA_BYTES, ReceivedRequest, ReceivedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fake_triton.behaviours import Delivery
    from fake_triton.inference import InferRequest
    from fake_triton.journal import Operation, Protocol


REQUEST_BYTES: Final = 64 << 20
"""Most bytes of a request."""
CONNECTIONS: Final = 256
"""Most connections of a port."""


class EndedError(Exception):
    """There is nobody to answer any more: the client left, or the fake stops."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, understood. `gone` tells whether its client has left."""

    protocol: Protocol
    operation: Operation
    model: str = ""
    version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    deadline_seconds: float | None = None
    infer: InferRequest | None = None
    ready_only: bool = False
    streamed: bool = False
    gone: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Ready:
    """Yes or no, to a question about liveness or readiness."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Document:
    """An answer that both protocols carry with the same member names."""

    value: Any


@dataclass(frozen=True, slots=True)
class Text:
    """A page of text."""

    value: str


Content = (
    Ready | Document | Text | Status | Body | InferAnswer | tuple[InferAnswer, ...]
)
"""The last of them are the responses to one streamed request."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send, and how the bytes are to arrive (None: as they should)."""

    content: Content
    delivery: Delivery | None = None


def received(call: Call) -> ReceivedRequest:
    """What the journal keeps of a call."""
    request = call.infer
    return ReceivedRequest(
        protocol=call.protocol,
        operation=call.operation,
        model=call.model,
        version=call.version,
        request_id=request.request_id if request else "",
        headers=call.headers,
        at_seconds=time.monotonic(),
        deadline_seconds=call.deadline_seconds,
        inputs=tuple(
            ReceivedTensor(
                each.name,
                each.dtype,
                each.shape,
                each.raw[:KEPT_DATA_BYTES],
                len(each.raw),
            )
            for each in (request.inputs if request else ())
        ),
        outputs=request.outputs if request else (),
        parameters=request.parameters if request else {},
    )
