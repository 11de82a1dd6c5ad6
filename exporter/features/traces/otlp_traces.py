"""OTLP trace bodies, JSON and protobuf, to the spans that Triton makes of a request.

Only the contents of Triton's spans are read; other spans are counted and skipped. JSON
as Triton 2.51 sends it and as the OTLP specification writes it: numbers may be strings,
ids are hexadecimal. Wrong types never pass: the whole body is refused, since a sender
that breaks the format once cannot be trusted with the rest.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from exporter.errors import TraceBodyError
from exporter.features.traces.trace_spans import Span
from exporter.features.traces.traced_request import (
    KNOWN,
    LATEST_NS,
    Identity,
    Marks,
    shortened,
)
from exporter.taps import foreign_json
from exporter.taps.protobuf_wire import WireError, WireReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

JSON_TYPE: Final = "application/json"
PROTOBUF_TYPE: Final = "application/x-protobuf"
MAX_BODY_BYTES: Final = 2 << 20
_MAX_SPAN_BYTES: Final = 1 << 20
"""Of a request with 10,000 responses 600 kB; of empty events it takes 32 MB."""
_LEAST_SPAN_BYTES: Final = 32
"""Of a span with ids, a name and two times."""
_ID_BYTES: Final = 24
"""Of the ids alone, which every span has."""
_MOST_ATTRIBUTES: Final = 1_000
"""Of a span; OpenTelemetry's SDKs keep 128 by default."""
_RESOURCE_SPANS: Final = 1
_SCOPE_SPANS: Final = 2
_SPANS: Final = 2
"""Fields of ExportTraceServiceRequest, ResourceSpans and ScopeSpans."""
_MAX_VERSION_DIGITS: Final = 19
_MAX_ID_CHARS: Final = 32
_MODEL: Final = "triton.model_name"
_VERSION: Final = "triton.model_version"
_PARENT: Final = "triton.trace_parent_id"
_REQUEST_ID: Final = "triton.request_id"
_NETWORK_SPAN: Final = "InferRequest"
_COMPUTE_SPAN: Final = "compute"


@dataclass(slots=True)
class Spans:
    """Triton's spans of one body, and how many were not Triton's."""

    spans: list[Span] = field(default_factory=list)
    foreign: int = 0


def from_json(body: bytes, most_bytes: int = MAX_BODY_BYTES) -> Spans:
    """The spans of an OTLP/HTTP JSON body; bodies have at most `most_bytes`.

    Raises:
        TraceBodyError: it is not JSON, is nested too deeply, or is not OTLP.
    """
    try:
        document = foreign_json.parse(body, most_bytes)
        found = Spans()
        for resource in _listed(document, "resourceSpans"):
            for scope in _listed(resource, "scopeSpans"):
                for span in _listed(scope, "spans"):
                    _read_json(span, found)
    except foreign_json.ForeignJsonError as error:
        raise TraceBodyError(f"cannot read the JSON: {error}") from None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise TraceBodyError(
            f"found JSON that is not an OTLP trace: {_short(error)}"
        ) from None
    return found


def from_protobuf(body: bytes, most_bytes: int = MAX_BODY_BYTES) -> Spans:
    """The spans of an OTLP/HTTP protobuf body; bodies have at most `most_bytes`.

    Raises:
        TraceBodyError: it is not an ExportTraceServiceRequest.
    """
    # The wire format's own messages, nothing of the SDK; Triton itself sends JSON.
    from opentelemetry.proto.trace.v1.trace_pb2 import (  # noqa: PLC0415, TID251
        Span as Message,
    )

    found = Spans()
    try:
        for span in _serialised_spans(memoryview(body), most_bytes):
            _read_message(Message.FromString(bytes(span)), found)
    except (DecodeError, WireError) as error:
        raise TraceBodyError(f"not an OTLP protobuf message: {_short(error)}") from None
    except (OverflowError, TypeError, ValueError) as error:
        raise TraceBodyError(
            f"found protobuf that is not an OTLP trace: {_short(error)}"
        ) from None
    return found


