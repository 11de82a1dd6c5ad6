"""A collector's whole life: after its predecessors have ended, until it tidied up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import structlog

from exporter.system.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

log = structlog.get_logger()

CLOSE_SECONDS: Final = 10.0


@runtime_checkable
class Closing(Protocol):
    """A collector or probe that leaves something to be put back."""

    def close(self) -> None:
        """Restore what it changed, in a worker thread. Called once, after the last `collect`."""
        ...


@runtime_checkable
class Inheriting(Protocol):
    """A collector or probe that keeps what a reload did not change."""

    def inherit(self, predecessor: object) -> None:
        """Take over the state of a predecessor's entries whose settings are the same.

        Called before the first `collect`; the predecessor may still be in its last one.
        """
        ...


async def live(
    run: Callable[[], Awaitable[None]],
    collector: object,
    predecessors: Collection[asyncio.Task[None]],
    *,
    close_seconds: float = CLOSE_SECONDS,
) -> None:
    """Run until cancelled; begin when all predecessors have put everything back.

    All, not the last: one that was cancelled before it began is over at once, while
    that before it may still be at it.
    """
    try:
        if predecessors:
            await asyncio.wait(predecessors)
        # A task that was cancelled keeps its frames: all before it would stay with it.
        predecessors = ()
        await run()
    finally:
        if isinstance(collector, Closing):
            await _closed(collector, close_seconds)


async def _closed(collector: Closing, close_seconds: float) -> None:
    workers = Workers(1, "closing")
    closing = workers.submit(collector.close)
    workers.close()
    done, _ = await asyncio.wait({closing}, timeout=close_seconds)
    if not done:
        log.error("close_timeout", after_seconds=close_seconds)
    elif (error := closing.exception()) is not None:
        log.error("close_failed", reason=f"{type(error).__name__}: {error}")
