"""Calls whose answers hold no tensors, with a limit on the size of answers.

Parsed, a message can take fifty times its length: 64 MB of empty entries, which answers
with tensors may have, are 3 GB.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.network.grpc_core import grpc

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
