"""Keeps Triton's per-model trace rates so that each model yields enough samples.

Only with `control: true`. What it changes it puts back: when it is closed, and, with a
journal, at the next start where it was killed. Works in Triton's own trace mode and in
its OpenTelemetry mode; neither can be chosen, nor the file or URL set, at run time.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue, errors
from exporter.features.traces.trace_sampling import rate_for
from exporter.samples import Sample
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from exporter.triton.grpc import GrpcClient

    Values = Mapping[str, tuple[str, ...]]
    Changes = dict[str, tuple[str, ...]]

log = structlog.get_logger()

SAFE_VERSION: Final = (2, 57)
"""The first release with the fix of crashes while tracing under load (server#8144)."""
_GLOBAL: Final = ""
_TOUCHED: Final = ("trace_level", "trace_rate", "log_frequency")
_STEP_SECONDS: Final = 1.0
_RESTORE_SECONDS: Final = 5.0
_HYSTERESIS: Final = 1.5
_SETTLE_SECONDS: Final = 60.0
_MAX_JOURNAL_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Sampling rate, and the changes of Triton's settings that are allowed for it."""

    samples_per_minute: float
    max_traces_per_second: float
    force: bool
    journal: Path | None
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class _Applied:
    rate: int
    at: float


class TraceControl:
    """Sets, follows and restores. Not thread-safe.

    Args:
        client: the server.
        settings: see there.
        wanted: whether a model of this name is to be sampled.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: GrpcClient,
        settings: ControlSettings,
        *,
        wanted: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._settings = settings
        self._wanted = wanted
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._counted_at = 0.0
        self._applied: dict[str, _Applied] = {}
        self._before: dict[str, Changes] = {}
        self._refusal: str | None = None
        self._journal_read = settings.journal is None

    @property
    def refusal(self) -> str | None:
        """Reason why nothing is changed, or None."""
        return self._refusal

    @property
    def rates(self) -> dict[str, int]:
        """The rate set for each model."""
        return {model: applied.rate for model, applied in self._applied.items()}

    def step(self) -> None:
        """Read the request rates once, and change settings where needed.

        A server that does not answer or refuses a change is a `refusal`, too.
        """
        try:
            self._client.live(timeout_seconds=self._settings.timeout_seconds)
            self._recover()
            mode = self._mode()
            if mode is not None:
                self._follow(mode)
        except (errors.TritonError, OSError) as error:
            self._refuse(f"{type(error).__name__}: {error}")

    def _follow(self, mode: str) -> None:
        now = self._clock()
        for model, requests_per_second in self._request_rates(now).items():
            rate = rate_for(
                requests_per_second,
                samples_per_minute=self._settings.samples_per_minute,
                max_traces_per_second=self._settings.max_traces_per_second,
            )
            if self._clock() - now > _STEP_SECONDS:
                break  # the others next time
            if self._due(model, rate, now):
                self._set(model, rate, mode, now)
        self._refuse(None)

    def restore(self) -> None:
        """Restore the original settings; log those that cannot be restored."""
        deadline = self._clock() + _RESTORE_SECONDS
        for model in list(self._before):
            if self._clock() > deadline:
                break
            try:
                self._update(model, self._before[model])
            except errors.TritonError as error:
                log.warning("trace_restore_failed", model=model, reason=str(error))
            else:
                del self._before[model]
                self._applied.pop(model, None)
        self._write_journal()

    def samples(self) -> Iterator[Sample]:
        """Yield whether sampling is controlled, and the rates."""
        yield Sample(catalogue.TRACE_CONTROL, self._refusal is None)
        for model, rate in self.rates.items():
            yield Sample(catalogue.TRACE_RATE, rate, (model,))

    def _mode(self) -> str | None:
        """Triton's trace mode, or None where nothing may be set."""
        timeout = self._settings.timeout_seconds
        version = self._client.server_info(timeout_seconds=timeout).version
        if not self._settings.force and not is_safe(version):
            self._refuse(
                f"Triton {version} can crash while tracing under load (server#7795); "
                "want 2.57.0 or later, or force: true"
            )
            return None
        values = self._client.trace_settings(_GLOBAL, timeout_seconds=timeout)
        mode = "".join(values.get("trace_mode", ("triton",)))
        if mode == "triton" and not "".join(values.get("trace_file", ())):
            self._refuse(
                "Triton was started without a place for traces, which cannot be set "
                "later; want --trace-config triton,file=… or mode=opentelemetry"
            )
            return None
        return mode

    def _refuse(self, reason: str | None) -> None:
        if reason is not None and reason != self._refusal:
            log.warning("trace_control_refused", reason=reason)
        self._refusal = reason

    def _request_rates(self, now: float) -> dict[str, float]:
        """Return requests per second by model since the last call; none at the first."""
        counts: dict[str, int] = {}
        for entry in self._client.statistics(
            timeout_seconds=self._settings.timeout_seconds
        ):
            if self._wanted(entry.name):
                total = entry.success.count + entry.fail.count
                counts[entry.name] = counts.get(entry.name, 0) + total
        before, self._counts = self._counts, counts
        elapsed, self._counted_at = now - self._counted_at, now
        rates: dict[str, float] = {}
        for model, count in counts.items():
            rise = count - before.get(model, count + 1)
            if rise >= 0 and elapsed > 0:
                rates[model] = rise / elapsed
            else:
                # A new or reloaded model, or a restarted server: set again next time.
                self._applied.pop(model, None)
        return rates

    def _due(self, model: str, rate: int, now: float) -> bool:
        applied = self._applied.get(model)
        if applied is None or rate > applied.rate * _HYSTERESIS:
            return True
        # Each change flushes and restarts the count: raise the rate slowly.
        return rate * _HYSTERESIS < applied.rate and now - applied.at >= _SETTLE_SECONDS

    def _set(self, model: str, rate: int, mode: str, now: float) -> None:
        changes: Changes = {"trace_rate": (str(rate),)}
        if model not in self._applied:
            current = self._remember(model, mode)
            changes["trace_level"] = ("TIMESTAMPS",)
            if mode == "triton" and current.get("log_frequency", ("0",)) == ("0",):
                # 0 keeps every trace in the server's memory until it ends.
                frequency = max(1, int(self._settings.samples_per_minute // 12))
                changes["log_frequency"] = (str(frequency),)
        self._update(model, changes)
        self._applied[model] = _Applied(rate, now)

    def _remember(self, model: str, mode: str) -> Values:
        """Record the original settings in the journal, before anything is changed."""
        timeout = self._settings.timeout_seconds
        current = self._client.trace_settings(model, timeout_seconds=timeout)
        if model not in self._before:
            inherited = self._client.trace_settings(_GLOBAL, timeout_seconds=timeout)
            self._before[model] = {
                key: () if current[key] == inherited.get(key) else current[key]
                for key in _TOUCHED
                if key in current and (mode == "triton" or key != "log_frequency")
            }
            self._write_journal()
        return current

    def _update(self, model: str, changes: Changes) -> None:
        self._client.update_trace_settings(
            model, changes, timeout_seconds=self._settings.timeout_seconds
        )

    def _recover(self) -> None:
        """Undo the changes that a killed process left in the journal."""
        journal = self._settings.journal
        if self._journal_read or journal is None:
            return
        self._before.update(_read_journal(journal))
        self._journal_read = True
        if self._before:
            log.info("trace_settings_recovered", models=len(self._before))
            self.restore()

    def _write_journal(self) -> None:
        journal = self._settings.journal
        if journal is None or not self._journal_read:
            return
        if not self._before:
            journal.unlink(missing_ok=True)
            return
        whole_file.write(journal, json.dumps(self._before).encode())


def is_safe(version: str) -> bool:
    """Return whether tracing is safe on this version of Triton."""
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", version)
    return match is not None and (int(match[1]), int(match[2])) >= SAFE_VERSION


def _read_journal(path: Path) -> dict[str, Changes]:
    """Read the journal; parts that cannot be understood are left out."""
    document: Any = None
    with contextlib.suppress(OSError, ValueError):
        if path.stat().st_size <= _MAX_JOURNAL_BYTES:
            document = json.loads(path.read_text("utf-8"))
    if not isinstance(document, dict):
        return {}
    understood = {
        str(model): {
            key: tuple(str(value) for value in values)
            for key, values in changes.items()
            if key in _TOUCHED and isinstance(values, list)
        }
        for model, changes in document.items()
        if isinstance(changes, dict)
    }
    return {model: changes for model, changes in understood.items() if changes}
