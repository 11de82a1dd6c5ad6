"""The parts that all gRPC calls share: errors of ours in place of gRPC's, and a limit on answers.

Parsed, a message can take fifty times its length: 64 MB of empty entries, which answers
with tensors may have, are 3 GB. So answers without tensors have a limit of their own.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final

from exporter import errors
from exporter.network.grpc_core import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_CONNECTION: Final = "failed to connect to all addresses"
"""Beginning of gRPC's error text where nothing was sent."""
_RESTRICTED: Final = "This protocol is restricted, expecting header"
"""Beginning of Triton's refusal (--grpc-restricted-protocol), whose code is UNAVAILABLE."""
_KINDS: Final[dict[grpc.StatusCode, type[errors.TritonError]]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineError,
    grpc.StatusCode.UNAUTHENTICATED: errors.DeniedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.DeniedError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnsupportedError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: errors.InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidRequestError,
    grpc.StatusCode.ALREADY_EXISTS: errors.InvalidRequestError,
}


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raise a TritonError in place of gRPC's exceptions."""
    try:
        yield
    except grpc.RpcError as error:
        raise _error(error) from None
    except ValueError as error:  # what grpc raises on a closed channel
        raise errors.UnavailableError(str(error)) from None


def _error(error: Any) -> errors.TritonError:
    code, details = error.code(), error.details() or ""
    text = f"{code.name}: {details}"
    if details.startswith(_RESTRICTED):
        return errors.DeniedError(text)
    # A proxy answers 400 where it refuses a client certificate; no server was asked.
    if (
        code is grpc.StatusCode.UNAVAILABLE
        or "http2 header with status: 400" in details
    ):
        if details.startswith(_NO_CONNECTION):
            return errors.UnreachableError(text)
        return errors.unavailable(text)
    if "deserializing" in details or "Failed parsing" in details:
        return errors.ProtocolError(text)
    return _KINDS.get(code, errors.ModelError)(text)


MAX_CONTROL_BYTES: Final = 8 << 20
"""Statistics of some 15,000 models."""


class ControlChannel:
    """The part of a channel that a generated stub uses."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.stream_stream: Any = channel.stream_stream

    def unary_unary(
        self,
        method: str,
        *,
        response_deserializer: Callable[[bytes], Any],
        **kwargs: Any,
    ) -> Any:
        """The call with a bound on its answer; over it, grpc says it cannot read it."""
        parse = functools.partial(_parsed, response_deserializer)
        return self._channel.unary_unary(method, response_deserializer=parse, **kwargs)


def _parsed(parse: Callable[[bytes], Any], message: bytes) -> Any:
    if len(message) > MAX_CONTROL_BYTES:
        raise ValueError(
            f"found an answer of {len(message)} B; the maximum is {MAX_CONTROL_BYTES}"
        )
    return parse(message)
