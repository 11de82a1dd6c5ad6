"""Server-sent events, as streamed answers over HTTP are made of.

https://html.spec.whatwg.org/multipage/server-sent-events.html; lines end in LF or CRLF.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

EVENTS: Final = "text/event-stream"
MAX_EVENT_BYTES: Final = 16 << 20
"""Limit of one event, and of the part of one that has come, unless given."""
_DATA: Final = b"data: "
_FIELD: Final = re.compile(rb"\s*(?:data|event|id|retry)?:")
_decode: Final = json.JSONDecoder().decode


class EventStream:
    """Splits a stream of bytes, which may break anywhere, into the data of its events."""

    def __init__(self, max_event_bytes: int | None = None) -> None:
        self._most = MAX_EVENT_BYTES if max_event_bytes is None else max_event_bytes
        self._rest = bytearray()
        """The line that has not ended."""
        self._scanned = 0
        """Bytes of the rest that are known to hold no end of a line."""
        self._data: list[bytes] = []
        """Data of the event that has not ended."""
        self.held_bytes = 0
        """Size of what is kept of an event that has not ended."""

    def feed(self, content: bytes) -> list[bytes]:
        """Return the data of the events that end in this content, in order.

        Raises:
            ValueError: one is larger than `max_event_bytes`.
        """
        rest = self._rest
        if not (rest or self._data) and _is_one_event(content, self._most):
            return [content[len(_DATA) : -2]]
        events: list[bytes] = []
        rest += content
        start = 0
        end = rest.find(b"\n", self._scanned)
        while end >= 0:
            line = bytes(rest[start:end])
            self._read(line.removesuffix(b"\r"), events)
            start = end + 1
            end = rest.find(b"\n", start)
        del rest[:start]
        self._scanned = len(rest)
        self.held_bytes = len(rest) + sum(map(len, self._data))
        if self.held_bytes > self._most:
            rest.clear()
            self._data.clear()
            self._scanned = self.held_bytes = 0
            raise ValueError(f"an event is larger than {self._most} B")
        return events

    def _read(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        # Comments, which keep connections open, and other fields carry no content.


def looks_like_events(body: bytes) -> bool:
    """Return whether a body is a stream of events, by how it begins."""
    return _FIELD.match(body) is not None


def json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object of an event or an answer.

    A character may be split between two responses of a stream: bytes that are not UTF-8
    are surrogate escapes, as in file names.

    Raises:
        ValueError: it is none.
    """
    try:
        document = _decode(data.decode("utf-8", "surrogateescape"))
    except RecursionError:
        document = None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - of the server
    return document


def _is_one_event(content: bytes, most: int) -> bool:
    """Return whether it is a whole event of one line: mostly it is, and need not be kept."""
    return (
        content.startswith(_DATA)
        and content.endswith(b"\n\n")
        and content.find(b"\n") == len(content) - 2
        and content[-3:-2] != b"\r"
        and len(content) <= most
    )
