"""POST /v2/models/MODEL/infer, generate and generate_stream, as a proxy mirrors them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.taps.mirroring import generate_body, mirrored_body
from exporter.taps.mirroring.intake import Origin
from exporter.taps.tap_route import TapAnswer, TapRoute, refusal

if TYPE_CHECKING:
    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.mirroring.mirrored_body import Inference
    from exporter.taps.tap_route import Outcome, TapHead, TapRequest

SOURCE: Final = "http"
PATH: Final = "/v2/models/MODEL[/versions/VERSION]/infer|generate|generate_stream"
PATTERN: Final = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
    r"/(?P<how>infer|generate|generate_stream)"
)
ANSWER_SECONDS: Final = 0.05
"""Longest wait of a sender for the result of parsing."""
_MAX_LENGTH_DIGITS: Final = 19


def _answer_of(outcome: Outcome) -> TapAnswer:
    # Always 200: a missing subscriber is no error of the mirror.
    return TapAnswer(outcome, headers={"tritonwatch-outcome": outcome})


TAKEN: Final = _answer_of("accepted")
PASSED_OVER: Final[dict[Outcome, TapAnswer]] = {
    outcome: _answer_of(outcome)
    for outcome in ("sampled_out", "unwanted", "unknown_model", "own")
}


class InferSink:
    """Receives requests to every model with a subscriber."""

    def __init__(self, intake: Intake, *, max_body_bytes: int) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes

    def route(self) -> TapRoute:
        """Return the tap's route for it."""
        return TapRoute(
            PATH,
            SOURCE,
            self._max_body_bytes,
            self.answer,
            TAKEN,
            pattern=PATTERN,
            admit=self.admit,
            answer_seconds=ANSWER_SECONDS,
        )

    def admit(self, head: TapHead) -> TapAnswer | None:
        """The answer to a request that is not to be read."""
        match = PATTERN.fullmatch(head.path)
        if match is None:
            return None
        outcome = self._intake.admit(match["model"], "request")
        return None if outcome is None else PASSED_OVER[outcome]

    def answer(self, request: TapRequest) -> TapAnswer:
        """Read one request and publish it; an invalid body gets status 400."""
        match = PATTERN.fullmatch(request.path)
        if match is None:
            return refusal("malformed", HTTPStatus.BAD_REQUEST, "no model is named")
        origin = Origin(SOURCE, "request", match["model"], match["version"] or "")
        try:
            if match["how"] == "infer":
                found = mirrored_body.read(
                    request.body, "request", json_bytes(request), self._max_body_bytes
                )
            else:
                found = self._generated(request.body, origin)
        except MirrorBodyError as error:
            return refused(error)
        outcome = self._intake.publish(origin, found)
        return PASSED_OVER.get(outcome, TAKEN)

    def _generated(self, body: bytes, origin: Origin) -> Inference:
        spec = self._intake.spec(origin.model, origin.version)
        found = spec and generate_body.read(body, "request", spec, self._max_body_bytes)
        if not found:
            raise MirrorBodyError("found no input of the model in a JSON object")
        return found


def json_bytes(request: TapRequest) -> int | None:
    """Return the value of Inference-Header-Content-Length, None without that header.

    Raises:
        MirrorBodyError: it is not a length.
    """
    length = request.headers.get("inference-header-content-length")
    if length is None:
        return None
    if (
        not (length.isascii() and length.isdecimal())
        or len(length) > _MAX_LENGTH_DIGITS
    ):
        raise MirrorBodyError(
            f"found inference-header-content-length {length[:40]!r}; want a number"
        )
    return int(length)


def refused(error: MirrorBodyError) -> TapAnswer:
    """The answer to a body that cannot be read."""
    if isinstance(error, MirrorUnsupportedError):
        return refusal("unsupported", HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    return refusal("malformed", HTTPStatus.BAD_REQUEST, str(error))
