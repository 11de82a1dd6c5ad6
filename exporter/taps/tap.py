"""The tap: a second HTTP listener, which receives traces and mirrored requests.

It takes bodies as they come, within bounds: of one body while it is read and while it is
inflated, of all bodies together, of the time a sender may take. Whatever it does not
take is counted by reason and never held.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import Counter, defaultdict
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.network.addresses import host_port
from exporter.network.admission import CrowdedError, Held, Turns, network_of
from exporter.network.browsers import host_refusal, sent_by_a_page
from exporter.network.listening import bind, make_server, send_answer
from exporter.samples import Sample
from exporter.system.workers import Workers
from exporter.taps.tap_route import TapAnswer, TapHead, TapRequest, TapRoute, refusal

if TYPE_CHECKING:
    import re
    import socket
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from exporter.network.admission import Entrance
    from exporter.network.listening import HttpServer
    from exporter.taps.tap_route import MessageRoute

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

log = structlog.get_logger()

READ_SECONDS: Final = 10.0
TURN_SECONDS: Final = 5.0
"""Longest wait of a body for its sender's turn: less than exporters wait for an answer."""
ANSWER_SECONDS: Final = 2.0
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class _RefusedError(Exception):
    """The request ends here, with this answer."""

    def __init__(self, answer: TapAnswer) -> None:
        self.answer = answer
        super().__init__(answer.outcome)


class Tap:
    """The routes of the tap, as an ASGI application.

    `routes` is asked at every `follow`, so that it follows the configuration. `hosts`
    returns the names that routes of control may be reached by, besides addresses, names
    without a dot and internal ones.
    """

    def __init__(
        self,
        routes: Callable[[], Iterable[TapRoute | MessageRoute]],
        entrance: Entrance,
        *,
        hosts: Callable[[], Sequence[str]] = tuple,
        read_seconds: float = READ_SECONDS,
        turn_seconds: float = TURN_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._routes = routes
        self._entrance = entrance
        self._hosts = hosts
        self._read_seconds = read_seconds
        self._turn_seconds = turn_seconds
        self._answer_seconds = answer_seconds
        self._workers: dict[str, Workers] = {}
        self._turns: defaultdict[str, Turns] = defaultdict(Turns)
        """Turns of senders at the worker, by source."""
        self._exact: dict[str, TapRoute] = {}
        self._patterns: tuple[tuple[re.Pattern[str], TapRoute], ...] = ()
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._server: HttpServer | None = None
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """Return the bound address as "host:port", None if it does not listen."""
        if self._listener is None:
            return None
        return host_port(*self._listener.getsockname()[:2])

    def follow(self, address: str, port: int) -> None:
        """Use the routes, and listen as soon as there is one; in the event loop.

        Raises:
            ListenError: the address cannot be bound.
        """
        routes = tuple(r for r in self._routes() if isinstance(r, TapRoute))
        # A route that a reload took away answers 404 from then on.
        self._exact = {route.path: route for route in routes if route.pattern is None}
        self._patterns = tuple((r.pattern, r) for r in routes if r.pattern is not None)
        if self._serving is None:
            if not routes:
                return
            self._listen(address, port)
        for source in {route.source for route in routes} - self._workers.keys():
            self._workers[source] = Workers(1, f"tap-{source}")

    def _listen(self, address: str, port: int) -> None:
        self._listener = bind(address, port)
        self._server = make_server(self, self._entrance)
        self._serving = asyncio.create_task(
            self._server.serve(sockets=[self._listener]), name="tap"
        )
        log.info("tap_listening", address=self.address)

    async def stop(self) -> None:
        """Close the listener; threads finish the bodies in progress, and those that wait are dropped."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        # uvicorn leaves it open where it had not begun to serve.
        if self._listener is not None:
            self._listener.close()
        for workers in self._workers.values():
            workers.close()
        self._workers = {}
        self._server = self._serving = self._listener = None

    def samples(self) -> Iterator[Sample]:
        """Yield the number of requests by source and outcome."""
        for (source, outcome), number in sorted(self._outcomes.items()):
            yield Sample(catalogue.TAP_REQUESTS, number, (source, outcome))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._route(scope["path"])
        if route is None:
            answer = refusal(
                "unsupported", HTTPStatus.NOT_FOUND, f"no such tap: {scope['path']}"
            )
        elif scope["method"] != "POST":
            answer = refusal(
                "unsupported",
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{route.path} accepts POST",
            )
        else:
            answer = await self._answer_to(route, scope, receive)
        headers = answer.headers
        if scope.get("http_version") == "1.0":
            # Not every uvicorn says so, and a proxy would go on with this connection.
            headers = {"connection": "close", **headers}
        await send_answer(send, answer.status, headers, answer.body)

    def _route(self, path: str) -> TapRoute | None:
        exact = self._exact.get(path)
        if exact is not None:
            return exact
        return next(
            (r for pattern, r in self._patterns if pattern.fullmatch(path)), None
        )

    async def _answer_to(
        self, route: TapRoute, scope: Scope, receive: Receive
    ) -> TapAnswer:
        answer = self._page_refused(scope["headers"])
        if answer is not None:
            return answer
        if route.control:
            answer = self._control_refused(scope["headers"])
        elif route.admit is not None:
            answer = route.admit(TapHead(scope["path"], scope["headers"]))
        if answer is None:
            return await self._receive(route, scope, receive)
        if not await self._drop(receive):
            answer = self._late()
        self._count(route, answer)
        return answer

    def _page_refused(self, headers: Iterable[tuple[bytes, bytes]]) -> TapAnswer | None:
        if not sent_by_a_page(headers):
            return None
        self._entrance.refused["cross_site"] += 1
        return refusal(
            "cross_site",
            HTTPStatus.FORBIDDEN,
            "taps take nothing from web pages; a proxy that mirrors requests of "
            "browsers has to remove Origin and Sec-Fetch-Site",
        )

    def _control_refused(
        self, headers: Iterable[tuple[bytes, bytes]]
    ) -> TapAnswer | None:
        given = {name.lower(): value.decode("latin-1") for name, value in headers}
        reason = host_refusal(given.get(b"host", ""), self._hosts())
        if reason is not None:
            self._entrance.refused["cross_site"] += 1
            return refusal("cross_site", HTTPStatus.FORBIDDEN, reason)
        kind = given.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            return None
        return refusal(
            "unsupported",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"found content-type {kind[:80]!r}; want application/json",
        )

    async def _drop(self, receive: Receive) -> bool:
        """Read and discard a body; return whether it came in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._read_seconds):
                while (await receive()).get("more_body", False):
                    pass
                return True
        return False

    def _late(self) -> TapAnswer:
        return refusal(
            "timeout",
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not come within {self._read_seconds:g} s",
        )

    def _count(self, route: TapRoute, answer: TapAnswer) -> None:
        self._outcomes[route.source, answer.outcome] += 1
        if answer.outcome == "too_large" and route.too_large is not None:
            route.too_large()

    async def _receive(
        self, route: TapRoute, scope: Scope, receive: Receive
    ) -> TapAnswer:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        peer = network_of((scope.get("client") or ("",))[0])
        held = Held(self._entrance, peer)
        work: asyncio.Task[TapAnswer] | None = None
        try:
            held.add(sum(len(name) + len(value) for name, value in scope["headers"]))
            async with asyncio.timeout(self._read_seconds):
                raw = await _read(route, headers, receive, held)
            head = TapRequest(raw, headers, scope["path"], peer)
            # It continues when its sender no longer waits; nobody reads its error then.
            work = asyncio.create_task(self._work(route, head, held))
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            seconds = route.answer_seconds or self._answer_seconds
            done, _ = await asyncio.wait({work}, timeout=seconds)
            return work.result() if done else route.busy_answer
        except _RefusedError as refused:
            answer = refused.answer
        except CrowdedError as crowded:
            answer = _overloaded(str(crowded))
        except TimeoutError:
            answer = self._late()
        finally:
            if work is None:
                held.let_go()
        self._count(route, answer)
        return answer

    async def _work(
        self, route: TapRoute, request: TapRequest, held: Held
    ) -> TapAnswer:
        """Have a worker answer, and let go of what is held.

        Raises:
            CrowdedError: the tap is closing.
        """
        try:
            async with (
                asyncio.timeout(self._turn_seconds) as patience,
                self._turns[route.source].of(request.sender),
            ):
                patience.reschedule(None)
                workers = self._workers.get(route.source)
                if workers is None:
                    raise CrowdedError("the tap is closing")
                slot = self._entrance.parsing
                answer = await workers.submit(slot.run, _answer, route, request)
        except TimeoutError:
            # Spans as old as this wait for no others, and the queue would outlast a flood.
            answer = _overloaded("too many bodies of this sender wait to be read")
        finally:
            held.let_go()
        self._count(route, answer)
        return answer


