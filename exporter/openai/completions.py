"""Requests to OpenAI's endpoints for completions, and the chunks of their streamed answers.

A response is a chunk with content. Those without are none: the role that a chat begins
with, the reason for its end, its count of tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from exporter.triton.event_stream import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping

Api = Literal["chat", "completions"]
MODELS: Final = "/v1/models"
PATHS: Final[Mapping[Api, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
}
DONE: Final = b"[DONE]"
_OTHER_CONTENT: Final = ("reasoning_content", "reasoning", "refusal", "tool_calls")
_MOST_TOKENS: Final = 1 << 40


def request_body(
    api: Api,
    model: str,
    prompt: str,
    max_tokens: int,
    parameters: Mapping[str, object],
) -> bytes:
    """Return the body of a request for one streamed answer with its usage.

    Servers that want `max_completion_tokens` refuse both.
    """
    prompt_fields: dict[str, object] = (
        {"messages": [{"role": "user", "content": prompt}]}
        if api == "chat"
        else {"prompt": prompt}
    )
    limit = {} if "max_completion_tokens" in parameters else {"max_tokens": max_tokens}
    document = {
        "model": model,
        **prompt_fields,
        **limit,
        "stream": True,
        "stream_options": {"include_usage": True},
        **parameters,
    }
    return json.dumps(document, separators=(",", ":")).encode()


class Chunk(NamedTuple):
    """The meaning of one event of a streamed answer."""

    is_content: bool = False
    text: str = ""
    """Text of the answer itself; reasoning, refusals and calls of tools have none."""
    input_tokens: int | None = None
    """Tokens of the prompt; None where it does not report them."""
    output_tokens: int | None = None
    """Output tokens of the answer so far; None where it does not report them."""
    error: str | None = None
    ends: bool = False


def read_chunk(data: bytes) -> Chunk:
    """Return the meaning of an event's data.

    Raises:
        ValueError: it has none.
    """
    if data == DONE:
        return Chunk(ends=True)
    document = json_object(data)
    error = error_of(document)
    if error is not None:
        return Chunk(error=error)
    choices = document.get("choices") or ()
    if not isinstance(choices, list | tuple):
        raise ValueError("`choices` is not a list")  # noqa: TRY004 - of the server
    return Chunk(
        any(_has_content(choice) for choice in choices),
        "".join(map(text_of, choices)),
        *usage_of(document),
    )


def usage_of(document: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens of prompt and answer; None where the document has none."""
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None, None
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))


def error_of(document: Mapping[str, Any]) -> str | None:
    """Return the error that a document reports, in either form; None without one."""
    error = document.get("error")
    if error is None:
        if document.get("object") != "error":
            return None
        error = document
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else f"error {message!r}"


def _has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return bool(delta.get("content")) or any(map(delta.get, _OTHER_CONTENT))


def text_of(choice: object) -> str:
    """Return the text of a choice, whole or a part of it; "" where it has none."""
    if not isinstance(choice, dict):
        return ""
    message = choice.get("delta") or choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
