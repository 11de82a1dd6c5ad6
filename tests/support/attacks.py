"""What a stranger who reaches the ports does to a sidecar, each attack written once.

An attack is a generator: every `next` is one attempt, its value is whether the stranger
got what is to be refused. What it holds open it gives up when it is closed.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import itertools
import json
import socket
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import bombs
import http2_floods
from attack_connections import (
    TIMEOUT_SECONDS,
    Address,
    asked,
    connected,
    elsewhere,
    holding,
    saying,
    sending,
    spoken,
)
from mirror_bodies import grpc_request

from exporter.network.admission import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from attack_connections import Attempts

NOWHERE: Final[Address] = ("", 0)
"""The pages of a target that is a tap alone."""
JSON: Final = {"content-type": "application/json"}
PROTOBUF: Final = {"content-type": "application/x-protobuf"}
GZIP: Final = {"content-encoding": "gzip"}
PAGE: Final = {"origin": "http://evil.example", "content-type": "text/plain"}
RATES: Final = {"requests_per_second": 2.0, "low": 1.0, "high": 3.0}
YEAR_SECONDS: Final = 365 * 86_400


@dataclass(frozen=True)
class Target:
    """Where a sidecar listens; without an address what concerns it is left out."""

    web: Address
    tap: Address | None = None
    grpc: Address | None = None


@contextlib.contextmanager
def tried(
    attack: Callable[[Target], Attempts], target: Target, times: int = 300
) -> Generator[None]:
    """Make so many attempts, and keep what they hold open for the block."""
    with contextlib.closing(attack(target)) as attempts:
        assert not any(itertools.islice(attempts, times))
        yield


def idle_connections(target: Target) -> Attempts:
    """Connections that say nothing, to a TLS listener not even hello."""
    return holding(lambda: connected(target.web[:2]), 2 * CONNECTIONS["web"])


def long_hellos(target: Target) -> Attempts:
    """TLS handshakes whose first message is as long as OpenSSL permits, and does not end."""
    where = target.web[:2]
    return holding(lambda: saying(where, LONG_HELLO), CONNECTIONS["web"])


_RECORD: Final = b"\x16\x03\x01\x40\0"
"""Head of a handshake record of 16 kB (RFC 8446, 5.1)."""
LONG_HELLO: Final = (_RECORD + b"\x01\x01\xff\xfc\x03\x03".ljust(1 << 14, b"x")) + 6 * (
    _RECORD + b"x" * (1 << 14)
)


def idle_calls(target: Target) -> Attempts:
    """More idle connections to the gRPC tap than a process has file descriptors for."""
    assert target.grpc is not None
    where, source = target.grpc, elsewhere(target.grpc)
    return holding(lambda: connected(where, source), 1_100)


def grpc_calls(target: Target, method: str, message: bytes | None) -> Attempts:
    """Connections with fifty calls each, and no answer read."""
    assert target.grpc is not None
    where, source = target.grpc, elsewhere(target.grpc)
    preface = http2_floods.calls(method, 50, message)
    return holding(lambda: saying(where, preface, source), CONNECTIONS["grpc"])


def messageless_streams(target: Target) -> Attempts:
    """gRPC streams on which no message comes."""
    return grpc_calls(target, "ModelStreamInfer", None)


def flooded_calls(target: Target) -> Attempts:
    """A thousand gRPC calls a second, each with a sound message."""
    return grpc_calls(target, "ModelInfer", grpc_request())


def flooded_frames(target: Target) -> Attempts:
    """Frames of HTTP/2 that cost more than they weigh, of one kind a connection."""
    assert target.grpc is not None
    where, source = target.grpc, elsewhere(target.grpc)
    kinds = itertools.cycle(http2_floods.FLOODS)

    def connect() -> socket.socket:
        frames = next(kinds)
        text = b"".join(frames(2 * number + 1) for number in range(50))
        return saying(where, http2_floods.START + text, source)

    return holding(connect, CONNECTIONS["grpc"])


def skipped_requests(target: Target) -> Attempts:
    """Mirrored requests that are skipped, 3,000 on each connection without a pause."""
    source = elsewhere(target.tap)
    return holding(lambda: saying(target.tap, SKIPPED, source), CONNECTIONS["tap"])


SKIPPED: Final = 3_000 * (
    b"POST /v2/models/x/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
)
HALF_SENT: Final = (
    b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2000000\r\n\r\n{"
)


def half_sent_bodies(target: Target) -> Attempts:
    """Bodies of which one byte comes."""
    return holding(lambda: saying(target.tap, HALF_SENT), 2 * CONNECTIONS["tap"])


def half_sent_megabytes(target: Target) -> Attempts:
    """Bodies of which half comes, more than may wait."""
    source, body = elsewhere(target.tap), HALF_SENT + b" " * 1_000_000
    return holding(lambda: saying(target.tap, body, source), CONNECTIONS["tap"])


def unread_scrape(address: Address, path: bytes = b"/metrics") -> socket.socket:
    """A client with a small buffer, which asks for a page and does not read."""
    client = socket.socket()
    client.settimeout(TIMEOUT_SECONDS)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    host, port, *files = address
    client.connect((host, port))
    client = spoken(client, str(host), *map(str, files))
    client.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path)
    return client


def unread_pages(target: Target) -> Attempts:
    """Pages and documents that nobody reads, of models known and unknown."""
    paths = itertools.cycle(DOCUMENTS)
    return holding(lambda: unread_scrape(target.web, next(paths)), 100)


DOCUMENTS: Final = (
    b"/metrics",
    b"/api/v1/history",
    b"/api/v1/history?model=m&version=1",
    b"/api/v1/history?model=" + b"m" * 50_000,
    b"/api/v1/history?" + b"model=m&" * 99,
    b"/api/v1/status",
    b"/runbooks/TritonColdStartSlower",
    b"/",
)


def strange_paths(target: Target) -> Attempts:
    """Names of files that are no runbooks, and queries that are too long."""
    for path in itertools.cycle(STRANGE_PATHS):
        yield asked(target.web, path) == http.HTTPStatus.OK


STRANGE_PATHS: Final = (
    b"/runbooks/",
    b"/runbooks/..",
    b"/runbooks/../../pyproject.toml",
    b"/runbooks/%2e%2e/%2e%2e/pyproject",
    b"/runbooks/..%2f..%2fSECURITY",
    b"/runbooks/..%5c..%5cSECURITY",
    b"/runbooks/TritonDown%00.md",
    b"/runbooks/TritonDown/",
    b"/runbooks//etc/passwd",
    b"/runbooks/" + b"a" * 60_000,
    b"/api/v1/history/../../etc/passwd",
    b"/api/v1/history?" + b"a=1&" * 10_000,
    b"/api/v1/history?model=" + b"%41" * 40_000,
)


def basic(user: str, password: str) -> str:
    """The header for a user and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def wrong_passwords(target: Target) -> Attempts:
    """Passwords that are not correct, each another, dozens at once."""
    numbers = itertools.count()

    def guess() -> socket.socket:
        header = basic("prometheus", f"guess-{next(numbers)}")
        line = f"GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: {header}\r\n\r\n"
        return saying(target.web, line.encode())

    return holding(guess, 64)


