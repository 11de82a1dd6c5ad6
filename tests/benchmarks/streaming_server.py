"""A process that streams as a chat server does, and knows when it wrote what.

    python streaming_server.py TOKENS_PER_SECOND TOKENS FIRST_SECONDS

Prints its port, and at SIGTERM, as JSON, the quantiles of the times from a request to its
first token and between tokens as they were written, and its rate of tokens.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import signal
import sys
from time import perf_counter
from typing import Any

import numpy as np

_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "chatty"}
_LOOK_SECONDS = 0.0005
_SHOWN = (0.5, 0.99)


def framed(document: object) -> bytes:
    """One event in one chunk of HTTP."""
    text = document if isinstance(document, str) else json.dumps(document)
    event = f"data: {text}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def delta(**given: str) -> bytes:
    """A chunk of a chat."""
    return framed({**_CHUNK, "choices": [{"index": 0, "delta": given}]})


HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n" + delta(role="assistant", content="")
)
TOKEN = delta(content=" word")


class Streams:
    """All answers under way, by when their next token is due."""

    def __init__(self, pace_seconds: float, tokens: int, first_seconds: float) -> None:
        self._pace, self._tokens, self._first = pace_seconds, tokens, first_seconds
        usage = {"prompt_tokens": 1, "completion_tokens": tokens}
        end = framed({**_CHUNK, "choices": [], "usage": usage}) + framed("[DONE]")
        self._end = end + b"0\r\n\r\n"
        self._due: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()
        self.firsts: list[float] = []
        self.gaps: list[float] = []

    def begin(self, connection: Connection) -> None:
        """Write the head; the first token follows."""
        connection.at, connection.sent = perf_counter(), 0
        connection.transport.write(HEAD)
        self._later(connection.at + self._first, connection)

    def _later(self, due: float, connection: Connection) -> None:
        heapq.heappush(self._due, (due, next(self._order), connection))

    def write_due(self) -> float:
        """Write what is due; return the seconds until more is."""
        while self._due and self._due[0][0] <= perf_counter():
            due, _, connection = heapq.heappop(self._due)
            now = perf_counter()
            times = self.gaps if connection.sent else self.firsts
            times.append(now - connection.at)
            connection.at = now
            connection.sent += 1
            if connection.sent == self._tokens:
                connection.transport.write(TOKEN + self._end)
            else:
                connection.transport.write(TOKEN)
                self._later(due + self._pace, connection)
        if not self._due:
            return _LOOK_SECONDS
        return min(max(self._due[0][0] - perf_counter(), 0.0), _LOOK_SECONDS)

    def summary(self) -> dict[str, Any]:
        """Quantiles in seconds."""
        return {
            name: {f"p{100 * q:g}": float(np.quantile(times, q)) for q in _SHOWN}
            for name, times in (("first", self.firsts), ("gap", self.gaps))
            if times
        }


class Connection(asyncio.Protocol):
    """One client; a request at a time."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._received = b""
        self.at, self.sent = 0.0, 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        if not head.startswith(b"POST"):
            self._received = b""
            self.transport.write(b"HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n")
            return
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        if len(body) >= int(length):
            self._received = b""
            self._streams.begin(self)


async def serve(streams: Streams) -> None:
    """Serve until SIGTERM."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(
        lambda: Connection(streams), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    while not ended.is_set():  # noqa: ASYNC110 - it writes, and does not only wait
        await asyncio.sleep(streams.write_due())


if __name__ == "__main__":
    rate, tokens, first = sys.argv[1:]
    answers = Streams(1.0 / float(rate), int(tokens), float(first))
    asyncio.run(serve(answers))
    print(json.dumps(answers.summary()), flush=True)
