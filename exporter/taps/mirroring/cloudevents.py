"""KServe's payload logger: inference requests and responses as CloudEvents over HTTP.

It uses binary mode: the event's attributes are headers, the body is what the client or
the server sent.

The logger knows the InferenceService but not the model, loses what the original headers
said of the body, and labels a response with the content type of its request. So the
model is the one that the body names, or the one called like the service, or mapped to
it, or the only one there is; and the body is looked at for what it is: KServe-v2's,
OpenAI's or that of Triton's generate extension, whole or streamed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.taps import foreign_json
from exporter.taps.mirroring import generate_body, mirrored_body, openai_body
from exporter.taps.mirroring.intake import Origin
from exporter.taps.mirroring.mirrored_http import (
    ANSWER_SECONDS,
    PASSED_OVER,
    TAKEN,
    json_bytes,
    refused,
)
from exporter.taps.tap_route import TapRoute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.mirroring.mirrored_body import Direction, Inference
    from exporter.taps.tap_route import TapAnswer, TapHead, TapRequest

SOURCE: Final = "cloudevents"
DIRECTIONS: Final[dict[str, Direction]] = {
    "org.kubeflow.serving.inference.request": "request",
    "org.kubeflow.serving.inference.response": "response",
}
_NOT_BINARY: Final = MirrorBodyError(
    "found no ce-type header; want a CloudEvent in binary mode, as KServe sends it"
)
_GZIP: Final = b"\x1f\x8b"
_ANY_WRAPPER: Final = 32 + zlib.MAX_WBITS
_SHOWN_CHARACTERS: Final = 80


class EventSink:
    """Receives the events of KServe's logger at one path.

    Args:
        intake: admits and publishes.
        path: where the logger posts to.
        models: InferenceService -> model, where they are not called alike.
        max_body_bytes: longest body, inflated too.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        path: str,
        models: Mapping[str, str],
        max_body_bytes: int,
    ) -> None:
        self._intake = intake
        self._path = path
        self._models = models
        self._max_body_bytes = max_body_bytes

    def route(self) -> TapRoute:
        """Return the tap's route for it."""
        return TapRoute(
            self._path,
            SOURCE,
            self._max_body_bytes,
            self.answer,
            TAKEN,
            admit=self.admit,
            answer_seconds=ANSWER_SECONDS,
        )

    def admit(self, head: TapHead) -> TapAnswer | None:
        """The answer to an event that is not to be read."""
        headers = dict(head.headers)
        kind = headers.get(b"ce-type")
        if kind is None:
            return refused(_NOT_BINARY)
        found = kind.decode("latin-1")
        direction = DIRECTIONS.get(found)
        if direction is None:
            want = " or ".join(DIRECTIONS)
            text = f"found an event of type {found[:_SHOWN_CHARACTERS]!r}; want {want}"
            return refused(MirrorUnsupportedError(text))
        service = headers.get(b"ce-inferenceservicename", b"").decode("latin-1")
        outcome = self._intake.admit(self._model(service), direction)
        return None if outcome is None else PASSED_OVER[outcome]

    def answer(self, request: TapRequest) -> TapAnswer:
        """Read one event and publish it; an invalid body gets status 400."""
        headers = request.headers
        direction = DIRECTIONS[headers["ce-type"]]
        model = self._model(headers.get("ce-inferenceservicename", ""))
        try:
            found = self._inference(request, direction, model)
        except MirrorBodyError as error:
            return refused(error)
        if found.model != model and self._intake.knows(found.model):
            # A response says whose it is: better than what the service is called.
            model = found.model
        event_id = headers.get("ce-id", "")[: mirrored_body.MAX_NAME_CHARACTERS]
        origin = Origin(SOURCE, direction, model, request_id=event_id)
        return PASSED_OVER.get(self._intake.publish(origin, found), TAKEN)

    def _inference(
        self, request: TapRequest, direction: Direction, model: str
    ) -> Inference:
        length, limit, data = json_bytes(request), self._max_body_bytes, request.body
        if data[:2] == _GZIP:
            data = _inflated(data, limit)
        spec = self._intake.spec(model)
        # A model of Triton's may have an input `prompt`, too.
        if not (spec and generate_body.has_all_inputs(data, direction, spec)):
            completion = openai_body.read(data, direction, limit)
            if completion is not None:
                return completion
        found = spec and generate_body.read(
            data, direction, spec, limit, may_be_infer=True
        )
        return found or _tensors(data, direction, length, limit)

    def _model(self, service: str) -> str:
        mapped = self._models.get(service, service)
        if self._intake.knows(mapped):
            return mapped
        return self._intake.only_model() or mapped


def _tensors(
    data: bytes, direction: Direction, length: int | None, limit: int
) -> Inference:
    try:
        return mirrored_body.read(data, direction, length, limit)
    except MirrorUnsupportedError:
        raise
    except MirrorBodyError:
        # The header may be lost, or its request's; binary tensors follow all the same.
        try:
            end = foreign_json.scan(data, limit)
        except foreign_json.ForeignJsonError:
            end = len(data)
        if end == length or not data[end:].strip():
            raise
        return mirrored_body.read(data, direction, end, limit)


def _inflated(data: bytes, limit: int) -> bytes:
    inflate = zlib.decompressobj(_ANY_WRAPPER)
    try:
        inflated = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        raise MirrorBodyError(f"the event's data is not valid gzip: {error}") from None
    if len(inflated) > limit or not inflate.eof:
        raise MirrorBodyError(
            f"the event's data is not complete gzip of at most {limit} bytes"
        )
    return inflated
