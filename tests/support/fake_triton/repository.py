"""The fake's model repository: which models there are, in what state, what they counted."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_triton.behaviours import INVALID_ARGUMENT, NOT_FOUND, Status
from fake_triton.counters import Counters, MetricsRow

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from fake_triton.counters import FailureReason
    from fake_triton.fake_models import FakeModel, Timings


class RefusedError(Exception):
    """The fake answers this call with a failure; not an error of the fake."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def refused(status: Status, message: str) -> RefusedError:
    """The failure `status` with Triton's words for this case."""
    return RefusedError(
        Status(status.grpc, status.http, message, counted=status.counted)
    )


@dataclass(slots=True)
class _Entry:
    model: FakeModel
    ready: bool = True
    reason: str = ""
    vanished: bool = False
    stub_dead: bool = False
    readiness_hangs: bool = False
    statistics: dict[str, Counters] = field(default_factory=dict)
    metrics: dict[str, Counters] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """What the model's own readiness is from 2.65 on."""
        return self.ready and not self.stub_dead and not self.readiness_hangs

    def reset(self, *, metrics: bool) -> None:
        self.statistics = {version: Counters() for version in self.model.versions}
        if metrics:
            self.metrics = {version: Counters() for version in self.model.versions}


class Repository:
    """Models by name; every list is in the order of names, as Triton's. Thread-safe."""

    def __init__(self, models: Iterable[FakeModel]) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._pending: Counter[str] = Counter()
        for model in models:
            self.add(model)

    def add(self, model: FakeModel) -> None:
        """Put a model in, or replace the one of that name; its counters start at 0."""
        entry = _Entry(model)
        entry.reset(metrics=True)
        with self._lock:
            self._entries[model.name] = entry

    def remove(self, name: str) -> None:
        """Take a model out: no call knows it any more."""
        with self._lock:
            del self._entries[name]

    def vanish(self, name: str) -> None:
        """The index goes on listing the model as READY; every other call does not find it."""
        with self._lock:
            self._entries[name].vanished = True

    def unload(self, name: str, reason: str = "unloaded") -> None:
        """State UNAVAILABLE with `reason`; the counters are gone, as in Triton."""
        with self._lock:
            entry = self._entries[name]
            entry.ready, entry.reason, entry.stub_dead = False, reason, False
            entry.reset(metrics=True)

    def load(self, name: str) -> None:
        """State READY. Over a ready model it is a reload.

        A reload sets the statistics to 0 while the metrics go on (Triton 2.51, executed).
        """
        with self._lock:
            entry = self._entries[name]
            if entry.stub_dead:
                return  # A load alone repairs nothing.
            entry.ready, entry.reason, entry.vanished = True, "", False
            entry.reset(metrics=False)

    def kill_stub(self, name: str) -> None:
        """Kill the model's Python process: every request fails, the index says READY.

        Readiness stays before version 2.65; from there on the model is not ready, and
        with strict readiness the server neither. Unload and load repair it.
        """
        with self._lock:
            self._entries[name].stub_dead = True

    def stub_dead(self, name: str) -> bool:
        """Whether the model's backend process is dead."""
        with self._lock:
            return name in self._entries and self._entries[name].stub_dead

    def hang_is_ready(self, name: str, *, hangs: bool = True) -> None:
        """Let the model's `is_ready()` hang, which it has from version 2.67 on.

        Each question about its readiness is answered "no" after 5 s; over gRPC every
        other control call waits meanwhile.
        """
        with self._lock:
            self._entries[name].readiness_hangs = hangs

    def readiness_hangs(self, name: str) -> bool:
        """Whether `is_ready()` of this model hangs, for "" of any."""
        with self._lock:
            return any(
                entry.readiness_hangs and entry.ready
                for entry in self._entries.values()
                if name in ("", entry.model.name)
            )

    def restart(self) -> None:
        """Every counter at 0, as after a restart."""
        with self._lock:
            for entry in self._entries.values():
                entry.reset(metrics=True)

    def knows(self, name: str) -> bool:
        """Whether a model of this name is listed."""
        with self._lock:
            return name in self._entries

    def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """The answer to RepositoryIndex; `reason` only where there is one."""
        with self._lock:
            return [
                row
                for _, entry in sorted(self._entries.items())
                for row in _index_rows(entry)
                if row["state"] == "READY" or not ready_only
            ]

    def find(self, name: str, version: str) -> tuple[FakeModel, str]:
        """The model and the version meant ("" is the latest); RefusedError if not there."""
        if version and not version.isdecimal():
            raise refused(
                INVALID_ARGUMENT,
                "failed to get model version from specified version string "
                f"'{version}' (details: stol), version should be an integral value > 0",
            )
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.vanished:
                raise refused(
                    NOT_FOUND, f"Request for unknown model: '{name}' is not found"
                )
            if not entry.ready:
                raise refused(
                    NOT_FOUND,
                    f"Request for unknown model: '{name}' has no available versions",
                )
            if version and version not in entry.model.versions:
                raise refused(
                    NOT_FOUND,
                    f"Request for unknown model: '{name}' version {version} is not found",
                )
            return entry.model, version or entry.model.versions[-1]

    def is_ready(self, name: str, version: str) -> bool:
        """Whether the model is listed, loaded and not vanished."""
        try:
            self.find(name, version)
        except RefusedError:
            return False
        return True

    def is_healthy(self, name: str, version: str) -> bool:
        """Whether the model is ready and its backend process says so (from 2.65 on)."""
        with self._lock:
            return self.is_ready(name, version) and self._entries[name].healthy

    def all_ready(self, *, healthy: bool) -> bool:
        """Triton's strict readiness; `healthy` asks each backend too (from 2.65 on)."""
        with self._lock:
            return all(
                entry.healthy if healthy else entry.ready
                for entry in self._entries.values()
            )

    def statistics(self) -> list[tuple[str, str, Counters]]:
        """Copies of what every ready version counted: name, version, counters."""
        with self._lock:
            return [
                (name, version, copy.deepcopy(counters))
                for name, entry in self._visible()
                for version, counters in entry.statistics.items()
            ]

    def metrics(self) -> list[MetricsRow]:
        """Copies of what the metrics port shows."""
        with self._lock:
            return [
                MetricsRow(name, version, copy.deepcopy(counters), self._pending[name])
                for name, entry in self._visible()
                for version, counters in entry.metrics.items()
            ]

    def _visible(self) -> Generator[tuple[str, _Entry]]:
        for name, entry in sorted(self._entries.items()):
            if entry.ready and not entry.vanished:
                yield name, entry

    def pending(self, name: str, change: int) -> None:
        """Move the model's number of requests in progress."""
        with self._lock:
            if name in self._entries:
                self._pending[name] += change

    def succeeded(
        self,
        name: str,
        version: str,
        *,
        rows: int,
        timings: Timings,
        now_ms: int,
        requests: int = 1,
        executions: int | None = None,
    ) -> None:
        """Count successful requests of `rows` inferences each."""
        ran = requests if executions is None else executions

        def count(counters: Counters) -> None:
            counters.succeeded(requests, rows, ran, timings, now_ms)

        self._count(name, version, count)

    def failed(
        self,
        name: str,
        version: str,
        *,
        rows: int,
        reason: FailureReason,
        timings: Timings,
        requests: int = 1,
    ) -> None:
        """Count failed requests."""

        def count(counters: Counters) -> None:
            counters.failed(requests, rows, reason, timings)

        self._count(name, version, count)

    def _count(
        self, name: str, version: str, count: Callable[[Counters], None]
    ) -> None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or version not in entry.statistics:
                return  # Removed while the request was running.
            count(entry.statistics[version])
            count(entry.metrics[version])


def _index_rows(entry: _Entry) -> list[dict[str, str]]:
    row: dict[str, Any] = {"state": "READY" if entry.ready else "UNAVAILABLE"}
    if entry.reason:
        row["reason"] = entry.reason
    return [
        {"name": entry.model.name, "version": version, **row}
        for version in entry.model.versions
    ]
