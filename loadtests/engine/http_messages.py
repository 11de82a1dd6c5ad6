"""HTTP/1.1 messages: requests made once, answers as they arrive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import httptools

from exporter.openai.completions import PATHS
from exporter.triton.http_path import model_path
from loadtests.target import API_OF

if TYPE_CHECKING:
    from loadtests.engine.sequences import Sequence
    from loadtests.mix import Body, Entry
    from loadtests.target import Target

_JSON_LENGTH: Final = b"inference-header-content-length"
_JSON_END: Final = b"}}"


class Answer:
    """An HTTP answer as it comes, by httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._json_bytes: int | None = None
        self.status = 0
        self.keeps_alive = True
        self.complete = False

    def feed(self, data: bytes) -> None:
        """More of it."""
        self._parser.feed_data(data)

    @property
    def body(self) -> bytes:
        """The content, without chunks."""
        return b"".join(self._parts)

    @property
    def json_bytes(self) -> int:
        """Length of the JSON part of the body, in bytes."""
        return len(self.body) if self._json_bytes is None else self._json_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        if name.lower() == _JSON_LENGTH and value.isdigit():
            self._json_bytes = int(value)

    def on_body(self, body: bytes) -> None:
        """A part of the content."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Mark the message as complete."""
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.complete = True


def head_of(target: Target, entry: Entry) -> bytes:
    """The head of an entry's requests, but for their lengths."""
    whole = entry.style == "stream" or all(
        len(body.data) == body.header_bytes for body in entry.bodies
    )
    kind = "json" if whole else "octet-stream"
    lines = [
        f"POST {_path(target, entry)} HTTP/1.1",
        f"Host: {target.address}",
        f"Content-Type: application/{kind}",
        *(f"{name}: {value}" for name, value in target.headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1")


def _path(target: Target, entry: Entry) -> str:
    if target.is_openai:
        return PATHS[API_OF[target.protocol]]
    operation = "generate_stream" if entry.style == "stream" else "infer"
    return f"{model_path(entry.spec.name, entry.version)}/{operation}"


def wire_of(head: bytes, content: bytes, json_bytes: int) -> bytes:
    """A whole request, of whose content `json_bytes` are JSON before tensors, if any."""
    lengths = f"\r\nContent-Length: {len(content)}\r\n\r\n"
    if json_bytes:
        lengths = f"\r\nInference-Header-Content-Length: {json_bytes}{lengths}"
    return b"".join((head, lengths.encode("ascii"), content))


def sequence_wire(head: bytes, body: Body, sequence: Sequence) -> bytes:
    """The body with the sequence's parameters put where its JSON's own ones end."""
    document = body.data[: body.header_bytes].removesuffix(_JSON_END)
    parameters = (
        f',"sequence_id":{json.dumps(sequence.correlation_id)}'
        f',"sequence_start":{"true" if sequence.starts else "false"}'
        f',"sequence_end":{"true" if sequence.ends else "false"}'
    )
    document += parameters.encode("ascii") + _JSON_END
    content = document + body.data[body.header_bytes :]
    return wire_of(head, content, len(document))
