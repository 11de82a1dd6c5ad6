"""Calls that are not cancelled when their caller has waited long enough.

Before 2.57 Triton can crash when a client cancels a request, including by its deadline, while
the answer is being sent (server#7368 and server#8034): a few dozen timeouts that fell into
the last milliseconds of a stream ended Triton 2.51. So the answer is still read to its end,
and dropped.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter
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
"""More than `_MOST_CALLS` and the callers at any time."""
_EXIT_SECONDS: Final = 5.0
"""Time that the process's end is put off for calls under way, which it would cancel."""
_CALLS: Final[set[Future[Any]]] = set()
"""Those under way, of all clients."""


class UncancelledCalls:
    """Makes calls in threads of its own. Thread-safe."""

    def __init__(self) -> None:
        # Kept: a new thread's first call measures 0.1 ms too much.
        self._workers = Workers(_MOST_THREADS, "infer")
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        """Calls that have not ended, by model."""
        self._last: Callable[[], None] | None = None

    def answer(
        self,
        call: Callable[[float, threading.Event], T],
        *,
        model: str,
        timeout_seconds: float,
    ) -> T:
        """Return what the call to this model returns, or raise what it raises.

        The call gets its deadline in seconds, and an event that is set when its answer
        came too late.

        Raises:
            DeadlineError: it takes longer.
            NotSentError: no thread took it in that time.
            UnreachableError: the client was closed.
        """
        if self._last is not None:
            raise errors.UnreachableError("the client was closed")
        ended: Future[T] = Future()
        too_late = threading.Event()

        def run() -> None:
            if not ended.set_running_or_notify_cancel():
                return
            try:
                _CALLS.add(ended)
                spare_seconds = self._begin(model)
                ended.set_result(call(timeout_seconds + spare_seconds, too_late))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                ended.set_exception(error)
            finally:
                _CALLS.discard(ended)
                self._end(model)

        try:
            self._workers.run(run)
        except RuntimeError as error:
            raise errors.NotSentError(str(error)) from None
        wait((ended,), timeout_seconds)
        if ended.cancel():
            raise errors.NotSentError(
                f"no thread was free to send the request within {timeout_seconds:g} s"
            )
        if not ended.done():
            too_late.set()
            raise errors.DeadlineError(f"no answer within {timeout_seconds:g} s")
        return ended.result()

    def is_under_way(self, model: str) -> bool:
        """Return whether a call to the model has not ended, a given-up one included."""
        return self._under_way[model] > 0

    def close(self, close: Callable[[], None]) -> None:
        """Call `close` once no call is under way."""
        with self._lock:
            self._last = close
            is_idle = not self._under_way
        self._workers.close()
        if is_idle:
            close()

    def _begin(self, model: str) -> float:
        """Return for how long the call may go on after its caller's timeout."""
        with self._lock:
            self._under_way[model] += 1
            is_within = self._under_way.total() <= _MOST_CALLS
            return LONGEST_SECONDS if is_within else 0.0

    def _end(self, model: str) -> None:
        with self._lock:
            self._under_way -= Counter((model,))
            if self._under_way or self._last is None:
                return
        self._last()


@atexit.register
def _await_calls() -> None:
    wait(tuple(_CALLS), _EXIT_SECONDS)
