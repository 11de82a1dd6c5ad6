"""Supervision of a process of the embedded target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.errors import TritonwatchError
from loadtests.chaos.primitives.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.targets.chaos_target import Note

_SUPERVISE_SECONDS: Final = 0.01
_START_SECONDS: Final = 20.0


class Supervisor(Pace):
    """Restarts a process that has ended, as systemd or Kubernetes does in production.

    Args:
        part: what it is, in notes.
        running: whether it is there; a frozen one is.
        start: starts it and waits until it is ready.
        delay_seconds: from its end to its next start; None for never.
        note: records when it ended and when it was ready again.
    """

    def __init__(
        self,
        part: str,
        running: Callable[[], bool],
        start: Callable[[], None],
        delay_seconds: float | None,
        note: Note,
    ) -> None:
        super().__init__(
            _SUPERVISE_SECONDS, self._supervise, end_seconds=_START_SECONDS
        )
        self._part = part
        self._running = running
        self._start = start
        self._delay = delay_seconds
        self._note = note
        self._gone = False

    def _supervise(self) -> None:
        if self._running():
            return
        if not self._gone:
            self._note_state("gone")
            self._gone = True
        if self._delay is None or self._over.wait(self._delay):
            return
        try:
            self._start()
        except (TritonwatchError, OSError) as error:
            self._note("note", {"text": f"the {self._part} did not start: {error}"})
            return
        self._note_state("ready")
        self._gone = False

    def _note_state(self, state: str) -> None:
        if self._part == "server":
            self._note("server_gone" if state == "gone" else "server_ready", {})
        else:
            self._note("note", {"text": f"the {self._part} is {state}"})