def _serialised_spans(body: memoryview, most_bytes: int) -> Iterator[memoryview]:
    reader = WireReader(most_bytes // _LEAST_SPAN_BYTES)
    for resource in reader.contents(body, _RESOURCE_SPANS):
        for scope in reader.contents(resource, _SCOPE_SPANS):
            for span in reader.contents(scope, _SPANS):
                if not _ID_BYTES < len(span) <= _MAX_SPAN_BYTES:
                    raise WireError(f"a span has {len(span)} bytes")
                yield span


def _read_json(span: Mapping[str, Any], found: Spans) -> None:
    attributes = {
        _text(item, "key"): next(iter((item.get("value") or {}).values()), "")
        for item in _listed(span, "attributes")
    }
    _keep(
        found,
        name=_text(span, "name"),
        ids=(
            _text(span, "traceId"),
            _text(span, "spanId"),
            _text(span, "parentSpanId"),
        ),
        attributes=attributes,
        events=[
            (_text(event, "name"), int(event.get("timeUnixNano") or 0))
            for event in _listed(span, "events")
        ],
    )


def _text(holder: Mapping[str, Any], name: str) -> Any:
    """Return a field of proto3's JSON: absent and null are the default."""
    found = holder.get(name)
    return "" if found is None else found


def _listed(holder: Mapping[str, Any], name: str) -> Iterable[Any]:
    found = holder.get(name)
    return () if found is None else found


def _read_message(span: Any, found: Spans) -> None:
    attributes: dict[str, Any] = {}
    if len(span.attributes) > _MOST_ATTRIBUTES:
        raise ValueError(f"a span has {len(span.attributes)} attributes")
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        attributes[item.key] = getattr(item.value, kind) if kind else ""
    _keep(
        found,
        name=span.name,
        ids=(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
        attributes=attributes,
        events=((event.name, event.time_unix_nano) for event in span.events),
    )


def _keep(
    found: Spans,
    *,
    name: str,
    ids: tuple[str, str, str],
    attributes: Mapping[str, Any],
    events: Iterable[tuple[str, int]],
) -> None:
    trace_id, span_id, parent_id = ids
    for text in ids:
        if not isinstance(text, str) or len(text) > _MAX_ID_CHARS:
            raise ValueError("an id is not a string of at most 32 hexadecimal digits")
    if name == _COMPUTE_SPAN and _MODEL not in attributes:
        found.spans.append(Span("compute", span_id, parent_id, _marks(events)))
    elif name == _NETWORK_SPAN and _MODEL not in attributes:
        found.spans.append(Span("network", span_id, parent_id, _marks(events)))
    elif _MODEL in attributes:
        identity = _identity(trace_id, attributes)
        found.spans.append(Span("model", span_id, parent_id, _marks(events), identity))
    else:
        found.foreign += 1
        return
    if not trace_id or not span_id:
        raise ValueError("a span of Triton has no id")


def _identity(trace_id: str, attributes: Mapping[str, Any]) -> Identity:
    model = attributes[_MODEL]
    request_id = attributes.get(_REQUEST_ID, "")
    if not isinstance(model, str) or not isinstance(request_id, str):
        raise TypeError("a model name or request id is not a string")
    version = str(attributes.get(_VERSION, 1))
    if len(version) > _MAX_VERSION_DIGITS:
        raise ValueError("a version has too many digits")
    return Identity(
        shortened(model),  # refuses a lone surrogate, which could never be exposed
        str(int(version)),
        shortened(request_id),
        trace_id,
        int(attributes.get(_PARENT, 0)) != 0,
    )


def _marks(events: Iterable[tuple[str, int]]) -> Marks:
    """Return the known marks; other events of a sender are dropped."""
    marks = Marks()
    for name, ns in events:
        if not 0 <= ns <= LATEST_NS:
            raise ValueError(f"a time of {len(str(ns))} digits is out of range")
        if name in KNOWN:
            # One name for all, and not one for each span that waits.
            marks.add(sys.intern(name), ns)
    return marks


def _short(error: Exception) -> str:
    return f"{type(error).__name__} {str(error)[:80]}"
