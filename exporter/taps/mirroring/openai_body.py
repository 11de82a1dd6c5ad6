"""OpenAI's completions as a proxy mirrors or KServe logs them: their texts as tensors.

A prompt is the tensor `text_input`; an answer, whole or streamed, is `text_output` and
`finish_reason`. Triton's backends for language models call them so. A body has a row for
each of its prompts or choices.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.openai.completions import DONE, error_of, text_of, usage_of
from exporter.taps.mirroring import mirrored_body
from exporter.taps.mirroring.intake import Origin
from exporter.taps.mirroring.mirrored_body import Inference
from exporter.taps.mirroring.mirrored_http import (
    ANSWER_SECONDS,
    PASSED_OVER,
    TAKEN,
    refused,
)
from exporter.taps.tap_route import TapRoute, refusal
from exporter.triton.event_stream import (
    EventStream,
    json_object,
    looks_like_events,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.work_board import Direction as TokenDirection
    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.mirroring.mirrored_body import Direction
    from exporter.taps.tap_route import TapAnswer, TapHead, TapRequest
    from exporter.triton.protocol_types import Array

SOURCE: Final = "openai"
PATH: Final = "/v1/chat/completions, /v1/completions"
PATTERN: Final = re.compile(r"(?:/openai)?/v1/(?:chat/)?completions")
MAX_TEXTS: Final = 4096
"""Limit of the prompts or choices of a body, and of the messages of a chat."""
MAX_REASON_CHARACTERS: Final = 64
_OURS: Final = REQUEST_ID_PREFIX.encode()
_SIGNS: Final = {
    "request": (b'"messages"', b'"prompt"'),
    "response": (b'"choices"', b'"error"'),
}
_SMALL_BYTES: Final = 4096
"""Events up to this size are parsed without a scan, which takes longer than they do."""


class CompletionSink:
    """Receives the requests for completions that a proxy mirrors."""

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
        """Return the answer if the body need not be read; the model's name is in the body."""
        if dict(head.headers).get(b"x-request-id", b"").startswith(_OURS):
            return PASSED_OVER["own"]
        outcome = self._intake.admit_any()
        return None if outcome is None else PASSED_OVER[outcome]

    def answer(self, request: TapRequest) -> TapAnswer:
        """Read one request and publish it; an invalid body gets status 400."""
        try:
            found = read(request.body, "request", self._max_body_bytes)
        except MirrorBodyError as error:
            return refused(error)
        if found is None:
            return refusal(
                "malformed",
                HTTPStatus.BAD_REQUEST,
                "found neither messages nor prompt in a JSON object; want one of them",
            )
        outcome = self._intake.admit_model(found.model, "request")
        if outcome is None:
            origin = Origin(SOURCE, "request", found.model)
            outcome = self._intake.publish(origin, found)
        return PASSED_OVER.get(outcome, TAKEN)


def read(body: bytes, direction: Direction, most_bytes: int) -> Inference | None:
    """The texts of a body of at most `most_bytes`; None if it is none of OpenAI's.

    Raises:
        MirrorBodyError: it is one, and cannot be used.
    """
    if direction == "response" and looks_like_events(body):
        return _streamed(body, most_bytes)
    if not any(sign in body for sign in _SIGNS[direction]):
        return None
    try:
        found = mirrored_body.document(body, most_bytes)
    except MirrorBodyError:
        return None
    if direction == "request":
        return _request(found)
    return _answer(found)


def _request(found: dict[str, Any]) -> Inference | None:
    if "messages" in found:
        messages = _listed(found["messages"], "messages")
        prompts = ["\n".join(_spoken(messages))] if messages else []
    elif "prompt" in found and "inputs" not in found:
        prompts = _prompts(found["prompt"])
    else:
        return None
    model = mirrored_body.text(found, "model")
    return Inference({"text_input": _column(prompts)}, model=model, as_sent=False)


