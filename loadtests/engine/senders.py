"""The interface of a protocol's sender: begin a request, report its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from loadtests.engine.backoff import Backoff
    from loadtests.engine.recorder import Recorder
    from loadtests.mix import Mix
    from loadtests.target import Target


class Sender(Protocol):
    """Sends the bodies of a mix, on the loop it was opened in."""

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LoadError: there is no server.
        """
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what is in flight and close the connections."""
        ...

    def send(self, index: int, recorder: Recorder) -> None:
        """Begin the request of this index; its end is told to the recorder.

        Never waits. The body is the entry's own, in turns.
        """
        ...

    def wind_up(self) -> None:
        """No more requests are to come: end the sequences that have begun."""
        ...


def open_sender(
    target: Target,
    mix: Mix,
    *,
    timeout_seconds: float,
    seed: int,
    backoff: Backoff | None = None,
) -> Sender:
    """The sender for a target's protocol.

    `backoff` is for unary gRPC. Streams come back as `grpc.aio` does; over HTTP a
    request without a free connection opens one, at once, and is sent once.
    """
    if target.protocol == "grpc":
        if any(entry.style == "stream" for entry in mix.entries):
            from loadtests.engine.grpc_sender import GrpcSender  # noqa: PLC0415 - 30 MB

            return GrpcSender(target, mix, timeout_seconds=timeout_seconds, seed=seed)
        from loadtests.engine.grpc_unary_sender import (  # noqa: PLC0415
            GrpcUnarySender,
        )

        return GrpcUnarySender(
            target, mix, timeout_seconds=timeout_seconds, seed=seed, backoff=backoff
        )
    from loadtests.engine.http_sender import HttpSender  # noqa: PLC0415

    return HttpSender(target, mix, timeout_seconds=timeout_seconds, seed=seed)