async def _read(
    route: TapRoute, headers: dict[str, str], receive: Receive, held: Held
) -> bytes:
    limit = route.max_body_bytes
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:20]) > limit:
        raise _RefusedError(_too_large(limit))
    # One block: a large one has its own memory mapping, and parts would leave gaps.
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _RefusedError(
                refusal("aborted", HTTPStatus.BAD_REQUEST, "the sender disconnected")
            )
        part = message.get("body", b"")
        if len(body) + len(part) > limit:
            raise _RefusedError(_too_large(limit))
        held.add(len(part))
        body += part
        if not message.get("more_body", False):
            return bytes(body)


def _answer(route: TapRoute, request: TapRequest) -> TapAnswer:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    try:
        body = _decoded(request.body, encoding, route.max_body_bytes)
    except _RefusedError as refused:
        return refused.answer
    return route.answer(replace(request, body=body))


def _decoded(raw: bytes, encoding: str, limit: int) -> bytes:
    """The body without its encoding; inflated no further than `limit`."""
    if encoding in {"", "identity"}:
        return raw
    window = _WINDOWS.get(encoding)
    if window is None:
        raise _RefusedError(
            refusal(
                "unsupported",
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"found content-encoding {encoding[:40]!r}; want gzip, deflate or none",
            )
        )
    inflate = zlib.decompressobj(window)
    try:
        body = inflate.decompress(raw, limit + 1)
    except zlib.error:
        body = b""
        inflate = zlib.decompressobj(window)
    if len(body) > limit:
        raise _RefusedError(_too_large(limit))
    if not inflate.eof or inflate.unused_data:
        raise _RefusedError(
            refusal(
                "malformed",
                HTTPStatus.BAD_REQUEST,
                f"the body is not complete {encoding}",
            )
        )
    return body


def _too_large(limit: int) -> TapAnswer:
    return refusal(
        "too_large",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a body has at most {limit} bytes, inflated too",
    )


def _overloaded(reason: str) -> TapAnswer:
    answer = refusal("overloaded", HTTPStatus.SERVICE_UNAVAILABLE, reason)
    return replace(answer, headers={**answer.headers, "retry-after": "5"})
