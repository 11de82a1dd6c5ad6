"""An OpenAI-compatible server that streams what a test scripts, on real sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, NamedTuple, Self

from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DONE = b"data: [DONE]\n\n"


class Write(NamedTuple):
    """Bytes that are written after a pause; without any the connection is broken."""

    content: bytes | None
    after_seconds: float = 0.0


class Scripted(NamedTuple):
    """One answer."""

    writes: Iterable[Write]
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    is_chunked: bool = True
    """Else it ends with its connection."""


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def delta(**given: object) -> bytes:
    """A chunk of a chat."""
    finish = given.pop("finish_reason", None)
    return event(
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": given, "finish_reason": finish}],
        }
    )


def usage(prompt: int, completion: int) -> bytes:
    """The last chunk of a stream that was asked for its usage."""
    return event(
        {
            "choices": [],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
        }
    )


class OpenAiServer:
    """Answers each POST with what `answer` makes of its path and body.

    A GET is answered with `pages[path]`, a status and a body, or the list of models.
    """

    def __init__(
        self,
        answer: Callable[[str, dict], Scripted],
        models: tuple[str, ...] = ("chatty",),
    ) -> None:
        self._answer = answer
        self._models = models
        self.asked: list[tuple[str, dict]] = []
        self.headers: list[dict[str, str]] = []
        """Those of every request, GETs included."""
        self.connections = 0
        self.pages: dict[str, tuple[int, bytes]] = {}
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._listens = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(patience(10))
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(10)

    async def _run(self) -> None:
        """Serve until the end; `asyncio.run` cancels the connections that are left."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        self._listens.set()
        await self._ended.wait()
        server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test ended
        finally:
            writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        fields = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line
        )
        self.headers.append(fields)
        if method == "GET":
            listed = {"data": [{"id": n, "owned_by": "vllm"} for n in self._models]}
            status, content = self.pages.get(path, (200, json.dumps(listed).encode()))
            head = f"HTTP/1.1 {status} Told\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            return True
        body = json.loads(await reader.readexactly(int(fields["content-length"])))
        self.asked.append((path, body))
        return await self._write(self._answer(path, body), writer)

    async def _write(self, answer: Scripted, writer: asyncio.StreamWriter) -> bool:
        ending = (
            "transfer-encoding: chunked" if answer.is_chunked else "connection: close"
        )
        writer.write(
            f"HTTP/1.1 {answer.status} Told\r\ncontent-type: {answer.content_type}\r\n"
            f"{ending}\r\n\r\n".encode()
        )
        for content, pause in answer.writes:
            await asyncio.sleep(pause)
            if content is None:
                writer.transport.abort()
                return False
            framed = b"%x\r\n%s\r\n" % (len(content), content)
            writer.write(framed if answer.is_chunked else content)
            await writer.drain()
        if answer.is_chunked:
            writer.write(b"0\r\n\r\n")
        return answer.is_chunked
