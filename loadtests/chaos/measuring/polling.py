"""Acts at a fixed pace: polls the sidecar and Prometheus while an experiment runs."""

from __future__ import annotations

import contextlib
import json
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from exporter.errors import TritonError
from exporter.output.exposition import parse_text
from exporter.system.background import Background
from exporter.triton.http import HttpClient
from loadtests.chaos.measuring.observations import PROMETHEUS_UP, UP, AlertChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadtests.chaos.measuring.observations import AlertState, Record

EVERY_SECONDS: Final = 0.25
_TIMEOUT_SECONDS: Final = 1.0
RESIDENT: Final = "process_resident_memory_bytes"
OPEN_FDS: Final = "process_open_fds"
ALWAYS: Final = frozenset(
    {
        RESIDENT,
        OPEN_FDS,
        "triton_up",
        "triton_model_ready",
        "triton_model_serving",
        "triton_probe_success",
        "triton_run_info",
    }
)
"""Series that every experiment records, beside those it requests."""


class Pace(Background):
    """Calls a function at a fixed pace while its block lasts, first one pace from now."""

    def __init__(
        self,
        every_seconds: float,
        act: Callable[[], object],
        *,
        end_seconds: float = 5.0,
    ) -> None:
        super().__init__(end_seconds=end_seconds)
        self._every = every_seconds
        self._act = act

    def _work(self) -> None:
        due = time.monotonic() + self._every
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            self._act()
            # One that took longer than the pace is not made up for.
            due = max(due + self._every, time.monotonic())


class _Watch(Pace):
    """Polls a server every quarter of a second, while its block lasts."""

    def __init__(self, url: str, record: Record) -> None:
        super().__init__(EVERY_SECONDS, self._poll)
        self._client = HttpClient(url.rpartition("//")[2], connections=1)
        self._record = record

    def _work(self) -> None:
        with contextlib.closing(self._client):
            super()._work()

    def _poll(self) -> None:
        raise NotImplementedError


class SidecarWatch(_Watch):
    """Records a sidecar's metrics."""

    def __init__(self, url: str, metrics: Iterable[str], record: Record) -> None:
        super().__init__(url, record)
        self._wanted = ALWAYS.union(metrics)

    def _poll(self) -> None:
        try:
            page = self._client.get("/metrics", timeout_seconds=_TIMEOUT_SECONDS)
            series = list(parse_text(page))
        except (TritonError, ValueError):
            self._record.value(time.perf_counter(), UP, {}, 0.0)
            return
        now = time.perf_counter()
        self._record.value(now, UP, {}, 1.0)
        for name, labels, value in series:
            if name in self._wanted:
                self._record.value(now, name, labels, value)


class AlertWatch(_Watch):
    """Records each change of state of a Prometheus alert."""

    def __init__(self, url: str, record: Record) -> None:
        super().__init__(url, record)
        self._known: dict[tuple[tuple[str, str], ...], AlertState] = {}

    def _poll(self) -> None:
        try:
            body = self._client.get("/api/v1/alerts", timeout_seconds=_TIMEOUT_SECONDS)
            found = json.loads(body)["data"]["alerts"]
        except (TritonError, ValueError, LookupError):
            self._record.alerts_watched = False
            self._record.value(time.perf_counter(), PROMETHEUS_UP, {}, 0.0)
            return
        self._record.alerts_watched = True
        now = time.perf_counter()
        self._record.value(now, PROMETHEUS_UP, {}, 1.0)
        states: dict[tuple[tuple[str, str], ...], AlertState] = {
            tuple(sorted(alert["labels"].items())): alert["state"] for alert in found
        }
        for labels in {*states, *self._known}:
            state = states.get(labels, "inactive")
            if state != self._known.get(labels, "inactive"):
                names = dict(labels)
                name = names.pop("alertname", "")
                row = AlertChange(now, name, names, state)
                self._record.add(row)
        self._known = states


def fetch(address: str, path: str) -> bytes | None:
    """Return the answer to a GET within a second; None where it fails."""
    with contextlib.closing(HttpClient(address, connections=1)) as client:
        try:
            return client.get(path, timeout_seconds=_TIMEOUT_SECONDS)
        except TritonError:
            return None


def versions_of(http: str) -> dict[str, str]:
    """Return the versions of tritonwatch and of the server, where it reports it."""
    found = {"tritonwatch": version("tritonwatch")}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        found["triton"] = str(json.loads(fetch(http, "/v2") or b"")["version"])
    return found
