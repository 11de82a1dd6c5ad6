"""Keeps something up, as systemd or Kubernetes does in production."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporter.background import Background
from exporter.errors import TritonwatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.targets.base import Note

_LOOK_SECONDS: Final = 0.01
_END_SECONDS: Final = 20.0


class Supervisor(Background):
    """Notes when something ends and starts it again, while its block lasts.

    Args:
        part: what it is, in notes.
        running: whether it is there; a frozen one is.
        start: starts it and waits until it is ready.
        delay_seconds: from its end to its next start; None for never.
        note: writes down when it ended and when it was back.
    """

    def __init__(
        self,
        part: str,
        running: Callable[[], bool],
        start: Callable[[], None],
        delay_seconds: float | None,
        note: Note,
    ) -> None:
        super().__init__(end_seconds=_END_SECONDS)
        self._part = part
        self._running = running
        self._start = start
        self._delay = delay_seconds
        self._note = note

    def _work(self) -> None:
        gone = False
        while not self._over.wait(_LOOK_SECONDS):
            if self._running():
                continue
            if not gone:
                self._tell("gone")
                gone = True
            if self._delay is not None and not self._over.wait(self._delay):
                gone = not self._started()

    def _started(self) -> bool:
        try:
            self._start()
        except (TritonwatchError, OSError) as error:
            self._note("note", {"text": f"the {self._part} did not start: {error}"})
            return False
        self._tell("ready")
        return True

    def _tell(self, what: str) -> None:
        if self._part == "server":
            self._note("server_gone" if what == "gone" else "server_ready", {})
            return
        detail: dict[str, Any] = {"text": f"the {self._part} is {what}"}
        self._note("note", detail)
