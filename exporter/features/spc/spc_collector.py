"""The collector of process control: reads signals, keeps their charts and state."""

from __future__ import annotations

import math
import threading
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.features.spc.control_charts import Cusum, Ewma, PageHinkley, Shewhart
from exporter.features.spc.signal_baseline import Baseline
from exporter.features.spc.signal_monitor import Plan, Signal
from exporter.features.spc.signal_reader import Reader
from exporter.samples import Sample
from exporter.system import state_file
from exporter.taps import foreign_json
from exporter.taps.tap_route import TapAnswer, TapRoute, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from exporter.access.collector_base import Access
    from exporter.features.spc.control_charts import Chart
    from exporter.features.spc.spc_settings import AnyChart, SignalSettings, SpcSettings
    from exporter.samples import AnySample
    from exporter.taps.tap_route import TapRequest


log = structlog.get_logger()

ACKNOWLEDGE: Final = "/api/v1/spc/acknowledge"
STATE_VERSION: Final = 1
_MAX_BODY_BYTES: Final = 4096
# A run that is slightly early counts as on time.
_EARLY: Final = 0.5
# A sample that comes after this many times the time before was interrupted.
_LONG: Final = 1.5
_MISSING: Final = 2.5


class _Watched:
    """One signal: its reader and its charts."""

    def __init__(self, settings: SignalSettings, interval_seconds: float) -> None:
        self.settings = settings
        self.reader = Reader(settings)
        self.signal = Signal(plan_of(settings, interval_seconds))
        self.due = -math.inf
        self.is_ambiguity_logged = False
        self._sampled_at = -math.inf
        self._apart = deque([self.signal.plan.sample_seconds] * 2, maxlen=2)
        """Seconds between the latest samples: one of the two may be an outage."""

    def add(self, value: float, now: float) -> bool:
        """Add a sample; return whether a new alarm began."""
        apart, self._sampled_at = now - self._sampled_at, now
        if apart > _LONG * self._usual_seconds:
            self.signal.interrupt()
        self._apart.append(apart)
        return self.signal.add(value)

    def is_blind(self, now: float) -> bool:
        """Return whether samples are missing, so that nothing is known of the signal."""
        return now - self._sampled_at > _MISSING * self._usual_seconds

    @property
    def _usual_seconds(self) -> float:
        return max(min(self._apart), self.signal.plan.sample_seconds)


