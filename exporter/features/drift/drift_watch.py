"""One reference and its traffic: rows in, windows judged, results out."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift import codec
from drift.alarms.monitor import AlarmSettings, Monitor
from drift.comparison import Baseline
from drift.errors import UNREADABLE, StateError
from drift.season import hour_of_week
from drift.statistics import STATISTICS
from drift.window import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from drift.alarms.monitor import Verdict
    from drift.comparison import Null
    from drift.reference import Profile
    from exporter.features.drift.drift_settings import DriftSettings

    Floats = NDArray[np.float64]
    Tensors = Mapping[str, NDArray[np.generic[Any]]]

KIND: Final = "watch"
VERSION: Final = 2
"""Version of the state. 1, with everything as text, is still read."""

_MOST_TIMES: Final = 4096


@dataclass(frozen=True, slots=True)
class Score:
    """One distance of all features, with its distribution without change."""

    name: str
    threshold: float | None
    distance: Floats
    null: Null


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Result of the latest windows. `total` is of the last `panes` windows."""

    closed_at: float
    total: Counts
    scores: tuple[Score, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class WatchStatistics:
    """Counted since this process began; `alarm_since` is a timestamp."""

    rows: int = 0
    windows: int = 0
    alarms: int = 0
    alarm_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Restored:
    """The part of the open window that another process has counted already."""

    rows: int = 0
    coarse: Floats | float = 0.0
    violations: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Watch:
    """Counts rows into the open window and judges windows. `add` is thread-safe."""

    def __init__(
        self,
        profile: Profile,
        settings: DriftSettings,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.profile = profile
        self.baseline = Baseline(profile)
        self.result: WindowResult | None = None
        self.statistics = WatchStatistics()
        self.violations: Counter[str] = Counter()
        """Schema violations by kind, of every request so far."""
        self.coarse: Floats = np.zeros_like(self.baseline.bins)
        """Values by coarse bin, of every row so far."""
        self._settings = settings
        self._clock = clock
        self._wall_clock = wall_clock
        self._measures = [STATISTICS[name] for name in settings.statistics]
        self._lock = threading.Lock()
        self._window = profile.accumulator()
        self._known = {tensor.name for tensor in profile.schema.tensors}
        self._odd: Counter[str] = Counter()
        self._panes: deque[Counts] = deque(maxlen=settings.window.panes)
        self._monitor = Monitor(
            profile,
            AlarmSettings(
                windows_per_false_alarm=settings.windows_per_false_alarm,
                margin_sigma=settings.margin_sigma,
                margin_rate=settings.margin_rate,
            ),
        )
        self._closed_coarse = self.coarse
        self._closed_violations: Counter[str] = Counter()
        self._restored = _Restored()
        self._rows_before = 0
        self._opened = clock()
        self._opened_at = wall_clock()
        self._times: deque[float] = deque(maxlen=_MOST_TIMES)

    def add(self, request: Tensors) -> None:
        """Count one request's rows."""
        seasonal = self.profile.season is not None
        hour = hour_of_week(self._wall_clock()) if seasonal else None
        with self._lock:
            if self._window.update(request, hour=hour) or not request:
                return
            # It has no rows that the window could count.
            absent = self._known - request.keys()
            self._odd["absent" if absent else "shape"] += 1
            if request.keys() - self._known:
                self._odd["extra"] += 1

    def step(self) -> bool:
        """Count new rows; judge the window if it is due. Return whether one was judged."""
        now, window = self._clock(), self._settings.window
        age = now - self._opened
        with self._lock:
            rows = self._window.rows
            due = (age >= window.seconds and rows >= window.rows) or (
                age >= window.longest_seconds and rows > 0
            )
            counts = self._window.take() if due else self._window.peek()
            odd = Counter(self._odd)
        self._update_counters(counts, odd)
        if not due:
            return False
        self._closed_coarse = self.coarse
        self._closed_violations = self.violations - odd
        self._rows_before = self.statistics.rows
        self._restored = _Restored()
        self._opened = now
        self._judge(counts)
        return True

    def _update_counters(self, counts: Counts, odd: Counter[str]) -> None:
        """Update the counters to the content of the open window."""
        kinds: Counter[str] = Counter()
        for (kind, _), number in counts.violations.items():
            kinds[kind] += number
        for (kind, _), number in self._restored.violations.items():
            kinds[kind] -= number
        self.violations = self._closed_violations + kinds + odd
        fresh = self.profile.projection.coarse(counts.cells) - self._restored.coarse
        self.coarse = self._closed_coarse + fresh
        self.statistics = replace(
            self.statistics, rows=self._rows_before + counts.rows - self._restored.rows
        )

    def _judge(self, counts: Counts) -> None:
        wall = self._wall_clock()
        self._times.append(self._opened_at)
        self._opened_at = wall
        verdict = self._monitor.update(counts)
        since = self.statistics.alarm_since
        if verdict.raised:
            since = self._times[-min(verdict.since_windows, len(self._times))]
        self.statistics = replace(
            self.statistics,
            windows=self.statistics.windows + 1,
            alarms=self.statistics.alarms + verdict.raised,
            alarm_since=since if verdict.alarm else None,
        )
        self._panes.append(counts)
        self._publish(wall, verdict)

    def _publish(self, closed_at: float, verdict: Verdict) -> None:
        total = reduce(add, self._panes)
        comparison = self.baseline.compare(total)
        scores = tuple(
            Score(
                measure.kind,
                measure.classic,
                measure.distance(comparison),
                measure.null(comparison),
            )
            for measure in self._measures
        )
        self.result = WindowResult(closed_at, total, scores, verdict)

    def state(self) -> Sequence[codec.Buffer]:
        """Return all state that a restart needs, checksummed, in parts to be joined.

        They share our memory: to be written before the next `step`.
        """
        with self._lock:
            open_window, batch = self._window.peek(), self._window.batch()
        return codec.packed(
            KIND,
            VERSION,
            {
                "monitor": self._monitor.state(),
                "open": open_window.state(),
                "batch": batch,
                "age_seconds": self._clock() - self._opened,
                "opened_at": self._opened_at,
                "closed_at": self.result.closed_at if self.result else None,
                "panes": [pane.state() for pane in self._panes],
                "times": list(self._times),
                "alarm_since": self.statistics.alarm_since,
            },
        )

    def restore(self, data: bytes) -> None:
        """Restore what `state` returned; after an error this watch must not be used.

        Raises:
            StateError: the bytes are foreign, damaged, or of another reference.
        """
        payload = codec.unpacked(data, KIND, VERSION)
        try:
            self._monitor.resume(payload["monitor"])
            panes = [Counts.from_state(pane) for pane in payload["panes"]]
            opened = Counts.from_state(payload["open"])
            opened_at = float(payload["opened_at"])
            if opened.rows and not opened.hours:
                # Programs before this one did not count them.
                opened = replace(opened, hours={hour_of_week(opened_at): opened.rows})
            self._window.restore(opened)
            if payload.get("batch") is not None:
                self._window.restore_batch(payload["batch"])
            self._restored = _Restored(
                opened.rows,
                self.profile.projection.coarse(opened.cells),
                opened.violations,
            )
            self._opened = self._clock() - max(float(payload["age_seconds"]), 0.0)
            self._opened_at = opened_at
            self._times.extend(float(value) for value in payload["times"])
            since, closed_at = payload["alarm_since"], payload["closed_at"]
            self.statistics = replace(
                self.statistics, alarm_since=None if since is None else float(since)
            )
            if closed_at is not None and panes:
                self._resume(float(closed_at), panes)
        except UNREADABLE as error:
            raise StateError(f"cannot read the state: {error!r}") from error

    def _resume(self, closed_at: float, panes: list[Counts]) -> None:
        self._panes.extend(panes)
        # A window without rows changes nothing and has the present verdict.
        profile = self.profile
        nothing = Counts.empty(len(profile.names), profile.schema.numeric)
        verdict = self._monitor.update(nothing)
        self._publish(closed_at, verdict)
