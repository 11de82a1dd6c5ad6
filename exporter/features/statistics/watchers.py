"""Requests that other sidecars send to the server that this one watches.

Another sidecar counts its own requests on its /metrics, as this one does. Its page is
some seconds old: Triton counts a request before the page shows it. So while Triton's
count rises, as many requests as a watcher usually sends between two polls are held back
until its page has had time to show them.

Of a sidecar that started after the read of Triton's counts that became the base of
production all requests are counted, of others those since their page was first read. The
two clocks are compared for it.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import structlog
from pydantic import Field

from exporter import catalogue, errors
from exporter.access.own_traffic import NOTHING, Booking
from exporter.output.exposition import parse_text
from exporter.samples import Sample
from exporter.settings import Headers, Settings
from exporter.triton import tls_files
from exporter.triton.http import HttpClient
from exporter.triton.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.access.own_traffic import OwnCounts

log = structlog.get_logger()

Address = Annotated[str, Field(pattern=r"^[^\s/?#@]+:[0-9]{1,5}$", max_length=300)]
"""`host:port` of another sidecar's /metrics."""

_STARTED: Final = catalogue.PROCESS_START.name
_READ: Final = frozenset(
    {catalogue.OWN_REQUESTS.name, catalogue.OWN_UNRESOLVED.name, _STARTED}
)
_LATE_READS: Final = 3
"""Reads after which a watcher's page includes what Triton has counted."""
_REMEMBERED_READS: Final = 12
_MOST_SERIES: Final = 30_000


class WatcherSettings(Settings):
    """Another sidecar, and how to connect to it."""

    address: Address
    """`host:port` of its /metrics."""
    tls: TlsFiles | None = Field(default=None)
    """TLS, if the other sidecar uses it. The files are read again after a failure."""
    headers: Headers = Field(default={}, max_length=100)
    """Headers sent with every request, such as `Authorization` if it requires a
    password."""


class _Series(NamedTuple):
    """One series of a watcher's own requests; `outcome` is "" where it has none."""

    name: str
    model: ModelKey
    outcome: str


class _Watcher:
    """One other sidecar: its requests since it was first read, or since it started."""

    def __init__(self, settings: WatcherSettings) -> None:
        self.address = settings.address
        self.is_up = False
        self._settings = settings
        self._client: HttpClient | None = None
        self._problem = ""
        self._latest: dict[_Series, float] = {}

    def read(self, timeout_seconds: float, since: float) -> dict[ModelKey, int]:
        """Return the requests that it sent since it was last read.

        Of the first read these are all requests if it started after `since`, else none.
        """
        try:
            if self._client is None:
                self._client = self._connected()
            page = self._client.get("/metrics", timeout_seconds=timeout_seconds)
            now, started = _own_requests(page)
        except (errors.TritonError, errors.ConfigError, ValueError) as error:
            self._disconnect(str(error))
            return {}
        self.is_up, self._problem = True, ""
        before = self._latest
        # A series that is absent for a while returns with its old total.
        kept = {series: total for series, total in before.items() if series not in now}
        for series in list(kept)[: max(0, len(kept) + len(now) - _MOST_SERIES)]:
            del kept[series]
        self._latest = kept | now
        rises: dict[ModelKey, float] = {}
        for series, total in now.items() if before or started > since else ():
            last = before.get(series, 0.0)
            # A restarted watcher counts from 0.
            rise = total - last if total >= last else total
            rises[series.model] = rises.get(series.model, 0.0) + rise
        return {key: round(rise) for key, rise in rises.items() if rise > 0}

    def _connected(self) -> HttpClient:
        tls, place = self._settings.tls, f"watcher {self.address}: tls"
        headers = self._settings.headers.items()
        return HttpClient(
            self.address,
            tls=None if tls is None else tls_files.context(tls, place),
            headers={name: value.get_secret_value() for name, value in headers},
            connections=1,
        )

    def _disconnect(self, problem: str) -> None:
        self.is_up = False
        if self._client is not None:
            self._client.close()
            self._client = None
        if not self._problem:
            log.warning("watcher_not_read", watcher=self.address, reason=problem)
        self._problem = problem


class Watchers:
    """The requests of other sidecars, to be taken out of production's."""

    def __init__(
        self,
        watchers: Sequence[WatcherSettings],
        timeout_seconds: float,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._watchers = [_Watcher(settings) for settings in watchers]
        self._wall_clock = wall_clock
        self._since = math.inf
        """Time of the latest read that became a base."""
        self._timeout_seconds = timeout_seconds
        self._sent: dict[ModelKey, int] = {}
        self._rises: dict[ModelKey, deque[int]] = {}
        self._shown: dict[ModelKey, deque[int]] = {}

    def read(self, *, is_base: bool = False) -> None:
        """Read the page of each watcher once.

        `is_base` means that production counts from the present read of Triton's counts.
        """
        if is_base:
            self._since = self._wall_clock()
        total: dict[ModelKey, int] = {}
        for watcher in self._watchers:
            for key, rise in watcher.read(self._timeout_seconds, self._since).items():
                total[key] = total.get(key, 0) + rise
        for key in total.keys() | self._rises.keys():
            rise = total.get(key, 0)
            self._sent[key] = self._sent.get(key, 0) + rise
            rises = self._rises.setdefault(key, deque(maxlen=_REMEMBERED_READS))
            rises.append(rise)

    def joined(self, key: ModelKey, own: OwnCounts, requests: int) -> OwnCounts:
        """Return `own` with the watchers' certain and possible requests to a model version.

        `requests` is how many Triton has counted of it.
        """
        if not self._watchers:
            return own
        sent = self._sent.get(key, 0)
        shown = self._shown.setdefault(key, deque(maxlen=_LATE_READS + 1))
        shown.append(requests)
        expected = NOTHING
        if shown[-1] != shown[0]:
            most = max(self._rises.get(key, ()), default=0)
            expected = _single(max(1, most) * _LATE_READS)
        return replace(
            own,
            possible=own.possible + _single(sent),
            in_flight=own.in_flight + expected,
        )

    def forget(self, present: Mapping[ModelKey, object]) -> None:
        """Drop models that are no longer served."""
        for key in [key for key in self._shown if key not in present]:
            del self._shown[key]
            self._rises.pop(key, None)

    def samples(self) -> Iterator[Sample]:
        """Yield for each watcher whether it can be read."""
        for watcher in self._watchers:
            yield Sample(catalogue.WATCHER_UP, watcher.is_up, (watcher.address,))


def _single(requests: int) -> Booking:
    """Return `requests` of one inference each, executed one by one."""
    return Booking(requests, requests, {1: requests}) if requests else NOTHING


def _own_requests(page: bytes) -> tuple[dict[_Series, float], float]:
    """Return the totals of a page's own requests, and the start of its process.

    The start is minus infinity where the page does not have it.
    """
    found: dict[_Series, float] = {}
    started = float("-inf")
    lines = b"\n".join(
        line
        for line in page.splitlines()
        if re.split(rb"[{ ]", line, maxsplit=1)[0].decode("ascii", "replace") in _READ
    )
    for name, labels, value in parse_text(lines + b"\n"):
        key = labels.get("model", ""), labels.get("version", "")
        if name == _STARTED:
            started = value
        elif len(found) < _MOST_SERIES:
            found[_Series(name, key, labels.get("outcome", ""))] = value
    return found, started