def _spoken(messages: list[Any]) -> Iterator[str]:
    """The texts of all messages; pictures and calls of tools have none."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, dict) else None
                if isinstance(text, str):
                    yield text


def _prompts(prompt: object) -> list[str]:
    if isinstance(prompt, str):
        return [prompt]
    texts = _listed(prompt, "prompt")
    if not all(isinstance(text, str) for text in texts):
        raise MirrorUnsupportedError("the prompt has no text; token ids are not read")
    return texts


def _answer(found: dict[str, Any]) -> Inference | None:
    if "outputs" in found:
        return None
    model = mirrored_body.text(found, "model")
    # The error of KServe-v2 is a string.
    if not isinstance(found.get("error"), str) and error_of(found) is not None:
        return Inference({}, model=model, failed=True)
    if "choices" not in found:
        return None
    choices = _Choices()
    choices.add(found)
    return choices.inference(model)


def _streamed(body: bytes, most_bytes: int) -> Inference | None:
    """The whole of a streamed answer; None for events that are none of a completion."""
    choices, model, ended, is_completion = _Choices(), "", False, False
    try:
        for data in EventStream(most_bytes).feed(body):
            if data == DONE:
                ended = True
                break
            found = (
                json_object(data)
                if len(data) <= _SMALL_BYTES
                else mirrored_body.document(data, most_bytes)
            )
            model = model or mirrored_body.text(found, "model")
            if error_of(found) is not None:
                return Inference({}, model=model, failed=True)
            is_completion |= "choices" in found
            choices.add(found)
    except ValueError as error:
        raise MirrorBodyError(f"cannot read an event: {error}") from None
    if not is_completion:
        return None
    if not (ended or choices.all_finished):
        raise MirrorBodyError("the stream is cut off: found no [DONE]")
    return choices.inference(model)


class _Choices:
    """The texts of an answer's choices, whole or in parts."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
        self._reasons: dict[int, str] = {}
        self._tokens: dict[TokenDirection, int] = {}

    @property
    def all_finished(self) -> bool:
        """Return whether every choice has the reason for its end."""
        return bool(self._texts) and self._texts.keys() == self._reasons.keys()

    def add(self, found: dict[str, Any]) -> None:
        """Add the choices and the usage of an answer or of one event."""
        prompt, answer = usage_of(found)
        # Servers may repeat it in each event; the last one is of the whole.
        if prompt is not None:
            self._tokens["input"] = prompt
        if answer is not None:
            self._tokens["output"] = answer
        for place, choice in enumerate(_listed(found.get("choices") or [], "choices")):
            if not isinstance(choice, dict):
                raise MirrorBodyError("found a choice that is not an object")
            index = choice.get("index", place)
            if type(index) is not int or not 0 <= index < MAX_TEXTS:
                raise MirrorBodyError("the index of a choice is not valid")
            self._texts.setdefault(index, []).append(text_of(choice))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and len(reason) <= MAX_REASON_CHARACTERS:
                self._reasons[index] = reason

    def inference(self, model: str) -> Inference:
        """The tensors of all choices.

        Raises:
            MirrorBodyError: there are none.
        """
        if not self._texts:
            raise MirrorBodyError("the answer has no choices")
        order = sorted(self._texts)
        tensors = {
            "text_output": _column(["".join(self._texts[index]) for index in order]),
            "finish_reason": _column([self._reasons.get(index, "") for index in order]),
        }
        return Inference(tensors, model=model, as_sent=False, tokens=self._tokens)


def _listed(values: object, name: str) -> list[Any]:
    if not isinstance(values, list) or len(values) > MAX_TEXTS:
        raise MirrorBodyError(f"{name!r} is not an array of at most {MAX_TEXTS}")
    return values


def _column(texts: list[str]) -> Array:
    if not texts:
        raise MirrorBodyError("found no text")
    column: Array = np.empty((len(texts), 1), np.object_)
    # Half of a character cannot be encoded.
    column[:, 0] = [text.encode("utf-8", "replace") for text in texts]
    return column
