"""Work in a thread while a block lasts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Background:
    """Works while its block lasts. Subclasses implement `_work`, until `_over` is set.

    An error in `_work` is reported at once, as in any thread, and raised at the end of the
    block, unless the block ends with an error of its own. The end waits `end_seconds` for
    `_work` at most: the thread is a daemon, and one that hangs delays nothing else.
    """

    def __init__(self, *, end_seconds: float) -> None:
        self._over = threading.Event()
        self._end_seconds = end_seconds
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=type(self).__name__, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(self._end_seconds)
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self._failure = failure
            raise

    def _work(self) -> None:
        raise NotImplementedError
