"""Calls that are not cancelled when their caller has waited long enough.

Before 2.57 Triton can crash when a client cancels a request, by its deadline too, while the
answer is being sent (server#7368 and server#8034). Of timeouts that fell into the last
milliseconds of a stream, one in some dozen ended Triton 2.51. So the answer is read to its
end all the same, and dropped.
"""

from __future__ import annotations

import atexit
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

from exporter import errors
from exporter.system.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONGEST_SECONDS: Final = 300.0
"""Time after its caller's timeout at which a call is cancelled: it may never end."""
_MOST_CALLS: Final = 64
"""Calls under way; any more are cancelled at their callers' timeouts."""
_MOST_THREADS: Final = 1000
"""More than callers at any time."""
_EXIT_SECONDS: Final = 5.0
"""Time that the process's end is put off for calls under way: it cancels them, too."""
_CALLS: Final[set[Future[Any]]] = set()
"""Those under way, of all clients."""


class UncancelledCalls:
    """Makes calls in threads of its own. Thread-safe."""

    def __init__(self) -> None:
        # Kept: a new thread's first call measures 0.1 ms too much.
        self._workers = Workers(_MOST_THREADS, "infer")
        self._lock = threading.Lock()
        self._under_way = 0
        self._last: Callable[[], None] | None = None

    def answer(
        self, call: Callable[[float, threading.Event], T], *, timeout_seconds: float
    ) -> T:
        """Return what the call returns, or raise what it raises.

        The call gets its deadline in seconds, and an event that is set when its answer
        came too late.

        Raises:
            DeadlineError: it takes longer.
            UnsendableError: no thread could be started for it.
            UnavailableError: the client was closed.
        """
        if self._last is not None:
            raise errors.UnavailableError("the client was closed")
        ended: Future[T] = Future()
        too_late = threading.Event()

        def run() -> None:
            if not ended.set_running_or_notify_cancel():
                return
            try:
                _CALLS.add(ended)
                spare_seconds = self._begin()
                ended.set_result(call(timeout_seconds + spare_seconds, too_late))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                ended.set_exception(error)
            finally:
                _CALLS.discard(ended)
                self._end()

        self._workers.run(run)
        wait((ended,), timeout_seconds)
        if ended.cancel():
            raise errors.UnsendableError("no thread can be started to send a request")
        if not ended.done():
            too_late.set()
            raise errors.DeadlineError(f"no answer within {timeout_seconds:g} s")
        return ended.result()

    @property
    def under_way(self) -> int:
        """Return the number of calls that have not ended, of callers or given up."""
        return self._under_way

    def close(self, close: Callable[[], None]) -> None:
        """Call `close` once no call is under way."""
        self._workers.close()
        with self._lock:
            self._last = close
            if self._under_way:
                return
        close()

    def _begin(self) -> float:
        """Return for how long the call may go on after its caller's timeout."""
        with self._lock:
            self._under_way += 1
            return LONGEST_SECONDS if self._under_way <= _MOST_CALLS else 0.0

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._under_way or self._last is None:
                return
        self._last()


@atexit.register
def _await_calls() -> None:
    wait(tuple(_CALLS), _EXIT_SECONDS)
