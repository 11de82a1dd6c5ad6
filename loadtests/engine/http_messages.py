"""HTTP/1.1 messages: requests made once, answers as they arrive, streams of events.

Streams are those of Triton's `generate_stream` and of OpenAI's endpoints. A response is an
event with content. Other events do not count: the role that a chat begins with, the reason
for its end, its count of tokens, comments that keep connections open.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httptools

from exporter.openai.completions import PATHS, read_chunk
from exporter.triton.event_stream import EVENTS, EventStream, json_object
from exporter.triton.http_path import model_path
from exporter.triton.streamed_reply import OUTPUT
from loadtests.result import Outcome
from loadtests.target import API_OF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadtests.engine.senders import Sequence
    from loadtests.plan import Body, Entry
    from loadtests.target import Protocol, Target

_JSON_LENGTH: Final = b"inference-header-content-length"
_JSON_END: Final = b"}}"
_TYPE: Final = b"content-type"
_EVENTS: Final = EVENTS.encode()
_GENERATE: Final = {"generate": "generate", "stream": "generate_stream"}
_NAN: Final = b"NaN"
_OK: Final = 200
_SHOWN: Final = 200


class Answer:
    """An HTTP answer as it comes, by httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self.json_bytes: int | None = None
        """Length of the JSON before binary tensors; None without any."""
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

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        if name.lower() == _JSON_LENGTH and value.isdigit():
            self.json_bytes = int(value)

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
    whole = entry.style in _GENERATE or all(
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
    operation = _GENERATE.get(entry.style, "infer")
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


class Event(NamedTuple):
    """One event, decoded."""

    content: bool = False
    tokens: int = 0
    """Output tokens of the answer so far; 0 where it does not report them."""
    error: str | None = None
    ends: bool = False
    fault: str | None = None
    """Why its content is wrong."""


class Generate:
    """Triton's generate extension: a JSON object with the outputs, by name."""

    is_ended_by_event = False
    """True where a stream without a last event was cut off."""

    def __init__(self, outputs: Iterable[str]) -> None:
        self._outputs = frozenset(outputs)

    def read(self, data: bytes, tokens: int) -> Event:
        """Return the meaning of an event; `tokens` is the count before it.

        Raises:
            ValueError: it is not valid.
        """
        document = json_object(data)
        error = document.get("error")
        if error is not None:
            said = error if isinstance(error, str) and error else f"error {error!r}"
            return Event(error=said)
        more = document.get(OUTPUT)
        # A list where the output has a value for each of several answers (beams, a batch).
        counts: list[Any] = more if isinstance(more, list) else [more]
        if any(type(count) is not int or count < 0 for count in counts):
            counts = []
        return Event(
            content=not self._outputs.isdisjoint(document),
            tokens=tokens + sum(counts),
            fault=self._fault(document) if _NAN in data else None,
        )

    def _fault(self, document: dict[str, Any]) -> str | None:
        for name in sorted(self._outputs & document.keys()):
            values = document[name]
            for value in values if isinstance(values, list) else [values]:
                if isinstance(value, float) and math.isnan(value):
                    return f"output {name!r} holds NaN"
        return None


class OpenAi:
    """Chunks of `/v1/chat/completions` and `/v1/completions`."""

    is_ended_by_event = True

    def read(self, data: bytes, tokens: int) -> Event:
        """Return the meaning of an event."""
        chunk = read_chunk(data)
        if chunk.error is not None:
            return Event(error=chunk.error)
        return Event(chunk.is_content, chunk.output_tokens or tokens, None, chunk.ends)


Dialect = Generate | OpenAi
"""Reads the events of one kind of endpoint."""


def dialect_of(protocol: Protocol, entry: Entry) -> Dialect | None:
    """Return the dialect in which the answers to an entry's requests come.

    None of inference requests, whose answers are tensors.
    """
    if entry.style not in _GENERATE:
        return None
    if protocol == "http":
        return Generate(tensor.name for tensor in entry.spec.outputs)
    return OpenAi()


def judge_whole(dialect: Dialect, body: bytes) -> tuple[Outcome, str | None, int]:
    """Return outcome, fault and output tokens of an answer in one piece."""
    try:
        event = dialect.read(body, 0)
    except ValueError as error:
        return Outcome.WRONG, f"the answer cannot be read: {error}", 0
    if event.error is not None:
        return Outcome.ERROR, event.error, 0
    if not event.content:
        return Outcome.WRONG, "the answer has none of the model's outputs", 0
    if event.fault is not None:
        return Outcome.WRONG, event.fault, event.tokens
    return Outcome.OK, None, event.tokens


class StreamedAnswer(Answer):
    """One streamed answer as it comes."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect
        self._events = EventStream()
        self._type = b""
        self._arrived: list[bytes] = []
        self._has_ended = False
        self._wrong: str | None = None
        self._too_large: str | None = None
        self._body_bytes = 0
        self.since: float | None = None
        """Time of the latest response."""
        self.tokens = 0
        """Output tokens that the server has reported."""

    @property
    def held_bytes(self) -> int:
        """Number of bytes of it that are kept."""
        return self._events.held_bytes + self._body_bytes

    @property
    def is_whole(self) -> bool:
        """True if the event that ends the stream has arrived."""
        return self._has_ended

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        super().on_header(name, value)
        if name.lower() == _TYPE:
            self._type = value

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """A part of the content."""
        if self._too_large is not None:
            return
        if self.status == _OK and self._type.startswith(_EVENTS):
            try:
                self._arrived += self._events.feed(body)
            except ValueError as error:
                self._too_large = str(error)
        else:
            self._body_bytes += len(body)
            super().on_body(body)

    def events(self) -> list[Event]:
        """Return the meaning of the events that came since the last time, in order.

        Raises:
            ValueError: an event is not valid, or too large.
        """
        if self._too_large is not None:
            raise ValueError(self._too_large)
        arrived, self._arrived = self._arrived, []
        meanings: list[Event] = []
        for data in arrived:
            event = self._dialect.read(data, self.tokens)
            self.tokens = event.tokens or self.tokens
            self._has_ended = self._has_ended or event.ends
            self._wrong = self._wrong or event.fault
            meanings.append(event)
        return meanings

    def fault(self) -> str | None:
        """Return the fault of the complete answer, of status 200."""
        if not self._type.startswith(_EVENTS):
            found = self._type.decode("latin-1") or "of no type"
            return f"the answer is {found}; want {EVENTS}: {self._shown}"
        if self._dialect.is_ended_by_event and not self._has_ended:
            return "the stream was cut off: it ended without [DONE]"
        nothing = "the stream ended without a response"
        return self._wrong or (nothing if self.since is None else None)

    @property
    def _shown(self) -> str:
        return self.body[:_SHOWN].decode("utf-8", "replace")
