"""Honest clients of a sidecar while something else goes on, and what they saw."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
from attack_connections import sent
from attacks import JSON, Target
from bombs import finished_spans_of
from mirror_bodies import grpc_request, request

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

TRACES: Final = (
    Path(__file__).parents[1] / "data" / "traces" / "otlp" / "triton-2.51.json"
).read_bytes()
TIMEOUT_SECONDS: Final = 20.0
_BUSY_CLIENTS: Final = 4
"""Clients of each kind while much is sent."""
_BUSY_PERIOD: Final = 0.3
_PAGES: Final = ("/", "/api/v1/status")
_BATCH: Final = 170
"""Requests of a full batch of Triton's, which has 512 spans."""
CALL: Final = "/inference.GRPCInferenceService/ModelInfer"
_SERVING: Final = re.compile(rb"^triton_model_serving\{.*\} (\S+)$", re.MULTILINE)
_RESIDENT: Final = re.compile(rb"^process_resident_memory_bytes (\S+)$", re.MULTILINE)
_PROBES: Final = {
    part: re.compile(
        rb"^triton_probe_duration_seconds_%b(?:\{.*\})? (\S+)$" % part.encode(),
        re.MULTILINE,
    )
    for part in ("sum", "count")
}


def full_batch(number: int) -> bytes:
    """As many traced requests as Triton sends at once."""
    return finished_spans_of("m", number * _BATCH, _BATCH)


class DisappointedError(Exception):
    """The answer was not what an honest client may expect."""


@dataclass
class Tally:
    """What clients of one kind saw."""

    seconds: list[float] = field(default_factory=list)
    """Of each answer that was as it should be."""
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def tried(self) -> int:
        """Requests with an answer and without."""
        return len(self.seconds) + self.failures.total()

    @property
    def worst(self) -> float:
        """The longest time to an answer."""
        return max(self.seconds, default=float("nan"))

    @property
    def figures(self) -> dict[str, object]:
        """Return what was seen, as JSON values; times in milliseconds."""
        milliseconds = [each * 1e3 for each in self.seconds] or [float("nan")]
        tail = int(0.99 * (len(milliseconds) - 1))
        return {
            "tried": self.tried,
            "in_1_s": sum(each <= 1.0 for each in self.seconds),
            "failures": dict(self.failures),
            "median_ms": round(statistics.median(milliseconds), 1),
            "p99_ms": round(sorted(milliseconds)[tail], 1),
            "worst_ms": round(max(milliseconds), 1),
        }

    def share(self, within_seconds: float = float("inf")) -> float:
        """The share answered within so long."""
        well = sum(each <= within_seconds for each in self.seconds)
        return well / self.tried if self.tried else float("nan")


@dataclass(frozen=True)
class Seen:
    """What all honest clients saw in one spell."""

    tallies: dict[str, Tally]
    not_serving: int
    """Values of triton_model_serving that were 0."""
    probe_seconds: float
    """The mean duration of the probes of the spell."""
    resident_bytes: float
    """The most that was resident."""


@dataclass(frozen=True)
class Reader:
    """Scrapes a sidecar as Prometheus does, on a new connection each time."""

    address: tuple[str, int]
    tls: ssl.SSLContext | None = None
    authorization: str = ""

    def scrape(self, path: str = "/metrics") -> bytes:
        """The page."""
        host, port = self.address
        connection: http.client.HTTPConnection
        if self.tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        else:
            connection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_SECONDS, context=self.tls
            )
        named = {"authorization": self.authorization} if self.authorization else {}
        with contextlib.closing(connection):
            connection.request("GET", path, headers=named)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise DisappointedError(answer.status)
        return body


class HonestClients:
    """Scrapes, mirrored requests and traces, each at a fixed pace."""

    def __init__(self, target: Target, reader: Reader) -> None:
        self._reader = reader
        self._pages: list[bytes] = []
        self._kinds: dict[str, tuple[float, Callable[[], object]]] = {
            "scrape": (0.2, self._scrape)
        }
        if target.tap is not None:
            self._tap = target.tap
            posts = {
                "trace": ("/v1/traces", TRACES),
                "mirror": ("/v2/models/m/infer", request()),
            }
            for kind, (path, body) in posts.items():
                # What nothing is configured to take is no loss.
                if sent(self._tap, path, body, JSON) != http.HTTPStatus.NOT_FOUND:
                    self._kinds[kind] = (0.1, partial(self._post, path, body))
        if target.grpc is not None:
            channel = grpc.insecure_channel("{}:{}".format(*target.grpc))
            call = channel.unary_unary(CALL)
            message = grpc_request()
            self._kinds["gRPC"] = (0.1, lambda: _called(call, message))

    def warm_up(self, seconds: float) -> None:
        """Send much at once: what honest load leaves in memory is not due to attacks."""
        numbers = itertools.count()
        acts = [act for _, act in self._kinds.values()]
        if "trace" in self._kinds:
            acts.append(lambda: self._post("/v1/traces", full_batch(next(numbers))))
        acts += [partial(self._reader.scrape, path) for path in _PAGES]
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(len(acts) * _BUSY_CLIENTS) as threads:
            for act in acts * _BUSY_CLIENTS:
                threads.submit(_keep_on, _BUSY_PERIOD, act, Tally(), until)

    def spell(self, seconds: float) -> Seen:
        """Send for so long."""
        self._pages.clear()
        tallies = {kind: Tally() for kind in self._kinds}
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(len(tallies)) as threads:
            for kind, tally in tallies.items():
                threads.submit(_keep_on, *self._kinds[kind], tally, until)
        pages = self._pages or [b""]
        serving = [value for page in pages for value in _SERVING.findall(page)]
        resident = [float(v) for page in pages for v in _RESIDENT.findall(page)]
        return Seen(
            tallies,
            sum(float(value) == 0 for value in serving),
            _mean_between(pages[0], pages[-1]),
            max(resident, default=float("nan")),
        )

    def _scrape(self) -> None:
        self._pages.append(self._reader.scrape())

    def _post(self, path: str, body: bytes) -> None:
        status = sent(self._tap, path, body, JSON, TIMEOUT_SECONDS)
        if status != http.HTTPStatus.OK:
            raise DisappointedError(status)


def _called(call: Callable[..., bytes], message: bytes) -> None:
    try:
        call(message, timeout=TIMEOUT_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        raise DisappointedError(error.code().name) from None


def _keep_on(
    period: float, act: Callable[[], object], tally: Tally, until: float
) -> None:
    while (began := time.monotonic()) < until:
        try:
            act()
        except (OSError, http.client.HTTPException, DisappointedError) as error:
            tally.failures[f"{type(error).__name__}: {error}"] += 1
        else:
            tally.seconds.append(time.monotonic() - began)
        time.sleep(max(0.0, began + period - time.monotonic()))


def _mean_between(first: bytes, last: bytes) -> float:
    seconds, number = (
        sum(map(float, pattern.findall(last))) - sum(map(float, pattern.findall(first)))
        for pattern in _PROBES.values()
    )
    return seconds / number if number > 0 else float("nan")
