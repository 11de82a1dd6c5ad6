"""Daemon threads that run blocking calls for the event loop, or for a thread that may give up."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Up to `count` daemon threads that run blocking calls.

    A thread is started when all others are at work. ThreadPoolExecutor would do, but
    joins its threads at exit: a single hung call would then keep the process from
    ending.
    """

    def __init__(self, count: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = count
        self._name = name
        self._started = 0
        self._unfinished = 0
        self._lock = threading.Lock()

    def submit(
        self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run `call` for the running event loop, which the future belongs to.

        Raises:
            RuntimeError: no thread can be started, and there is none yet.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # A cancelled waiter never reads the result, which is no error.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def deliver(action: Callable[[Any], None], value: object) -> None:
            # The waiter may have given up, or the loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(
                    lambda: None if future.done() else action(value)
                )

        def job() -> None:
            try:
                result = call(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to who awaits it
                deliver(future.set_exception, _carried(error))
            else:
                deliver(future.set_result, result)

        self.run(job)
        return future

    def close(self) -> None:
        """End the threads after their present calls."""
        with self._lock:
            self._count = 0
            for _ in range(self._started):
                self._jobs.put(None)

    def run(self, job: Callable[[], None]) -> None:
        """Run a job that raises nothing.

        Raises:
            RuntimeError: no thread can be started, and there is none yet.
        """
        with self._lock:
            self._unfinished += 1
            if self._started < min(self._count, self._unfinished):
                name = f"{self._name}-{self._started}"
                try:
                    threading.Thread(target=self._work, name=name, daemon=True).start()
                except RuntimeError:
                    # No thread can be started now; those that are there go on.
                    if not self._started:
                        self._unfinished -= 1
                        raise
                else:
                    self._started += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # else its answer is kept until the next one
            with self._lock:
                self._unfinished -= 1


def _carried(error: BaseException) -> Exception:
    """Return an error that can be raised again in the event loop without ending it.

    SystemExit and CancelledError would end more than their job, and no future takes a
    StopIteration: its awaiter would wait for ever.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    carried = RuntimeError(f"{type(error).__name__}: {error}")
    carried.__cause__ = error
    return carried