class SpcCollector:
    """Reads all exposed samples once an interval."""

    def __init__(self, settings: SpcSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._lock = threading.Lock()
        self.watched = [
            _Watched(signal, settings.interval_seconds) for signal in settings.signals
        ]
        self._restored = False
        self._inherited: set[str] = set()
        """Signals whose present state is newer than a state file."""
        self._saved_at = access.clock()
        self._is_unsaved = False
        self._is_unread = False

    def inherit(self, predecessor: object) -> None:
        """Keep the baselines and alarms of unchanged signals."""
        if not isinstance(predecessor, SpcCollector):
            return
        kept = {watched.settings.name: watched for watched in predecessor.watched}
        self.watched = [
            old
            if (old := kept.get(fresh.settings.name, fresh)).settings == fresh.settings
            and old.signal.plan == fresh.signal.plan
            else fresh
            for fresh in self.watched
        ]
        self._inherited = {
            watched.settings.name
            for watched in self.watched
            if watched is kept.get(watched.settings.name)
        }

    def collect(self) -> Sequence[AnySample]:
        """Read a sample of each signal that is due."""
        now = self._access.clock()
        exposed = list(self._access.exposed()) if self.watched else []
        with self._lock:
            if not self._restored:
                self._restored = self._restore()
            for watched in self.watched:
                self._read(watched, exposed, now)
            # A state file that could not be read yet may be intact: do not overwrite it.
            if self._restored and now - self._saved_at >= self._settings.save_seconds:
                self._saved_at = now
                self._save()
            return [s for watched in self.watched for s in _samples(watched, now)]

    def close(self) -> None:
        """Save the learnt baselines and alarms."""
        with self._lock:
            if self._restored:
                self._save()

    def routes(self) -> Sequence[TapRoute]:
        """Return the route that acknowledges an alarm, on the taps' loopback listener."""
        if not self.watched:
            return ()
        busy = refusal("timeout", HTTPStatus.SERVICE_UNAVAILABLE, "busy; try again")
        return (
            TapRoute(
                ACKNOWLEDGE,
                "spc",
                _MAX_BODY_BYTES,
                self._acknowledge,
                busy,
                control=True,
            ),
        )

    def _read(self, watched: _Watched, exposed: list[AnySample], now: float) -> None:
        settings = watched.settings
        if now + _EARLY * min(1.0, settings.every_seconds) < watched.due:
            return
        watched.due = now + settings.every_seconds
        value = watched.reader.read(exposed, now)
        if watched.reader.ambiguous and not watched.is_ambiguity_logged:
            watched.is_ambiguity_logged = True
            log.warning(
                "spc_signal_ambiguous",
                signal=settings.name,
                series=watched.reader.ambiguous,
                remedy="name more labels, so that one series fits",
            )
        if value is None:
            return
        learning = watched.signal.learning
        if watched.add(value, now):
            log.warning("spc_alarm", signal=settings.name, value=value)
        if learning and not watched.signal.learning:
            _log_baseline(watched)

    def _acknowledge(self, request: TapRequest) -> TapAnswer:
        """Handle `{"signal": NAME}`, with "chart": KIND for one, "relearn": true to restart."""
        try:
            document = foreign_json.parse(request.body, _MAX_BODY_BYTES)
            name = document["signal"]
            kind, relearn = (
                document.get("chart"),
                document.get("relearn", False) is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            wanted = 'want {"signal": NAME}, "chart" and "relearn" if you like'
            return refusal("malformed", HTTPStatus.BAD_REQUEST, wanted)
        with self._lock:
            found = next((w for w in self.watched if w.settings.name == name), None)
            if found is None:
                names = ", ".join(w.settings.name for w in self.watched)
                return refusal(
                    "malformed",
                    HTTPStatus.NOT_FOUND,
                    f"found no such signal; there are {names}",
                )
            ended = found.signal.acknowledge(kind)
            if relearn:
                found.signal.relearn()
        log.info("spc_acknowledged", signal=name, alarms=ended, relearn=relearn)
        return TapAnswer("accepted", body=f"{ended} alarms ended\n".encode())

    def _restore(self) -> bool:
        """Load the saved state; return False if it cannot be read now."""
        path = self._settings.state_file
        if path is None:
            return True
        try:
            content = state_file.read(path)
        except OSError as error:
            if not self._is_unread:
                log.warning("spc_state_not_read", file=str(path), reason=str(error))
            self._is_unread = True
            return False
        if content is not None:
            self._apply(path, content)
        return True

    def _apply(self, path: Path, content: dict[str, Any]) -> None:
        signals = content.get("signals")
        if content.get("version") != STATE_VERSION or not isinstance(signals, dict):
            state_file.set_aside(path, "not a state of process control")
            return
        for watched in self.watched:
            state = signals.get(watched.settings.name)
            if state is None or watched.settings.name in self._inherited:
                continue
            try:
                restored = watched.signal.restore(state)
            except ValueError as error:
                state_file.set_aside(path, str(error))
                return
            if not restored:
                log.warning(
                    "spc_learns_anew",
                    signal=watched.settings.name,
                    reason="its settings changed since its state was saved",
                )

    def _save(self) -> None:
        path = self._settings.state_file
        if path is None:
            return
        states: dict[str, Any] = {
            watched.settings.name: watched.signal.to_state() for watched in self.watched
        }
        problem = state_file.write(path, {"version": STATE_VERSION, "signals": states})
        if problem and not self._is_unsaved:
            log.error("spc_state_not_saved", reason=problem)
        self._is_unsaved = bool(problem)


def plan_of(settings: SignalSettings, interval_seconds: float) -> Plan:
    """Return the plan of a signal's charts, from its settings and the interval."""
    given = settings.baseline
    sample_seconds = max(settings.every_seconds, interval_seconds)
    chosen = sorted(settings.labels.items()), sorted(settings.part.items())
    learnt_from = math.inf if given else float(settings.learn_samples)
    return Plan(
        charts=tuple(_chart(chart, learnt_from) for chart in settings.charts),
        in_control_arl=settings.in_control_samples,
        sides=settings.sides,
        heal_samples=settings.heal_samples,
        learn_samples=settings.learn_samples,
        given=Baseline(given.mean, given.sigma, given.correlation) if given else None,
        least_sigma=settings.least_sigma,
        sample_seconds=sample_seconds,
        source=repr((settings.metric, *chosen, sample_seconds)),
    )


def _chart(settings: AnyChart, learnt_from: float) -> Chart:
    if settings.kind == "shewhart":
        return Shewhart()
    if settings.kind == "ewma":
        return Ewma(settings.weight)
    if settings.kind == "cusum":
        head_start = 0.5 if settings.fast_initial_response else 0.0
        return Cusum(settings.shift_sigma / 2, head_start)
    return PageHinkley(settings.shift_sigma / 2, learnt_from)


def _log_baseline(watched: _Watched) -> None:
    baseline = watched.signal.baseline
    if baseline is None:
        return
    log.info(
        "spc_baseline_learnt",
        signal=watched.settings.name,
        mean=baseline.mean,
        sigma=baseline.sigma,
        correlation=baseline.correlation,
        assumption=baseline.assumption,
        normal=baseline.normal,
        lower_bound_refused=baseline.refused,
    )


def _samples(watched: _Watched, now: float) -> Iterator[AnySample]:
    name, signal = watched.settings.name, watched.signal
    yield Sample(catalogue.SPC_SAMPLES, signal.samples, (name,))
    yield Sample(catalogue.SPC_LEARNING, signal.learning, (name,))
    baseline = signal.baseline
    if baseline is None:
        return
    yield Sample(catalogue.SPC_MEAN, baseline.mean, (name,))
    yield Sample(catalogue.SPC_SIGMA, baseline.sigma, (name,))
    yield Sample(catalogue.SPC_CORRELATION, baseline.correlation, (name,))
    if baseline.effective_samples is not None:
        yield Sample(catalogue.SPC_EFFECTIVE, baseline.effective_samples, (name,))
    labels = (
        name,
        watched.settings.metric,
        baseline.assumption,
        str(baseline.normal).lower(),
        signal.refused,
    )
    yield Sample(catalogue.SPC_INFO, 1, labels)
    yield from _charts(watched, is_blind=watched.is_blind(now))


def _charts(watched: _Watched, *, is_blind: bool) -> Iterator[AnySample]:
    name, sides = watched.settings.name, watched.settings.sides
    nominal = low = 0.0
    bounded = True
    for status in watched.signal.status():
        labels = (name, status.kind)
        nominal += 1 / status.run_length
        if status.run_length_low is None:
            bounded = False
        else:
            low += 1 / status.run_length_low
        if not is_blind:
            yield Sample(catalogue.SPC_STATISTIC, status.statistic, labels)
        # An alarm stays; that there is none is not known.
        if status.alarm or not is_blind:
            yield Sample(catalogue.SPC_ALARM, status.alarm, labels)
        yield Sample(catalogue.SPC_ALARMS, status.alarms, labels)
        if sides != "lower":
            yield Sample(catalogue.SPC_LIMIT, status.limit, (*labels, "upper"))
        if sides != "upper":
            yield Sample(catalogue.SPC_LIMIT, -status.limit, (*labels, "lower"))
    yield Sample(catalogue.SPC_RUN_LENGTH, 1 / nominal, (name, "nominal"))
    if bounded:
        yield Sample(catalogue.SPC_RUN_LENGTH, 1 / low, (name, "lower"))
