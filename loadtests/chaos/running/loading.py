"""The load of an experiment: users who ask while things break, in a thread of its own."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from exporter.errors import TritonwatchError
from loadtests.chaos.measuring.live import LiveWindow
from loadtests.engine import Options
from loadtests.engine.verdict import verdict_of
from loadtests.errors import LoadError
from loadtests.execute import execute
from loadtests.result import RunResult

if TYPE_CHECKING:
    from types import TracebackType

    from loadtests.engine import Progress
    from loadtests.engine.backoff import Backoff
    from loadtests.mix import Mix
    from loadtests.scenario import Scenario

_PROGRESS_SECONDS: Final = 0.05
_START_SECONDS: Final = 15.0
_SPARE_SECONDS: Final = 10.0


class Load:
    """An open loop that goes on until it is stopped; its result is of what was sent.

    Args:
        scenario: as long as the experiment may last at most.
        mix: prepared bodies.
        backoff: how the client comes back.
    """

    def __init__(self, scenario: Scenario, mix: Mix, backoff: Backoff) -> None:
        self.live = LiveWindow(scenario.timeout_seconds)
        self.result: RunResult | None = None
        self._scenario = scenario
        self._mix = mix
        self._backoff = backoff
        self._origin: float | None = None
        self._error: TritonwatchError | None = None
        self._begun = threading.Event()
        self._stopped_at: float | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(_START_SECONDS)
        if self._error is not None:
            raise self._error
        if self._origin is None:
            raise LoadError(f"the load did not begin within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def origin(self) -> float:
        """Instant of perf_counter at which the load started."""
        assert self._origin is not None  # noqa: S101 - the block has begun
        return self._origin

    @property
    def problem(self) -> str | None:
        """What ended it before it was stopped."""
        return None if self._error is None else str(self._error)

    def stop(self) -> None:
        """Send nothing more, and wait for what is on its way."""
        if self._stopped_at is None:
            self._stopped_at = time.perf_counter()
        self._thread.join(self._scenario.timeout_seconds + _SPARE_SECONDS)

    def _run(self) -> None:
        options = Options(
            progress=self._told,
            progress_seconds=_PROGRESS_SECONDS,
            stop=lambda: self._stopped_at is not None,
            backoff=self._backoff,
        )
        try:
            found = execute(self._scenario, self._mix, options)
        except TritonwatchError as error:
            self._error = error
        else:
            self.result = self._of_what_was_sent(found)
        finally:
            self._begun.set()

    def _told(self, progress: Progress) -> None:
        self.live.feed(progress)
        if self._origin is None:
            self._origin = time.perf_counter() - progress.elapsed_seconds
            self._begun.set()

    def _of_what_was_sent(self, found: RunResult) -> RunResult:
        """Without those that were due after it was stopped: an end is no interruption."""
        if self._stopped_at is None or self._origin is None:
            return found
        stopped = min(self._stopped_at - self._origin, found.duration_seconds)
        begun = found.requests.intended <= stopped
        # The loop stops a moment later than it is told: what was due then was not sent.
        begun &= np.isfinite(found.requests.sent) | (found.requests.outcome != 0)
        whole = RunResult.of(
            replace(found.about, interrupted=False),
            found.requests.where(begun),
            between_responses=found.between_responses,
            duration_seconds=max(stopped, _PROGRESS_SECONDS),
            sender_cpu_seconds=found.sender_cpu_seconds,
            errors=found.errors,
        )
        return verdict_of(
            whole, found.sender_cpu_seconds / whole.duration_seconds, None
        )