def endless_requests(target: Target) -> Attempts:
    """Heads, bodies and trailers that never end."""
    for start, more in itertools.cycle(ENDLESS.values()):
        with contextlib.suppress(OSError):
            pour(target.web, start, more, 1 << 20)
        yield False


ENDLESS: Final = {
    "headers": (b"GET / HTTP/1.1\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
    "header": (b"GET / HTTP/1.1\r\nX: ", b"b" * 65536),
    "path": (b"GET /", b"b" * 65536),
    "query": (b"GET /?", b"&a=b" * 16384),
    "trailer": (
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        b"b" * 65536,
    ),
    "body": (
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"b" * 65536 + b"\r\n",
    ),
    "requests": (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000),
}


def pour(address: Address, start: bytes, more: bytes, most_bytes: int) -> None:
    """Send a beginning, and then the same again and again."""
    with connected(address) as connection:
        connection.sendall(start)
        for _ in range(most_bytes // len(more)):
            connection.sendall(more)


def slow_bodies(target: Target) -> Attempts:
    """Whole bodies that take long to parse, on as many connections as there may be."""
    body = gzip.compress(bombs.FOREIGN_SPANS)
    source, request = elsewhere(target.tap), SLOW_HEAD % len(body) + body
    return holding(lambda: saying(target.tap, request, source), 2 * CONNECTIONS["tap"])


SLOW_HEAD: Final = (
    b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
)


def span_bombs(target: Target) -> Attempts:
    """Two kilobytes that become a million spans, attributes or events."""
    packed = [
        ("/v1/traces", gzip.compress(body), {"content-type": kind, **GZIP})
        for kind, body in bombs.MILLION_EMPTY.values()
    ]
    return sending(target.tap, itertools.cycle(packed))


def zipped_spaces(target: Target) -> Attempts:
    """A body that inflates a thousandfold."""
    request = ("/v1/traces", bombs.gzip_bomb(100), {**JSON, **GZIP})
    return sending(target.tap, itertools.repeat(request))


def half_joined_spans(target: Target) -> Attempts:
    """Requests of which one span is missing for good, of models with long names."""
    bodies = (bombs.unfinished_spans(n, 500, 3_000) for n in itertools.count(0, 500))
    return sending(
        target.tap,
        (("/v1/traces", gzip.compress(b, 1), {**JSON, **GZIP}) for b in bodies),
    )


def unfinished_requests(target: Target) -> Attempts:
    """Requests to a model that the server holds, of which one span is missing for good."""
    assert target.tap is not None
    bodies = (bombs.unfinished_spans_of("m", n, 500) for n in itertools.count(0, 500))
    return sending(
        target.tap,
        (("/v1/traces", gzip.compress(b, 1), {**JSON, **GZIP}) for b in bodies),
        source=elsewhere(target.tap),
    )


def unknown_models(target: Target) -> Attempts:
    """Whole traces of ever other models with names of four kilobytes."""
    bodies = (bombs.finished_spans(n, 20, 4_000) for n in itertools.count(0, 20))
    return sending(target.tap, (("/v1/traces", body, JSON) for body in bodies))


def unknown_paths(target: Target) -> Attempts:
    """Mirrored requests to ever other models with names of four kilobytes."""
    names = (f"{n}{'m' * 4_000}" for n in itertools.count())
    return sending(
        target.tap, ((f"/v2/models/{name}/infer", b"{}", JSON) for name in names)
    )


def nested_json(target: Target) -> Attempts:
    """Arrays 900 deep, as traces and as tensors."""
    body = gzip.compress(bombs.DEEP_ARRAYS)
    small = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":' + b"[" * 900
    paths = (("/v1/traces", body), ("/v2/models/m/infer", gzip.compress(small)))
    requests = [(path, sent, {**JSON, **GZIP}) for path, sent in paths]
    return sending(target.tap, itertools.cycle(requests))


def squatted_boards(target: Target) -> Attempts:
    """Runs and capacities that stay on their boards for as long as one may ask for."""

    def notices(number: int) -> Iterable[tuple[str, bytes, dict[str, str]]]:
        run = {"run": f"squat-{number}", "kind": "load", "profile": "p", "phase": "p"}
        capacity = {"model": "m", "slo": f"squat-{number}", **RATES}
        yield "/v1/runs", json.dumps({**run, "ttl_seconds": 3600}).encode(), JSON
        long = {**capacity, "ttl_seconds": YEAR_SECONDS}
        yield "/v1/capacity", json.dumps(long).encode(), JSON

    every = itertools.chain.from_iterable(map(notices, itertools.count()))
    return sending(target.tap, every)


def cross_site_posts(target: Target) -> Attempts:
    """What a page in a browser sends to the taps of the machine that it runs on."""
    acknowledgement = json.dumps({"signal": "up"}).encode()
    paths = ("/api/v1/spc/acknowledge", "/v1/traces", "/v2/models/m/infer")
    requests = [(path, acknowledgement, PAGE) for path in paths]
    return sending(target.tap, itertools.cycle(requests), wanted=200)


def cross_site_reloads(target: Target) -> Attempts:
    """The same to the pages."""
    requests = itertools.repeat(("/-/reload", b"", PAGE))
    return sending(target.web, requests, wanted=200)


@dataclass(frozen=True)
class Attack:
    """One of the attacks: what it needs, and how often it is tried."""

    attempts: Callable[[Target], Attempts]
    needs: str = "tap"
    """The address without which it cannot be tried."""
    per_second: float = 50.0

    @property
    def name(self) -> str:
        """As the report has it."""
        return self.attempts.__name__.replace("_", " ")


ATTACKS: Final = (
    Attack(idle_connections, "web", 200),
    Attack(long_hellos, "web", 200),
    Attack(unread_pages, "web"),
    Attack(strange_paths, "web"),
    Attack(wrong_passwords, "web"),
    Attack(endless_requests, "web"),
    Attack(cross_site_reloads, "web"),
    Attack(idle_calls, "grpc", 200),
    Attack(messageless_streams, "grpc", 20),
    Attack(flooded_calls, "grpc", 20),
    Attack(flooded_frames, "grpc", 20),
    Attack(skipped_requests),
    Attack(half_sent_bodies, per_second=200),
    Attack(half_sent_megabytes, per_second=20),
    Attack(slow_bodies, per_second=200),
    Attack(span_bombs, per_second=10),
    Attack(zipped_spaces, per_second=10),
    Attack(half_joined_spans, per_second=10),
    Attack(unfinished_requests, per_second=10),
    Attack(unknown_models),
    Attack(unknown_paths),
    Attack(nested_json, per_second=10),
    Attack(squatted_boards),
    Attack(cross_site_posts),
)
